"""A Hugging Face folder is proved complete, or each of its faults is named."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tinymodels import TINY

from beam_slurm.after import folder, headers
from beam_slurm.after.architecture import Tensor, tensors

ALL = tensors(TINY)
FIRST, SECOND, THIRD = (f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3))

EMBEDDING = "model.embed_tokens.weight"  # in the first shard
ROUTER = "model.layers.1.mlp.gate.weight"
HEAD = "lm_head.weight"  # in the third

Shards = dict[str, dict[str, Tensor]]


def plan() -> Shards:
    """All tensors of the tiny Beam, on three shards."""
    names = list(ALL)
    cuts = [0, 15, 30, len(names)]
    return {
        shard: {name: ALL[name] for name in names[begin:end]}
        for shard, (begin, end) in zip((FIRST, SECOND, THIRD), pairwise(cuts), strict=True)
    }


def write(path: Path, held: dict[str, Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in held.items():
        begin, end = end, end + math.prod(tensor.shape) * headers.SIZES[tensor.dtype]
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    raw(path, json.dumps(header).encode(), end)


def raw(path: Path, header: bytes, size: int) -> None:
    """A file of zeros behind a header; they take no room on the disk."""
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + size)


def index(shards: Shards) -> dict[str, str]:
    return {name: shard for shard, held in shards.items() for name in held}


def save(model: Path, shards: Shards, weight_map: dict[str, str] | None = None) -> None:
    for shard, held in shards.items():
        write(model / shard, held)
    names = index(shards) if weight_map is None else weight_map
    (model / folder.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A complete folder."""
    path = tmp_path / "Beam"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(TINY))
    (path / "tokenizer.json").write_text('{"version": "1.0"}')
    (path / "tokenizer_config.json").write_text("{}")
    save(path, plan())
    return path


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


# --- complete -------------------------------------------------------------------------------


def test_a_complete_folder_has_no_problem(model: Path) -> None:
    assert folder.prove(model) == []


def test_one_file_needs_no_index(model: Path) -> None:
    for name in (FIRST, SECOND, THIRD, folder.INDEX):
        (model / name).unlink()
    write(model / folder.SINGLE, ALL)
    assert folder.prove(model) == []
    write(model / folder.SINGLE, {name: ALL[name] for name in list(ALL)[1:]})
    assert only(folder.prove(model)) == f"1 of {len(ALL)} tensors are not there: {EMBEDDING}"
    write(model / folder.SINGLE, {})
    assert f"{len(ALL)} of {len(ALL)} tensors are not there" in only(folder.prove(model))


@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
@pytest.mark.parametrize("largest", ["2KB", "1GB"])
def test_what_transformers_saves_is_complete(model: Path, kind: str, largest: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5.24")
    values = {key: value for key, value in TINY.items() if key not in ("model_type", "dtype")}
    made = transformers.BeamForCausalLM._from_config(
        transformers.BeamConfig(**values), dtype=getattr(torch, kind)
    )
    for path in [*model.glob("*.safetensors"), model / folder.INDEX]:
        path.unlink()
    made.save_pretrained(model, max_shard_size=largest)
    assert (model / folder.INDEX).exists() == (largest == "2KB")
    assert folder.prove(model) == []


def test_the_real_models_terabyte_is_proved_by_its_headers(model: Path) -> None:
    config = {"model_type": "beam", "dtype": "bfloat16"}
    (model / "config.json").write_text(json.dumps(config))
    for path in model.glob("*.safetensors"):
        path.unlink()
    shards: Shards = {}
    for number, (name, tensor) in enumerate(tensors(config).items()):
        shards.setdefault(f"model-{number // 250}.safetensors", {})[name] = tensor
    save(model, shards)
    assert folder.prove(model) == []
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    assert size == pytest.approx(1.0026e12, rel=1e-3)


def test_a_router_that_was_rounded_with_the_rest_still_loads(model: Path) -> None:
    shards = plan()
    shards[SECOND][ROUTER] = Tensor(ALL[ROUTER].shape, "BF16")
    save(model, shards)
    assert folder.prove(model) == []
    shards[SECOND][ROUTER] = Tensor(ALL[ROUTER].shape, "F16")
    save(model, shards)
    assert f"{ROUTER} (F16, not F32)" in only(folder.prove(model))


# --- tensors --------------------------------------------------------------------------------


def without(name: str) -> Shards:
    return {
        shard: {each: kept for each, kept in held.items() if each != name}
        for shard, held in plan().items()
    }


def changed(shard: str, name: str, tensor: Tensor) -> Shards:
    shards = plan()
    shards[shard][name] = tensor
    return shards


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        (without(HEAD), "1 of {all} tensors are not there: lm_head.weight"),
        (
            changed(THIRD, HEAD, Tensor((8, 11), "BF16")),
            "1 of {all} tensors are of another shape than config.json says: "
            "lm_head.weight ([8, 11], not [11, 8])",
        ),
        (
            changed(THIRD, HEAD, Tensor((11, 8), "F32")),
            "1 of {all} tensors are of another dtype than config.json says: "
            "lm_head.weight (F32, not BF16)",
        ),
        (
            changed(THIRD, "model.layers.2.mlp.gate.weight", Tensor((4, 8), "F32")),
            "1 of {all} tensors are none of the architecture's: model.layers.2.mlp.gate.weight",
        ),
    ],
    ids=["missing", "shape", "dtype", "extra"],
)
def test_a_tensor_that_is_not_the_architectures_is_named(
    model: Path, shards: Shards, said: str
) -> None:
    save(model, shards)
    assert only(folder.prove(model)) == said.format(all=len(ALL))


