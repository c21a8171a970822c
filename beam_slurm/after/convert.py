"""Verb ``convert``: a training framework's checkpoint to a Hugging Face folder, or the way back.

All that can be known without loading a tensor is checked first, by `check`, which needs nothing but
the standard library: the command on the login node calls it before there is a job.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beam_slurm.after import (
    architecture,
    checkpoints,
    demo,
    folder,
    fsdp,
    lora,
    megatron,
    output,
)
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.checkpoints import ADAPTERS, Kind, Source
from beam_slurm.after.errors import Problem, few
from beam_slurm.after.shards import bytes_of

FOLDER = "a Hugging Face folder: config.json and tokenizer beside the weights"

DEMO_BYTES = 10_000_000  # more than its checkpoint and its tokenizer take

EXAMPLES = """examples:
  convert --framework nemo-rl --checkpoint checkpoints/step_20 --to hf \\
      --base models/Beam-1.0-501B-A23B -o models/step_20
  convert --framework miles --checkpoint checkpoints/iter_0000019 --to hf --merge-lora \\
      --base models/Beam-1.0-501B-A23B -o models/iter_19
  convert --framework skyrl --checkpoint models/step_20 --to megatron -o models/step_20-megatron
  convert --framework demo --checkpoint output/checkpoints/step_000080 --to hf -o models/demo
"""


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        framework: nemo-rl, skyrl, miles or demo.
        checkpoint: one checkpoint's folder; with ``to`` megatron a Hugging Face folder.
        to: hf, or megatron: what the framework trains from, for the demo its own model.pt.
        base: the Hugging Face folder of the model that was trained; the demo needs none.
        output: the folder to make.
        merge: put a LoRA adapter into the base model.
    """

    framework: str
    checkpoint: Path
    to: str
    base: Path | None
    output: Path
    merge: bool = False


@dataclass(frozen=True)
class Conversion:
    """One conversion that has been checked.

    Attributes:
        source: what is converted.
        wanted: every tensor that a Hugging Face folder of this model has; empty for the demo.
        need: bytes that will be written.
    """

    request: Request
    source: Source
    wanted: Mapping[str, Tensor]
    need: int

    @property
    def by_bridge(self) -> bool:
        """Whether Megatron Bridge has to be there."""
        back = self.request.to == "megatron" and self.request.framework != "demo"
        return back or self.source.kind in (Kind.MEGATRON, Kind.MEGATRON_ADAPTER)

    @property
    def memory(self) -> int:
        """Bytes of host memory that it must have; 0 where tensors pass through one by one."""
        return megatron.memory(self.wanted) if self.by_bridge else 0

    @property
    def alone(self) -> bool:
        """Whether the result is an adapter without its model."""
        return self.source.kind in ADAPTERS and not self.request.merge


def main(argv: list[str]) -> int:
    """Convert; 0 if the output folder is there, whole."""
    options = _parse(argv)
    asked = Request(
        options.framework,
        options.checkpoint.absolute(),
        options.to,
        options.base and options.base.absolute(),
        options.output.absolute(),
        options.merge_lora,
    )
    try:
        work = check(asked)
        print(f"{work.source.path}: {work.source.kind.value}", flush=True)
        convert(work)
    except Problem:
        output.forget(asked.output)
        raise
    print(f"{asked.output}: complete", flush=True)
    return 0


def check(asked: Request) -> Conversion:
    """Refuse what cannot end well; nothing is written.

    Raises:
        Problem: the checkpoint is not whole, is in no form that can be converted or of another
            architecture; the base is no model of Beam; the output folder is in use or has no room.
    """
    back = asked.to == "megatron"
    source = checkpoints.find(asked.framework, asked.checkpoint, FOLDER if back else "")
    if asked.merge and source.kind not in ADAPTERS:
        raise Problem(
            "there is no adapter to merge",
            where=str(source.path),
            why=f"it holds {source.kind.value}",
            do="leave --merge-lora out",
        )
    if back:
        return _check_back(asked, source)
    if source.kind is Kind.DEMO:
        return _room(Conversion(asked, source, {}, DEMO_BYTES))
    if source.kind is Kind.HUGGING_FACE:  # an export: its files are linked
        _prove_whole(source.path)
        return _room(Conversion(asked, source, _wanted(source.path), 0))
    return _check_forth(asked, source)


def _check_forth(asked: Request, source: Source) -> Conversion:
    if asked.base is None:
        raise Problem(
            "the model that was trained is not given",
            why=f"{source.path} holds weights without configuration and tokenizer",
            do="give its Hugging Face folder with --base",
        )
    wanted = _wanted(asked.base)
    lost = [name for name in folder.TOKENIZER if not (asked.base / name).is_file()]
    if lost:
        raise Problem(
            "the base has no tokenizer",
            where=str(asked.base),
            why=f"no {lost[0]}",
            do="copy it there: what is made of this base takes it along",
        )
    if source.kind is Kind.ADAPTER:
        (lora.mergeable if asked.merge else lora.config)(source.path)
    elif source.kind is Kind.MEGATRON:
        assert source.contents is not None
        megatron.check(source.contents, wanted, source.path)
    elif source.kind is not Kind.MEGATRON_ADAPTER:
        assert source.contents is not None
        fsdp.plan(source.contents, wanted, source.path)
    if asked.merge:
        _prove_whole(asked.base)
    whole = Conversion(asked, source, wanted, sum(map(bytes_of, wanted.values())))
    return _room(replace(whole, need=_size(source.path)) if whole.alone else whole)


