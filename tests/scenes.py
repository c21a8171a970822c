"""Runs in every state that ``watch`` shows, with commands of Slurm's that say what a test wants."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import folders

SCONTROL = """#!/bin/bash
cd "${0%/*}" || exit 1
if [[ $2 == hostnames ]]; then
  exec cat nodes
fi
echo >> asked
while [[ -e silent ]]; do sleep 0.05; done
cat job
"""
SCANCEL = """#!/bin/bash
cd "${0%/*}" || exit 1
echo "$@" >> cancelled
sed -i 's/JobState=[A-Z]*/JobState=CANCELLED/; s/Reason=[A-Za-z]*/Reason=None/' job
"""


class Scene:
    """A run of four nodes and one spare that began five minutes ago, and its Slurm.

    Attributes:
        bin: the folder with Slurm's commands.
    """

    nodes = ("gpu001", "gpu002", "gpu003", "gpu004")

    def __init__(self, root: Path) -> None:
        folders.T0 = time.time() - 300
        self.root = root
        self.run = folders.make(
            root / "runs",
            "b300-colocated-7c1f9e",
            **{"job": "4711", "profile": "b300-colocated", "nodes": 4, "gpus_per_node": 8},
        )
        self.bin = root / "bin"
        self.bin.mkdir()
        for name, text in (("scontrol", SCONTROL), ("scancel", SCANCEL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        (self.bin / "nodes").write_text("\n".join([*self.nodes, "gpu005"]) + "\n")
        self.job("PENDING", Reason="Priority", StartTime=stamp(7200))

    @property
    def environment(self) -> dict[str, str]:
        """For a command that is to find this Slurm."""
        return {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }

    @property
    def command(self) -> list[str]:
        words = [
            sys.executable,
            "-c",
            "from beam_slurm.cli import main; main()",
            "watch",
            self.run.id,
        ]
        return [*words, "--runs", str(self.run.path.parent)]

    def job(self, state: str, nodes: str = "(null)", **fields: str) -> None:
        """What the controller says from now on."""
        known = {"JobId": "4711", "JobState": state, "Reason": "None", "ExitCode": "0:0"}
        known |= {"NodeList": nodes, "StartTime": stamp(-302), "EndTime": stamp(80000), **fields}
        part = self.bin / "part"
        part.write_text(" ".join(f"{name}={value}" for name, value in known.items()) + "\n")
        part.replace(self.bin / "job")

    def silence(self, silent: bool = True) -> None:
        """Let the controller answer nobody."""
        (self.bin / "silent").touch() if silent else (self.bin / "silent").unlink()

    def log(self, *lines: str, node: str | None = None, attempt: int = 0) -> None:
        """More lines of the driver, or of Ray on a node."""
        path = self.run.path / "job-4711.log"
        if node:
            path = self.run.path / f"attempt-{attempt}" / "ray" / f"{node}.log"
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


def stamp(after: float) -> str:
    """Slurm's spelling of a time, ``after`` seconds from now."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + after))


def pending(scene: Scene) -> None:
    """In the queue, with a reason and an expected start."""


def starting(
    scene: Scene, attempt: int = 0, after: float = 0, unfit: str = "", blamed: str = ""
) -> None:
    """Three of four nodes have joined Ray; the fifth of the job is a spare, or in use."""
    scene.job("RUNNING", "gpu[001-005]")
    run = scene.run
    chosen = _preflight(scene, attempt, after, unfit, blamed)
    folders.event(
        run, "batch-started", after, attempt, node="gpu001", port=6379, nodes=chosen, job="4711"
    )
    for at, node in enumerate(chosen[:3]):
        folders.event(run, "node-up", after + 2 + at, attempt, node=node)
        scene.log("ray start --block", f"{node}: raylet is up", node=node, attempt=attempt)
    scene.log("beam-slurm: preflight: 5 of 5 nodes are fit, 4 are needed (2.1 s)")


