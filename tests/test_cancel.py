"""``cancel``: whatever job counts now, in any state, and again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import folders
import pytest
from click.testing import CliRunner

from beam_slurm import slurm
from beam_slurm.cli.cancel import cancel
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run


class Slurm:
    """Jobs, and those that were ended."""

    def __init__(self) -> None:
        self.jobs: dict[str, slurm.Job] = {}
        self.ended: list[str] = []

    def cancel(self, job_id: str) -> None:
        self.ended.append(job_id)
        if self.jobs[job_id].waits:
            self.jobs[job_id] = slurm.Job(job_id, "CANCELLED", exit_code="0:0")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(slurm, "job", made.jobs.get)
    monkeypatch.setattr(slurm, "cancel", made.cancel)
    return made


def call(run: Run) -> str:
    result = CliRunner().invoke(cancel, [run.id, "--runs", str(run.path.parent)])
    if result.exception:
        raise result.exception
    return result.output


@pytest.mark.parametrize(
    ("how", "job", "state", "said"),
    [
        (None, "17", "PENDING", "cancelling demo-1a2b3c: job 17, pending\n"),
        (None, "17", "RUNNING", "cancelling demo-1a2b3c: job 17, starting\n"),
        ("here", "17", "RUNNING", "cancelling demo-1a2b3c: job 17, starting\n"),
        ("requeue", "17", "PENDING", "cancelling demo-1a2b3c: job 17, pending\n"),
        ("slurm", "17", "PENDING", "cancelling demo-1a2b3c: job 17, pending\n"),
        ("chain", "18", "PENDING", "cancelling demo-1a2b3c: job 18, pending\n"),
        ("chain", "18", "RUNNING", "cancelling demo-1a2b3c: job 18, starting\n"),
    ],
)
def test_ends_the_job_that_counts(
    tmp_path: Path, cluster: Slurm, how: str | None, job: str, state: str, said: str
) -> None:
    run = folders.make(tmp_path)
    if how:
        folders.lost(run, how, chained=job if how == "chain" else None)
    cluster.jobs.update({"17": slurm.Job("17", "COMPLETED"), job: slurm.Job(job, state)})
    assert call(run) == said
    assert cluster.ended == [job]
    cluster.jobs[job] = slurm.Job(job, "CANCELLED", exit_code="0:0")
    assert call(run) == "demo-1a2b3c is over already\n"
    assert cluster.ended == [job]


def test_a_job_that_chains_another_in_this_moment(
    tmp_path: Path, cluster: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folders.make(tmp_path)
    cluster.jobs.update({"17": slurm.Job("17", "RUNNING"), "18": slurm.Job("18", "PENDING")})

    def late(job_id: str) -> None:
        folders.lost(run, "chain", chained="18")
        cluster.cancel(job_id)

    monkeypatch.setattr(slurm, "cancel", late)
    assert call(run) == "cancelling demo-1a2b3c: job 17, 18, starting\n"
    assert cluster.ended == ["17", "18"]


def test_a_run_that_is_over(tmp_path: Path, cluster: Slurm) -> None:
    run = folders.make(tmp_path)
    folders.lost(run, None)
    cluster.jobs["17"] = slurm.Job("17", "FAILED")
    assert call(run) == "demo-1a2b3c is over already\n"
    assert not cluster.ended


def test_a_run_whose_outcome_may_name_another_job(tmp_path: Path, cluster: Slurm) -> None:
    run = folders.make(tmp_path)
    end = time.strftime("%Y-%m-%dT%H:%M:%S")
    cluster.jobs["17"] = slurm.Job("17", "FAILED", nodes="n[1-2]", end=end)
    with pytest.raises(BeamSlurmError, match="cannot be cancelled yet") as early:
        call(run)
    assert early.value.remedy == "in a minute: beam-slurm cancel demo-1a2b3c"
    folders.lost(run, "chain", chained="18")
    cluster.jobs["18"] = slurm.Job("18", "PENDING")
    assert call(run) == "cancelling demo-1a2b3c: job 18, pending\n"


def test_a_run_on_this_machine(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    run = folders.make(tmp_path, executor="local", job=None, pid=child.pid)
    folders.lost(run, "here")
    assert call(run) == f"cancelling demo-1a2b3c: process {child.pid}, starting\n"
    assert child.wait(timeout=30) == -signal.SIGTERM
    assert call(run) == "demo-1a2b3c is over already\n"
