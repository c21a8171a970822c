"""Miles: dicts in its log, and the same ones, one JSON object each, in files of its dumps.

Rollouts have ids from 0: what id N measured is step N + 1. A step has been done when its trainer
says how long it took; until then what is said of it is kept, for rollouts are generated ahead.
Of a step with several updates the last one's values hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from beam_slurm.metrics.jsonl import integer, number, read_json
from beam_slurm.metrics.known import Known
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Resumed, Step
from beam_slurm.metrics.source import COUNT, NUMBER, LogParser, Parser
from beam_slurm.node.progress import MILES

EVENTS = "dumps/events"  # below the output folder

KEYS = {
    "rollout/raw_reward": "reward",
    "rollout/response_len/mean": "response_length",
    "perf/tokens_per_gpu_per_sec": "generation_throughput",
    "train/loss": "loss",
    "train/kl_loss": "kl",
    "train/grad_norm": "grad_norm",
    "train/entropy_loss": "entropy",
    "train/train_rollout_logprob_abs_diff": "logprob_diff",
    "train/train_rollout_kl": "rollout_kl",
    "perf/step_time": "step_time",
    "perf/actor_train_time": "training_time",
    "perf/update_weights_time": "transfer_time",
}

# While the trainer waits for the next rollout it does this, too.
NO_WAIT = ("update_weights", "save_model", "sleep", "wake_up")

_DICT = re.compile(rf"{MILES}(rollout|perf|step|eval) {COUNT}: (\{{.*)")
_PAIR = re.compile(rf"'([^'\\]+)': {NUMBER}(?=[,)}}])", re.IGNORECASE)
_SAVED = re.compile(rf"successfully saved checkpoint from iteration +{COUNT} to ")

Said = Mapping[str, float]


class MilesParser(LogParser):
    """The log: dicts as Python prints them, with bare nan and inf, some of them twice."""

    own = (b": {'", b"successfully saved checkpoint from iteration")

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self._kept: dict[int, dict[str, float]] = {}  # by step, of those that are not done yet
        self._done = 0
        self._anew = True

    def begins(self, after: int) -> None:
        """The first id says where."""
        self._kept = {}
        self._done = after
        self._anew = True

    def said(self, text: str) -> Iterator[Record]:
        """What a line says."""
        if found := _DICT.match(text):
            said = {name: float(value) for name, value in _PAIR.findall(found[3])}
            yield from self._dict(found[1], int(found[2]), said)
        elif saved := _SAVED.match(text):
            yield _checkpoint(int(saved[1]), self._known)

    def _dict(self, kind: str, id_: int, said: Said) -> Iterator[Record]:
        if kind == "step":
            id_ //= self._known.updates
        elif self._anew:  # the first rollout of a life: what it redoes was done in vain
            self._anew = False
            yield Resumed(id_)
            self._done = id_
        if kind == "eval":
            yield from evaluations(said, id_, self._known)
            return
        if kind == "rollout":  # training on it begins: those before are done, whatever was lost
            yield from self._are_done(id_)
        step = id_ + 1
        values = step_values(said, self._known)
        if step <= self._done:
            yield Step(step, None, None, **values)
            return
        self._kept.setdefault(step, {}).update(values)
        if "perf/train_time" in said:
            yield from self._are_done(step)

    def _are_done(self, step: int) -> Iterator[Record]:
        """All up to ``step``."""
        self._done = max(self._done, step)
        for done in sorted(at for at in self._kept if at <= step):
            yield Step(done, None, None, **self._kept.pop(done))


class EventsParser(Parser):
    """One process' file of events. Of a life before the last one nothing is to be kept.

    Miles itself puts the files back to the checkpoint that it resumes from; where it does not, an
    id that is lower than the one before tells.
    """

    words = (b'"metric"',)

    def __init__(self, known: Known) -> None:
        self._known = known
        self._newest = -1

    def parse(self, line: bytes) -> Iterator[Record]:
        """What a line says; nothing if it is no whole event of metrics."""
        event = read_json(line)
        if event is None or event.get("type") != "metric":
            return
        metrics = event.get("metrics")
        if not isinstance(metrics, dict):
            return
        said = {key: found for key in metrics if (found := number(metrics[key])) is not None}
        time = _epoch(event.get("timestamp"))
        if (scored := integer(said.get("eval/step"))) is not None:
            yield from evaluations(said, scored, self._known, time)
            return
        id_ = _rollout(said, event.get("rollout_id"), self._known)
        if id_ is None or id_ < 0:
            return
        if id_ < self._newest:
            yield Resumed(id_)
        self._newest = id_
        ended = time if "perf/train_time" in said else None
        yield Step(id_ + 1, None, ended, **step_values(said, self._known))


def step_values(said: Said, known: Known) -> dict[str, float]:
    """The fields of a step that one dict has."""
    found = {field: said[key] for key, field in KEYS.items() if key in said}
    parts = [said[key] for key in ("perf/log_probs_time", "perf/ref_log_probs_time") if key in said]
    if parts:
        found["logprob_time"] = sum(parts)
    if "perf/train_wait_time" in said:
        spent = sum(said.get(f"perf/{name}_time", 0.0) for name in NO_WAIT)
        found["generation_time"] = max(said["perf/train_wait_time"] - spent, 0.0)
    speed, step = said.get("perf/actor_train_tok_per_s"), said.get("perf/step_time")
    if speed is not None and step and known.gpus and "training_time" in found:
        # Miles counts the tokens of the whole step over the time of its update alone.
        tokens = speed * found["training_time"]
        found["tokens_per_second_per_gpu"] = tokens / step / known.gpus
    return found


def evaluations(
    said: Said, id_: int, known: Known, time: float | None = None
) -> Iterator[Evaluation]:
    """One evaluation a set: ``eval/<set>`` has its accuracy, longer keys the rest of it.

    One that is due is made after rollout ``id_`` was trained on, one at the start before it.
    """
    due = known.every and (id_ + 1) % known.every == 0
    step = id_ + 1 if due or id_ + 1 == known.steps else id_
    names = [key[5:] for key in said if key.startswith("eval/") and "/" not in key[5:]]
    names = [name for name in names if name != "step" and not name.startswith("skipped_")]
    for name in names:
        if any(name.startswith(other + "-") for other in names):
            continue
        yield Evaluation(
            step,
            known.named(name),
            time,
            said[f"eval/{name}"],
            known.problems or None,
            known.scored or None,
            said.get(f"eval/{name}/response_len/mean"),
        )


def _checkpoint(id_: int, known: Known) -> Checkpoint:
    folder = known.checkpoints
    return Checkpoint(id_ + 1, path=str(folder / f"iter_{id_:07d}") if folder else None)


def _rollout(said: Said, told: object, known: Known) -> int | None:
    """The id of the rollout that an event is of."""
    if (update := integer(said.get("train/step"))) is not None:
        return update // known.updates
    found = integer(said.get("rollout/step"))
    return found if found is not None else integer(told)


def _epoch(timestamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except (ValueError, OverflowError):
        return None
