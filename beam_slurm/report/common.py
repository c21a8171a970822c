"""The common evaluations of runs: the same questions in the same words, scored alike for all.

``beam-slurm evaluate`` leaves a summary in a folder. Whose model it was, the manifest of that job's
run says; where there is none any more, the folder's place does: ``hf/step_N-SET`` beside the
checkpoints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beam_slurm import runs
from beam_slurm.after.evaluate import SUMMARY
from beam_slurm.after.problems import COMMON
from beam_slurm.after.scores import Estimate
from beam_slurm.attempts import read_json
from beam_slurm.metrics import same_set
from beam_slurm.metrics.schema import HUGE
from beam_slurm.node.checkpoint import EVALUATION
from beam_slurm.report import text
from beam_slurm.report.courses import Course, course
from beam_slurm.runs import Run
from beam_slurm.state import State


@dataclass(frozen=True)
class Asked:
    """How models were asked. Scores are comparable where all of this is the same.

    What a summary does not say is None.
    """

    set: str
    samples: int
    max_tokens: float | None
    temperature: float | None
    top_p: float | None

    @property
    def score(self) -> str:
        """The score that is drawn."""
        return f"avg@{self.samples}"

    @property
    def how(self) -> str:
        """All but the set, in words."""
        words = (f"at most {it}" if field == "max_tokens" else it for field, it in self.words())
        return ", ".join((f"{text.count(self.samples, 'response')} a problem", *words))

    def words(self) -> Iterator[tuple[str, str]]:
        """(field, in words) of all but set and samples."""
        if self.max_tokens is not None:
            yield "max_tokens", f"{self.max_tokens:,} tokens"
        if self.temperature is not None:
            yield "temperature", f"temperature {self.temperature:g}"
        if self.top_p is not None:
            yield "top_p", f"top-p {self.top_p:g}"


@dataclass(frozen=True)
class Scored:
    """One evaluation that is done.

    Attributes:
        asked: how.
        step: training steps behind the model; None if nobody knows.
        scores: by name, ``asked.score`` among them; shares are 0 to 1.
        settings: all that the summary says of how it was made.
        wording: of the questions and answers, see ``after.problems``; "" if nobody knows.
        folder: where it lies, links followed.
        written: when, in epoch seconds.
    """

    asked: Asked
    step: int | None
    scores: dict[str, Estimate]
    settings: dict[str, Any]
    wording: str
    folder: Path
    written: float

    @property
    def accuracy(self) -> float:
        """0 to 1."""
        return self.scores[self.asked.score].value

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy; None of fewer than three problems."""
        found = self.scores[self.asked.score]
        return None if found.low is None or found.high is None else (found.low, found.high)


# --- finding them -------------------------------------------------------------------------------


def find(found: Sequence[Run], root: Path) -> list[list[Scored]]:
    """The evaluations of each run's checkpoints; of an evaluation's run, its own. By set and step.

    Of two that asked a checkpoint the same, the newest. One that is not done is left out.

    Args:
        found: runs.
        root: where run folders lie; also looked through: where these lie.
    """
    jobs: Jobs = {}
    trained = set()
    for where in dict.fromkeys((root, *(run.path.parent for run in found))):
        for run in runs.all_runs(where):  # the newest first
            manifest = run.manifest
            if manifest.get("framework") == EVALUATION:
                jobs.setdefault(_real(run.output), _told(manifest))
            elif "task" not in manifest:
                trained.add(run.id)
    return [list(_newest(_of(run, jobs, trained))) for run in found]


Jobs = dict[Path, tuple[str | None, int | None]]
"""Folder of an evaluation -> (the run whose model it scores, the model's steps), if known."""


def _told(manifest: dict[str, Any]) -> tuple[str | None, int | None]:
    task = manifest.get("task")
    told = task if isinstance(task, dict) else {}
    whose, step = told.get("run"), told.get("step")
    return whose if isinstance(whose, str) else None, step if isinstance(step, int) else None


def _of(run: Run, jobs: Jobs, trained: set[str]) -> Iterator[Scored]:
    manifest = run.manifest
    if manifest.get("framework") == EVALUATION:
        places = {_real(run.output): _told(manifest)[1]}
    else:
        names = (run.id, manifest.get("id"))  # the second one before its folder was renamed
        places = {at: step for at, (whose, step) in jobs.items() if whose in names}
        for path in run.converted.glob(f"step_*/{SUMMARY}") if run.converted else ():
            folder = _real(path.parent)
            match = re.fullmatch(r"step_(\d+)-.+", path.parent.name)
            whose, _ = jobs.get(folder, (None, None))
            # Two runs may have written into one folder, the second one going on from the first.
            if match and whose not in trained:
                places.setdefault(folder, int(match[1]))
    for folder, step in places.items():
        if scored := read(folder, step):
            yield scored


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _newest(found: Iterable[Scored]) -> Iterator[Scored]:
    newest: dict[tuple[Asked, int | None], Scored] = {}
    for scored in sorted(found, key=lambda it: it.written):
        newest[scored.asked, scored.step] = scored
    yield from sorted(newest.values(), key=lambda it: (it.asked.set, it.step or 0, it.written))


