"""Old runs go: those that are over, whole, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import folders
import pytest
from launching import COMMAND, Launch
from test_records import Jobs, call, jobs  # noqa: F401 - a fixture

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node.claim import MARKER
from beam_slurm.records import prune
from beam_slurm.runs import Run

pytestmark = pytest.mark.usefixtures("no_site")

DAY = 86400


def old(root: Path, name: str, days: float = 40, job: str = "17", **manifest: Any) -> Run:
    """A run that has ended so many days ago, with 100 kB of log."""
    run = folders.make(root, name, job=job, **manifest)
    folders.outcome(run, after=time.time() - days * DAY - folders.T0)
    log = run.path / f"job-{job}.log"
    log.write_text("x" * 100_000)
    os.utime(log, (time.time() - days * DAY,) * 2)
    return run


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_what_is_old_goes_and_what_is_new_stays(tmp_path: Path) -> None:
    for name, days in (("a", 40), ("b", 31), ("c", 29), ("d", 0)):
        old(tmp_path, name, days)
    dry = call("prune", "--older-than", "30d", "--dry-run", root=tmp_path)
    assert names(tmp_path) == ["a", "b", "c", "d"]
    assert "would remove 2 runs and free 201 kB" in dry.stdout
    rows = [line.split()[0] for line in dry.stdout.splitlines()[1:3]]
    assert sorted(rows) == ["a", "b"]
    assert "40 d 0 h ago" in dry.stdout
    done = call("prune", "--older-than", "30d", "--yes", root=tmp_path)
    assert "removed 2 runs, 201 kB are free" in done.stdout
    assert names(tmp_path) == ["c", "d"]
    assert "nothing to remove" in call("prune", "--older-than", "30d", root=tmp_path).stdout


def test_the_newest_are_kept_of_those_that_are_meant(tmp_path: Path) -> None:
    for number in range(5):
        old(tmp_path, f"a{number}", created=folders.T0 + number)
    old(tmp_path, "b0", profile="other")
    call("prune", "--keep", "2", "--profile", "demo", "--yes", root=tmp_path)
    assert names(tmp_path) == ["a3", "a4", "b0"]


def test_nobody_is_there_to_be_asked(tmp_path: Path) -> None:
    old(tmp_path, "a")
    with pytest.raises(BeamSlurmError, match="nothing was removed"):
        call("prune", "--keep", "0", root=tmp_path)
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "words", [(), ("--older-than", "30"), ("--older-than", "-3d"), ("--older-than", f"{9**400}d")]
)
def test_what_is_to_go_must_be_said(words: tuple[str, ...], tmp_path: Path) -> None:
    old(tmp_path, "a")
    assert call("prune", *words, "--yes", root=tmp_path).exit_code == 2
    assert names(tmp_path) == ["a"]


def test_a_run_with_a_job_that_lives_stays(
    tmp_path: Path,
    jobs: Jobs,  # noqa: F811
) -> None:
    old(tmp_path, "done", job="1")
    waits = folders.make(tmp_path, "waits", job="2", created=1.0)
    jobs["2"] = slurm.Job("2", "PENDING", "Priority")
    chained = old(tmp_path, "chained", job="3")
    folders.lost(chained, "chain", chained="4")
    jobs["4"] = slurm.Job("4", "RUNNING", nodes="n1")
    # It has told its end, and yet its first job is there.
    told = old(tmp_path, "told", job="5")
    folders.outcome(told, attempt=1, job="6", after=1)
    jobs["5"] = slurm.Job("5", "RUNNING", nodes="n1")
    # Between its folder and sbatch; and a job of another cluster on the same storage.
    unsaid = folders.make(tmp_path, "unsaid", job=None, created=1.0)
    foreign = folders.make(tmp_path, "foreign", job="99", created=1.0)
    folders.bring_up(foreign)
    local = folders.make(
        tmp_path, "local", executor="local", pid=os.getpid(), host=os.uname().nodename, created=1.0
    )
    other = folders.make(tmp_path, "other", executor="local", pid=1, host="elsewhere", created=1.0)
    begun = folders.make(tmp_path, "begun", executor="local", job=None, created=1.0)
    shown = call("prune", "--keep", "0", "--yes", root=tmp_path).stdout
    left = (waits, chained, told, unsaid, foreign, local, other, begun)
    assert names(tmp_path) == sorted(run.id for run in left)
    assert "stays: it is pending as job 2" in shown
    assert "stays: it is running as job 4" in shown or "stays: it is starting as job 4" in shown
    assert "stays: its job 5 is running" in shown
    unknown = "stays: nobody can say whether it is over: "
    assert shown.count(unknown) == 4
    assert f"{unknown}it was started on elsewhere" in shown
    assert f"{unknown}Slurm has forgotten the job" in shown
    assert f"{unknown}it was never submitted" in shown
    assert f"{unknown}it was never started" in shown
    assert "removed 1 run," in shown


def test_a_point_that_its_sweep_has_not_come_to_stays(tmp_path: Path) -> None:
    facts = {"id": "lr-0a1b2c", "index": 7}
    folders.make(tmp_path, "waits", job=None, created=1.0, sweep=facts)
    folders.make(tmp_path, "here", job=None, created=1.0, sweep=facts, executor="local")
    old(tmp_path, "done", job="12", sweep=facts)
    shown = call("prune", "--keep", "0", "--yes", root=tmp_path).stdout
    assert shown.count("stays: sweep lr-0a1b2c may not have come to it yet") == 2
    assert names(tmp_path) == ["here", "waits"]


def test_with_the_last_point_goes_its_sweep(tmp_path: Path, jobs: Jobs) -> None:  # noqa: F811
    """Also where a point had not begun, but its sweep was cancelled and comes to it no more."""
    root = tmp_path / "runs"
    sweep = root / "lr-1"
    old(sweep, "lr-1-0000", sweep={"id": "lr-1", "index": 0})
    folders.make(sweep, "lr-1-0001", created=folders.T0, sweep={"id": "lr-1", "index": 1})
    for name in ("sweep.yaml", ".lock", "submitit/chunk-000.sbatch"):
        (sweep / name).parent.mkdir(exist_ok=True)
        (sweep / name).touch()
    (sweep / "sweep.json").write_text('{"cancelled": false}')
    done = call("prune", "--keep", "0", "--yes", root=root)
    assert "sweep lr-1 may not have come to it yet" in done.stdout
    assert sorted(path.name for path in sweep.glob("lr-*")) == ["lr-1-0001"]
    (sweep / "sweep.json").write_text('{"cancelled": true}')
    call("prune", "--keep", "0", "--keep-record", "--yes", root=root)
    assert (sweep / "lr-1-0001" / "manifest.json").exists()
    call("prune", "--keep", "0", "--yes", root=root)
    assert names(root) == []


def test_it_looks_again_before_each_one(tmp_path: Path, jobs: Jobs) -> None:  # noqa: F811
    run = old(tmp_path, "a", job="1")
    (one,) = prune.candidates([run], tmp_path, None, 0, record=False)
    assert one.stays == ""
    jobs["1"] = slurm.Job("1", "PENDING", "requeued by hand", restarts=1)
    with pytest.raises(BeamSlurmError, match="a stays"):
        prune.remove(one, record=False)
    assert run.outcome


def test_nothing_goes_where_slurm_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(job_id: str) -> slurm.Job:
        raise BeamSlurmError("Slurm's controller does not answer")

    monkeypatch.setattr(slurm, "job", silent)
    old(tmp_path, "a")
    with pytest.raises(BeamSlurmError, match="does not answer"):
        call("prune", "--keep", "0", "--yes", root=tmp_path)
    assert names(tmp_path) == ["a"]


def test_no_link_is_followed_and_nothing_outside_is_touched(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    elsewhere = old(outside, "elsewhere")
    root.mkdir()
    (root / "link").symlink_to(elsewhere.path)
    output = tmp_path / "outputs" / "first"
    output.mkdir(parents=True)
    (output / "checkpoint").write_text("precious")
    run = old(root, "a", output=str(output))
    (run.path / "to-folder").symlink_to(output)
    (run.path / "to-file").symlink_to(output / "checkpoint")
    (run.path / "dangling").symlink_to("nowhere")
    shown = call("prune", "--keep", "0", "--yes", root=root).stdout
    assert names(root) == ["link"]
    assert "stays: it is a link to another place" in shown
    assert f"its output stays: {output}" in shown
    assert (output / "checkpoint").read_text() == "precious"
    assert (elsewhere.path / "job-17.log").is_file()


def test_a_folder_that_another_run_writes_into_stays(tmp_path: Path) -> None:
    first = old(tmp_path, "first")
    old(tmp_path, "second", days=1, output=str(first.path / "output"))
    shown = call("prune", "--older-than", "30d", "--yes", root=tmp_path).stdout
    assert "stays: second writes into it" in shown
    assert names(tmp_path) == ["first", "second"]
    call("prune", "--keep", "0", "--yes", root=tmp_path)  # neither holds the other if both go
    assert names(tmp_path) == []


def test_what_was_made_of_its_checkpoints_keeps_a_run(tmp_path: Path) -> None:
    """A model in its folder, which somebody may still want."""
    first = old(tmp_path, "first")
    made = {"run": "first", "output": f"{first.path}/output/hf/step_2"}
    old(tmp_path, "first-hf", days=1, framework="convert", task=made)
    shown = call("prune", "--older-than", "30d", "--yes", root=tmp_path).stdout
    assert "stays: first-hf writes into it" in shown
    assert names(tmp_path) == ["first", "first-hf"]
    call("prune", "--keep", "0", "--yes", root=tmp_path)
    assert names(tmp_path) == []


def test_a_damaged_manifest_is_for_a_person_to_look_at(tmp_path: Path) -> None:
    run = old(tmp_path, "a")
    (run.path / "manifest.json").write_text('{"id": ')
    assert (
        "stays: its manifest cannot be read"
        in call("prune", "--keep", "0", "--yes", root=tmp_path).stdout
    )
    assert names(tmp_path) == ["a"]


def test_the_record_may_stay(tmp_path: Path) -> None:
    run = old(tmp_path, "a")
    folders.preflight(run, 1)
    for name in ("origins.json", "script.sbatch", "checkout.patch", "node.pyz"):
        (run.path / name).write_text("x")
    (run.path / "output" / "checkpoints").mkdir(parents=True)
    (run.path / "output" / "profile.yaml").write_text("the framework's own")
    call("prune", "--keep", "0", "--yes", "--keep-record", root=tmp_path)
    left = sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file())
    assert left == [
        "attempt-0/outcome.json",
        "attempt-0/preflight.json",
        "checkout.patch",
        "manifest.json",
        "origins.json",
        "profile.yaml",
        "script.sbatch",
    ]
    assert not (run.path / "output").exists()
    assert json.loads(call("list", "--json", root=tmp_path).stdout)[0]["state"] == "succeeded"
    again = call("prune", "--keep", "0", "--yes", "--keep-record", root=tmp_path).stdout
    assert "nothing to remove" in again


def test_what_cannot_be_removed_is_named_and_listed_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container leaves it that wrote as root."""
    run = old(tmp_path, "a")
    stuck = run.path / "job-17.log"
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    old(tmp_path, "b")
    old(tmp_path, "c", created=1.0)
    monkeypatch.setattr(Path, "unlink", refuse)
    done = call("prune", "--keep", "0", "--yes", root=tmp_path)
    monkeypatch.undo()
    assert (done.exit_code, names(tmp_path)) == (2, ["a"])  # the others went all the same
    assert "removed 2 runs," in done.stdout
    assert f"{stuck}: a could not be removed as a whole" in done.stderr
    assert "the run is listed still" in done.stderr
    assert run.manifest["id"] == "a"