def running(
    scene: Scene, attempt: int = 0, after: float = 0, steps: int = 37, unfit: str = ""
) -> None:
    """Ray is complete, and it has trained for some steps."""
    starting(scene, attempt, after, unfit)
    run = scene.run
    folders.event(run, "node-up", after + 5, attempt, node="gpu005" if unfit else "gpu004")
    folders.event(run, "ray-up", after + 6, attempt, nodes=4, gpus=32, since=folders.T0 + after + 1)
    folders.event(run, "entry-started", after + 7, attempt, pid=4)
    for step in range(1, steps + 1):
        wave = math.sin(step / 3)
        folders.measure(
            run,
            folders.train(
                step,
                time=folders.T0 + after + 10 + 6 * step,
                reward=0.3 + step / 120 + wave / 20,
                response_length=3200 - 8 * step + 90 * wave,
                logprob_diff=0.01 + 0.002 * wave,
                step_time=6 + wave / 2,
            ),
        )
        scene.log(f"step {step}/80 reward {0.3 + step / 120:.3f} [bold]length[/bold] 3,1{step:02}")
        if step % 10 == 0:
            folders.measure(run, folders.evaluate(step, 0.5333 + step / 800, set="aime2025"))


def restarting(scene: Scene) -> None:
    """The first attempt has lost a node, the second one comes up with the spare."""
    running(scene, steps=20)
    folders.event(scene.run, "node-failed", 190, node="gpu003", why="Node failure")
    folders.lost(
        scene.run, "here", job="4711", node="gpu003", cause="gpu003: Node failure",
        blamed=["gpu003"], nodes=list(scene.nodes),
        next={"how": "here", "why": "4 of its nodes are fit, 4 are needed", "job": None,
              "resumes": 20},
    )  # fmt: skip
    starting(scene, 1, 206, blamed="gpu003")


def failed(scene: Scene) -> None:
    """It is over: its nodes are out of memory, and it does not go on."""
    running(scene)
    scene.job("FAILED", "gpu[001-005]", ExitCode="3:0", EndTime=stamp(-2))
    scene.log("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    folders.event(scene.run, "entry-ended", 290, code=3)
    folders.outcome(
        scene.run, 292, state="failed", **{"class": "oom"}, component="entry", exit_code=3,
        cause="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        do="lower recipe.rollout.gpu_memory_utilization, or the micro batch", job="4711",
        stopped="job.max_restarts is 0", next=None, blamed=[],
        lines=["Traceback (most recent call last):", "torch.OutOfMemoryError"],
    )  # fmt: skip


def succeeded(scene: Scene) -> None:
    """It is over and has done all its steps."""
    running(scene, steps=80)
    scene.job("COMPLETED", "gpu[001-005]", EndTime=stamp(-2))
    folders.event(scene.run, "entry-ended", 290, code=0)
    folders.outcome(scene.run, 292, job="4711", nodes=list(scene.nodes), next=None)


def spare_used(scene: Scene) -> None:
    """A node was unfit, the spare has its place, and the spare's disk is nearly full."""
    running(scene, unfit="gpu003")


ALL = (pending, starting, running, restarting, failed, succeeded, spare_used)


def _preflight(scene: Scene, attempt: int, after: float, unfit: str, blamed: str) -> list[str]:
    """What preflight has found; the nodes that it has chosen."""
    names = [*scene.nodes, "gpu005"]
    fit = [name for name in names if name not in (unfit, blamed)]
    chosen = fit[:4]
    found = {unfit: ["gpus"]} if unfit else {}
    folders.event(scene.run, "preflight", after - 0.2, attempt, fit=fit, unfit=found)
    gpus = {"name": "gpus", "verdict": "ok", "have": "8 GPUs", "need": "8"}
    nodes = {name: {"use": "spare", "checks": [gpus]} for name in names}
    for name in chosen:
        nodes[name]["use"] = "head" if name == chosen[0] else "runs"
    if blamed:
        nodes[blamed] = {"use": "blamed", "checks": []}
    if unfit:
        bad = {**gpus, "verdict": "fail", "have": "7 GPUs", "do": "ask the site"}
        full = {"name": "scratch", "verdict": "warn", "have": "1.1 TB free", "need": "1.0 TB"}
        nodes[unfit] = {"use": "unfit", "checks": [bad]}
        nodes["gpu005"]["checks"] = [gpus, full]
    path = scene.run.path / f"attempt-{attempt}" / "preflight.json"
    path.write_text(json.dumps({"need": 4, "seconds": 2.1, "nodes": nodes}))
    return chosen


def show(name: str, root: Path) -> None:
    """Watch one of them, for people: python tests/scenes.py running /tmp/somewhere."""
    scene = Scene(root)
    globals()[name](scene)
    os.environ.update(scene.environment)
    os.execvp(scene.command[0], scene.command)  # noqa: S606


if __name__ == "__main__":
    show(sys.argv[1], Path(sys.argv[2]))
