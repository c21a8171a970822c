"""Everything that goes wrong with a run, on a real Slurm, while the demo trains.

Each row: what happens, how soon it is noticed, what the run makes of it, and that nothing is left.
`make test` takes the rows that are not marked exhaustive; `make test-faults` takes all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from faults import EVERY, STEPS, Faults, cluster_for_faults, now

from beam_slurm import runs
from beam_slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

BRING_UP = 90.0  # seconds for a whole bring-up, preflight included, on two busy cores
SPARE = ("--spares", "1")
DRIVER = r"^python [^ ]*train\.py"  # not those whose words hold the driver's
LONG = ("--steps", "150")  # it trains on until somebody has noticed that a host is gone
TRAINING = [
    *("--output-dir=output", f"--steps={STEPS}", f"--save-every={EVERY}"),
    *("--prompts-per-step=8", "--eval-every=100", "--resume"),
]


@pytest.fixture(scope="module")
def small(slurm_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A little file system that all hosts share."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "small", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def hosts(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own: things break on it."""
    here = (tmp_path_factory.getbasetemp(), small, Path(__file__).parents[1], Path(sys.prefix))
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
    faults.cluster.exec("node1", ["pkill", "-STOP", "-f", DRIVER])


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
        faulty: the entry is the training with a fault in it, see ``faulty.py``.
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
    faulty: bool = False
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
    "driver killed": Row(kill(DRIVER, "node1"), r"ended by signal 9 \(SIGKILL\)", "oom"),
    "driver exits 3": Row(
        nothing,
        "exited with code 3|gradient is nan",
        "framework",
        faulty=True,
        more={"AT": "5", "CODE": "3", "WORDS": "RuntimeError: the gradient is nan"},
    ),
    "host dies, with a spare": Row(
        stop_host("node2"),
        "node2: ",
        "node",
        words=(*SPARE, *LONG),
        within=45,
        blamed=("node2",),
        but=("node2",),
    ),
    "host dies, without a spare": Row(
        stop_host("node2"),
        "node2: ",
        "node",
        how="chain",
        words=LONG,
        within=45,
        blamed=("node2",),
        but=("node2",),
        restart=None,
    ),
    "first host dies, with a spare": Row(
        stop_host("node1"),
        "node1: it has not answered",
        "node",
        how="chain",
        words=(*SPARE, *LONG),
        within=120,
        blamed=("node1",),
        but=("node1",),
        restart=None,
    ),
    "scontrol requeue": Row(requeue, "requeued", "preempted", how="slurm", restart=None),
    "preempted by a higher partition": Row(
        take_nodes,
        "higher priority|requeued",
        "preempted",
        how="requeue|slurm",
        words=("--set", "site.partition=low", *LONG),
        within=30,
        restart=None,
    ),
    "hang": Row(freeze_driver, "stuck: ", "framework|nccl", words=WATCH, within=60),
    "truncated newest checkpoint": Row(truncate_newest, "raylet was ended", "oom", at=7),
}

QUICK = ("host dies, with a spare",)


def rows(found: dict[str, Row]) -> list[object]:
    """The table as parameters."""
    return [
        pytest.param(row, id=name, marks=() if name in QUICK else pytest.mark.exhaustive)
        for name, row in found.items()
    ]


@pytest.mark.parametrize("row", rows(GOES_ON))
def test_a_run_goes_on_from_its_last_checkpoint(faults: Faults, row: Row) -> None:
    words = (*row.words, *(faults.entry(TRAINING) if row.faulty else ()))
    run = faults.train(*words, **row.more)
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


@pytest.mark.exhaustive
def test_a_hang_leaves_stack_dumps_of_every_node(faults: Faults) -> None:
    """Written before anything is ended, and Ray's logs after it."""
    run = faults.train(*WATCH, "--max-restarts", "0")
    faults.reach(run, 4)
    freeze_driver(faults, run)
    faults.finish(run)
    attempt = run.path / "attempt-0"
    for node in ("node1", "node2"):
        assert "raylet" in (attempt / "stacks" / f"{node}.txt").read_text()
        assert (attempt / "ray" / f"{node}.logs.tar.gz").stat().st_size
    assert "train.py" in (attempt / "stacks" / "node1.txt").read_text()
    assert run.state().word == "failed"
    assert "max_restarts" in run.outcome["stopped"]
    faults.clean(run)


def warn(faults: Faults, run: runs.Run) -> None:
    """What Slurm does when the lead begins, at once instead of in minutes."""
    faults.cluster.run(["scancel", "--batch", "--signal=USR1", str(run.job)])


