"""When a webhook is told of what: beginnings, restarts, failures and ends."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import test_prepare
from launching import DRIVER, Launch
from nodes import course, environment, program
from nodes import preflight as preflight_of
from test_checkpoint import demo
from test_job import request, shellcheck
from test_supervise import FOREVER, RAY, STEP, WAIT, Supervise
from webhooks import (
    KEY,
    PATIENCE,
    WORDS,
    Hook,
    attempt,
    dead,
    known,
    rules,
    run,
    told,
)

from beam_slurm import job, runs
from beam_slurm.cluster import network
from beam_slurm.cluster.state import ClusterState
from beam_slurm.node import attempts, events, notify, preflight

pytestmark = pytest.mark.usefixtures("no_site")


def test_the_end_is_told_and_the_training_does_not_have_the_url(tmp_path: Path, hook: Hook) -> None:
    driver = f'echo "url=${{HOOK-none}} {hook.url}"; echo "step 100/100 reward 1"; end 0'
    supervise = run(tmp_path, hook, driver)
    (message,) = hook.heard
    assert message == {
        "event": "end",
        "run": tmp_path.name,
        "profile": "demo",
        "state": "succeeded",
        "class": None,
        "cause": "the entry finished",
        "do": None,
        "stopped": None,
        "next": None,
        "attempt": 0,
        "steps": {"last": 100, "of": 100},
        "nodes": ["n1", "n2"],
        "gpus": 16,
        "job": "17",
        "folder": str(tmp_path),
        "time": message["time"],
        "text": f"{tmp_path.name} (demo, job 17, step 100 of 100): "
        "succeeded: the entry finished (exit code 0)",
    }
    assert abs(message["time"] - time.time()) < PATIENCE
    assert "url=none ***\n" in supervise.log
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert KEY.encode() not in file.read_bytes(), file
    assert KEY not in supervise.log + supervise.words
    assert told(tmp_path / "attempt-0") == [("notified", "end", "")]


def test_a_failure_is_told_with_its_cause_and_remedy(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, STEP + "echo 'torch.OutOfMemoryError: CUDA out of memory.'; end 3")
    (message,) = hook.heard
    assert (message["event"], message["state"], message["class"]) == ("failure", "failed", "oom")
    assert message["steps"] == {"last": 30, "of": 100}
    assert message["do"]
    assert message["do"] in message["text"]
    assert message["stopped"] == "job.max_restarts is 0"


def test_a_cancelled_run_has_ended(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, f"kill $PPID; {FOREVER}")
    assert [(it["event"], it["state"]) for it in hook.heard] == [("end", "cancelled")]


def test_only_what_the_site_wants_is_told(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, STEP + "end 3", "--notify=end,restart")
    assert hook.bodies == []


@pytest.mark.parametrize("silent", [True, False])
def test_a_bad_webhook_costs_a_moment_and_no_more(tmp_path: Path, hook: Hook, silent: bool) -> None:
    hook.released.clear()
    began = time.monotonic()
    supervise = run(tmp_path, hook if silent else dead(), 'echo "step 100/100 reward 1"; end 0')
    took = time.monotonic() - began
    outcome = attempts.outcome(str(tmp_path / "attempt-0"))
    assert (outcome["state"], outcome["exit_code"]) == ("succeeded", 0)
    assert supervise.words.count("the webhook was not told of the end: ") == 1
    assert [word for word, *_ in told(tmp_path / "attempt-0")] == ["not-notified"]
    assert took < notify.MOMENT + 10


def test_a_run_folder_without_room_hurts_nobody(tmp_path: Path, hook: Hook) -> None:
    attempt(tmp_path)
    (tmp_path / "notified").write_text("no folder")
    supervise = Supervise(tmp_path)
    found = supervise.run(RAY, 'echo "step 100/100 reward 1"; end 0', *WORDS, **known(hook))
    assert found["state"] == "succeeded"
    assert "the webhook was not told of the end: File exists" in supervise.words
    assert hook.bodies == []


def test_a_message_is_not_waited_for_until_somebody_reads_it(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's last words may be longer than a pipe, and its reader may hang or be gone."""
    path = attempt(tmp_path)
    given = notify.Hook("HOOK", "json", "end,restart")
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(notify, "MOMENT", 0.1)
    long = "x" * 300_000
    (tmp_path / "node.pyz").write_text("import time; time.sleep(600)")
    notify.tell(given, str(path), "restart", long, {}, last=True)
    assert told(path) == [("not-notified", "restart", "it took too long")]
    program(tmp_path)
    monkeypatch.setattr(notify, "MOMENT", PATIENCE)
    notify.tell(given, str(path), "end", long, {}, last=True)
    assert told(path)[1:] == [("notified", "end", "")]
    assert hook.heard[0]["text"].endswith(long)


