#!/usr/bin/env python
"""GRPO on Ray: teach a tiny Beam to add digits. The driver: command line and training loop."""

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import checkpoint
import cluster
import ray
import task
from learner import Learner, Recipe
from metrics import Metrics, forget, say
from rollout import RolloutWorker


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--output-dir", type=Path, required=True, help="metrics and checkpoints; shared storage")
    add(
        "--mode",
        choices=["colocated", "async"],
        default="colocated",
        help="take turns on the same devices, or generate the next batch while training on this",
    )
    add("--steps", type=_positive, default=100, help="updates in all, resumed ones included")
    add("--prompts-per-step", type=_positive, default=32)
    add("--responses-per-prompt", type=_positive, default=8)
    add("--learning-rate", type=float, default=5e-4, help="after warm-up; falls to zero at the end")
    add("--clip-low", type=float, default=0.2)
    add("--clip-high", type=float, default=0.28)
    add("--eval-every", type=_positive, default=10, metavar="STEPS")
    add("--save-every", type=_not_negative, default=20, metavar="STEPS", help="0 saves nothing")
    add("--rollout-workers", type=_positive, help="default: one per host of its own")
    add("--resume", action="store_true", help="go on from the newest whole checkpoint, if any")
    add("--seed", type=int, default=0)
    add("--local", action="store_true", help="start a Ray of its own on this host")
    options = parser.parse_args(arguments)
    if options.responses_per_prompt < 2:
        parser.error("--responses-per-prompt: a group needs at least 2 responses to compare")
    if options.learning_rate <= 0:
        parser.error("--learning-rate must be above 0")
    if not 0 < options.clip_low < 1 or options.clip_high <= 0:
        parser.error("--clip-low must be between 0 and 1, --clip-high above 0")
    if options.rollout_workers is not None and options.rollout_workers > options.prompts_per_step:
        parser.error("--rollout-workers: each worker needs at least one of --prompts-per-step")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _not_negative(text: str) -> int:
    return 0 if text == "0" else _positive(text)


class StopSignal:
    """Whether SIGUSR1 has come: the wish to save and end after the running step.

    Python runs the handler in the main thread, also while that waits for Ray.
    """

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = True


class Trainer:
    """The loop over steps, and the actors that it keeps busy."""

    def __init__(
        self, options: argparse.Namespace, resume_from: Path | None, stop: StopSignal
    ) -> None:
        self.options = options
        self.stop = stop
        recipe = Recipe(
            seed=options.seed,
            steps=options.steps,
            responses_per_prompt=options.responses_per_prompt,
            learning_rate=options.learning_rate,
            clip_low=options.clip_low,
            clip_high=options.clip_high,
        )
        count = options.rollout_workers or cluster.default_rollout_workers(options.mode)
        count = min(count, options.prompts_per_step)
        places = cluster.reserve(options.mode, count)
        # No call here waits for an actor to be up: all of them start at the same time.
        self.learner = cluster.start(Learner, places.learner, recipe, resume_from)
        self.workers = [
            cluster.start(RolloutWorker, place, options.seed, rank)
            for rank, place in enumerate(places.rollout_workers)
        ]
        self.weights = self.learner.weights.remote()
        self.metrics = Metrics(options.output_dir)

    def announce(self) -> None:
        """Wait for the actors and say what they run on."""
        devices = ray.get([actor.device_type.remote() for actor in [self.learner, *self.workers]])
        say(f"learner on {devices[0]}, {len(self.workers)} rollout worker(s), {self.options.mode}")
        if cluster.accelerator() == "GPU" and "cpu" in devices:
            say("note: Ray has GPUs, but torch cannot use them: training on CPU")

    def run(self, first_step: int) -> float | None:
        """Train from ``first_step`` to the end; return the final held-out accuracy.

        None if it was asked to stop before.
        """
        last_step = self.options.steps
        accuracy = self.evaluate(first_step - 1)
        upcoming: list[Any] | None = None
        for step in range(first_step, last_step + 1):
            started = time.perf_counter()
            batch = upcoming or self.generate(step)
            ray.wait(batch, num_returns=len(batch))
            upcoming = None
            if self.options.mode == "async" and step < last_step:
                # With the weights from before this step's update: one update behind when used.
                upcoming = self.generate(step + 1)
            values = ray.get(self.learner.update.remote(step, *batch))
            self.weights = self.learner.weights.remote()
            values["step_time"] = time.perf_counter() - started
            values["tokens_per_second"] = values.pop("tokens") / values["step_time"]
            self.metrics.train(step, last_step, values)
            # Asked once: a signal from here on is for the next step, which then is saved.
            stopping = self.stop.came and step < last_step
            if not stopping and (step % self.options.eval_every == 0 or step == last_step):
                accuracy = self.evaluate(step)
            if self.options.save_every and (
                step % self.options.save_every == 0 or step == last_step or stopping
            ):
                self.save(step)
            if stopping:
                say(f"stopping early after step {step} of {last_step}: asked to")
                return None
        return accuracy

    def generate(self, step: int) -> list[Any]:
        """Start generating the batch of ``step``: one future for each worker's share."""
        problems = task.sample_problems(self.options.seed, step, self.options.prompts_per_step)
        return [
            worker.generate.remote(
                self.weights,
                step,
                problems[rank :: len(self.workers)],
                self.options.responses_per_prompt,
            )
            for rank, worker in enumerate(self.workers)
        ]

    def evaluate(self, step: int) -> float:
        rollouts = ray.get(self.workers[0].evaluate.remote(self.weights, task.HELD_OUT))
        accuracy: float = rollouts.rewards.mean().item()
        length = rollouts.lengths.float().mean().item()
        self.metrics.evaluation(step, accuracy, len(task.HELD_OUT), length)
        return accuracy

    def save(self, step: int) -> None:
        folder = self.options.output_dir / "checkpoints"
        self.metrics.checkpoint(step, ray.get(self.learner.save.remote(folder, step)))


def find_start(options: argparse.Namespace) -> tuple[int, Path | None]:
    """The first step to run and the checkpoint to load before it."""
    found = checkpoint.find(options.output_dir / "checkpoints")
    for path, why in found.unusable.items():
        say(f"note: {path} is {why} and ignored")
    if not options.resume:
        if found.newest is not None:
            raise ValueError(f"{found.newest} exists: pass --resume, or another --output-dir")
        return 1, None
    if found.newest is None:
        say(f"note: no checkpoint in {options.output_dir}: starting at step 1")
        return 1, None
    state = checkpoint.read_state(found.newest)
    if state["seed"] != options.seed:
        raise ValueError(f"{found.newest} is of --seed {state['seed']}, not {options.seed}")
    say(f"resuming from {found.newest} at step {state['step'] + 1}")
    return state["step"] + 1, found.newest


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    options.output_dir = options.output_dir.absolute()  # Actors have other working folders.
    options.output_dir.mkdir(parents=True, exist_ok=True)
    try:
        first_step, resume_from = find_start(options)
    except ValueError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2
    stop = StopSignal()
    try:
        cluster.join(options.local)
        if options.resume:
            forget(options.output_dir, first_step)
        trainer = Trainer(options, resume_from, stop)
        trainer.announce()
        accuracy = trainer.run(first_step)
    except cluster.ClusterError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 1
    finally:
        ray.shutdown()
    if accuracy is not None:
        say(f"final held-out accuracy {accuracy:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