def read(folder: Path, step: int | None = None) -> Scored | None:
    """The evaluation in a folder; None if it is not done, or its summary is not whole."""
    path = folder / SUMMARY
    summary = read_json(path)
    settings, told = summary.get("settings"), summary.get("scores")
    if not isinstance(settings, dict) or not isinstance(told, dict):
        return None
    scores = {name: known for name, said in told.items() if (known := _estimate(said))}
    samples = [int(it[1]) for name in scores if (it := re.fullmatch(r"avg@(\d{1,9})", name))]
    which = settings.get("set")
    if not isinstance(which, str) or not which or len(samples) != 1:
        return None
    asked = Asked(
        which,
        samples[0],
        _number(settings.get("max_tokens")),
        _number(settings.get("temperature")),
        _number(settings.get("top_p")),
    )
    try:
        written = path.stat().st_mtime
    except OSError:
        return None  # removed in this very moment
    wording = str(summary.get("wording") or "")
    return Scored(asked, step, scores, settings, wording, folder, written)


def result(run: Run, state: State) -> Scored | None:
    """What an evaluation's run has come to; None unless it has succeeded.

    Until then the folder may hold what an earlier one has found.
    """
    return read(run.output) if state.word == "succeeded" else None


def _estimate(said: Any) -> Estimate | None:
    value = _number(said.get("value")) if isinstance(said, dict) else None
    if value is None:
        return None
    return Estimate(value, _number(said.get("low")), _number(said.get("high")))


def _number(said: Any) -> float | None:
    number = isinstance(said, int | float) and not isinstance(said, bool)
    return said if number and abs(said) < HUGE else None  # neither nan nor inf


# --- showing them -------------------------------------------------------------------------------


def lines(found: Iterable[Sequence[Scored]]) -> dict[Asked, str]:
    """The ways of asking that occur, and how to name the score of each; AIME2025 first.

    Where a set was asked in several ways, the name says in what they differ.
    """
    asked = dict.fromkeys(it.asked for each in found for it in each)
    ways = sorted(asked, key=lambda it: (not same_set(it.set, COMMON), it.set, it.samples))
    named = {}
    for way in ways:
        others = [dict(it.words()) for it in ways if it.set == way.set]
        differ = (it for field, it in way.words() if len({o.get(field) for o in others}) > 1)
        named[way] = ", ".join((way.score, *differ))
    return named


def along(found: Iterable[Scored], asked: Asked) -> list[Scored]:
    """Those that were asked so, by step."""
    return [it for it in found if it.asked == asked]


def course_of(line: Sequence[Scored]) -> Course | None:
    """How the score went."""
    return course([(it.step or 0, it.accuracy) for it in line], window=1)


def spell(line: Sequence[Scored]) -> str:
    """First and last value, and the interval of the last; "–" for none."""
    if not line:
        return "–"
    first, last = (text.percent(it.accuracy) for it in (line[0], line[-1]))
    way = f"{first.removesuffix(' %')} → {last}" if len(line) > 1 else last
    interval = line[-1].interval()
    return f"{way} (95 %: {between(*interval)})" if interval else way


def between(low: float, high: float) -> str:
    """An interval, in per cent without their sign."""
    return " to ".join(text.percent(it).removesuffix(" %") for it in (low, high))


def rows(scored: Scored) -> list[tuple[str, str, str]]:
    """(name, value, 95 % interval) of each score; "" for no interval."""
    found = []
    for name, it in scored.scores.items():
        number = text.number if name == "tokens" else text.percent
        ends = "" if it.low is None or it.high is None else f"{number(it.low)} to {number(it.high)}"
        found.append((text.safe(name), number(it.value), ends.replace(" % to", " to")))
    return found


def notes(line: Sequence[Scored], asked: Asked) -> Iterator[str]:
    """How scores were found, and what is drawn of them."""
    yield (
        f"Scored by beam-slurm evaluate, the same way whoever trained: {asked.how}. "
        "Bars: 95 % interval over the problems, which is what others of the kind could have given."
    )
    if len({it.wording for it in line if it.wording}) > 1:
        yield "Not all were asked the same: questions or answers differ in their files of problems."
    if any(it.step is None for it in line):
        yield "Across: a model of which nobody knows after how many steps it is."


def as_json(scored: Scored) -> dict[str, Any]:
    """One evaluation as plain values."""
    return {
        "set": scored.asked.set,
        "step": scored.step,
        "samples": scored.asked.samples,
        "scores": {name: asdict(it) for name, it in scored.scores.items()},
        "settings": scored.settings,
        "folder": str(scored.folder),
    }
