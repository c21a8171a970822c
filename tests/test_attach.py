"""A person beside a run: shell and dashboard."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import folders
import pytest
from launching import COMMAND, Launch
from test_job import request, shellcheck
from test_matrix import IMAGES, RUNTIMES

from beam_slurm import attach, job, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run, State

WHERE: dict[str, Any] = {
    "job": "17",
    "attempt": 1,
    "head": "n1",
    "ip": "10.1.0.1",
    "gcs": 20000,
    "dashboard": 20001,
    "nodes": ["n1", "n2"],
    "token": "/shared/runs/demo-1a2b3c/private/attempt-1.token",
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in its second attempt, as its folder shows it; Slurm says that it runs."""
    made = folders.make(tmp_path)
    for attempt in (0, 1):
        folders.event(made, "batch-started", 0, attempt=attempt)
    (made.path / "shell.sh").touch()
    monkeypatch.setattr(Run, "state", lambda run: State("running"))
    locate(made)
    return made


def locate(run: Run, **facts: Any) -> None:
    (run.path / "attempt-1" / "address.json").write_text(json.dumps({**WHERE, **facts}))


def test_the_newest_attempt_says_where_the_run_is(run: Run) -> None:
    script = str(run.path / "shell.sh")
    facts = ["17", "1", "n1", WHERE["token"], "10.1.0.1", "20000", "20001"]
    assert attach.shell(run) == ["bash", script, *facts]
    facts[2] = "n2"
    assert attach.shell(run, "n2", ["ls", "-l"]) == ["bash", script, *facts, "ls", "-l"]
    with pytest.raises(BeamSlurmError, match="does not run on 'n3'") as unknown:
        attach.shell(run, "n3")
    assert unknown.value.remedy == "one of n1, n2"


@pytest.mark.parametrize("ask", [attach.shell, attach.dashboard])
def test_a_run_that_is_over_or_has_not_begun_says_so(
    ask: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.path / "attempt-1" / "address.json").unlink()
    with pytest.raises(BeamSlurmError, match="has no nodes yet") as early:
        ask(run)
    assert early.value.why == "it is running"
    locate(run)
    monkeypatch.setattr(Run, "state", lambda run: State("failed", "the entry exited with code 3"))
    with pytest.raises(BeamSlurmError, match="is over") as late:
        ask(run)
    assert late.value.why == "failed: the entry exited with code 3"


@pytest.mark.parametrize("ask", [attach.shell, attach.dashboard])
@pytest.mark.parametrize("following", ["here", "requeue", "undecided", None])
def test_an_attempt_that_has_ended_is_nowhere(run: Run, ask: Any, following: str | None) -> None:
    folders.lost(run, following, attempt=1)
    with pytest.raises(BeamSlurmError, match="has no nodes yet"):
        ask(run)


@pytest.mark.parametrize("ask", [attach.shell, attach.dashboard])
def test_a_run_whose_job_is_over_is_nowhere(
    run: Run, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = State("running", "its outcome is awaited", None, slurm.Job("17", "COMPLETED"))
    monkeypatch.setattr(Run, "state", lambda run: waits)
    with pytest.raises(BeamSlurmError, match="is over") as late:
        ask(run)
    assert late.value.why == "its outcome is awaited"


def test_the_way_to_the_dashboard(run: Run) -> None:
    found = attach.dashboard(run)
    assert re.fullmatch(r"ssh -N -L 8265:10\.1\.0\.1:20001 \S+@\S+", found.tunnel)
    assert (found.token, found.url) == (WHERE["token"], "http://127.0.0.1:8265")
    locate(run, token=None)  # then it listens on the head's loopback only
    found = attach.dashboard(run)
    assert re.fullmatch(r"ssh -N -J \S+@\S+ -L 8265:127\.0\.0\.1:20001 n1", found.tunnel)
    assert found.token is None
    locate(run, dashboard=None)
    with pytest.raises(BeamSlurmError, match="has no dashboard") as none:
        attach.dashboard(run)
    assert none.value.why == "ray.dashboard is false"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_shell_has_the_words_of_the_run_s_own_script(runtime: str, no_site: None) -> None:
    image = f"site.images.nemo-rl-colocated={IMAGES[runtime].format('x')}"
    made = request("b300-colocated", f"site.container={runtime}", image)
    script, shell = str(made), job.shell(made)
    assert shellcheck(shell) == ""
    environment = script[script.index("# What every process sees") : script.index("# How a step")]
    assert environment in shell
    if runtime in ("docker", "podman"):
        assert f' {runtime} "${{inside[@]}}" "beam-$job-$attempt-$target-ray" "$@"' in shell
    else:
        array = r"^container=\((?:\)[^\n]*|.*?^\))"
        both = [re.search(array, text, re.M | re.S) for text in (script, shell)]
        assert both[0]
        assert both[1]
        assert both[1][0].replace(" --interactive", "") == both[0][0]


@pytest.mark.slurm
def test_a_shell_is_beside_the_run_and_never_in_its_way(launch: Launch) -> None:
    run = launch.submit("--nodes", "2", MODE="hold")
    launch.started(run)
    head, worker = attach.address(run).nodes
    outside = next(name for name in launch.cluster.spec().nodes if name not in (head, worker))

    def shell(*words: str) -> subprocess.CompletedProcess[str]:
        return launch.call("shell", run.id, *words)

    program = 'hostname; echo "$CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS $PWD"; ray status; exit 7'
    done = shell("--node", worker, "--", "bash", "-c", program)
    assert done.returncode == 7, done.stderr
    host, rest, *status = done.stdout.splitlines()
    assert (host, rest) == (worker, f"0,1,2,3,4,5,6,7 1 {run.path}")
    assert any("16.0 GPU" in line for line in status), done.stdout  # the token lets us in
    assert shell("--node", outside).returncode == 2
    assert shell("--", "bash", "-c", "kill -9 $$").returncode == 137

    # A person's, which ignores SIGTERM as such shells do, is still open when the entry ends.
    ours, theirs = pty.openpty()
    words = [COMMAND, "shell", run.id]
    person = subprocess.Popen(
        words, cwd=launch.folder, env=launch.environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"echo at-$(hostname)-$((6 * 7))\n")
    said = b""
    while f"at-{head}-42".encode() not in said:
        said += os.read(ours, 4096)
    (run.path / "go").touch()
    began = time.monotonic()
    job = launch.over(run)
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "3:0"), launch.log(run)
    launch.nothing_left(run)
    assert time.monotonic() - began < 15
    # Hung up, and not killed after Slurm's KillWait, for which the job's nodes would have waited.
    assert person.wait(timeout=15) == 128 + signal.SIGHUP
    os.close(ours)
    late = shell()
    assert late.returncode == 2
    assert f"{run.id} is over" in late.stderr
