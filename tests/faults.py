"""For the fault suite: a run of the demo that can be watched, and what its hosts look like."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from launching import PATIENCE
from launching import Launch as Base

from beam_slurm import runs
from beam_slurm.cluster import Cluster

ENTRY = Path(__file__).with_name("faulty.py")
DEMO = Path(__file__).parents[1] / "examples" / "grpo_digits"

# Processes of a host that nobody's job has started.
OWN = re.compile(r"python3?(?:\.\d+)? -I -S|munged|slurmd|slurmctld|^ps ")

STEPS, EVERY = 16, 3  # of a run: short, with several checkpoints

WORDS = (
    *("--profile", "demo", "--steps", str(STEPS), "--save-every", str(EVERY)),
    *("--set", "hardware.cpus_per_node=4", "--set", "recipe.prompts_per_step=8"),
    # Whoever comes back after a failure: quick, and no evaluation but the last one.
    *("--set", "recipe.evaluation.every=100", "--set", "recipe.startup_s=5"),
)


class Faults(Base):
    """One cluster on which things break."""

    def train(self, *words: str, nodes: int = 2, **more: str) -> runs.Run:
        """Submit a short training; ``more`` are variables of the submitting shell."""
        done = self.call(
            "submit", "--json", *WORDS, "--nodes", str(nodes), *words,
            *([] if "--" in words else ["--"]), "--rollout-workers=1", **more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return runs.Run(Path(json.loads(done.stdout)["folder"]))

    def entry(self, words: list[str]) -> tuple[str, str]:
        """The demo with ``faulty.py`` in it, in a folder of its own: workers import beside it."""
        folder = self.folder / "faulty"
        shutil.copytree(DEMO, folder)
        shutil.copy(ENTRY, folder)
        whole = ", ".join(["python", str(folder / ENTRY.name), *words])
        return "--set", f"framework.entry=[{whole}]"

    def reach(self, run: runs.Run, step: int) -> None:
        """Wait until the training has done ``step`` (in any attempt)."""
        self.until(
            f"step {step} of {run.id}",
            lambda: max(self.steps(run), default=0) >= step or self.ended(run),
        )
        assert max(self.steps(run), default=0) >= step, self.log(run)

    def steps(self, run: runs.Run) -> list[int]:
        """The training steps in the run's metrics, as they lie there."""
        try:
            lines = (run.output / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        records = [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "}"]
        return [record["step"] for record in records if record["type"] == "train"]

    def ended(self, run: runs.Run) -> bool:
        """Whether the run is over for good; a requeued job is hurried on."""
        state = run.state()
        if state.job:
            self.hurry(state.job.id)
        return state.ended

    def finish(self, run: runs.Run, patience: float = PATIENCE) -> None:
        """Wait for the run's end, over all its attempts and jobs."""
        self.until(f"the end of {run.id}", lambda: self.ended(run), patience)

    def outcome(self, run: runs.Run, attempt: int) -> dict[str, Any]:
        """An attempt's outcome.json, once it says what follows."""
        path = run.path / f"attempt-{attempt}" / "outcome.json"

        def decided() -> bool:
            self.ended(run)  # asked again and again, so that requeued jobs get on
            following = read(path).get("next") or {}
            return path.exists() and following.get("how") != "undecided"

        self.until(f"the outcome of attempt {attempt} of {run.id}", decided)
        return read(path)

    def events(self, run: runs.Run, attempt: int, name: str) -> list[dict[str, Any]]:
        """An attempt's events of one name."""
        path = run.path / f"attempt-{attempt}" / "events.jsonl"
        try:
            found = [json.loads(line) for line in path.read_text().splitlines()]
        except OSError:
            return []
        return [event for event in found if event["beam-slurm"] == name]

    def trained_on(self, run: runs.Run) -> None:
        """Every step was done, none twice, and no attempt lost more than an interval."""
        assert run.state().word == "succeeded", run.state()
        twice = [step for step, times in Counter(self.steps(run)).items() if times > 1]
        assert self.steps(run) == list(range(1, run.manifest["steps"] + 1)), f"twice: {twice}"
        ranges = [attempt.outcome["steps"] for attempt in run.attempts]
        done = 0
        for steps in ranges:
            if steps["first"] is not None:
                assert done - EVERY <= steps["first"] - 1 <= done, ranges
                done = steps["last"]

    def clean(self, run: runs.Run, but: tuple[str, ...] = ()) -> None:
        """Nothing of any run is left on the hosts, but on those that are off; no token either."""
        self.until(
            f"nothing left of {run.id}: {self.leftovers(but)}", lambda: not self.leftovers(but)
        )
        assert not list((run.path / "private").glob("*"))
        assert not list(run.output.glob(".beam-canary*"))

    def leftovers(self, but: tuple[str, ...]) -> dict[str, list[str]]:
        """Processes and folders of runs, by host."""
        found = {}
        for host in self.cluster.spec().nodes:
            if host in but:
                continue
            script = "ps -eo args= --no-headers; ls -d /tmp/beam-* 2>/dev/null; true"
            lines = self.cluster.exec(host, ["bash", "-c", script]).stdout.splitlines()
            found[host] = [
                line
                for line in lines
                if line.strip() and not OWN.search(line) and "bash -c" not in line
            ]
        return {host: lines for host, lines in found.items() if lines}


def read(path: Path) -> dict[str, Any]:
    """A JSON object, {} while it is not there."""
    try:
        found = json.loads(path.read_text())
    except OSError:
        return {}
    assert isinstance(found, dict)
    return found


def now() -> float:
    """Epoch seconds, as events have them."""
    return time.time()


def cluster_for_faults(name: str, *shared: Path) -> Cluster:
    """Four hosts, with a partition that takes nodes from another one."""
    cluster = Cluster(name)
    cluster.up(
        hosts=4,
        gpus=8,
        gpu_type="h200",
        shared=shared,
        extra_conf=(
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=5",
            "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF",
        ),
    )
    return cluster
