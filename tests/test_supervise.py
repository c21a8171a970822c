"""The supervisor, with two small programs for the steps: who is to blame, and what is left."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nodes import course, environment, program
from test_checkpoint import demo

from beam_slurm.node import attempts

PATIENCE = 60

LATE_RAY = """
[[ ${1:-} == --clean ]] && { touch cleaned; exit; }
trap 'echo "$WORD"; exit "$CODE"' USR2
touch up
while :; do sleep 0.05; done
"""
OWN = '{"beam-slurm": "node-failed", "time": 1, "node": "n2", "why": "killed"}'
WITH_LOG = OWN[:-1] + ', "log": "/l"}'


class Supervise:
    """node.pyz supervise with two small programs instead of the steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, ray: str, driver: str, *rules: str, **more: str) -> dict[str, Any]:
        """The outcome of two bash programs; the driver begins when the Ray step is ``up``.

        ``rules`` are more words of the verb, ``more`` is its environment.
        """
        node = program(self.folder)
        attempt = self.folder / "attempt-0"
        attempt.mkdir(exist_ok=True)
        steps = [["bash", "-c", ray, "ray"], ["bash", "-c", WAIT + driver, "driver"]]
        options = [f"--attempt={attempt}", "--on=n1,n2", "--", "4"]
        done = subprocess.Popen(
            [*node, "supervise", *course(self.folder, *rules), *options, *steps[0], *steps[1]],
            cwd=attempt,
            env=environment(**{"WORD": "", "CODE": "0", **more}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.log, self.words = done.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):  # of a test that has failed
                os.killpg(done.pid, signal.SIGKILL)
        found = json.loads((attempt / "outcome.json").read_text())
        assert done.returncode == found["exit_code"]
        return found  # type: ignore[no-any-return]

    @property
    def said(self) -> list[str]:
        """What happened, event by event."""
        return [told["beam-slurm"] for told in attempts.told(str(self.folder / "attempt-0"))]


# What each driver begins with: its entry has started, and ``end CODE`` ends it as ``drive`` does.
WAIT = """
echo '{"beam-slurm": "entry-started", "time": 1}'
end() { echo "{\\"beam-slurm\\": \\"entry-ended\\", \\"time\\": 1, \\"code\\": $1}"; exit $1; }
until [[ -e up ]]; do sleep 0.05; done
"""


@pytest.mark.parametrize(
    ("word", "component", "cause"),
    [
        (OWN, "entry", "the entry exited with code 7"),
        ("srun: error: n2: task 1: Exited with exit code 1", "entry", "the entry exited"),
        # Ray had died before, and that is what the entry died of.
        (WITH_LOG, "ray", "n2: killed"),
        # Slurm's word on a node, whenever it comes.
        ("srun: error: Node failure on n2", "ray", "n2: Node failure"),
    ],
)
def test_what_fails_in_the_teardown_is_not_why_the_entry_failed(
    tmp_path: Path, word: str, component: str, cause: str
) -> None:
    found = Supervise(tmp_path).run(LATE_RAY, "end 7", WORD=word, CODE="1")
    assert (found["component"], found["exit_code"]) == (component, 7)
    assert str(found["cause"]).startswith(cause)
    assert ("node-failed" in (tmp_path / "attempt-0" / "events.jsonl").read_text()) == (
        component == "ray"
    )
    assert not (tmp_path / "attempt-0" / "cleaned").exists()


def test_the_first_node_s_own_word_is_the_cause(tmp_path: Path) -> None:
    """srun's remark comes before it, and another node's word after it."""
    said = ("srun: error: n1: task 0: Exited with exit code 1", OWN, WITH_LOG.replace("n2", "n3"))
    ray = f"trap '' USR2; touch up; printf '%s\\n' {shlex.join(said)}; exit 1"
    found = Supervise(tmp_path).run(ray, "sleep 600")
    assert (found["component"], found["node"], found["exit_code"]) == ("ray", "n2", 69)


@pytest.mark.parametrize("more", ["", "sleep 0.5; "])
def test_srun_s_remark_on_the_entry_s_own_code_blames_no_node(tmp_path: Path, more: str) -> None:
    """It comes with every entry that fails, a moment before srun ends."""
    remark = "srun: error: n1: task 0: Exited with exit code 3"
    driver = f"trap 'echo \"{remark}\"; {more}exit 3' EXIT; end 3"
    found = Supervise(tmp_path).run(RAY, driver)
    assert (found["component"], found["node"], found["exit_code"]) == ("entry", None, 3)
    assert found["cause"] == "the entry exited with code 3"


def test_a_cancelled_run_stays_cancelled(tmp_path: Path) -> None:
    """Slurm asks twice, and a node fails in between."""
    ray = LATE_RAY.replace('echo "$WORD"', 'echo "$WORD"; sleep 0.3; kill $PPID; touch stop')
    driver = "kill $PPID; until [[ -e stop ]]; do sleep 0.05; done; exit 1"
    found = Supervise(tmp_path).run(ray, driver, WORD=OWN)
    assert (found["state"], found["exit_code"]) == ("cancelled", 143)


def test_a_ray_task_that_could_not_tidy_up_gets_a_clean_pass(tmp_path: Path) -> None:
    found = Supervise(tmp_path).run(LATE_RAY, "exit 7", CODE="137")
    assert found["exit_code"] == 7
    assert (tmp_path / "attempt-0" / "cleaned").exists()


def test_a_cancelled_run_is_not_blamed_on_the_node_whose_task_srun_names_first(
    tmp_path: Path,
) -> None:
    """scancel reaches the steps and the supervisor at once: srun's remark may come first."""
    remark = "srun: error: n7: task 6: Terminated"
    ray = f"touch up; echo '{remark}'; sleep 0.3; kill $PPID; touch stop; exit 143"
    driver = "until [[ -e stop ]]; do sleep 0.05; done; exit 143"
    found = Supervise(tmp_path).run(ray, driver)
    assert (found["state"], found["exit_code"]) == ("cancelled", 143)


SECRET = "hunter2-of-the-run"


def test_a_secret_reaches_neither_log_nor_outcome(tmp_path: Path) -> None:
    halves = SECRET[:7], SECRET[7:]
    supervise = Supervise(tmp_path)
    ray = f'echo "ray has $KEY"; {LATE_RAY}'
    driver = f'printf "wandb {halves[0]}"; sleep 0.2; echo "{halves[1]} x"; echo "key=$KEY" >&2; '
    known = {"BEAM_SLURM_SECRETS": "OTHER KEY", "KEY": SECRET}
    found = supervise.run(ray, driver + "printf 'last $KEY'; printf \"$KEY\"; exit 7", **known)
    assert "ray has ***\n" in supervise.log
    assert "wandb *** x\nkey=***\n" in supervise.log
    assert found["exit_code"] == 7
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in supervise.log + supervise.words
    assert any("***" in line for line in found["lines"])


# --- before the time is up ------------------------------------------------------------------

RAY = "trap 'exit 0' USR2; touch up; while :; do sleep 0.05; done"
FOREVER = "while :; do sleep 0.05; done"
STEP = 'echo "step 30/100 reward 0.5"; '
WARNED = "kill -USR1 $PPID; "


def warned(
    folder: Path, stop: str, driver: str, *rules: str, lead: float = 40
) -> tuple[Supervise, dict[str, Any]]:
    """A run with a checkpoint of step 20, and a newer one lies ready in ``staged``."""
    supervise = Supervise(folder)
    demo(folder / "checkpoints", 20)
    demo(folder / "staged", 40)
    words = ["--save-every=20", f"--checkpoints={folder}/checkpoints", f"--stop={stop}"]
    found = supervise.run(RAY, driver, *words, f"--lead={lead}", *rules)
    return supervise, found


TIME = {"state": "failed", "class": "time", "component": "slurm", "exit_code": 75}


def facts(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in TIME}


def test_an_entry_that_knows_the_signal_ends_by_itself(tmp_path: Path) -> None:
    early = 'echo "stopping early after step 31 of 100: asked to"; touch saved; exit 0'
    driver = f"trap '{early}' USR1; {STEP}{WARNED}{FOREVER}"
    supervise, found = warned(tmp_path, "signal", driver)
    assert facts(found) == TIME
    assert found["cause"] == "its time was up after step 31 of 100"
    assert found["steps"] == {"first": 30, "last": 31}
    assert (tmp_path / "attempt-0" / "saved").exists()
    assert supervise.said.count("warning") == 1
    assert found["stopped"].startswith("its time is used up")


def test_an_entry_that_does_not_know_the_signal_has_run_out_of_time(tmp_path: Path) -> None:
    _, found = warned(tmp_path, "signal", f"{STEP}{WARNED}{FOREVER}")
    assert facts(found) == TIME


@pytest.mark.parametrize("stop", ["sentinel", "interval", "deadline"])
def test_it_ends_when_a_newer_whole_checkpoint_is_there(tmp_path: Path, stop: str) -> None:
    sentinel = tmp_path / "save-now"
    asked = f"until [[ -e {sentinel} ]]; do sleep 0.05; done; " if stop == "sentinel" else ""
    saves = f"mv {tmp_path}/staged/step_000040 {tmp_path}/checkpoints; "
    ends = "trap 'touch told; exit 0' TERM; "
    supervise, found = warned(
        tmp_path, stop, ends + STEP + WARNED + "until grep -q warning events.jsonl; do sleep 0.05; "
        f"done; {asked}{saves}{FOREVER}", f"--sentinel={sentinel}",
    )  # fmt: skip
    assert facts(found) == TIME
    assert "the checkpoint of step 40 is whole" in supervise.words
    assert (tmp_path / "attempt-0" / "told").exists()
    assert not sentinel.exists()  # the next attempt would take it for its own


def test_it_does_not_wait_longer_than_there_is_time(tmp_path: Path) -> None:
    """An unfinished checkpoint is none."""
    (tmp_path / "checkpoints" / "tmp_step_000040").mkdir(parents=True)
    supervise, found = warned(tmp_path, "interval", STEP + WARNED + FOREVER, lead=2)
    assert facts(found) == TIME
    assert "no more time to wait" in supervise.words


def test_its_own_clock_warns_too(tmp_path: Path) -> None:
    """The total time is the run's own: Slurm does not know it."""
    _, found = warned(tmp_path, "interval", STEP + FOREVER, "--total-time=3", lead=2)
    assert facts(found) == TIME


@pytest.mark.parametrize("words", ["step 100/100 reward 1", "final held-out accuracy 0.9"])
def test_who_comes_to_the_last_step_in_time_has_succeeded(tmp_path: Path, words: str) -> None:
    driver = f"trap 'echo \"{words}\"; exit 0' USR1; {STEP}{WARNED}{FOREVER}"
    _, found = warned(tmp_path, "signal", driver)
    assert (found["state"], found["class"], found["exit_code"]) == ("succeeded", "", 0)


def test_an_entry_that_fails_in_its_last_minutes_has_failed(tmp_path: Path) -> None:
    driver = f"trap 'end 3' USR1; {STEP}{WARNED}{FOREVER}"
    _, found = warned(tmp_path, "signal", driver)
    assert (found["class"], found["component"], found["exit_code"]) == ("framework", "entry", 3)


def test_an_entry_that_ends_well_before_its_last_step_has_failed(tmp_path: Path) -> None:
    """A pipe or a trailing command hides the code of what has failed."""
    found = Supervise(tmp_path).run(RAY, STEP + "end 0")
    assert (found["state"], found["class"], found["component"]) == ("failed", "framework", "entry")
    assert found["exit_code"] == 70
    assert "ended with 0 after step 30 of 100" in found["cause"]


# --- the watchdog ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watch", "driver", "why"),
    [
        ("1,60,60,0", f"echo loading; {FOREVER}", "stuck: no first step for 1 s"),
        ("60,1,60,0", STEP + FOREVER, "stuck: no line of the log, step or checkpoint for 1 s"),
        ("60,60,1,0", STEP + "while :; do echo .; sleep 0.2; done", "stuck: no step for 1 s"),
    ],
)
def test_who_is_stuck_is_asked_what_it_does_and_ended(
    tmp_path: Path, watch: str, driver: str, why: str
) -> None:
    told = [
        f'{{"beam-slurm": "stacks", "time": 1, "node": "{node}", "path": "p"}}'
        for node in ("n1", "n2")
    ]
    dumps = tmp_path / "dumps"
    dumps.write_text("\n".join(told) + "\n")
    supervise = Supervise(tmp_path)
    ray = f"trap 'cat {dumps}' USR1; {RAY}"
    found = supervise.run(ray, driver, f"--watch={watch}")
    assert (found["component"], found["exit_code"], found["state"]) == ("watchdog", 69, "failed")
    assert why in str(found["cause"])
    assert supervise.said.count("stuck") == 1
    assert supervise.said.count("stacks") == 2


