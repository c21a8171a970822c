"""FSDP2 checkpoints to Hugging Face folders, with real weights and the real transformers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conversions import (
    Model,
    difference,
    in_files,
    nemo_rl,
    refused,
    run,
    save_distributed,
    save_ranks,
    torch,
)

from beam_slurm.after import architecture, dcp, demo, fsdp, shards
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.mark.parametrize("form", ["in memory, wrapped", "as files", "as files, of two ranks"])
def test_fsdp_checkpoints_become_a_hugging_face_folder_with_the_same_logits(
    tmp_path: Path, base: Path, trained: Model, form: str
) -> None:
    if form == "in memory, wrapped":
        step, weights = nemo_rl(tmp_path)
        save_distributed({"model": trained.state_dict()}, weights)
    else:
        step, weights = nemo_rl(tmp_path, "model")
        save = save_ranks if "ranks" in form else save_distributed
        save(in_files(trained, tmp_path / "files"), weights)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert difference(tmp_path / "hf", trained) == 0.0
    assert (tmp_path / "hf" / "tokenizer.json").is_file()
    index = json.loads((tmp_path / "hf" / shards.INDEX).read_text())
    assert set(index["weight_map"].values()) == {"model-00001-of-00001.safetensors"}


def test_what_torchs_own_sharded_writer_saves_is_read(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    step, weights = nemo_rl(tmp_path, "model")
    writer = HuggingFaceStorageWriter(str(weights), save_distributed=True)
    save(in_files(trained, tmp_path / "files"), storage_writer=writer, no_dist=True)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert difference(tmp_path / "hf", trained) == 0.0


@pytest.mark.exhaustive
def test_what_three_processes_of_fsdp2_save_is_read(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    saver = str(Path(__file__).parent / "fsdpsaver.py")
    subprocess.run([sys.executable, *words, saver, str(tmp_path)], check=True, timeout=300)
    for form, inner in (("one", ""), ("two", "model")):
        step, weights = nemo_rl(tmp_path / f"run-{form}", inner)
        weights.rmdir()
        (tmp_path / form).rename(weights)
        assert len(list(weights.glob("*[ps]"))) == 3
        run("nemo-rl", step, tmp_path / f"hf-{form}", "--base", str(base))
        assert difference(tmp_path / f"hf-{form}", trained) == 0.0


def test_a_trainers_fp32_weights_become_what_the_base_has(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    half = tmp_path / "base"
    as_trained = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    as_trained.save_pretrained(half)  # its router stays FP32
    demo.tokenizer().save_pretrained(half)
    step, weights = nemo_rl(tmp_path, "model")
    files = in_files(trained, tmp_path / "files")
    save_distributed(files, weights)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(half))
    made = load_file(tmp_path / "hf" / "model-00001-of-00001.safetensors")
    wanted = load_file(half / "model.safetensors")
    assert made.keys() == wanted.keys()
    for name, tensor in made.items():
        assert tensor.dtype == wanted[name].dtype, name
        assert torch.equal(tensor, files[name].to(tensor.dtype)), name


def test_a_sharded_checkpoint_with_a_short_file_is_refused(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    step, weights = nemo_rl(tmp_path, "model")
    save_ranks(in_files(trained, tmp_path / "files"), weights)
    path = weights / "shard-00002-model-00001-of-00001.safetensors"
    shutil.copyfile(path, tmp_path / "kept")
    path.write_bytes(path.read_bytes()[:-8])
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert path.name in problem.why
    shutil.copyfile(tmp_path / "kept", path)
    (weights / "shard-00001-model-00001-of-00001.safetensors").unlink()
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert "is in no file" in problem.why  # torch would have loaded noise


def test_weights_whose_scales_are_elsewhere_are_refused(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    step, weights = nemo_rl(tmp_path, "model")
    stored = in_files(trained, tmp_path / "files")
    name = "model.layers.0.mlp.up_proj.weight"
    save_distributed({**stored, name: stored[name].to(torch.float8_e4m3fn)}, weights)
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert "quantised" in problem.what
    assert problem.why == f"{name} (F8_E4M3)"


def test_a_note_of_where_parts_belong_that_is_none_is_named(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    from safetensors.torch import save_file

    step, weights = nemo_rl(tmp_path, "model")
    path = weights / "shard-00001-model-00001-of-00001.safetensors"
    stored = in_files(trained, tmp_path / "files")
    save_file(stored, path, metadata={"DCP_SHARDING_INFO": "{"})
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert "where its tensors belong" in problem.what
    assert problem.where == str(path)


def test_metadata_is_read_without_running_what_is_in_it(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.write_text, (tmp_path / "ran", "it did")

    save_distributed({"a": torch.zeros(3, 4, dtype=torch.bfloat16), "n": 1}, tmp_path / "dcp")
    contents = dcp.read(tmp_path / "dcp")
    assert contents.tensors == {"a": Tensor((3, 4), "BF16")}
    assert dcp.damage(tmp_path / "dcp", contents) == []
    import pickle

    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(Problem, match="not whole"):
        dcp.read(tmp_path / "dcp")
    assert not (tmp_path / "ran").exists()


def test_files_are_filled_up_to_the_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "LARGEST", 100)
    sizes = {"a": 10, "b": 20, "c": 30, "large": 200, "d": 25}
    tensors = {name: Tensor((size,), "BF16") for name, size in sizes.items()}
    assert list(shards.plan(tensors).values()) == [["a", "b"], ["c"], ["large"], ["d"]]


def test_the_full_model_is_never_in_memory_as_a_whole() -> None:
    """At worst FP32, all experts of a layer in one tensor: what each file needs of it."""
    config = {"model_type": "beam", "dtype": "bfloat16"}
    wanted = architecture.tensors(config)
    experts = "model.layers.{}.mlp.experts.{}"
    stored = {
        name: Tensor(tensor.shape, "F32")
        for name, tensor in wanted.items()
        if "experts" not in name
    }
    for layer in range(3, 52):
        stored[experts.format(layer, "gate_up_proj")] = Tensor((256, 2 * 2560, 5120), "F32")
        stored[experts.format(layer, "down_proj")] = Tensor((256, 5120, 2560), "F32")
    pieces = fsdp.plan(dcp.Contents(stored, {}), wanted, Path("step_20"))
    files = shards.plan(wanted).values()
    written = [sum(shards.bytes_of(wanted[name]) for name in names) for names in files]
    assert max(written) <= shards.LARGEST
    assert sum(written) / 1e12 == pytest.approx(1.0, abs=0.01)
    read = [{pieces[name].name for name in names} for names in files]
    assert max(sum(shards.bytes_of(stored[name]) for name in names) for names in read) < 90e9
