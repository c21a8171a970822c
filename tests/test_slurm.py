"""Slurm's answers, its environment, and never submitting twice."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from beam_slurm import job, profiles, runs, slurm, submit
from beam_slurm.errors import BeamSlurmError


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("1-0", 1440),
        ("1-12:30", 2190),
        ("7-00:00:00", 10080),
        ("0:00:01", 1),
    ],
)
def test_times(text: str, minutes: int) -> None:
    assert slurm.minutes(text) == minutes


def test_the_environment_of_a_submission_is_clean() -> None:
    given = {
        "SLURM_JOB_ID": "1",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "a",
        "SBATCH_EXCLUSIVE": "1",
        "SRUN_DEBUG": "1",
        "PMI_RANK": "0",
        "PMIX_RANK": "0",
        "RAY_ADDRESS": "x",
        "WANDB_API_KEY": "secret",
        "PATH": "/bin",
    }
    assert slurm.environment(given) == {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CLUSTERS": "a",
        "WANDB_API_KEY": "secret",
        "PATH": "/bin",
    }


EIGHT_TEN = "2027-01-15T08:10:00"


class Answers:
    """Stands in for Slurm's programs where an answer cannot be had from a real one on demand:
    a site's banner, a controller that takes the job and then falls silent."""

    def __init__(self, answers: dict[str, tuple[int, str, str]]) -> None:
        self.answers = answers
        self.calls: list[str] = []

    def __call__(self, words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls.append(words[0])
        return subprocess.CompletedProcess(words, *self.answers[words[0]])


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers({})
    monkeypatch.setattr(slurm.shutil, "which", lambda word: word)
    monkeypatch.setattr(slurm.subprocess, "run", made)
    return made


@pytest.mark.parametrize("answer", ["123\n", "123;cluster\n", "Welcome!\n*** 9 ***\n123\n"])
def test_the_job_id_is_the_last_line(answers: Answers, answer: str) -> None:
    answers.answers["sbatch"] = (0, answer, "")
    assert slurm.submit(Path("x"), "token") == "123"


@pytest.mark.parametrize("answer", ["", "Submitted\n", "123 bye\n", "12.3\n"])
def test_anything_else_is_looked_up_or_shown_raw(answers: Answers, answer: str) -> None:
    answers.answers["sbatch"] = (0, answer, "")
    answers.answers["squeue"] = (0, "7 other\n", "")
    with pytest.raises(slurm.Uncertain) as caught:
        slurm.submit(Path("x"), "token")
    assert repr(answer) in str(caught.value)
    answers.answers["squeue"] = (0, "8 token\n", "")
    assert slurm.submit(Path("x"), "token") == "8"


def test_a_silent_controller_is_asked_for_the_token_and_never_submitted_to_twice(
    answers: Answers,
) -> None:
    silent = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    answers.answers["sbatch"] = (1, "", silent)
    answers.answers["squeue"] = (0, "7 other\n8 token\n", "")
    assert slurm.submit(Path("x"), "token") == "8"
    answers.answers["squeue"] = (0, "7 other\n", "")
    with pytest.raises(slurm.Uncertain, match="Socket timed out"):
        slurm.submit(Path("x"), "token")
    assert answers.calls.count("sbatch") == 2  # one a submission


def test_a_job_that_nobody_knows_is_unknown_not_succeeded(answers: Answers, tmp_path: Path) -> None:
    run = runs.create(tmp_path / "x", {}, {"job": "5"})
    answers.answers["scontrol"] = (1, "", "slurm_load_jobs error: Invalid job id specified")
    answers.answers["sacct"] = (1, "", "Slurm accounting storage is disabled")
    assert run.state().word == "unknown"
    answers.answers["sacct"] = (0, "5|COMPLETED|0:0|then|now|node1\n", "")
    state = run.state()
    assert (state.word, state.exit_code) == ("failed", 1)
    assert "did not come to its end" in state.why


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Invalid account or account/partition combination specified", "site.account"),
        ("Invalid generic resource (gres) specification", "site.gpu_names"),
        ("Requested node configuration is not available", "sinfo"),
    ],
)
def test_a_refusal_comes_with_a_remedy(answers: Answers, said: str, remedy: str) -> None:
    answers.answers["sbatch"] = (1, "", f"sbatch: error: {said}")
    with pytest.raises(BeamSlurmError) as caught:
        slurm.submit(Path("x"), "token")
    assert said in (caught.value.why or "")
    assert remedy in (caught.value.remedy or "")


def test_a_dead_node_is_named_beside_slurm_s_verdict(answers: Answers, tmp_path: Path) -> None:
    run = runs.create(tmp_path / "x", {}, {"job": "5"})
    (run.path / "attempt-0").mkdir()
    outcome = {"state": "failed", "cause": "node2: Node failure", "node": "node2", "exit_code": 69}
    (run.path / "attempt-0" / "outcome.json").write_text(json.dumps(outcome))
    answers.answers["scontrol"] = (0, "JobId=5 JobState=NODE_FAIL Reason=None ExitCode=0:0\n", "")
    state = run.state()
    assert (state.word, state.why) == ("failed", "Slurm: NODE_FAIL, node2: Node failure")
    assert state.exit_code == 69


