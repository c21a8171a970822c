"""Run folders made by hand: what submit and the nodes would have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from beam_slurm.runs import Run

T0 = 1_800_000_000.0  # when the batch script began


def make(root: Path, name: str = "demo-1a2b3c", **manifest: Any) -> Run:
    """A run that has been submitted, 12 s before its batch script will begin."""
    path = root / name
    path.mkdir(parents=True)
    run = Run(path)
    facts = {
        "id": name,
        "created": T0 - 12,
        "profile": "demo",
        "framework": "demo",
        "executor": "slurm",
        "job": "17",
        "nodes": 2,
        "gpus_per_node": 2,
        "steps": 80,
    }
    run.record(**{**facts, **manifest})
    (path / "profile.yaml").write_text("name: demo\nrecipe:\n  reference: []\n")
    return run


RECIPES: dict[str, dict[str, Any]] = {
    "nemo-rl": {
        "name": "h200-colocated",
        "nodes": 16,
        "steps": 200,
        "prompts_per_step": 32,
        "updates_per_step": 1,
        "sets": ["aime2025"],
    },
    "skyrl": {
        "name": "b200-lora",
        "nodes": 4,
        "steps": 50,
        "prompts_per_step": 64,
        "updates_per_step": 2,
        "sets": ["aime2024", "aime2025"],
    },
    "miles": {
        "name": "miles-h200-async",
        "nodes": 12,
        "steps": 100,
        "prompts_per_step": 32,
        "updates_per_step": 1,
        "sets": ["aime2025"],
    },
}


def of_framework(root: Path, framework: str, **manifest: Any) -> Run:
    """A run of a published recipe, submitted, with an output folder of its own beside the runs."""
    recipe = dict(RECIPES[framework])
    name, nodes, sets = recipe.pop("name"), recipe.pop("nodes"), recipe.pop("sets")
    output = root / "outputs" / f"{name}-1a2b3c"
    output.mkdir(parents=True)
    facts = {
        "profile": name,
        "framework": framework,
        "nodes": nodes,
        "gpus_per_node": 8,
        "steps": recipe["steps"],
        "output": str(output),
        "checkpoints": f"{output}/checkpoints",
    }
    run = make(root, f"{name}-1a2b3c", **{**facts, **manifest})
    evaluation = {"sets": sets, "every": 5, "problems": 30, "responses_per_problem": 8}
    recipe |= {"responses_per_prompt": 8, "evaluation": evaluation, "reference": []}
    (run.path / "profile.yaml").write_text(yaml.safe_dump({"name": name, "recipe": recipe}))
    return run


def say(run: Run, text: str, job: str = "17") -> None:
    """Append to a job's log."""
    with (run.path / f"job-{job}.log").open("ab") as log:
        log.write(text.encode())


def event(run: Run, name: str, after: float, attempt: int = 0, **facts: Any) -> None:
    """One more event, ``after`` seconds from T0."""
    folder = run.path / f"attempt-{attempt}"
    (folder / "ray").mkdir(parents=True, exist_ok=True)
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"beam-slurm": name, "time": T0 + after, **facts}) + "\n")