def test_who_saves_is_not_silent(tmp_path: Path) -> None:
    """Whatever a framework writes where its checkpoints go is a sign of life."""
    (tmp_path / "checkpoints").mkdir()
    writes = "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i > $TO/part; done; end 5"
    found = Supervise(tmp_path).run(
        RAY, STEP + writes, "--watch=60,1.5,60,0", "--save-every=20",
        f"--checkpoints={tmp_path}/checkpoints", TO=f"{tmp_path}/checkpoints",
    )  # fmt: skip
    assert (found["component"], found["exit_code"]) == ("entry", 5)


# --- what follows -----------------------------------------------------------------------------


def test_a_run_begins_again_in_the_same_process_until_the_brake(tmp_path: Path) -> None:
    node = program(tmp_path)
    rules = course(tmp_path, "--max-restarts=9", checkpoints=tmp_path / "checkpoints")
    demo(tmp_path / "checkpoints", 4)
    # Attempt 1 comes further than attempt 0, attempts 2 and 3 do not.
    driver = 'echo "step $((N < 2 ? 5 + N : 6))/100 reward 0"; end 3'
    (tmp_path / "script.sbatch").write_text(f"""
        echo $$ >> {tmp_path}/starts
        export N=$(wc -l < {tmp_path}/starts)
        export N=$((N - 1)) ATTEMPT={tmp_path}/attempt-$((N - 1))
        mkdir $ATTEMPT && cd $ATTEMPT
        exec {shlex.join([*node, "supervise", *rules])} --attempt=$ATTEMPT --on=n1 \\
          -- 3 bash -c {shlex.quote(RAY)} bash -c {shlex.quote(WAIT + driver)}
    """)
    done = subprocess.run(
        ["bash", tmp_path / "script.sbatch"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 3, done.stderr
    starts = (tmp_path / "starts").read_text().split()
    assert (len(starts), len(set(starts))) == (4, 1)
    history = attempts.history(str(tmp_path))
    assert [past["steps"]["last"] for past in history] == [5, 6, 6, 6]
    assert [(past["next"] or {}).get("how") for past in history] == ["here"] * 3 + [None]
    assert [past["next"]["resumes"] for past in history[:3]] == [4] * 3
    assert history[3]["stopped"] == "two attempts have brought no new step"
    last = done.stderr.strip().splitlines()[-1]
    assert "it does not go on: two attempts have brought no new step" in last


# Slurm's command as far as a supervisor needs it: a job without end, ended at the COUNT-th WORD.
SCONTROL = """#!/bin/bash
cd "$(dirname "$0")" && echo "$1" >> asked
[[ $1 != show ]] || echo "JobId=17 Restarts=0 EndTime=Unknown ExcNodeList=(null) PreemptTime=None"
[[ $1 != WORD || $(grep -c WORD asked) != COUNT ]] || kill -TERM $PPID
"""


@pytest.mark.parametrize(
    ("word", "count", "nodes", "how", "stopped"),
    [
        # Slurm ends the job that it is to run again.
        ("requeue", 1, 2, "requeue", ""),
        # Somebody cancels it after its entry has failed: it must not begin again.
        ("show", 2, 1, None, "the job was ended meanwhile"),
    ],
)
def test_the_end_of_the_job_ends_it(
    tmp_path: Path, word: str, count: int, nodes: int, how: str | None, stopped: str
) -> None:
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(SCONTROL.replace("WORD", word).replace("COUNT", str(count)))
    scontrol.chmod(0o755)
    path = f"{scontrol.parent}:{environment()['PATH']}"
    rules = ("--again=requeue", "--max-restarts=3", f"--nodes={nodes}")
    found = Supervise(tmp_path).run(RAY, STEP + "end 3", *rules, "--save-every=50", PATH=path)
    assert ((found["next"] or {}).get("how"), found["stopped"]) == (how, stopped)
    assert found["exit_code"] == 3


def test_a_job_that_slurm_ends_for_a_node_was_not_cancelled(tmp_path: Path) -> None:
    """Both get SIGTERM; only Slurm's own words tell them apart."""
    word = (
        "slurmstepd-n1: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-29T10:00:00 "
        "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    )
    ray = f"touch up; echo '{word}'; sleep 0.3; kill $PPID; exit 143"
    found = Supervise(tmp_path).run(ray, "sleep 600")
    assert (found["state"], found["class"], found["exit_code"]) == ("failed", "node", 69)
