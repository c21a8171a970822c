"""The job that scores a model on a set of problems, the same way whoever trained it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import frameworks, pack
from beam_slurm.after import answers, evaluate, judge, model, problems, responses
from beam_slurm.after.errors import Problem, few
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks import demo
from beam_slurm.frameworks.launch import Missing
from beam_slurm.posttraining.converting import facts, refusal
from beam_slurm.posttraining.source import Source
from beam_slurm.schema import NAME, Recipe
from beam_slurm.task import Task

# Of a GPU's memory; the rest is what generating takes: the cache of keys and values, activations,
# and what CUDA and NCCL have for themselves. On one node of H200 Beam would leave all that 11 %.
WEIGHTS_SHARE = 0.8

BF16 = 2 * 501_267_599_808  # bytes of Beam's weights


@dataclass(frozen=True)
class Settings:
    """How a model is asked.

    Attributes:
        set: name of the problems.
        data: their file or folder; None of a published set, which lies where it was prepared.
        samples: responses to each problem.
        max_tokens: of a response.
        temperature, top_p, seed: how they are drawn.
    """

    set: str
    data: Path | None
    samples: int = 8
    max_tokens: int = 4096
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    @property
    def how(self) -> str:
        """How often and how, in words."""
        return (
            f"{self.samples} response{'s' * (self.samples != 1)} a problem, at most "
            f"{self.max_tokens:,} tokens, temperature {self.temperature:g}"
        )

    @classmethod
    def of(cls, recipe: Recipe) -> Settings:
        """What is asked where nobody says: as published, but never more than the run trained on."""
        own = recipe.evaluation
        common = problems.COMMON in own.sets
        samples = cls.samples if common else own.responses_per_problem
        return cls(
            problems.COMMON if common else own.sets[0],
            None,
            samples=samples,
            max_tokens=min(cls.max_tokens, recipe.response_tokens or cls.max_tokens),
            temperature=0.0 if samples == 1 else cls.temperature,  # one response: the likeliest
        )


def task(source: Source, settings: Settings, output: Path | None) -> Task:
    """One evaluation.

    Args:
        source: the Hugging Face folder.
        settings: how the model is asked.
        output: where responses and scores go; left out, a folder beside the model's.

    Raises:
        BeamSlurmError: model or problems are not whole, the output folder holds responses that
            were asked for in another way, or math-verify is not here; said before any GPU is taken.
    """
    if not NAME.fullmatch(settings.set):
        raise BeamSlurmError(
            f"--set {settings.set!r} cannot name a set of problems",
            why="it is a name, after which job and folder are named: "
            "1 to 64 of A-Z a-z 0-9 . _ - and nothing else",
            remedy="another --set NAME; the problems are those of --data FILE, whatever its name",
        )
    target = (output or source.path.parent / f"{source.path.name}-{settings.set}").absolute()
    try:
        if source.there:
            _refuse_longer(settings.max_tokens, model.look(source.path))
        data = settings.data or _prepared(source, settings.set)
        questions = problems.read(data, name=settings.set)
        packed = pack.math_verify()
        answers.refuse_unreadable(questions, str(data))
        responses.check(
            target / evaluate.RESPONSES,
            {
                "set": settings.set,
                "problems": problems.digest(questions),
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "max_tokens": settings.max_tokens,
                "seed": settings.seed,
            },
        )
    except Problem as problem:
        raise refusal(problem) from problem
    nodes = _nodes(source)
    gpus = source.resolved.profile.hardware.gpus_per_node
    return Task(
        name="evaluate",
        label=settings.set,
        about=f"{source.path} is scored on {settings.set}: {settings.how}",
        nodes=nodes,
        reads={"--model": str(source.path)},
        words=(
            f"--data={evaluate.PROBLEMS}",
            f"--set={settings.set}",
            f"--samples={settings.samples}",
            f"--max-tokens={settings.max_tokens}",
            f"--temperature={settings.temperature:g}",
            f"--top-p={settings.top_p:g}",
            f"--seed={settings.seed}",
            # The demo's GPUs are stand-ins, and vLLM wants real ones. A layer stays within a node,
            # as vLLM's documentation has it (serving/parallelism_scaling) and SkyRL's recipe for
            # Beam: over the network goes what one stage hands to the next, not each layer's sums.
            *(
                ["--engine=transformers"]
                if source.framework == "demo"
                else [f"--tensor-parallel={gpus}", f"--pipeline-parallel={nodes}"]
            ),
        ),
        output=str(target),
        steps=len(questions) * settings.samples,
        keeps=True,
        facts={**facts(source), "set": settings.set, "data": str(data)},
        # The node needs neither the problems' folder nor pyarrow, nor its image math-verify.
        files={evaluate.PROBLEMS: problems.written(questions), judge.PACKED: packed},
        mark=str(target / evaluate.LOCK) if source.there else "",
    )


def _refuse_longer(max_tokens: int, found: model.Model) -> None:
    """Raise for responses that cannot fit even without a problem before them: see ``after``."""
    if found.context is not None and max_tokens >= found.context:
        raise Problem(
            f"responses of {max_tokens} tokens do not fit into the model's context",
            where=str(found.path / "config.json"),
            why=f"max_position_embeddings is {found.context}, and the problem is in it, too",
            do=f"--max-tokens less than {found.context}",
        )


def _prepared(source: Source, name: str) -> Path:
    """Where ``prepare`` has put a published set for the framework; the demo brings its own."""
    # What is still to be trained is in a chain, whose command has no --data.
    by_hand = "--then convert alone, and evaluate it by hand with --data FILE"
    otherwise = problems.OWN if source.there else by_hand
    if source.framework == "demo":
        own = {
            file.stem: file for file in (demo.EXAMPLES / "grpo_digits").resolve().glob("*.jsonl")
        }
        problems.refuse_unknown(name, own, otherwise)
        return own[name]
    problems.refuse_unknown(name, otherwise=otherwise)
    missing = Missing()
    folder = frameworks.prepare(source.resolved, missing).datasets
    if not folder or missing.items:
        raise Problem(
            f"nobody has said where the problems of {name} lie",
            why="the site file does not say " + few(key for key, _ in missing.items),
            do=f"say it there, and beam-slurm prepare brings them; or {otherwise}",
        )
    return problems.known(name, Path(folder), otherwise)


def _nodes(source: Source) -> int:
    """Nodes that hold the model's weights, with room for what generating takes."""
    hardware = source.resolved.profile.hardware
    if source.framework == "demo" or not hardware.gpu_memory_gb:
        return 1
    files = source.path.glob("*.safetensors") if source.there else ()
    weights = sum(path.stat().st_size for path in files) or BF16
    room = hardware.gpu_memory_gb * 1e9 * hardware.gpus_per_node * WEIGHTS_SHARE
    return max(math.ceil(weights / room), 1)