@pytest.mark.parametrize(
    ("facts", "stop"),
    [({"state": object()}, TypeError), ({"steps": 3}, AttributeError), ({}, RuntimeError)],
)
def test_whatever_goes_wrong_with_a_message_the_run_goes_on(
    tmp_path: Path,
    facts: dict[str, Any],
    stop: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_more(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new process")

    path = attempt(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", no_more)
    notify.tell(notify.Hook("HOOK", "json", "end"), str(path), "end", "it has ended", facts)
    assert told(path) == [("not-notified", "end", stop.__name__)]
    said = f"beam-slurm: the webhook was not told of the end: {stop.__name__}\n"
    assert capsys.readouterr().err == said


def test_a_log_without_room_hurts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        events.say("it has ended")


@pytest.mark.parametrize(("on", "word"), [("[]", "''"), ("[end]", "end")])
def test_no_process_of_others_gets_the_url(on: str, word: str, tmp_path: Path) -> None:
    """Whatever is told, a job's steps, a shell beside it and a preparation are without it."""
    words = ("site.notify.webhook=HOOK", f"site.notify.on={on}")
    made = request("demo", *words)
    assert f"--webhook=HOOK --form=json --notify={word}\n" in str(made)
    assert shellcheck(str(made)) == ""
    beside = job.shell(made)
    assert "\nunset HOOK " in beside
    assert shellcheck(beside) == ""
    before = str(test_prepare.request("b200-lora", *words, here=True))
    assert "\nunset HOOK " in before
    assert shellcheck(before) == ""
    folder = tmp_path / "run"
    supervise = run(folder, "https://a/b", 'echo "url=${HOOK-none}"; end 0', f"--notify={on[1:-1]}")
    assert "url=none\n" in supervise.log


def test_restarts_are_told_one_by_one_and_then_the_failure(tmp_path: Path, hook: Hook) -> None:
    """The batch shell begins again in the same process: see test_supervise."""
    node = program(tmp_path)
    rules = course(tmp_path, "--max-restarts=9", *WORDS, checkpoints=tmp_path / "checkpoints")
    demo(tmp_path / "checkpoints", 4)
    (tmp_path / "script.sbatch").write_text(f"""
        export ATTEMPT={tmp_path}/attempt-$(ls {tmp_path} | grep -c attempt)
        mkdir $ATTEMPT && cd $ATTEMPT
        exec {shlex.join([*node, "supervise", *rules])} --attempt=$ATTEMPT --on=n1 \\
          -- 3 bash -c {shlex.quote(RAY)} bash -c {shlex.quote(WAIT + STEP + "end 3")}
    """)
    done = subprocess.run(
        ["bash", tmp_path / "script.sbatch"],
        env=environment(**known(hook)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 3, done.stderr
    count = len(attempts.folders(str(tmp_path)))
    # Each is a process of its own, and may be overtaken.
    said = sorted((it["attempt"], it["event"]) for it in hook.heard)
    assert said == [*((k, "restart") for k in range(count - 1)), (count - 1, "failure")]
    restart = next(it for it in hook.heard if it["event"] == "restart")
    assert count > 1
    assert restart["next"]["how"] == "here"
    assert "goes on in this job, as attempt 1" in restart["text"]


def begin(folder: Path, hook: Hook, code: int = 0) -> str:
    """A preflight that finds its node fit; the attempt's folder."""
    node = program(folder)
    done = subprocess.run(
        [*node, "preflight", *course(folder, "--max-restarts=3", *WORDS), "--", *node, "inspect"],
        env=environment(**known(hook)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stderr
    return "".join(done.stdout.split()[:1])


def test_a_run_starts_once(tmp_path: Path, hook: Hook) -> None:
    """Whoever begins after an attempt that left no word tells of its end."""
    first = begin(tmp_path, hook)
    assert hook.events == ["start"]
    assert hook.heard[0]["nodes"] == [socket.gethostname()]
    second = begin(tmp_path, hook)
    assert hook.events == ["start", "restart"]
    lost = hook.heard[1]
    assert (lost["attempt"], lost["class"], lost["state"]) == (0, "node", "failed")
    assert "goes on as attempt 1" in lost["text"]
    assert "it ended without a word" in lost["text"]
    given = notify.Hook("HOOK", "json", "start,end,failure,restart")
    os.environ.update(known(hook))
    try:
        for _ in range(2):  # it cannot be told twice, whoever tries
            notify.tell(given, second, "restart", "goes on", {}, last=True)
            notify.tell(given, first, "restart", "goes on", {}, last=True)
    finally:
        for name in known(hook):
            del os.environ[name]
    assert hook.events == ["start", "restart", "restart"]
    begin(tmp_path, hook, code=2)  # two attempts have brought no new step
    assert hook.events == ["start", "restart", "restart", "failure"]


def child() -> int:
    """The process that this one has started for its message."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"\0notify\0" in (path / "cmdline").read_bytes():
                return int(path.name)
    raise AssertionError("there is none")


def test_slurm_s_signals_do_not_end_a_message(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel signals every process of the job, and then waits for KillWait."""
    path = attempt(tmp_path)
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    hook.released.clear()
    notify.tell(notify.Hook("HOOK", "json", "end"), str(path), "end", "cancelled", {})
    os.kill(child(), signal.SIGTERM)
    hook.released.set()
    deadline = time.monotonic() + PATIENCE
    while not told(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert told(path) == [("notified", "end", "")]


def test_an_attempt_whose_nodes_are_unfit_has_not_started(tmp_path: Path, hook: Hook) -> None:
    os.environ.update(known(hook))
    try:
        done = preflight_of(tmp_path, *WORDS, inspect=("--scratch=/nowhere/at/all",))
    finally:
        for name in known(hook):
            del os.environ[name]
    assert done.returncode != 0
    assert hook.bodies == []  # nodes.environment hands nothing on: its variable is not set
    assert [of for _, of, _ in told(tmp_path / "attempt-0")] == ["failure"]


@pytest.mark.parametrize("webhook", [True, False])
def test_earlier_attempts_may_be_gone(
    tmp_path: Path, hook: Hook, webhook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has made room: what was told of them, or not, is gone with them."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    begin(tmp_path, hook)
    shutil.rmtree(tmp_path / "attempt-0")
    (tmp_path / "attempt-4").mkdir()
    (tmp_path / "attempt-4" / "outcome.json").write_text("{}")
    preflight._tell_webhook(rules(tmp_path, webhook), str(tmp_path / "attempt-4"), ["n1"])
    assert hook.events == ["start"]


@pytest.mark.exhaustive
@pytest.mark.slurm
def test_on_a_real_slurm_over_a_requeue(launch: Launch) -> None:
    """The hosts reach this machine by the bridge; the entry sleeps in each attempt."""
    state = ClusterState.load(launch.cluster.root)
    assert state
    hook = Hook(address=network.gateway(state.subnet))
    words = ["--profile", "demo", "--max-restarts", "1", "--mail-type", "end,FAIL"]
    words += ["--set", f"framework.entry=[python, {DRIVER}]", "--set", "site.notify.webhook=HOOK"]
    done = launch.call("submit", "--json", *words, MODE="sleep", HOOK=hook.url)
    assert done.returncode == 0, done.stderr
    run = runs.Run(Path(json.loads(done.stdout)["folder"]))
    launch.started(run)
    launch.until("the start", lambda: hook.events == ["start"])
    assert launch.slurm(run)["MailType"] == "END,FAIL"
    assert "HOOK" not in json.loads((run.path / "seen.json").read_text())["environment"]
    (run.path / "seen.json").unlink()
    launch.cluster.run(["scontrol", "requeue", run.manifest["job"]])
    launch.until("the requeue", lambda: launch.slurm(run)["JobState"] == "PENDING")
    launch.cluster.run(["scontrol", "update", f"jobid={run.manifest['job']}", "starttime=now"])
    launch.until("the second attempt", (run.path / "seen.json").exists)
    assert launch.call("cancel", run.id).returncode == 0
    launch.over(run)
    launch.until("the end", lambda: len(hook.events) > 2)
    said = [(it["event"], it["attempt"], it["state"]) for it in hook.heard]
    assert said == [("start", 0, "starting"), ("restart", 0, "preempted"), ("end", 1, "cancelled")]
    assert hook.heard[1]["next"]["how"] == "slurm"
    assert {it["job"] for it in hook.heard} == {run.manifest["job"]}
    for file in (path for path in run.path.rglob("*") if path.is_file()):
        assert KEY.encode() not in file.read_bytes(), file
    launch.nothing_left(run)
