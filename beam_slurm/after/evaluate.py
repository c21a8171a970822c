"""Verb ``evaluate``: score a model on a set of problems, and go on where an evaluation stopped.

``responses.jsonl`` is the record: every response is in it as soon as it is done, and the scores are
computed from it alone. Each response is drawn with a seed of its own, made of ``--seed``, its
problem and its number: so it does not matter which of them are generated together, and when.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beam_slurm.after import answers, engines, lock, model, problems, scores
from beam_slurm.after.errors import Problem
from beam_slurm.after.problems import Question
from beam_slurm.after.responses import Response, Responses
from beam_slurm.after.tokenizer import Tokenizer

PROBLEMS = "problems.jsonl"  # in the run folder of an evaluation
RESPONSES = "responses.jsonl"
SUMMARY = "summary.json"
LOCK = ".lock"
SAY_EVERY = 10.0  # seconds between two lines about how far it is

EXAMPLE = """example:
  after.pyz evaluate --model hf/step_100 --data aime2025.jsonl --set aime2025 --output scores \\
      --tensor-parallel 8 --pipeline-parallel 2
"""


def main(argv: list[str]) -> int:
    """Generate what is missing, then write the summary.

    Raises:
        Problem: model, problems, settings or output folder are not fit; said before the model is
            loaded.
    """
    args = _arguments(argv)
    folder = model.look(args.model)
    questions = problems.read(args.data, name=args.set)
    answers.refuse_unreadable(questions, str(args.data))
    settings = {
        "model": str(args.model.resolve()),
        "weights": folder.weights,
        "set": args.set,
        "problems": problems.digest(questions),
        "engine": args.engine,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "max_tokens": args.max_tokens,
        "seed": args.seed,
        "versions": {**engines.versions(args.engine), "math-verify": answers.version()},
    }
    tokenizer = Tokenizer(args.model)
    prompts = {question.id: tokenizer.prompt(question.prompt) for question in questions}
    longest = _longest(folder, prompts.values(), args.max_tokens)
    sampling = engines.Sampling(args.temperature, args.top_p, args.max_tokens, tokenizer.stop)
    placement = engines.Placement(
        args.tensor_parallel, args.pipeline_parallel, ray="RAY_ADDRESS" in os.environ
    )
    with _alone(args.output):
        kept = Responses(args.output / RESPONSES, settings)
        # The first response to every problem, then the second: an interruption leaves it even.
        missing = sorted(kept.missing(questions, args.samples), key=lambda pair: pair[1])
        whole = len(questions) * args.samples
        print(f"{len(missing)} of {whole} responses are to be generated", flush=True)
        if missing:
            print(f"loading {args.model} with {args.engine}", flush=True)
            engine = engines.start(args.engine, args.model, placement, longest)
            requests = [
                engines.Request(prompts[question.id], seed_of(args.seed, question.id, sample))
                for question, sample in missing
            ]
            made = engine.generate(requests, sampling)
            for done in _told(made, whole - len(missing), whole):
                kept.append([_judged(*missing[done.request], done, tokenizer.text(done.tokens))])
        found = scores.score(kept.of(questions, args.samples)).as_dict()
        about = {"settings": settings, "wording": problems.wording(questions)}
        _write(args.output / SUMMARY, {**about, "scores": found})
    name = f"avg@{args.samples}"
    print(f"{args.set}: {name} {_spelled(**found[name])}", flush=True)
    return 0


def seed_of(seed: int, question: str, sample: int) -> int:
    """The seed of one response, 0 to 2**31 - 1."""
    digest = hashlib.sha256(f"{seed}:{question}:{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="after.pyz evaluate",
        description="Score a model on a set of problems; goes on where it stopped.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--data", type=Path, required=True, help="problems: .jsonl, .parquet")
    parser.add_argument("--set", required=True, help="the name of the problems: aime2025")
    parser.add_argument("--output", type=Path, required=True, help="responses and summary")
    parser.add_argument("--samples", type=int, default=8, help="responses a problem (8)")
    parser.add_argument("--max-tokens", type=int, default=4096, help="of a response (4096)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0: the likeliest (1.0)")
    parser.add_argument("--top-p", type=float, default=1.0, help="nucleus (1.0)")
    parser.add_argument("--seed", type=int, default=0, help="other responses with another (0)")
    parser.add_argument("--engine", choices=engines.PACKAGES, default="vllm", help="(vllm)")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs a layer (1)")
    parser.add_argument("--pipeline-parallel", type=int, default=1, help="stages (1)")
    args = parser.parse_args(argv)
    for name in ("samples", "max_tokens", "tensor_parallel", "pipeline_parallel"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is at least 1")
    if args.temperature < 0 or not 0 < args.top_p <= 1:
        parser.error("--temperature is at least 0, --top-p more than 0 and at most 1")
    if args.temperature == 0 and args.samples > 1:
        parser.error("at --temperature 0 all samples are the same: --samples 1")
    if args.engine == "transformers" and args.tensor_parallel * args.pipeline_parallel > 1:
        parser.error("the engine transformers takes one device: --engine vllm")
    return args


def _longest(folder: model.Model, prompts: Iterable[tuple[int, ...]], max_tokens: int) -> int:
    """Tokens of the longest prompt and its response together."""
    longest = max(map(len, prompts)) + max_tokens
    if folder.context is not None and longest > folder.context:
        raise Problem(
            f"the longest prompt and {max_tokens} tokens do not fit into the model's context",
            where=str(folder.path / "config.json"),
            why=f"they are {longest} tokens, and max_position_embeddings is {folder.context}",
            do=f"--max-tokens {max(folder.context - longest + max_tokens, 0)} at most",
        )
    return longest


def _told(made: Iterator[engines.Generated], kept: int, whole: int) -> Iterator[engines.Generated]:
    """The same responses, with a line about how far it is every few seconds and at the end."""
    began = said = time.monotonic()
    tokens = 0
    for done, response in enumerate(made, kept + 1):
        yield response
        tokens += len(response.tokens)
        now = time.monotonic()
        if now - said >= SAY_EVERY or done == whole:
            said = now
            print(f"{done}/{whole} responses, {tokens / (now - began):.0f} tokens/s", flush=True)


def _spelled(value: float, low: float | None = None, high: float | None = None) -> str:
    """A share in per cent, and its 95 % interval if it has one."""
    interval = (
        "" if low is None or high is None else f" (95 %: {100 * low:.1f} to {100 * high:.1f})"
    )
    return f"{100 * value:.1f} %{interval}"


def _judged(question: Question, sample: int, made: engines.Generated, text: str) -> Response:
    return Response(
        id=question.id,
        sample=sample,
        text=text,
        tokens=len(made.tokens),
        truncated=made.finish == engines.CUT,
        finish=made.finish,
        right=answers.right(text, question.answer),
        answer=answers.extracted(text),
    )


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """No other evaluation writes into this folder meanwhile.

    Raises:
        Problem: one does, or the folder cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        file = (output / LOCK).open("w")
    except OSError as error:
        raise Problem(
            "the output folder cannot be written", where=str(output), why=str(error)
        ) from None
    with file:
        lock.take(file, output, "evaluation")
        yield


def _write(path: Path, content: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(path)