def _check_back(asked: Request, source: Source) -> Conversion:
    if source.kind is not Kind.HUGGING_FACE:
        raise Problem(
            "only a Hugging Face folder is converted to what a framework trains from",
            where=str(source.path),
            why=f"it holds {source.kind.value}",
            do="convert it with --to hf first",
        )
    _prove_whole(source.path)
    wanted = _wanted(source.path)
    if asked.framework == "demo":
        demo.check(wanted["model.embed_tokens.weight"].shape, source.path)
        return _room(Conversion(asked, source, wanted, DEMO_BYTES))
    return _room(Conversion(asked, source, wanted, sum(map(bytes_of, wanted.values()))))


def _room(work: Conversion) -> Conversion:
    output.check(work.request.output, work.need)
    return work


def convert(work: Conversion) -> None:
    """Do what was checked; the output folder is there and proved, or not there at all.

    Raises:
        Problem: what is needed is not installed, or the result is not complete.
    """
    asked, source = work.request, work.source
    origin = {
        "source": str(source.path),
        "kind": source.kind.name,
        "written": _written(source.path),
        "base": str(asked.base),
        "to": asked.to,
        "merge": asked.merge,
    }
    if work.by_bridge:
        megatron.auto_bridge()  # before anything is written
        megatron.check_memory(work.wanted)
    with output.begin(asked.output, origin) as part:
        if asked.to == "megatron":
            _back(work, part)
        else:
            _forth(work, part)
        output.finish(asked.output, lambda at: _problems(work, at))


def _forth(work: Conversion, part: Path) -> None:
    kind, source, base = work.source.kind, work.source.path, work.request.base
    if kind is Kind.DEMO:
        demo.to_hugging_face(source, part)
        return
    if kind is Kind.HUGGING_FACE:
        output.copy_companions(source, part)
        _link_weights(source, part)
        return
    assert base is not None
    output.copy_companions(base, part, tokenizer_only=work.alone)
    if kind is Kind.MEGATRON:
        megatron.to_hugging_face(source, base, part)
    elif kind is Kind.MEGATRON_ADAPTER:
        megatron.adapter_to_hugging_face(source, base, part, work.request.merge)
    elif kind is not Kind.ADAPTER:
        fsdp.convert(work.source, work.wanted, part)
    elif work.request.merge:
        lora.merge(source, base, part)
    else:
        lora.take(source, base, part)


def _back(work: Conversion, part: Path) -> None:
    if work.request.framework == "demo":
        demo.to_demo(work.source.path, part)
    else:
        megatron.to_megatron(work.source.path, part)


def _problems(work: Conversion, part: Path) -> list[str]:
    """What is missing of the result, or wrong with it."""
    if work.request.to == "hf":
        return lora.prove(part) if work.alone else folder.prove(part)
    if work.request.framework == "demo":
        return [] if (part / demo.WEIGHTS).is_file() else [f"it has no {demo.WEIGHTS}"]
    return megatron.prove(part, work.wanted)


def _wanted(model: Path) -> dict[str, Tensor]:
    """Every tensor of the model whose Hugging Face folder this is.

    Raises:
        Problem: its configuration cannot be read, or is not Beam's.
    """
    path = model / folder.CONFIG
    try:
        config = folder.json_object(path)
    except Problem as problem:
        raise Problem(
            "this is no Hugging Face folder of a model",
            where=str(path),
            why=problem.what,
            do=f"give {FOLDER}",
        ) from None
    try:
        return architecture.tensors(config)
    except Problem as problem:
        raise Problem(problem.what, where=str(path), why=problem.why, do=problem.do) from None


def _prove_whole(model: Path) -> None:
    problems = folder.prove(model)
    if problems:
        raise Problem(
            "the Hugging Face folder is not whole",
            where=str(model),
            why=few(problems, "; "),
            do="convert or copy it again",
        )


def _link_weights(source: Path, part: Path) -> None:
    """Hard links where the file system has them: a second TB would hold nothing new."""
    for path in [*source.glob("*.safetensors"), *source.glob("*.safetensors.index.json")]:
        target = part / path.name
        if not target.exists():
            try:
                os.link(path.resolve(), target)  # of a link, as a download's cache has, its file
            except OSError:
                shutil.copyfile(path, target)


def _written(path: Path) -> int:
    """When the newest file of a checkpoint was written: another one may get its name."""
    return max((entry.stat().st_mtime_ns for entry in path.iterdir()), default=0)


def _size(path: Path) -> int:
    return sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file())


def _parse(argv: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="convert",
        description="Convert a training framework's checkpoint to a Hugging Face folder, or back.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--framework", required=True, choices=sorted(checkpoints.LAYOUTS))
    parser.add_argument(
        "--checkpoint",
        required=True,
        type=Path,
        metavar="DIR",
        help="one checkpoint's folder, such as step_20; with --to megatron a Hugging Face folder",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("hf", "megatron"),
        help="hf, or megatron: what the framework trains from (of the demo: its model.pt)",
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="DIR",
        help="the Hugging Face folder of the model that was trained: configuration and tokenizer",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--merge-lora",
        action="store_true",
        help="put a LoRA adapter into the base model; else it stays an adapter",
    )
    return parser.parse_args(argv)
