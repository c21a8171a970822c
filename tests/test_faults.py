"""Everything that goes wrong with a run, on a real Slurm, while the demo trains.

Each row: what happens, how soon it is noticed, what the run makes of it, and that nothing is left.
`make test` takes the rows that are not marked exhaustive; `make test-faults` takes all.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from faults import ENTRY, EVERY, STEPS, Faults, cluster_for_faults, now

from beam_slurm import runs
from beam_slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

BRING_UP = 90.0  # seconds for a whole bring-up, preflight included, on two busy cores
SPARE = ("--spares", "1")
TRAINING = [
    *("python", str(ENTRY), "--output-dir=output", f"--steps={STEPS}", f"--save-every={EVERY}"),
    *("--prompts-per-step=8", "--eval-every=100", "--resume"),
]
FAULTY = ("--set", f"framework.entry=[{', '.join(TRAINING)}]")


@pytest.fixture(scope="module")
def hosts(slurm_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own: things break on it."""
    here = (tmp_path_factory.getbasetemp(), Path(__file__).parents[1], Path(sys.prefix))
    cluster = cluster_for_faults(f"faults-{os.getpid()}", *here)
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def faults(hosts: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """A place to launch from. Whatever a failed test leaves is ended, and dead hosts come back."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("BEAM_", "SLURM_"))}
    environment |= {**hosts.environment(), "XDG_CONFIG_HOME": str(tmp_path)}
    for name, value in hosts.environment().items():
        monkeypatch.setenv(name, value)
    yield Faults(hosts, tmp_path, environment)
    for run in runs.all_runs(tmp_path / "runs"):
        if run.job:
            hosts.run(["scancel", run.job], check=False)
    for host in hosts.status():
        if not host.running:
            hosts.start_host(host.name)


def kill(process: str, host: str) -> Callable[[Faults, runs.Run], None]:
    """SIGKILL to a process by its name, or by its command line if it has a space."""

    def act(faults: Faults, run: runs.Run) -> None:
        words = ["-f", process] if " " in process or "." in process else ["-x", process]
        faults.cluster.exec(host, ["pkill", "-9", *words])

    return act


def stop_host(host: str) -> Callable[[Faults, runs.Run], None]:
    """Take a host's power away."""
    return lambda faults, run: faults.cluster.stop_host(host)


def freeze_driver(faults: Faults, run: runs.Run) -> None:
    """The training hangs: it is stopped by SIGSTOP."""
    faults.cluster.exec("node1", ["pkill", "-STOP", "-f", r"train\.py"])


def truncate_newest(faults: Faults, run: runs.Run) -> None:
    """The newest checkpoint loses the end of a file, and then a node fails."""
    newest = max((run.output / "checkpoints").glob("step_*")) / "model.pt"
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    kill("raylet", "node2")(faults, run)


def requeue(faults: Faults, run: runs.Run) -> None:
    """Somebody requeues the job by hand."""
    faults.cluster.run(["scontrol", "requeue", str(run.job)])


def take_nodes(faults: Faults, run: runs.Run) -> None:
    """A job of a higher partition wants all nodes for a moment."""
    words = ["sbatch", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null"]
    faults.cluster.run([*words, "--wrap=true"])


@dataclass(frozen=True)
class Row:
    """One fault of a run that goes on.

    Attributes:
        act: what happens once the training has done step ``at``.
        words: of the submission.
        cause: what the first attempt's outcome says.
        kind: the class of it.
        how: how the run goes on.
        within: seconds until the first attempt is over.
        blamed: nodes that are not used again.
        but: hosts that are off afterwards.
        restart: seconds from there until the next attempt's entry begins, None where Slurm decides.
        more: variables of the submitting shell.
    """

    act: Callable[[Faults, runs.Run], None]
    cause: str
    kind: str
    how: str = "here"
    words: tuple[str, ...] = ()
    within: float = 15.0
    at: int = 5
    blamed: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    restart: float | None = 15.0 + BRING_UP
    more: dict[str, str] = field(default_factory=dict)


def nothing(faults: Faults, run: runs.Run) -> None:
    """The fault comes by itself."""


WATCH = ("--set", "recipe.watchdog.silence_s=8")

GOES_ON = {
    "raylet of a worker killed": Row(
        kill("raylet", "node2"), r"node2: .*raylet was ended by signal 9", "oom"
    ),
    "raylet of the head killed": Row(
        kill("raylet", "node1"), r"node1: .*raylet was ended by signal 9", "oom"
    ),
    "GCS killed": Row(
        kill("gcs_server", "node1"), r"node1: .*gcs_server was ended by signal 9", "oom"
    ),
    "driver killed": Row(kill(r"train\.py", "node1"), r"ended by signal 9 \(SIGKILL\)", "oom"),
    "driver exits 3": Row(
        nothing,
        "exited with code 3|gradient is nan",
        "framework",
        words=FAULTY,
        more={"AT": "5", "CODE": "3", "WORDS": "RuntimeError: the gradient is nan"},
    ),
    "host dies, with a spare": Row(
        stop_host("node2"),
        "node2: ",
        "node",
        words=SPARE,
        within=45,
        blamed=("node2",),
        but=("node2",),
    ),
    "host dies, without a spare": Row(
        stop_host("node2"),
        "node2: ",
        "node",
        how="requeue",
        within=45,
        blamed=("node2",),
        but=("node2",),
        restart=None,
    ),
    "scontrol requeue": Row(requeue, "requeued", "preempted", how="slurm", restart=None),
    "preempted by a higher partition": Row(
        take_nodes,
        "higher priority|requeued",
        "preempted",
        how="requeue|slurm",
        words=("--set", "site.partition=low"),
        within=30,
        restart=None,
    ),
    "hang": Row(freeze_driver, "stuck: ", "framework|nccl", words=WATCH, within=60),
    "truncated newest checkpoint": Row(truncate_newest, "raylet was ended", "oom", at=7),
}

QUICK = ("raylet of a worker killed", "host dies, with a spare", "scontrol requeue", "hang")


def rows(found: dict[str, Row]) -> list[object]:
    """The table as parameters."""
    return [
        pytest.param(row, id=name, marks=() if name in QUICK else pytest.mark.exhaustive)
        for name, row in found.items()
    ]


@pytest.mark.parametrize("row", rows(GOES_ON))
def test_a_run_goes_on_from_its_last_checkpoint(faults: Faults, row: Row) -> None:
    run = faults.train(*row.words, **row.more)
    faults.reach(run, row.at)
    acted = now()
    row.act(faults, run)
    first = faults.outcome(run, 0)
    assert re.search(row.cause, first["cause"]), first
    assert re.fullmatch(row.kind, first["class"]), first
    assert re.fullmatch(row.how, first["next"]["how"]), first
    assert first["ended"] - acted < row.within, first
    assert tuple(first["blamed"]) == row.blamed
    faults.finish(run)
    faults.trained_on(run)
    last = run.attempts[-1]
    assert not set(row.blamed) & set(last.outcome["nodes"])
    if row.restart is not None:
        (entry,) = faults.events(run, 1, "entry-started")
        assert entry["time"] - first["ended"] < row.restart
    faults.clean(run, row.but)


def test_a_hang_leaves_stack_dumps_of_every_node(faults: Faults) -> None:
    """Written before anything is ended, and Ray's logs after it."""
    run = faults.train(*WATCH, "--max-restarts", "0")
    faults.reach(run, 4)
    freeze_driver(faults, run)
    faults.finish(run)
    attempt = run.path / "attempt-0"
    for node in ("node1", "node2"):
        assert "node.pyz ray" in (attempt / "stacks" / f"{node}.txt").read_text()
        assert (attempt / "ray" / f"{node}.logs.tar.gz").stat().st_size
    assert "train.py" in (attempt / "stacks" / "node1.txt").read_text()
    assert run.state().word == "failed"
    assert "max_restarts" in run.outcome["stopped"]
    faults.clean(run)