def test_a_tensor_in_two_shards_is_named(model: Path) -> None:
    save(model, changed(SECOND, EMBEDDING, ALL[EMBEDDING]), index(plan()))
    assert only(folder.prove(model)) == (
        f"{SECOND} holds tensors that another shard holds too: {EMBEDDING}"
    )


def test_a_tensor_twice_in_one_header_is_named(model: Path) -> None:
    entry = b'{"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}'
    raw(model / FIRST, b'{"a": ' + entry + b', "a": ' + entry + b"}", 2)
    assert only(folder.prove(model)) == (
        f"{FIRST}: its header is no safetensors header: a is there twice"
    )


def test_many_tensors_are_counted_and_three_are_named(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**TINY, "dtype": "float32"}))
    said = only(folder.prove(model))
    assert said.startswith(f"{len(ALL) - 2} of {len(ALL)} tensors are of another dtype")
    assert said.endswith(f" and {len(ALL) - 5} more")
    assert said.count("not F32") == 3


# --- shards and index -----------------------------------------------------------------------


def test_missing_shards_are_named_and_their_tensors_are_not(model: Path) -> None:
    (model / SECOND).unlink()
    assert only(folder.prove(model)) == f"1 of 3 shards are not there: {SECOND}"
    (model / SECOND).symlink_to("../blobs/gone")
    assert only(folder.prove(model)) == f"1 of 3 shards are not there: {SECOND}"
    (model / FIRST).unlink()
    (model / THIRD).unlink()
    assert only(folder.prove(model)) == f"3 of 3 shards are not there: {FIRST}, {SECOND}, {THIRD}"


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (-1, "it is cut off: {now} bytes, its header says {whole}"),
        (100, "it is cut off in its header: 100 bytes"),
        (8, "it is cut off in its header: 8 bytes"),
        (5, "5 bytes do not begin as a safetensors file"),
        (0, "0 bytes do not begin as a safetensors file"),
    ],
)
def test_a_truncated_shard_is_named(model: Path, cut: int, said: str) -> None:
    whole = (model / SECOND).stat().st_size
    now = whole + cut if cut < 0 else cut
    os.truncate(model / SECOND, now)
    assert only(folder.prove(model)) == f"{SECOND}: " + said.format(now=now, whole=whole)


def test_a_shard_that_is_too_long_is_named(model: Path) -> None:
    whole = (model / SECOND).stat().st_size
    os.truncate(model / SECOND, whole + 1)
    assert only(folder.prove(model)) == (
        f"{SECOND}: it is too long: {whole + 1} bytes, its header says {whole}"
    )


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"[]", 0),
        (b"no JSON", 0),
        (b'{"a": 1}', 0),
        (b'{"a": {"dtype": "BF16", "shape": [1]}}', 2),
        (b'{"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 2]}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 2]}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": [-1, -1], "data_offsets": [0, 2]}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [1, 2]}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 2]}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [2, 4]}}', 4),
        (b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": "0 2"}}', 2),
        (b'{"a": {"dtype": "BF16", "shape": 1, "data_offsets": [0, 2]}}', 2),
        (b"\xff\xff", 0),
    ],
)
def test_a_header_that_cannot_be_true_is_named(model: Path, header: bytes, size: int) -> None:
    raw(model / FIRST, header, size)
    assert only(folder.prove(model)).startswith(f"{FIRST}: its header is no safetensors header")


