"""What lies in a training framework's checkpoint, and whether it is whole; nothing is loaded.

Standard library only: the same checks run before a job is submitted and when it begins. Layouts are
those of the frameworks' main branches.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path

from beam_slurm.after import dcp, shards
from beam_slurm.after.errors import Problem, few


class Kind(Enum):
    """In which form weights lie in a folder, and how that is said."""

    HUGGING_FACE = "a Hugging Face folder"
    SHARDED = "safetensors, a file a rank (FSDP2)"
    DISTRIBUTED = "a distributed checkpoint of torch (FSDP2)"
    MEGATRON = "a distributed checkpoint of Megatron"
    MEGATRON_ADAPTER = "a LoRA adapter in a distributed checkpoint of Megatron"
    ADAPTER = "a LoRA adapter as PEFT has it"
    DEMO = "the demo's model.pt"


# A file a rank in the trainer's own names: only the same ranks can put them together.
SKYRL_EXPORTS = (
    "let SkyRL export, as submit --then convert does by itself: resume the run for one step more "
    "with trainer.hf_save_interval=1; EXPORT_PATH/global_step_N/policy is a Hugging Face folder"
)
RANK_FILES = (
    (r"adapter_tp\d+_.*\.pt", "SkyRL's LoRA adapter, a file a rank", SKYRL_EXPORTS),
    (r"model_world_size_\d+_rank_\d+\.pt", "SkyRL's FSDP state, a file a rank", SKYRL_EXPORTS),
    (
        r"adapter_megatron_rank\d+\.pt",
        "Miles' LoRA adapter, a file a rank, and none as PEFT has it",
        "Miles writes both: its log says why not, at 'HF PEFT adapter export skipped'",
    ),
)

ADAPTERS = (Kind.ADAPTER, Kind.MEGATRON_ADAPTER)


@dataclass(frozen=True)
class Source:
    """The weights in a checkpoint.

    Attributes:
        path: the folder that the files lie in.
        contents: what they hold; None where only loading tells.
    """

    kind: Kind
    path: Path
    contents: dcp.Contents | None = None


@dataclass(frozen=True)
class Layout:
    """Where a framework has what.

    Attributes:
        name: pattern of a checkpoint's folder, its number in a group.
        places: where the weights may lie in it.
        proof: the file that is written last.
        tracker: the file beside the checkpoints that names the last one that is whole.
    """

    name: str
    places: tuple[str, ...]
    proof: str = ""
    tracker: str = ""


LAYOUTS = {
    "nemo-rl": Layout(
        r"step_(\d+)",
        ("policy/weights/model", "policy/weights", "policy/weights/iter_*"),
        proof="training_info.json",
    ),
    "skyrl": Layout(
        r"global_step_(\d+)", ("policy",), "trainer_state.pt", "latest_ckpt_global_step.txt"
    ),
    "miles": Layout(r"iter_(\d+)", ("adapter",), "", "latest_checkpointed_iteration.txt"),
    "demo": Layout(r"step_(\d+)", (), "state.json"),
}


def find(framework: str, checkpoint: Path, wanted: str = "") -> Source:
    """The weights of a checkpoint, proved to be whole as far as names and sizes tell.

    Args:
        framework: a key of LAYOUTS.
        checkpoint: one checkpoint's folder (step_20), or one with the weights themselves: what the
            framework has exported, or an earlier conversion.
        wanted: what is to be given instead of one that cannot be used; left out, a checkpoint.

    Raises:
        Problem: there are none, they are not whole, or in a form that cannot be converted.
    """
    layout = LAYOUTS[framework]
    wanted = wanted or f"one checkpoint of {framework}: a folder such as {_example(layout)}"
    try:
        if not checkpoint.is_dir():
            raise Problem("there is no such folder", where=str(checkpoint), do=f"give {wanted}")
        for place in (*layout.places, ""):
            for path in sorted(checkpoint.glob(place)) if place else [checkpoint]:
                kind = _kind(path)
                if kind and (kind is not Kind.DEMO or framework == "demo"):
                    _check_saved(layout, checkpoint, kind)
                    return _source(kind, path)
    except OSError as error:
        raise Problem(
            "the checkpoint cannot be read", where=str(checkpoint), why=str(error)
        ) from None
    raise Problem(
        "it holds no weights that can be converted",
        where=str(checkpoint),
        why="looked for in " + ", ".join([*layout.places, "the folder itself"]),
        do=f"give {wanted}",
    )


def _example(layout: Layout) -> str:
    return layout.name.replace(r"(\d+)", "20")


def _kind(path: Path) -> Kind | None:
    """In which form the weights lie in this very folder; None if there are none."""
    names = {entry.name for entry in path.iterdir() if entry.is_file()}
    if "adapter_config.json" in names:
        return Kind.ADAPTER
    _refuse_rank_files(path, names)
    if dcp.METADATA in names and "metadata.json" in names:
        return Kind.MEGATRON_ADAPTER if _trained_adapter(path) else Kind.MEGATRON
    if dcp.METADATA in names:
        return Kind.DISTRIBUTED
    weights = [name for name in names if name.endswith(".safetensors")]
    if any(name.startswith("shard-") for name in weights):
        return Kind.SHARDED
    if weights and "config.json" in names:
        return Kind.HUGGING_FACE
    return Kind.DEMO if "model.pt" in names else None


def _refuse_rank_files(path: Path, names: set[str]) -> None:
    for pattern, what, remedy in RANK_FILES:
        found = sorted(name for name in names if re.fullmatch(pattern, name))
        if found:
            raise Problem(
                "this checkpoint cannot be converted from outside its framework",
                where=str(path),
                why=f"it holds {what}: {found[0]}",
                do=remedy,
            )


def _trained_adapter(path: Path) -> bool:
    """Whether an adapter was trained, as Megatron Bridge notes it: its section ``peft``."""
    config = path / "run_config.yaml"
    lines = config.read_text(errors="replace").splitlines() if config.is_file() else []
    for line, following in pairwise([*lines, ""]):
        if line.startswith("peft:"):
            value = line.removeprefix("peft:").strip()
            return value not in ("null", "~") if value else following.startswith(" ")
    return False


def _check_saved(layout: Layout, checkpoint: Path, kind: Kind) -> None:
    """Refuse a checkpoint whose saving was broken off, by the framework's own marks."""
    name = checkpoint.name
    match = re.fullmatch(layout.name, name)
    if match is None:
        unfinished = re.fullmatch(rf"(tmp_|damaged-){layout.name}.*", name)
        if unfinished:
            _not_whole(checkpoint, f"its name begins with {unfinished[1]}")
        return
    if layout.proof and not (checkpoint / layout.proof).is_file():
        if kind is Kind.HUGGING_FACE:
            return  # an export, or a conversion that was given this name
        _not_whole(checkpoint, f"it has no {layout.proof}, which is written last")
    tracker = checkpoint.parent / layout.tracker
    if layout.tracker and tracker.is_file():
        last = tracker.read_text(errors="replace").strip()
        if last.isdigit() and int(last) < int(match[1]):
            _not_whole(checkpoint, f"{tracker.name} says {last}: its saving was broken off")