@pytest.mark.parametrize(
    ("known", "job"),
    [
        (
            {"scontrol": "JobState=%s StartTime=%s EndTime=%s NodeList=node1\n"},
            slurm.Job("5", "FAILED", "", "", "2027-01-15T08:00:00", "node1", 0, EIGHT_TEN),
        ),
        (
            {"sacct": "5|%s|1:0|%s|%s|node1\n"},
            slurm.Job("5", "FAILED", "", "1:0", "2027-01-15T08:00:00", "node1", 0, EIGHT_TEN),
        ),
        (
            {"scontrol": "JobState=PENDING StartTime=Unknown EndTime=Unknown NodeList=(null)\n"},
            slurm.Job("5", "PENDING"),
        ),
        ({"sacct": "5|CANCELLED|0:0|None|None|None assigned\n"}, slurm.Job("5", "CANCELLED")),
    ],
)
def test_when_and_where_a_job_has_run(
    answers: Answers, known: dict[str, str], job: slurm.Job
) -> None:
    answers.answers["scontrol"] = (1, "", "slurm_load_jobs error: Invalid job id specified")
    for command, said in known.items():
        facts = (job.state, job.start, job.end)
        answers.answers[command] = (0, said % facts if "%" in said else said, "")
    found = slurm.job("5")
    assert found
    seen = (found.state, found.nodes, slurm.epoch(found.start), slurm.epoch(found.end))
    assert seen == (job.state, job.nodes, slurm.epoch(job.start), slurm.epoch(job.end))
    if job.end:
        assert (slurm.epoch(found.end) or 0) - (slurm.epoch(found.start) or 0) == 600


def test_a_requeued_job_says_how_often(answers: Answers) -> None:
    line = "JobId=5 JobState=%s Reason=None Requeue=1 Restarts=%d BatchFlag=2 ExitCode=0:0\n"
    for state, waits in (("PENDING", True), ("REQUEUE_HOLD", True), ("RUNNING", False)):
        answers.answers["scontrol"] = (0, line % (state, 3), "")
        found = slurm.job("5")
        assert found is not None
        assert (found.restarts, found.waits, found.ended) == (3, waits, False)


PARTITION = "PartitionName=gpu Default=YES TotalNodes=8 MaxNodes=UNLIMITED MaxTime=UNLIMITED\n"


@pytest.mark.parametrize(
    ("sbatch", "said", "stays"),
    [
        ((1, "", "sbatch: error: Socket timed out on send/recv"), "nobody can say", True),
        ((0, "welcome\n", ""), "nobody can say", True),
        ((1, "", "sbatch: error: Invalid qos specification"), "sbatch refuses", False),
    ],
)
def test_a_run_folder_stays_exactly_if_there_may_be_a_job(
    answers: Answers,
    tmp_path: Path,
    sbatch: tuple[int, str, str],
    said: str,
    stays: bool,
) -> None:
    answers.answers.update(
        {
            "scontrol": (0, PARTITION, ""),
            "sinfo": (0, "slurm 22.05.8", ""),
            "sbatch": sbatch,
            "squeue": (0, "", ""),
        }
    )
    words = [f"site.paths.runs={tmp_path}/runs", "site.paths.venv=/venv"]
    resolved = profiles.resolve("demo", use_site=False, settings=profiles.parse_settings(words))
    request = job.make_request(resolved)
    with pytest.raises(BeamSlurmError, match=said):
        submit.submit(request)
    assert request.run.exists() is stays
    assert (tmp_path / "runs").exists() is stays


def test_a_refusal_never_removes_another_run(answers: Answers, tmp_path: Path) -> None:
    words = [f"site.paths.runs={tmp_path}/runs", "site.paths.venv=/venv"]
    resolved = profiles.resolve("demo", use_site=False, settings=profiles.parse_settings(words))
    answers.answers.update({"scontrol": (0, PARTITION, ""), "sinfo": (0, "slurm 22.05.8", "")})
    other = tmp_path / "runs" / "other"

    def refuse(script: Path, token: str) -> str:
        other.mkdir()  # somebody else submits at the same moment
        raise BeamSlurmError("refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm, "submit", refuse)
        with pytest.raises(BeamSlurmError, match="refused"):
            submit.submit(job.make_request(resolved))
    assert list((tmp_path / "runs").iterdir()) == [other]


@pytest.mark.parametrize(("mode", "file"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644)])
def test_who_may_look_into_a_run_folder(mode: int, file: int, tmp_path: Path) -> None:
    """As the site says, whatever the shell's umask; tokens are nobody else's in any case."""
    before = os.umask(0o077 if mode != 0o700 else 0)
    try:
        run = runs.create(tmp_path / "x", {"script.sbatch": "#"}, {}, mode)
        run.record(job="5")
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in run.path.iterdir()}
    assert found == {"script.sbatch": file, "manifest.json": file, "private": 0o700}
    assert run.path.stat().st_mode & 0o777 == mode