def bring_up(run: Run, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
    """Everything until the entry has started."""
    event(run, "batch-started", 0, node="n1", port=6379)
    for at, node in enumerate(nodes):
        event(run, "node-up", 2 + at, node=node)
    event(run, "ray-up", 4, nodes=len(nodes), gpus=2 * len(nodes), since=T0 + 1)
    event(run, "entry-started", 4.5, pid=4)


def preflight(
    run: Run,
    after: float,
    attempt: int = 0,
    seconds: float = 2.0,
    fit: tuple[str, ...] = ("n1", "n2"),
    **unfit: list[str],
) -> None:
    """What preflight has found, at its end; ``unfit`` names the checks that a node has failed."""
    event(run, "preflight", after, attempt, fit=fit, unfit=unfit)
    nodes = {node: {"use": "runs", "checks": []} for node in fit}
    for node, names in unfit.items():
        checks = [{"name": name, "verdict": "fail", "have": "7", "need": "8"} for name in names]
        nodes[node] = {"use": "unfit", "checks": checks}
    path = run.path / f"attempt-{attempt}" / "preflight.json"
    path.write_text(json.dumps({"need": 2, "seconds": seconds, "nodes": nodes}))


def outcome(run: Run, after: float = 200, attempt: int = 0, **facts: Any) -> None:
    """The supervisor's last word."""
    event(run, "ended", after, attempt, code=facts.get("exit_code", 0))
    last = {
        "state": "succeeded",
        "component": "entry",
        "node": None,
        "exit_code": 0,
        "cause": "the entry finished",
        "log": None,
        "lines": [],
        "began": T0,
        "ended": T0 + after,
    }
    path = run.path / f"attempt-{attempt}" / "outcome.json"
    path.write_text(json.dumps({**last, **facts}))


def lost_node(run: Run) -> None:
    """The end of a run that lost its second node's Ray, and what Ray had written there."""
    event(run, "node-failed", 150, node="n2", why="Ray lost a process")
    (run.path / "attempt-0" / "ray" / "n2.log").write_text("  raylet [exit code=-9]\n")
    outcome(
        run,
        state="failed",
        component="ray",
        node="n2",
        exit_code=69,
        cause="n2: Ray lost a process: raylet [exit code=-9]",
        lines=["Some Ray subprocesses exited unexpectedly:", "  raylet [exit code=-9]"],
    )


def lost(
    run: Run, how: str | None, attempt: int = 0, chained: str | None = None, **facts: Any
) -> None:
    """An attempt that lost n2; the run goes on by ``how``, and in the job ``chained``."""
    following = (
        {"how": how, "why": "4 fit nodes here", "job": chained, "resumes": 20} if how else None
    )
    last = {
        "state": "failed",
        "class": "node",
        "component": "ray",
        "node": "n2",
        "exit_code": 69,
        "cause": "n2: Node failure",
        "job": "17",
        "restart": 0,
        "nodes": ["n1", "n2"],
        "steps": {"first": 1, "last": 37},
        "blamed": ["n2"],
        "next": following,
        "stopped": "",
        "do": "",
    }
    outcome(run, 200, attempt, **{**last, **facts})


def train(step: int, **fields: Any) -> dict[str, Any]:
    """The demo's record of one step; two seconds each."""
    return {
        "type": "train",
        "time": T0 + 5 + 2 * step,
        "step": step,
        "steps": 80,
        "reward": step / 80,
        "response_length": 9 - step / 40,
        "loss": 0.01,
        "kl": 0.001,
        "grad_norm": 0.4,
        "entropy": 1.2,
        "logprob_diff": 0.01,
        "step_time": 2.0,
        "generation_time": 1.2,
        "training_time": 0.7,
        "tokens_per_second": 3000.0,
        **fields,
    }


def evaluate(step: int, accuracy: float, **fields: Any) -> dict[str, Any]:
    """The demo's record of one evaluation."""
    return {
        "type": "eval",
        "time": T0 + 6 + 2 * step,
        "step": step,
        "set": "held-out",
        "accuracy": accuracy,
        "problems": 20,
        "responses": 80,
        "response_length": 7.0,
        **fields,
    }


def measure(run: Run, *records: dict[str, Any]) -> None:
    """Append records to the demo's metrics.jsonl."""
    (run.path / "output").mkdir(exist_ok=True)
    with (run.path / "output" / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def whole(root: Path, name: str = "demo-1a2b3c", steps: int = 80, **manifest: Any) -> Run:
    """A run of ``steps`` steps that has succeeded."""
    run = make(root, name, **{"steps": steps, **manifest})
    bring_up(run)
    for step in range(1, steps + 1):
        measure(run, train(step, steps=steps))
        if step % 10 == 0:
            measure(run, evaluate(step, step / steps * 0.95))
        if step % 20 == 0:
            measure(run, {"type": "checkpoint", "time": T0 + step, "step": step, "path": "/c"})
    outcome(run)
    return run