def _not_whole(where: Path, why: str) -> None:
    raise Problem(
        "the checkpoint is not whole",
        where=str(where),
        why=why,
        do="take another checkpoint of the run",
    )


def _source(kind: Kind, path: Path) -> Source:
    contents, problems = CONTENTS[kind](path)
    if problems:
        _not_whole(path, few(problems, "; "))
    return Source(kind, path, contents)


Looked = tuple[dcp.Contents | None, list[str]]


def _distributed(path: Path) -> Looked:
    contents = dcp.read(path)
    return contents, dcp.damage(path, contents)


def _sharded(path: Path) -> Looked:
    files = sorted(path.glob("shard-*.safetensors"))
    problems = [f"{file.name} {why}" for file in files if (why := shards.damage(file))]
    return (None, problems) if problems else shards.contents(files)


def _hugging_face(path: Path) -> Looked:
    files = sorted(path.glob("*.safetensors"))
    return None, [f"{file.name} {why}" for file in files if (why := shards.damage(file))]


def _adapter(path: Path) -> Looked:
    weights = path / "adapter_model.safetensors"
    if weights.is_file():
        why = shards.damage(weights)
        return None, [f"{weights.name} {why}"] if why else []
    return None, _torch_file(path / "adapter_model.bin")


def _demo(path: Path) -> Looked:
    return None, _torch_file(path / "model.pt")


def _torch_file(path: Path) -> list[str]:
    """What torch.save writes is a zip file, and that ends with its directory."""
    if not path.is_file():
        return [f"{path.name} is not there"]
    return [] if zipfile.is_zipfile(path) else [f"{path.name} is truncated"]


CONTENTS: dict[Kind, Callable[[Path], Looked]] = {
    Kind.HUGGING_FACE: _hugging_face,
    Kind.SHARDED: _sharded,
    Kind.DISTRIBUTED: _distributed,
    Kind.MEGATRON: _distributed,
    Kind.MEGATRON_ADAPTER: _distributed,
    Kind.ADAPTER: _adapter,
    Kind.DEMO: _demo,
}
