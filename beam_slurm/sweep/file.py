"""The sweep file: which profile, what is varied and how, what is best, and how much it may cost.

    profile: demo
    set: {recipe.steps: 40, hardware.nodes: 2}
    over:
      recipe.learning_rate: {log_uniform: [1e-4, 1e-2], points: 3}
      recipe.prompts_per_step: [16, 32]
      "policy.optimizer.kwargs.weight_decay={}": [0.0, 0.1]    # a word for the entry
    seeds: [1, 2]
    except:
      - {recipe.learning_rate: {min: 5e-3}, recipe.prompts_per_step: 16}
    objective: {metric: accuracy/held-out, over: best}
    max_parallel: 4
    max_gpu_hours: 500

A key with ``{}`` in it is a word behind ``--``, which gets the value at that place; any other key
is one of the profile's. Every value keeps its line for the errors.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from beam_slurm import metrics
from beam_slurm.errors import BeamSlurmError
from beam_slurm.schema import NAME, Model
from beam_slurm.sweep.schema import EarlyStop, Objective, Random, Range, Spread, SweepFile
from beam_slurm.yamlfile import Document, Key, dotted, load

SEED = "recipe.seed"
HOLE = "{}"


@dataclass(frozen=True)
class Sweep:
    """A sweep file that was read.

    Attributes:
        path: where it lies; its name is the sweep's.
        home: from where it names its profile, if it does so by a path.
        file: what it says.
        spreads: the keys of ``over`` that are no lists.
        document: knows the place of each value.
        sha256: of its bytes.
    """

    path: Path
    home: Path
    file: SweepFile
    spreads: dict[str, Spread]
    document: Document
    sha256: str

    @property
    def name(self) -> str:
        """Its name: the file's."""
        return self.path.stem

    @property
    def profile(self) -> str:
        """The profile as ``profiles.resolve`` takes it."""
        name = self.file.profile
        is_path = name.endswith((".yaml", ".yml")) or "/" in name
        return str(self.home / name) if is_path else name

    def place(self, *key: str | int) -> str:
        """ "file:line" of a value."""
        return self.document.place(key) or str(self.path)


def read(path: Path, home: Path | None = None) -> Sweep:
    """Read and check a sweep file, ``home`` is its folder unless this one is a copy.

    Raises:
        BeamSlurmError: with file and line.
    """
    document = load(path)
    if not NAME.fullmatch(path.stem):
        raise BeamSlurmError(
            f"{path.stem!r} cannot name a sweep",
            where=str(path),
            why="a name is 1 to 64 of A-Z a-z 0-9 . _ -, and a sweep is named after its file",
            remedy="rename the file",
        )
    try:
        file = SweepFile.model_validate(document.data)
    except ValidationError as error:
        raise _explain(error, document, ()) from error
    spreads = {
        key: _spread(document, key, given)
        for key, given in file.over.items()
        if isinstance(given, dict)
    }
    found = Sweep(path, home or path.parent, file, spreads, document, digest(path))
    _check(found)
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file, by which a change of it is noticed.

    Raises:
        BeamSlurmError: it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BeamSlurmError(f"cannot read {path}", why=error.strerror) from error


def split(key: str) -> Key:
    """A dotted key of the profile, taken apart."""
    return tuple(key.split("."))


def _spread(document: Document, key: str, given: dict[str, Any]) -> Spread:
    try:
        return Spread.model_validate(given)
    except ValidationError as error:
        raise _explain(error, document, ("over", key)) from error


def _check(sweep: Sweep) -> None:
    """What holds between the keys of a sweep file."""
    file = sweep.file
    if bool(file.over) == bool(file.points):
        both = "both over and points" if file.over else "neither over nor points"
        raise BeamSlurmError(
            f"the sweep has {both}",
            where=sweep.place("points") if file.points else sweep.place(),
            remedy="over: {recipe.learning_rate: [1e-4, 3e-4]}, or points: with one combination "
            "a line",
        )
    for key, given in file.over.items():
        _swept(sweep, ("over", key), key)
        _values(sweep, key, given)
    for index, combination in enumerate(file.points):
        for key in combination:
            _swept(sweep, ("points", index, key), key)
    for key in file.fixed:
        _key(sweep, ("set", key), key)
    if len(set(file.seeds)) < len(file.seeds):
        raise BeamSlurmError("a seed is given twice", where=sweep.place("seeds"))
    if file.random and not file.over:
        raise BeamSlurmError("random draws from over", where=sweep.place("random"))
    for name, filters in (("except", file.excluded), ("only", file.only)):
        for index, entry in enumerate(filters):
            _filter(sweep, (name, index), entry)
    _objective(sweep)


def _swept(sweep: Sweep, at: Key, key: str) -> None:
    """A key that is varied is nowhere else."""
    if HOLE not in key:
        _key(sweep, at, key)
    elif key.count(HOLE) > 1 or re.search(r"\s", key):
        raise BeamSlurmError(
            f"{key!r} is no word for the entry with one place for the value",
            where=sweep.place(*at),
            remedy='one word with one {}: "policy.optimizer.kwargs.lr={}", "--lr={}"',
        )
    if key in sweep.file.fixed:
        raise BeamSlurmError(
            f"{key} is varied, and fixed in set",
            where=sweep.place(*at),
            remedy=f"leave it out at {sweep.place('set', key)}",
        )
    if key == SEED and sweep.file.seeds:
        raise BeamSlurmError(f"{SEED} is varied, and seeds are given", where=sweep.place(*at))


