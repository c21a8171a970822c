"""Megatron checkpoints by Megatron Bridge, as far as it can be tested where it is not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import bridge_signatures
import fakebridge
import pytest
from conversions import Model, difference, listed, nemo_rl, refused, run, save_megatron

from beam_slurm.after import checkpoints, megatron, output
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def bridge(
    tmp_path: Path, base: Path, trained: Model, monkeypatch: pytest.MonkeyPatch
) -> fakebridge.Bridge:
    exports = tmp_path / "exports"
    shutil.copytree(base, exports)
    trained.save_pretrained(exports)
    fake = fakebridge.Bridge(exports, lambda at: save_megatron(at, trained))
    fake.install(monkeypatch)
    return fake


def test_megatron_without_bridge_is_refused_before_anything_is_written(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(base))
    assert "megatron.bridge cannot be imported" in problem.what
    assert "training image" in problem.do
    back = refused("miles", base, tmp_path / "iter", to="megatron")
    assert "megatron.bridge cannot be imported" in back.what


def test_a_megatron_checkpoint_is_exported_by_bridge_and_proved(
    tmp_path: Path,
    base: Path,
    trained: Model,
    megatron_checkpoint: Path,
    bridge: fakebridge.Bridge,
) -> None:
    into = tmp_path / "hf"
    run("skyrl", megatron_checkpoint, into, "--base", str(base))
    assert bridge.done == ["bridge Beam-tiny", "without weights", "load policy"]
    assert difference(into, trained) == 0.0

    (bridge.exports / "model.safetensors").unlink()
    with pytest.raises(Problem, match="not complete"):
        run("skyrl", megatron_checkpoint, tmp_path / "again", "--base", str(base))
    assert not (tmp_path / "again").exists()
    assert output.part_of(tmp_path / "again").is_dir()


def test_a_hugging_face_folder_becomes_a_megatron_checkpoint(
    tmp_path: Path, base: Path, bridge: fakebridge.Bridge
) -> None:
    run("nemo-rl", base, tmp_path / "megatron", to="megatron")
    assert "iter_0000000/.metadata" in listed(tmp_path / "megatron")
    bridge.save = lambda at: None
    with pytest.raises(Problem, match="not complete"):
        run("nemo-rl", base, tmp_path / "nothing", to="megatron")


def test_megatron_adapters_stay_adapters_or_are_merged(
    tmp_path: Path,
    base: Path,
    trained: Model,
    megatron_checkpoint: Path,
    bridge: fakebridge.Bridge,
) -> None:
    step, weights = nemo_rl(tmp_path)
    (megatron_checkpoint / "policy").rename(weights / "iter_0000000")
    settings = (
        "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 2\n  alpha: 4\nmodel: {}\n"
    )
    (weights / "iter_0000000" / "run_config.yaml").write_text(settings)
    hook = ["hook training False", "load iter_0000000"]
    lora = "lora {'dim': 2, 'alpha': 4}"
    run("nemo-rl", step, tmp_path / "adapter", "--base", str(base))
    assert bridge.done == [lora, "bridge Beam-tiny", "without weights", *hook]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 4, ["up_proj"])
    bridge.done.clear()
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base), "--merge-lora")
    assert bridge.done == [lora, "bridge Beam-tiny", "with weights", *hook]
    assert difference(tmp_path / "hf", trained) == 0.0


def test_a_bridge_that_knows_no_beam_says_so(
    tmp_path: Path, base: Path, bridge: fakebridge.Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(path: str) -> None:
        raise ValueError("Model architecture not supported\nsupported are: …")

    monkeypatch.setattr(bridge, "from_hf_pretrained", unsupported)
    with pytest.raises(Problem, match="cannot convert this model") as caught:
        run("nemo-rl", base, tmp_path / "megatron", to="megatron")
    assert caught.value.why == "Model architecture not supported"


def test_a_machine_with_too_little_memory_is_refused() -> None:
    larger = {"model.embed_tokens.weight": Tensor((10**9, 10**6), "BF16")}
    with pytest.raises(Problem, match="not enough memory"):
        megatron.check_memory(larger)


def test_a_megatron_checkpoint_of_another_size_is_refused(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    larger = tmp_path / "larger"
    shutil.copytree(base, larger)
    config = json.loads((larger / "config.json").read_text())
    (larger / "config.json").write_text(json.dumps({**config, "intermediate_size": 1280}))
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(larger))
    assert "parameters, the base" in problem.why


def test_a_lora_run_of_megatron_is_told_by_its_settings(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    policy = megatron_checkpoint / "policy"
    for text, kind in (
        ("model:\n  a: 1\npeft:\n  dim: 32\ntrain: 1\n", checkpoints.Kind.MEGATRON_ADAPTER),
        ("peft: null\nmodel:\n  a: 1\n", checkpoints.Kind.MEGATRON),
        ("model:\n  peft: 1\n", checkpoints.Kind.MEGATRON),
    ):
        (policy / "run_config.yaml").write_text(text)
        assert checkpoints.find("skyrl", megatron_checkpoint).kind is kind


@pytest.mark.parametrize("wheel", bridge_signatures.published()["wheels"])
def test_every_call_of_bridge_fits_the_published_signatures(wheel: str) -> None:
    calls = bridge_signatures.calls(Path(megatron.__file__).read_text())
    found = bridge_signatures.published()["wheels"][wheel]["signatures"]
    for name, signature in found.items():
        for call in calls.get(name, []):
            assert bridge_signatures.misfits(call, signature) == [], name


def test_the_table_of_calls_of_bridge_is_complete() -> None:
    """What is called of it; a call that the table lacks would not be checked."""
    calls = bridge_signatures.calls(Path(megatron.__file__).read_text())
    known = {name for names in bridge_signatures.DEFINED.values() for name in names}
    assert calls.keys() == known - {"HFWeightTuple"}
    imported = subprocess.run(
        ["grep", "-cE", "^ *from megatron", megatron.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(imported.stdout) == 7
    for found in bridge_signatures.published()["wheels"].values():
        if "HFWeightTuple" in found["signatures"]:
            fields = found["signatures"]["HFWeightTuple"]["positional"]
            assert fields[:2] == ["param_name", "weight"]


def test_a_wrong_call_of_bridge_would_be_found() -> None:
    call = bridge_signatures.calls("bridge.save_hf_pretrained(model, dtype=1)")
    (signature,) = (
        found["signatures"]["save_hf_pretrained"]
        for name, found in bridge_signatures.published()["wheels"].items()
        if "bridge-0.3.1" in name
    )
    wrong = bridge_signatures.misfits(call["save_hf_pretrained"][0], signature)
    assert wrong == ["no argument dtype", "path is missing"]


@pytest.mark.exhaustive
def test_the_signatures_are_those_of_the_wheels_on_pypi(tmp_path: Path) -> None:
    for name, found in bridge_signatures.published()["wheels"].items():
        package = f"{name.split('-')[0]}=={found['version']}"
        words = ["download", "--no-deps", "--only-binary", ":all:", "-q", "-d", str(tmp_path)]
        words += ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"]
        subprocess.run([sys.executable, "-m", "pip", *words, package], check=True, timeout=300)
        assert bridge_signatures.extract(tmp_path / name) == found
