"""A tiny Beam that was trained, its checkpoints as the frameworks save them, and conversions.

The fixtures are for every module that names this one in ``pytest_plugins``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_slurm.after import convert, demo, hashes, output
from beam_slurm.after.errors import Problem

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "grpo_digits"))

import checkpoint as demo_checkpoint  # noqa: E402, F401 - for the tests of the demo
import model as demo_model  # noqa: E402
import task  # noqa: E402

CPU = torch.device("cpu")
PROMPTS = torch.tensor([task.prompt(problem) for problem in task.TRAINING])

Model = Any


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Beam as a Hugging Face folder: the model that a run has trained."""
    folder = tmp_path_factory.mktemp("models") / "Beam-tiny"
    folder.mkdir()
    demo_model.build_policy(1, CPU).save_pretrained(folder)
    demo.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def trained() -> Model:
    """The same Beam with other weights, as if it had been trained."""
    return demo_model.build_policy(2, CPU).eval()


@pytest.fixture
def whole(tmp_path: Path, trained: Model) -> Path:
    """A checkpoint that would convert."""
    step, weights = nemo_rl(tmp_path, "model")
    save_distributed(in_files(trained, tmp_path / "files"), weights)
    return step


@pytest.fixture
def megatron_checkpoint(tmp_path: Path, trained: Model) -> Path:
    """As SkyRL saves one."""
    step = tmp_path / "ckpt" / "global_step_10"
    save_megatron(step / "policy", trained)
    (step / "trainer_state.pt").write_bytes(b"")
    return step


def run(framework: str, checkpoint: Path, into: Path, *more: str, to: str = "hf") -> None:
    words = ["--framework", framework, "--checkpoint", str(checkpoint), "--to", to]
    assert convert.main([*words, "-o", str(into), *more]) == 0


def refused(framework: str, checkpoint: Path, into: Path, *more: str, to: str = "hf") -> Problem:
    """The problem; and nothing was written."""
    with pytest.raises(Problem) as caught:
        run(framework, checkpoint, into, *more, to=to)
    assert not into.exists()
    assert not output.part_of(into).exists()
    return caught.value


def logits(model: Model) -> Any:
    with torch.no_grad():
        return model(input_ids=PROMPTS).logits


def difference(folder: Path, model: Model, attention: str = "eager") -> float:
    """Largest difference between a folder's logits, as transformers loads it, and a model's."""
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, attn_implementation=attention
    )
    return float((logits(loaded.eval()) - logits(model)).abs().max())


def in_files(model: Model, at: Path) -> dict[str, Any]:
    """The model's tensors by the names that they have in files: each expert by itself."""
    from safetensors.torch import load_file

    model.save_pretrained(at)
    return load_file(at / "model.safetensors")


def nemo_rl(run_folder: Path, inner: str = "") -> tuple[Path, Path]:
    """(a checkpoint of NeMo RL, the folder in it for the weights)."""
    step = run_folder / "step_20"
    weights = step / "policy" / "weights" / inner
    weights.mkdir(parents=True)
    (step / "training_info.json").write_text("{}")
    return step, weights


def save_distributed(tensors: dict[str, Any], folder: Path) -> None:
    from torch.distributed.checkpoint import save

    save(tensors, checkpoint_id=folder, no_dist=True)


def save_ranks(tensors: dict[str, Any], folder: Path, ranks: int = 2) -> None:
    """As each of two ranks saves its half of every tensor; torch's own writer names the same."""
    from safetensors.torch import save_file

    for rank in range(ranks):
        halves, notes = {}, {}
        for name, tensor in tensors.items():
            parts = tensor.chunk(ranks, dim=0)
            if rank < len(parts):
                halves[name] = parts[rank].clone()
                begin = sum(part.shape[0] for part in parts[:rank])
                notes[name] = {"saved_offsets": [begin, *[0] * (tensor.ndim - 1)]}
        save_file(
            halves,
            folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors",
            metadata={"DCP_SHARDING_INFO": json.dumps(notes), "DCP_VERSION": "1.0"},
        )


def save_megatron(at: Path, model: Model) -> None:
    """Megatron's names, layers stacked, a padded vocabulary; the numbers are no model's."""
    rest = sum(tensor.numel() for tensor in model.state_dict().values()) - 2 * 11 * 64
    save_distributed(
        {
            "embedding.word_embeddings.weight": torch.zeros(16, 64),
            "output_layer.weight": torch.zeros(16, 64),
            "decoder.layers.mlp.experts.experts.linear_fc1.weight": torch.zeros(rest),
            "optimizer.state.exp_avg": torch.zeros(5, 5),
        },
        at,
    )
    (at / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')


def listed(folder: Path) -> set[str]:
    """The files whose hashes are as the folder's list says; that it is right is asserted."""
    words = ["sha256sum", "--strict", "-c", hashes.SUMS]
    told = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return {line.removesuffix(": OK") for line in told.stdout.splitlines()}