def test_a_folder_that_cannot_be_read_stops_it_before_anything_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = old(tmp_path, "a")
    (run.path / "output").mkdir()
    before = sorted(run.path.rglob("*"))
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if os.fspath(path) == str(run.path / "output"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    done = call("prune", "--keep", "0", "--yes", root=tmp_path)
    monkeypatch.undo()
    assert done.exit_code == 2
    assert f"{run.path / 'output'}: a could not be removed as a whole" in done.stderr
    assert sorted(run.path.rglob("*")) == before


def test_runs_of_other_users_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old(tmp_path, "a")
    monkeypatch.setattr(os, "geteuid", lambda: -2)
    done = call("prune", "--keep", "0", "--yes", root=tmp_path)
    assert done.exit_code == 0
    assert "1 of 1 runs left out: somebody else's" in done.stderr
    assert "nothing to remove" in done.stdout
    assert names(tmp_path) == ["a"]


def test_what_was_heard_of_last_counts(tmp_path: Path) -> None:
    """A job that writes still, or an attempt that has not told its end."""
    writes, begun = old(tmp_path, "writes"), old(tmp_path, "begun")
    os.utime(writes.path / "job-17.log")
    folders.event(begun, "node-up", time.time() - folders.T0)
    old(tmp_path, "old")
    call("prune", "--older-than", "30d", "--yes", root=tmp_path)
    assert names(tmp_path) == ["begun", "writes"]


@pytest.mark.parametrize("known_by", ["its manifest", "its checkpoints", "the folder's mark"])
def test_links_do_not_hide_who_writes_into_a_folder(known_by: str, tmp_path: Path) -> None:
    root = tmp_path / "real"
    first = old(root, "first")
    output = first.path / "shared"
    output.mkdir()
    (tmp_path / "link").symlink_to(root)
    there = str(tmp_path / "link" / "first" / "shared")
    facts = {"its manifest": {"output": there}, "its checkpoints": {"checkpoints": there}}
    other = old(
        tmp_path / "others" if known_by == "the folder's mark" else root,
        "second",
        1,
        **facts.get(known_by, {}),
    )
    if known_by == "the folder's mark":
        (output / MARKER).write_text(json.dumps({"run": str(other.path), "job": "17"}))
    shown = call("prune", "--older-than", "30d", "--yes", root=root).stdout
    assert "stays: second writes into it" in shown
    assert output.is_dir()


@pytest.mark.parametrize("facts", [{"folder": 5}, {"folder": "\0"}, {"output": 5}, {"sweep": "s"}])
def test_one_odd_manifest_stops_no_other(facts: dict[str, Any], tmp_path: Path) -> None:
    old(tmp_path, "a")
    old(tmp_path, "b", **facts)
    assert call("prune", "--keep", "0", "--yes", root=tmp_path).exit_code == 0
    assert names(tmp_path) == []


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 130, ["a"]), ("y", 0, [])])
def test_a_person_is_asked(answer: str, code: int, left: list[str], tmp_path: Path) -> None:
    old(tmp_path, "a", executor="local", job=None)
    mine, theirs = os.openpty()
    words = ["prune", "--keep", "0", "--runs", str(tmp_path)]
    with subprocess.Popen(
        [COMMAND, "runs", *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        os.write(mine, f"{answer}\n".encode())
        said = child.communicate(timeout=60)[0]
    os.close(mine)
    os.close(theirs)
    assert "Remove 1 run and free" in said
    assert child.returncode == code
    assert names(tmp_path) == left


@pytest.mark.slurm
def test_a_job_in_the_queue_keeps_its_run(launch: Launch) -> None:
    """Pending: its run stays, is named where its folder was moved, and goes once it is over."""
    run = launch.submit("--nodes=1", "--set", "site.directives={begin: now+1hour}")
    job_id = run.manifest["job"]
    assert run.manifest["versions"]["slurm"]
    listed = json.loads(launch.call("runs", "list", "--state=pending", "--json").stdout)
    assert [(one["id"], one["job"]) for one in listed] == [(run.id, job_id)]
    everything = ("runs", "prune", "--keep=0", "--yes")
    assert f"stays: it is pending as job {job_id}" in launch.call(*everything).stdout
    there = run.path.rename(run.path.parent.parent / "elsewhere")
    told = launch.call("status", str(there)).stdout
    assert f"job {job_id} is not over, and writes to {run.path} still" in told
    there.rename(run.path)
    assert launch.call("cancel", run.id).returncode == 0
    launch.until("its end", lambda: run.state().ended)
    assert "removed 1 run" in launch.call(*everything).stdout
    assert not run.path.exists()