def _key(sweep: Sweep, at: Key, key: str) -> None:
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", word) for word in key.split(".")):
        raise BeamSlurmError(
            f"{key!r} is no key of a profile",
            where=sweep.place(*at),
            remedy="keys look like recipe.learning_rate; a word for the entry has {} for the value",
        )


def _values(sweep: Sweep, key: str, given: Any) -> None:
    where = sweep.place("over", key)
    if isinstance(given, dict):
        points = sweep.spreads[key].points
        if sweep.file.random and points:
            why = "random draws: its own points says how many"
            raise BeamSlurmError(f"{key} has points, and random is given", where=where, why=why)
        if not sweep.file.random and not points:
            raise BeamSlurmError(
                f"{key} does not say how many points",
                where=where,
                remedy="{log_uniform: [1e-5, 1e-3], points: 5}, or random: {points: N} for all",
            )
        return
    if not isinstance(given, list):
        raise BeamSlurmError(
            f"over.{key} is {given!r}: a list of values, or uniform or log_uniform, is wanted",
            where=where,
            remedy=f"what does not vary belongs into set: {{{key}: {given}}}",
        )
    if not given:
        raise BeamSlurmError(f"{key} has no values: the grid is empty", where=where)
    for index, value in enumerate(given):
        if value in given[:index]:
            at = sweep.place("over", key, index)
            raise BeamSlurmError(f"{key} has the value {value!r} twice", where=at)


def _filter(sweep: Sweep, at: Key, entry: dict[str, Any]) -> None:
    known = [*sweep.file.over, *(key for point in sweep.file.points for key in point)]
    for key, wanted in entry.items():
        where = sweep.place(*at, key)
        if key not in known:
            raise BeamSlurmError(
                f"{dotted(at)} asks for {key}, which is not varied",
                where=where,
                remedy=_nearest(key, known) + "varied are " + ", ".join(dict.fromkeys(known)),
            )
        if isinstance(wanted, dict):
            try:
                Range.model_validate(wanted)
            except ValidationError as error:
                raise _explain(error, sweep.document, (*at, key)) from error


def _objective(sweep: Sweep) -> None:
    wanted = sweep.file.objective
    if wanted is None:
        if sweep.file.early_stop:
            raise BeamSlurmError(
                "early_stop needs an objective",
                where=sweep.place("early_stop"),
                remedy="objective: {metric: reward}",
            )
        return
    try:
        metric, _ = metrics.find(wanted.metric)
    except BeamSlurmError as error:
        where = sweep.place("objective", "metric")
        raise BeamSlurmError(error.what, where=where, remedy=error.remedy) from None
    if metric.goal is None and wanted.goal is None:
        raise BeamSlurmError(
            f"{wanted.metric} has no direction of its own",
            where=sweep.place("objective"),
            remedy="goal: maximize, or goal: minimize",
        )
    if wanted.over not in ("last", "best") and not (wanted.window or 0) > 1:
        raise BeamSlurmError(
            f"objective.over is {wanted.over!r}",
            where=sweep.place("objective", "over"),
            remedy="last, best, or mean of last 5",
        )


def _explain(error: ValidationError, document: Document, at: Key) -> BeamSlurmError:
    """The first problem of a file, with its place and what is allowed there."""
    detail = error.errors()[0]
    key = (*at, *detail["loc"])
    where, name = document.place(key), dotted(key)
    if detail["type"] == "extra_forbidden":
        allowed = _allowed(error.title, detail["loc"])
        hint = _nearest(str(key[-1]), allowed)
        remedy = f"{hint}allowed are {', '.join(allowed)}"
        return BeamSlurmError(f"the key {name} is unknown", where=where, remedy=remedy)
    if detail["type"] == "missing":
        return BeamSlurmError(f"the key {name} is missing", where=where, remedy=f"add {name}: ...")
    said = detail["msg"].removeprefix("Value error, ")
    said = said[0].lower() + said[1:]
    given = detail.get("input")
    shown = "" if isinstance(given, dict) else f" is {given!r}"
    return BeamSlurmError(f"{name}{shown}: {said}", where=where)


def _allowed(title: str, loc: tuple[int | str, ...]) -> list[str]:
    """The keys beside one that is unknown."""
    models: dict[str, type[Model]] = {
        "random": Random,
        "objective": Objective,
        "early_stop": EarlyStop,
    }
    model: type[Model]
    if title in ("Spread", "Range"):
        model = Spread if title == "Spread" else Range
    else:
        model = models.get(str(loc[0]), SweepFile)
    return [field.alias or name for name, field in model.model_fields.items()]


def _nearest(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word, allowed, 1, 0.5)
    return f"did you mean {close[0]}? " if close else ""