@pytest.mark.parametrize(
    ("words", "how"),
    [
        pytest.param(
            ("--total-time", "1:00:00"), "requeue", id="requeued", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            ("--total-time", "1:00:00", "--set", "site.again=chain"),
            "chain",
            id="chained",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_before_its_time_is_up_it_saves_and_goes_on_in_another_job(
    faults: Faults, words: tuple[str, ...], how: str
) -> None:
    """The driver exits with 0, and yet the run is not over."""
    run = faults.train(*words)
    faults.reach(run, 4)
    warn(faults, run)
    first = faults.outcome(run, 0)
    assert (first["class"], first["exit_code"], first["next"]["how"]) == ("time", 75, how), first
    job = run.job
    faults.finish(run)
    faults.trained_on(run)
    second = run.attempts[1].outcome
    assert second["steps"]["first"] == first["steps"]["last"] + 1  # nothing is done twice
    assert (second["job"] != first["job"]) == (how == "chain")
    assert run.job == job
    faults.clean(run)


@pytest.mark.exhaustive
def test_out_of_time_without_more_of_it(faults: Faults) -> None:
    """It has saved, it is no success, and a later submission goes on from there."""
    run = faults.train("--output-dir", "mine")
    faults.reach(run, 4)
    warn(faults, run)
    faults.finish(run)
    state = run.state()
    assert (state.word, state.exit_code) == ("failed", 75)
    assert faults.slurm(run)["ExitCode"] == "75:0"
    assert "--resume" in run.outcome["do"]
    again = faults.train("--output-dir", "mine", "--resume")
    faults.finish(again)
    assert faults.steps(again) == list(range(1, STEPS + 1))
    faults.clean(again)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_real_time_limit(faults: Faults) -> None:
    """Two minutes a job, one of them for the last checkpoint, and more steps than fit."""
    limits = ("--set", "job.time=0:02:00", "--set", "job.lead_s=60", "--total-time", "0:20:00")
    run = faults.train(*limits, "--steps", "150", "--save-every", "200")
    faults.outcome(run, 0)
    faults.finish(run, patience=600)  # a job after the other, two minutes each
    assert run.state().word == "succeeded"
    assert faults.steps(run) == list(range(1, 151))
    assert [attempt.outcome["class"] for attempt in run.attempts][:-1] == ["time"] * (
        len(run.attempts) - 1
    )
    assert len(run.attempts) > 1
    faults.clean(run)


def freeze_ray(faults: Faults, host: str) -> None:
    """A node that neither fails nor joins."""

    def frozen() -> bool:
        words = ["pkill", "-STOP", "-f", r"node\.pyz ray "]
        return faults.cluster.exec(host, words, check=False).returncode == 0

    faults.until(f"a task on {host}", frozen)


@pytest.mark.exhaustive
def test_a_worker_that_never_joins_is_replaced(faults: Faults) -> None:
    run = faults.train(*SPARE, "--set", "ray.deadline_s=25")
    freeze_ray(faults, "node2")
    first = faults.outcome(run, 0)
    assert (first["component"], first["class"], first["blamed"]) == ("gate", "node", ["node2"])
    assert "missing: node2" in first["cause"]
    faults.finish(run)
    faults.trained_on(run)
    faults.clean(run)


def full_tmp(faults: Faults) -> None:
    """/tmp/s is there on every host, but one cannot be written to."""
    for host in faults.cluster.spec().nodes:
        faults.cluster.exec(host, ["mkdir", "-p", "/tmp/s"])
    faults.cluster.exec("node2", ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/tmp/s"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "attempts"),
    [
        pytest.param(SPARE, 1, id="with a spare"),
        pytest.param((), 2, id="without a spare"),
    ],
)
def test_a_node_that_is_not_fit_is_left_out(
    faults: Faults, words: tuple[str, ...], attempts: int
) -> None:
    full_tmp(faults)
    try:
        run = faults.train("--set", "site.paths.tmp=/tmp/s", *words)
        faults.finish(run)
    finally:
        faults.cluster.exec("node2", ["umount", "/tmp/s"])
    faults.trained_on(run)
    assert len(run.attempts) == attempts
    assert "node2" not in run.attempts[-1].outcome["nodes"]
    first = run.attempts[0]
    (bad,) = [c for c in first.preflight["node2"]["checks"] if c["verdict"] == "fail"]
    assert bad["name"] == "tmp"
    assert "Read-only" in bad["have"]
    if attempts == 2:
        assert first.outcome["next"]["how"] == "requeue"
        assert "node2: tmp" in first.outcome["cause"]
    faults.clean(run)


@pytest.mark.exhaustive
def test_too_little_room_on_one_node_s_disk(faults: Faults, tmp_path: Path) -> None:
    """Disks that are files: a little one on node2, larger ones elsewhere."""
    for host in faults.cluster.spec().nodes:
        image = tmp_path / f"{host}.img"
        size = "8M" if host == "node2" else "80M"
        subprocess.run(["truncate", "-s", size, image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        faults.cluster.exec(host, ["mkdir", "-p", "/tmp/nvme"])
        faults.cluster.exec(host, ["mount", "-o", "loop", str(image), "/tmp/nvme"])
    disk = ("--set", "site.paths.scratch=/tmp/nvme", "--set", "recipe.storage.nvme_gb=0.05")
    try:
        run = faults.train(*SPARE, *disk)
        faults.finish(run)
    finally:
        for host in faults.cluster.spec().nodes:
            faults.cluster.exec(host, ["umount", "/tmp/nvme"])
    faults.trained_on(run)
    assert run.attempts[-1].outcome["nodes"] == ["node1", "node3"]
    (bad,) = [
        check
        for check in run.attempts[0].preflight["node2"]["checks"]
        if check["verdict"] == "fail"
    ]
    assert bad["name"] == "scratch"
    assert re.search("free", bad["have"])
    faults.clean(run)


@pytest.mark.exhaustive
def test_an_output_folder_that_one_node_does_not_share(faults: Faults, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    out.mkdir(parents=True)
    faults.cluster.exec("node2", ["mount", "-t", "tmpfs", "tmpfs", str(out)])
    try:
        run = faults.train(*SPARE, "--output-dir", "mine")
        faults.finish(run)
    finally:
        faults.cluster.exec("node2", ["umount", str(out)])
    faults.trained_on(run)
    assert run.attempts[-1].outcome["nodes"] == ["node1", "node3"]
    assert "another folder" in str(run.attempts[0].preflight["node2"])
    faults.clean(run)


@pytest.mark.exhaustive
def test_a_full_disk_while_it_saves(faults: Faults, small: Path) -> None:
    """It says so, and goes on once there is room."""
    run = faults.train("--output-dir", str(small / "mine"))
    faults.reach(run, 4)
    filler = small / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(b"x" * 4096)
                file.flush()
    except OSError:
        pass
    first = faults.outcome(run, 0)
    filler.unlink()
    assert first["class"] == "storage", first
    assert re.search("No space left|inline_container", first["cause"])  # torch's own word for it
    faults.finish(run)
    faults.trained_on(run)
    faults.clean(run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("daemon", ["slurmd", "slurmctld"])
def test_a_daemon_of_slurm_that_is_restarted_does_not_matter(faults: Faults, daemon: str) -> None:
    run = faults.train()
    faults.reach(run, 4)
    if daemon == "slurmctld":
        faults.cluster.stop_host("ctl")
        faults.cluster.start_host("ctl")
    else:
        faults.cluster.exec("node2", ["pkill", "-x", "slurmd"])
        faults.cluster.exec("node2", ["slurmd", "-N", "node2"])
    faults.finish(run)
    faults.trained_on(run)
    assert len(run.attempts) == 1
    faults.clean(run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("times", [1, 2], ids=["scancel", "scancel twice"])
def test_scancel_ends_it_for_good(faults: Faults, times: int) -> None:
    run = faults.train()
    faults.reach(run, 3)
    for _ in range(times):
        faults.cluster.run(["scancel", str(run.job)])
    faults.finish(run)
    state = run.state()
    assert (state.word, state.exit_code) == ("cancelled", 143)
    assert run.outcome["next"] is None
    assert len(run.attempts) == 1
    faults.clean(run)


@pytest.mark.exhaustive
def test_leftovers_of_others_are_no_hindrance(faults: Faults) -> None:
    """Somebody else's /tmp/ray, and a listener in every block of ports but the last."""
    squat = (
        "import socket, time; from beam_slurm.node import ports; held = []\n"
        "for base in ports.blocks()[:-1]:\n"
        "    held.append(socket.create_server(('', base)))\n"
        "print('listening', flush=True); time.sleep(600)"
    )
    cluster = faults.cluster
    for host in ("node1", "node2"):
        cluster.exec(host, ["mkdir", "-m", "700", "/tmp/ray"])
        cluster.exec(host, ["chown", "nobody", "/tmp/ray"])
    words = cluster.exec_argv("node1", [sys.executable, "-c", squat], folder="/")
    squatter = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "listening\n"
        run = faults.train()
        faults.finish(run)
    finally:
        squatter.kill()
        squatter.wait()
        for host in ("node1", "node2"):
            cluster.exec(host, ["pkill", "-f", "ports.blocks"], check=False)
            cluster.exec(host, ["rmdir", "/tmp/ray"])
    faults.trained_on(run)
    assert len(run.attempts) == 1
    faults.clean(run)
