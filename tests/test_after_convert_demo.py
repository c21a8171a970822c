"""The demo's checkpoints to Hugging Face folders with the same logits, and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conversions import (
    CPU,
    Model,
    demo_checkpoint,
    demo_model,
    difference,
    refused,
    run,
    task,
    torch,
)

from beam_slurm.after import demo, output

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_the_demo_goes_to_hugging_face_with_the_same_logits_and_back(
    tmp_path: Path, trained: Model
) -> None:
    saved = demo_checkpoint.save(tmp_path / "checkpoints", 80, trained.state_dict(), {}, {})
    run("demo", saved, tmp_path / "hf")
    assert difference(tmp_path / "hf", trained) == 0.0
    assert difference(tmp_path / "hf", trained, attention="sdpa") < 1e-5
    assert not output.part_of(tmp_path / "hf").exists()

    run("demo", tmp_path / "hf", tmp_path / "checkpoints" / "step_000081", to="megatron")
    back = torch.load(tmp_path / "checkpoints" / "step_000081" / "model.pt", weights_only=True)
    there = trained.state_dict()
    assert back.keys() == there.keys()
    assert all(torch.equal(back[name], there[name]) for name in there)


def test_the_demos_tokenizer_reads_and_writes_its_digits(tmp_path: Path, trained: Model) -> None:
    from transformers import AutoTokenizer

    saved = demo_checkpoint.save(tmp_path / "checkpoints", 1, trained.state_dict(), {}, {})
    run("demo", saved, tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True)
    assert tokenizer("2012=")["input_ids"] == task.prompt((2, 0, 1, 2))
    assert tokenizer.decode([5, task.END], skip_special_tokens=True) == "Answer: 5"
    assert tokenizer.decode([1, 2]) == "Answer: 12"
    assert (tokenizer.eos_token_id, len(tokenizer)) == (task.END, task.VOCABULARY_SIZE)


def test_the_demos_model_is_the_one_that_it_trains() -> None:
    built = demo_model.build_policy(0, CPU).config
    assert {name: getattr(built, name) for name in demo.CONFIG} == demo.CONFIG


def test_a_demo_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    other = {"weight": torch.zeros(2)}
    saved = demo_checkpoint.save(tmp_path / "checkpoints", 1, other, {}, {})
    assert "another architecture" in refused("demo", saved, tmp_path / "hf").what


def test_another_model_does_not_become_a_demo_checkpoint(tmp_path: Path, base: Path) -> None:
    from transformers.models.beam.configuration_beam import BeamConfig
    from transformers.models.beam.modeling_beam import BeamForCausalLM

    for number, change in enumerate(({"hidden_size": 32}, {"intermediate_size": 32})):
        other = tmp_path / str(number)
        shutil.copytree(base, other)
        BeamForCausalLM(BeamConfig(**{**demo.CONFIG, **change})).save_pretrained(other)
        problem = refused("demo", other, tmp_path / "step_000001", to="megatron")
        assert "another architecture" in problem.what
