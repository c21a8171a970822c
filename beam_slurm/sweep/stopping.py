"""Early stop: which points no longer promise enough, by Optuna's pruners.

Whoever waits for the sweep decides, not the points: a point alone does not know the others, and no
node needs Optuna. So nothing is ended while nobody waits, and nothing has to run beside the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from beam_slurm import metrics
from beam_slurm.errors import BeamSlurmError
from beam_slurm.sweep.schema import EarlyStop, Objective
from beam_slurm.sweep.states import Look


class Judge:
    """Tells an Optuna study what the points measure, and which of them it gives up.

    Whoever waits again begins anew with all that was measured, in the order of the steps.

    Raises:
        BeamSlurmError: Optuna is absent.
    """

    def __init__(self, rule: EarlyStop, wanted: Objective) -> None:
        try:
            import optuna
        except ImportError as error:
            raise BeamSlurmError(
                "early_stop needs Optuna",
                why=str(error),
                remedy="pip install 'beam-slurm[sweep]', or leave out early_stop",
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._rule = rule
        self._wanted = wanted
        self._over = optuna.trial.TrialState
        pruner: Any = (
            optuna.pruners.MedianPruner(rule.min_points, rule.min_steps)
            if rule.rule == "median"
            else optuna.pruners.SuccessiveHalvingPruner(min_resource=rule.min_steps)
        )
        direction = "maximize" if wanted.sign > 0 else "minimize"
        self._study = optuna.create_study(direction=direction, pruner=pruner)
        self._trials: dict[str, Any] = {}
        self._told: dict[str, int] = {}  # run -> the last step that the study knows
        self._closed: set[str] = set()

    def judge(self, looks: Sequence[Look]) -> list[tuple[Look, str]]:
        """The running points to end now, each with the reason."""
        over = [look for look in looks if look.facts.state.ended]
        self._judge(over)
        self._close(over)
        return self._judge([look for look in looks if not look.facts.state.ended])

    def _judge(self, looks: Sequence[Look]) -> list[tuple[Look, str]]:
        """Tell the study what is new, by step; those of ``looks`` that it gives up."""
        stop: dict[str, tuple[Look, str]] = {}
        for step, look, value in sorted(self._news(looks), key=lambda news: news[0]):
            run = look.entry.run
            trial = self._trials.get(run) or self._begin(run)
            trial.report(value, step)
            running = look.facts.state.word == "running"
            if trial.should_prune() and running and run not in stop:
                why = f"{self._rule.rule} rule at step {step}, {self._wanted.metric} {value:.4g}"
                stop[run] = (look, why)
        return list(stop.values())

    def _begin(self, run: str) -> Any:
        self._trials[run] = self._study.ask()
        return self._trials[run]

    def _news(self, looks: Sequence[Look]) -> Iterable[tuple[int, Look, float]]:
        for look in looks:
            run, history = look.entry.run, look.facts.history
            if run in self._closed or history is None:
                continue
            for step, value in metrics.series(history, self._wanted.metric):
                if step > self._told.get(run, -1) and math.isfinite(value):
                    self._told[run] = step
                    yield step, look, value

    def _close(self, looks: Sequence[Look]) -> None:
        """What has ended is no trial any more: the median is that of those that were finished."""
        for look in looks:
            run, trial = look.entry.run, self._trials.get(look.entry.run)
            if trial is None or run in self._closed:
                continue
            self._closed.add(run)
            values = (
                metrics.series(look.facts.history, self._wanted.metric)
                if look.facts.history
                else []
            )
            if look.facts.state.word == "succeeded" and values and math.isfinite(values[-1][1]):
                self._study.tell(trial, values[-1][1])
            else:
                ended = self._over.PRUNED if look.stopped else self._over.FAIL
                self._study.tell(trial, state=ended)
