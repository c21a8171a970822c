"""SkyRL: what its training task prints, and the results of its evaluations, a file each.

With ``logger=wandb`` it prints neither the scores of an evaluation nor most of a step's metrics;
what of them is known comes from the timers, two lines on rewards and lengths, the status of each
update and the files. Prompts are not counted there, so ``tokens_per_second_per_gpu`` is of
responses alone. With ``trainer.logger=console`` the log-probability difference is the one of the
whole step; else it is the one of its updates.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping

from beam_slurm.metrics.jsonl import number, read_json
from beam_slurm.metrics.known import Known
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Resumed, Step
from beam_slurm.metrics.source import COUNT, NUMBER, LogParser
from beam_slurm.node.progress import LOGURU

EXPORTS = "exports"  # below the output folder: EXPORT_PATH

TIMERS = {
    "step": "step_time",
    "generate": "generation_time",
    "fwd_logprobs_values_reward": "logprob_time",
    "train_critic_and_policy": "training_time",
    "sync_weights": "transfer_time",
}

# Mean over a step's updates, printed when the step is over.
STATUS = {
    "policy_loss": "loss",
    "policy_kl": "kl",
    "policy_entropy": "entropy",
    "grad_norm": "grad_norm",
    "minibatch_rollout_logprobs_abs_diff_mean": "logprob_diff",
}

WHOLE_DIFFERENCE = "'policy/rollout_train_logprobs_abs_diff_mean': "

Match = re.Match[str]

_HEAD = re.compile(LOGURU)
_PAIR = re.compile(rf"'(\w+)': {NUMBER}(?=[,)}}])", re.IGNORECASE)


def _table(*rows: tuple[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern, re.IGNORECASE), name) for pattern, name in rows]


# What each line means: a method of SkyRLParser.
TABLE = _table(
    (r"Started: 'step'", "_begins_step"),
    (rf"Finished: '(\w+)', time cost: {NUMBER}s", "_timer"),
    (rf"reward/.*\breward/avg_raw_reward: {NUMBER}", "_reward"),
    (rf"avg_final_rewards: .*\bavg_response_length: {NUMBER}", "_length"),
    (r"\{'.*policy_loss.*", "_status"),
    (rf"[{{ ]?{WHOLE_DIFFERENCE}'?{NUMBER}'?[,}}]", "_difference"),
    (rf"Training (?:Batches Processed|Step Progress): .*\| \d+/{COUNT} \[", "_bar"),
    (rf"Resuming from global_step: {COUNT}", "_resumes"),
    (rf"Successfully saved checkpoint for global_step_{COUNT} to: ", "_saved"),
    (
        rf"Dumped aggregated eval metrics to .*/global_step_{COUNT}_evals/aggregated_results",
        "_evaluated",
    ),
)


class SkyRLParser(LogParser):
    """It numbers no step: those that trained are counted from where it resumed.

    Each checkpoint sets the count right, should a line have been lost. The values of a step are
    kept until it is over.
    """

    own = (
        b"Started: 'step'",
        b"Finished: '",
        b"reward/avg_raw_reward: ",
        b"avg_response_length: ",
        b"'policy_loss': ",
        WHOLE_DIFFERENCE.encode(),
        b"Training Batches Processed",
        b"Training Step Progress",
        b"Resuming from global_step: ",
        b"Successfully saved checkpoint for global_step_",
        b"Dumped aggregated eval metrics to ",
    )

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self._steps: int | None = None
        self._done = 0  # steps
        self._running = False  # a step is
        self._trained = False  # in it
        self._values: dict[str, float] = {}  # of the step that runs
        self._heard: deque[str] = deque(maxlen=32)
        self._late: set[int] = set()  # steps whose evaluation's file is not to be seen yet

    def begins(self, after: int) -> None:
        """Counts from there, until the framework says it itself."""
        self._done = after
        self._running = self._trained = False
        self._values = {}
        self._heard.clear()
        self._late = {step for step in self._late if step <= after}

    def said(self, text: str) -> Iterator[Record]:
        """What a line says. Times are sums over a step's timers, so no line may count twice."""
        head = _HEAD.match(text)
        begin = head.end() if head else 0
        if begin and text in self._heard:  # the time before it makes each line another one
            return
        self._heard.append(text)
        for pattern, name in TABLE:
            if found := pattern.match(text, begin):
                yield from getattr(self, name)(found) or ()
                return

    def _begins_step(self, found: Match) -> None:
        self._running = True

    def _timer(self, found: Match) -> Iterator[Record]:
        name, seconds = found[1], float(found[2])
        if name not in TIMERS or not self._running:  # the first weights belong to no step
            return
        field = TIMERS[name]
        self._values[field] = self._values.get(field, 0.0) + seconds
        if name == "train_critic_and_policy":
            self._trained = True
        elif name == "step" and self._trained:  # else it has only drawn more samples
            self._done += 1
            values, self._values = self._values, {}
            self._running = self._trained = False
            yield Step(self._done, self._steps, **values, **self._speeds(values))

    def _reward(self, found: Match) -> None:
        self._values["reward"] = float(found[1])

    def _length(self, found: Match) -> None:
        self._values["response_length"] = float(found[1])

    def _status(self, found: Match) -> Iterator[Record]:
        said = {name: float(value) for name, value in _PAIR.findall(found[0])}
        values = {field: said[name] for name, field in STATUS.items() if name in said}
        if values and self._done:
            yield Step(self._done, self._steps, **values)

    def _difference(self, found: Match) -> Iterator[Record]:
        if self._done:
            yield Step(self._done, self._steps, logprob_diff=float(found[1]))

    def _bar(self, found: Match) -> None:
        self._steps = int(found[1])

    def _resumes(self, found: Match) -> Iterator[Record]:
        self.begins(int(found[1]))
        yield Resumed(self._done)

    def _saved(self, found: Match) -> Iterator[Record]:
        step = int(found[1])
        if self._trained:  # it is saved before its step is over
            self._done = step - 1
        folder = self._known.checkpoints
        yield Checkpoint(step, path=str(folder / f"global_step_{step}") if folder else None)

    def _evaluated(self, found: Match) -> Iterator[Record]:
        self._late.add(int(found[1]))
        yield from self.late()

    def _speeds(self, values: Mapping[str, float]) -> dict[str, float]:
        tokens = self._known.responses * values.get("response_length", 0.0)
        found = {
            "tokens_per_second_per_gpu": values.get("step_time"),
            "generation_throughput": values.get("generation_time"),
        }
        gpus = self._known.gpus  # all of them generate, in turn with training
        return {
            name: tokens / time / gpus for name, time in found.items() if time and tokens and gpus
        }

    def late(self) -> Iterator[Record]:
        """Evaluations whose file can be read now."""
        folder = self._known.output / EXPORTS / "dumped_evals"
        for step in sorted(self._late):
            path = folder / f"global_step_{step}_evals" / "aggregated_results.jsonl"
            try:
                line = path.read_bytes()
            except OSError:
                continue  # shared storage is slow: the next read will tell
            said = read_json(line)
            if said is not None:
                self._late.discard(step)
                yield from evaluations(said, step, self._known)


def evaluations(said: Mapping[str, object], step: int, known: Known) -> Iterator[Evaluation]:
    """One evaluation a set, of the keys ``eval/<set>/<measure>``.

    A wrong answer may score below 0, so of the scores only those above count as accuracy. The
    length is told for all sets together: with several it is no set's own.
    """
    names = {key.split("/")[1] for key in said if key.count("/") >= 2 and key.startswith("eval/")}
    names -= {"all"}
    length = number(said.get("eval/all/generate/avg_num_tokens")) if len(names) == 1 else None
    for name in sorted(names):
        accuracy = number(said.get(f"eval/{name}/mean_positive_reward"))
        if accuracy is None:
            accuracy = number(said.get(f"eval/{name}/avg_score"))
        if accuracy is not None:
            yield Evaluation(
                step,
                known.named(name),
                accuracy=accuracy,
                problems=known.problems or None,
                responses=known.scored or None,
                response_length=length,
            )
