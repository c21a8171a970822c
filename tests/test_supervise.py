"""The supervisor, with two small programs for the steps: who is to blame, and what is left."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from nodes import course, environment, program

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

    def run(self, ray: str, driver: str, **more: str) -> dict[str, object]:
        """The outcome of two bash programs; the driver begins when the Ray step is ``up``."""
        node = program(self.folder)
        attempt = self.folder / "attempt-0"
        attempt.mkdir(exist_ok=True)
        steps = [["bash", "-c", ray, "ray"], ["bash", "-c", WAIT + driver, "driver"]]
        options = [f"--attempt={attempt}", "--on=n1,n2", "--", "4"]
        done = subprocess.run(
            [*node, "supervise", *course(self.folder), *options, *steps[0], *steps[1]],
            cwd=attempt,
            env=environment(**{"WORD": "", "CODE": "0", **more}),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        self.log = done.stdout
        found = json.loads((attempt / "outcome.json").read_text())
        assert done.returncode == found["exit_code"]
        return found  # type: ignore[no-any-return]


WAIT = "until [[ -e up ]]; do sleep 0.05; done\n"


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
    ended = 'echo \'{"beam-slurm": "entry-ended", "time": 1, "code": 7}\'; exit 7'
    found = Supervise(tmp_path).run(LATE_RAY, ended, WORD=word, CODE="1")
    assert (found["component"], found["exit_code"]) == (component, 7)
    assert str(found["cause"]).startswith(cause)
    assert ("node-failed" in (tmp_path / "attempt-0" / "events.jsonl").read_text()) == (
        component == "ray"
    )
    assert not (tmp_path / "attempt-0" / "cleaned").exists()


def test_the_first_node_s_own_word_is_the_cause(tmp_path: Path) -> None:
    """srun's remark comes before it, and another node's word after it."""
    said = ("srun: error: n1: task 0: Exited with exit code 1", OWN, WITH_LOG.replace("n2", "n3"))
    ray = (
        "trap '' USR2; touch up; "
        + "; ".join(f"echo {shlex.quote(line)}" for line in said)
        + "; exit 1"
    )
    found = Supervise(tmp_path).run(ray, "sleep 600")
    assert (found["component"], found["node"], found["exit_code"]) == ("ray", "n2", 69)


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
    ray = f"touch up; echo '{remark}'; sleep 0.3; kill $PPID; exit 143"
    found = Supervise(tmp_path).run(ray, "sleep 600")
    assert (found["state"], found["exit_code"]) == ("cancelled", 143)