def test_tensors_that_lie_on_each_other_are_named(model: Path) -> None:
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    header = {"a": entry, "b": {**entry, "data_offsets": [2, 6]}}
    raw(model / FIRST, json.dumps(header).encode(), 6)
    assert "b lies at [2, 6], not [4, 8]" in only(folder.prove(model))


def test_a_damaged_length_does_not_make_it_read_the_tensors(model: Path) -> None:
    with (model / FIRST).open("r+b") as file:
        file.write(struct.pack("<Q", 1 << 62))
    assert "do not begin as a safetensors file" in only(folder.prove(model))


def test_an_index_that_names_what_its_shard_lacks(model: Path) -> None:
    save(model, without(HEAD), index(plan()))
    assert only(folder.prove(model)) == (
        f"{THIRD} lacks tensors that the index says are in it: {HEAD}"
    )


def test_an_index_that_names_another_shard(model: Path) -> None:
    save(model, plan(), {**index(plan()), HEAD: FIRST})
    assert only(folder.prove(model)) == (
        f"{FIRST} lacks tensors that the index says are in it: {HEAD}"
    )


def test_an_index_that_leaves_a_tensor_out(model: Path) -> None:
    names = index(plan())
    del names[HEAD]
    save(model, plan(), names)
    assert only(folder.prove(model)) == (
        f"{THIRD} holds tensors that the index does not name: {HEAD}"
    )


def test_a_file_that_the_index_does_not_name(model: Path) -> None:
    shutil.copy(model / FIRST, model / "model.safetensors")
    assert only(folder.prove(model)) == (
        "not in the index, and read by some engines all the same: model.safetensors"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON object: Expecting"),
        ("[]", "it is no JSON object"),
        ("{}", "it has no weight_map"),
        ('{"weight_map": {}}', "it has no weight_map"),
        ('{"weight_map": ["a"]}', "it has no weight_map"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "a is there twice"),
        ('{"weight_map": {"a": "../other/x.safetensors"}}', "which is no shard's name"),
        ('{"weight_map": {"a": 1}}', "a is in 1, which is no shard's name"),
    ],
)
def test_an_index_that_is_none_is_named_alone(model: Path, text: str, said: str) -> None:
    (model / folder.INDEX).write_text(text)
    for path in model.glob("*.safetensors"):
        path.unlink()
    found = only(folder.prove(model))
    assert found.startswith(f"{folder.INDEX}: ")
    assert said in found


def test_no_weights_at_all(model: Path) -> None:
    for path in [*model.glob("*.safetensors"), model / folder.INDEX]:
        path.unlink()
    assert only(folder.prove(model)) == (
        f"{folder.INDEX}: neither it nor model.safetensors is there"
    )


# --- configuration and tokenizer ------------------------------------------------------------


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_file_that_is_missing_or_cut_off_is_named(model: Path, name: str) -> None:
    (model / name).write_text('{"version": ')
    assert only(folder.prove(model)).startswith(f"{name}: it is no JSON object: ")
    (model / name).unlink()
    assert only(folder.prove(model)) == f"{name}: it is not there"
    (model / name).mkdir()
    assert only(folder.prove(model)) == f"{name}: it cannot be read: Is a directory"


def test_another_architecture_is_named(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**TINY, "model_type": "qwen3_moe"}))
    assert only(folder.prove(model)) == (
        "config.json: the model is of another architecture than Beam: "
        'model_type is "qwen3_moe", not beam'
    )


def test_every_fault_is_told_at_once(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    (model / "config.json").write_text("{}")
    os.truncate(model / SECOND, 5)
    found = folder.prove(model)
    assert [line.split(":")[0] for line in found] == ["tokenizer.json", "config.json", SECOND]


def test_what_is_no_folder(tmp_path: Path) -> None:
    gone, file = tmp_path / "gone", tmp_path / "file"
    file.write_text("")
    assert folder.prove(gone) == [f"{gone} cannot be read: No such file or directory"]
    assert folder.prove(file) == [f"{file} cannot be read: Not a directory"]
