"""Whole and damaged models and data sets; the files are real ones, only small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import assetfiles
import pytest

from beam_slurm.assets import check_datasets, check_model
from beam_slurm.pack import node_program

FIRST, SECOND, THIRD = assetfiles.SHARDS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return assetfiles.model(tmp_path / "Beam")


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


def test_a_whole_model_is_fine_with_shards_and_as_one_file(model: Path) -> None:
    assert check_model(model) == []
    for name in (*assetfiles.SHARDS, "model.safetensors.index.json"):
        (model / name).unlink()
    assert "has no weights" in only(check_model(model))
    assetfiles.shard(model / "model.safetensors", {"embed": 4})
    assert check_model(model) == []


def test_no_folder_no_config_no_tokenizer(tmp_path: Path, model: Path) -> None:
    assert only(check_model(tmp_path / "none")) == f"{tmp_path}/none is not there"
    (model / "tokenizer.json").unlink()
    (model / "config.json").unlink()
    assert check_model(model) == [
        f"{model}/config.json is not there",
        f"{model} has no tokenizer: neither tokenizer.json nor tokenizer_config.json",
    ]
    (model / "tokenizer_config.json").write_text("{}")
    (model / "config.json").write_text("{")
    assert only(check_model(model)) == f"{model}/config.json is no JSON"
    (model / "config.json").write_text("[]")
    assert only(check_model(model)) == f"{model}/config.json is no JSON object"


def test_another_model_is_named(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    assert only(check_model(model)) == (f'{model}/config.json says model_type "qwen3", not beam')


def test_missing_shards_are_counted_and_named(model: Path) -> None:
    (model / SECOND).unlink()
    assert only(check_model(model)) == f"1 of 3 shards are not in {model}: {SECOND}"


def test_a_link_into_nothing_is_a_missing_shard(model: Path) -> None:
    (model / SECOND).unlink()
    (model / SECOND).symlink_to("../blobs/gone")
    assert "1 of 3 shards" in only(check_model(model))


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (-1, "is cut off: {now} bytes, its header says {whole}"),
        (100, "is cut off in its header: 100 bytes of"),
        (8, "is cut off in its header: 8 bytes of"),
        (5, "(5 bytes) does not begin as a safetensors file"),
        (0, "(0 bytes) does not begin as a safetensors file"),
    ],
)
def test_a_truncated_shard_is_named_with_both_sizes(model: Path, cut: int, said: str) -> None:
    path = model / SECOND
    whole = path.stat().st_size
    now = cut if cut >= 0 else whole + cut
    os.truncate(path, now)
    problem = only(check_model(model))
    assert problem.startswith(str(path))
    assert said.format(now=now, whole=whole) in problem


def test_too_long_and_foreign_shards(model: Path) -> None:
    path = model / FIRST
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"!")
    assert only(check_model(model)) == (
        f"{path} is too long: {whole + 1} bytes, its header says {whole}"
    )
    path.write_bytes(b"<html>503 Service Unavailable</html>")
    assert "does not begin as a safetensors file" in only(check_model(model))
    path.write_bytes((4).to_bytes(8, "little") + b"nope")
    assert "no safetensors header" in only(check_model(model))


def test_swapped_shards_lack_their_tensors(model: Path) -> None:
    (model / FIRST).rename(model / "aside")
    (model / THIRD).rename(model / FIRST)
    (model / "aside").rename(model / THIRD)
    assert check_model(model) == [
        f"{model / FIRST} lacks 2 of its tensors: embed, layers.0.up",
        f"{model / THIRD} lacks 2 of its tensors: lm_head, norm",
    ]


def test_a_tensor_that_is_in_no_shard_is_named(model: Path) -> None:
    assetfiles.shard(model / FIRST, {"embed": 16, "other": 8})
    assert only(check_model(model)) == f"{model / FIRST} lacks 1 of its tensors: layers.0.up"


def test_a_shard_of_another_version_changes_the_total(model: Path) -> None:
    assetfiles.shard(model / THIRD, {"norm": 2, "lm_head": 11})
    index = model / "model.safetensors.index.json"
    total = json.loads(index.read_text())["metadata"]["total_size"]
    assert only(check_model(model)) == (
        f"{index} says total_size {total}, the shards hold {total + 4} bytes of tensors"
    )


def test_an_index_without_a_map_or_a_total(model: Path) -> None:
    index = model / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": names}))
    assert check_model(model) == []
    index.write_text("{}")
    assert only(check_model(model)) == f"{index} has no weight_map"
    index.write_text("{")
    assert only(check_model(model)) == f"{index} is no JSON"


def test_partial_downloads_are_named(model: Path) -> None:
    partial = model / ".cache" / "huggingface" / "download"
    partial.mkdir(parents=True)
    (partial / "config.json.metadata").write_text("")
    assert check_model(model) == []
    (partial / "x.0123.incomplete").write_bytes(b"half")
    assert "1 partial downloads: x.0123.incomplete" in only(check_model(model))


def test_many_problems_of_a_kind_are_counted(model: Path) -> None:
    index = model / "model.safetensors.index.json"
    names = {f"t{at}": f"model-{at:05}.safetensors" for at in range(500)}
    index.write_text(json.dumps({"weight_map": names}))
    problem = only(check_model(model))
    assert problem.startswith("500 of 500 shards")
    assert problem.endswith("model-00002.safetensors and 497 more")
    for name in names.values():
        (model / name).write_bytes(b"x")
    problems = check_model(model)
    assert len(problems) == 4
    assert problems[-1] == f"and 497 more problems of shards in {model}"


def test_the_data_is_not_read(model: Path) -> None:
    """A shard of a terabyte takes no longer than a small one: it is a hole in the file system."""
    size = 1 << 40
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path = model / THIRD
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    try:
        os.truncate(path, 8 + len(header) + size)
    except OSError:
        pytest.skip("this file system has no sparse files of 1 TB")
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": {"t": THIRD}}))
    assert check_model(model) == []


def test_skyrl_s_parquet_files(tmp_path: Path) -> None:
    assert len(check_datasets("skyrl", tmp_path)) == 3
    names = ("dapo-math-17k", "aime-2024", "aime-2025")
    paths = [tmp_path / f"{name}-cleaned.parquet" for name in names]
    for path in paths:
        assetfiles.parquet(path)
    assert check_datasets("skyrl", tmp_path) == []
    os.truncate(paths[0], 20)
    paths[1].write_text("version https://git-lfs.github.com/spec/v1\n")
    paths[2].unlink()
    assert check_datasets("skyrl", tmp_path) == [
        f"{paths[0]} is cut off after 20 bytes",
        f"{paths[1]} (43 bytes) does not begin as a Parquet file",
        f"{paths[2]} is not there",
    ]


def test_miles_json_lines(tmp_path: Path) -> None:
    train, test = (tmp_path / name / f"{name}.jsonl" for name in ("dapo-math-17k", "aime-2025"))
    for path in (train, test):
        path.parent.mkdir()
        path.write_text('{"prompt": "1+1"}\n')
    assert check_datasets("miles", tmp_path) == []
    train.write_text("")
    test.write_text("<html>\n")
    assert check_datasets("miles", tmp_path) == [
        f"{train} is empty",
        f"the first line of {test} is no JSON",
    ]


def test_nemo_rl_s_cache(tmp_path: Path) -> None:
    names = ("BytedTsinghua-SIA/DAPO-Math-17k", "opencompass/AIME2025")
    train, test = (assetfiles.snapshot(tmp_path, name) for name in names)
    assert check_datasets("nemo-rl", tmp_path) == []
    (train / "blobs" / "0abc").unlink()
    (test / "blobs" / "1abc.incomplete").write_text("")
    first, second = check_datasets("nemo-rl", tmp_path)
    assert first == f"{train} holds no snapshot of BytedTsinghua-SIA/DAPO-Math-17k"
    assert "1abc.incomplete" in second
    assert "datasets--opencompass--AIME2025 is not there" in check_datasets("nemo-rl", test)[1]


def test_the_demo_needs_nothing(tmp_path: Path) -> None:
    assert check_datasets("demo", tmp_path / "none") == []


def test_the_node_program_verifies(tmp_path: Path, model: Path) -> None:
    program = tmp_path / "node.pyz"
    program.write_bytes(node_program())
    words = [sys.executable, str(program), "verify", "--framework=miles", f"--model={model}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"beam-slurm: {model} is whole\n")
    (model / SECOND).unlink()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"beam-slurm: 1 of 3 shards are not in {model}: {SECOND}\n" in done.stdout
