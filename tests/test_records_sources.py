"""What a run was made from: git's state of real repositories, images, and no secret in a patch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from sources import commit, git
from test_job import request

from beam_slurm import secret
from beam_slurm.records import git as room
from beam_slurm.records import image, surroundings

pytestmark = pytest.mark.usefixtures("no_site")

DIGEST = "0123456789abcdef" * 4
KEY = "hf_" + "a1B2" * 9


# --- git ----------------------------------------------------------------------------------------


def test_a_clean_checkout(tmp_path: Path) -> None:
    head = commit(tmp_path / "repo", a_py="x = 1\n")
    found = room.look(tmp_path / "repo")
    assert (found.commit, found.branch, found.dirty) == (head, "main", False)
    assert (found.changed, found.untracked, found.patch, found.why) == ((), (), "", "")
    git(tmp_path / "repo", "checkout", "--quiet", head)
    assert room.look(tmp_path / "repo").branch is None


def test_changes_are_named_and_their_patch_applies(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    commit(repo, a_py="x = 1\n", b_py="y = 1\n", c_bin="")
    (repo / "a.py").write_text("x = 2\n")
    (repo / "b.py").unlink()
    (repo / "c.bin").write_bytes(b"caf\xe9\n")  # no UTF-8
    git(repo, "add", "b.py")  # staged or not is no difference
    (repo / "new file.py").write_text("z = 1\n")
    found = room.look(repo)
    assert found.dirty
    assert sorted(found.changed) == ["a.py", "b.py", "c.bin"]
    assert found.untracked == ("new file.py",)
    git(tmp_path, "clone", "--quiet", "repo", "copy")
    (tmp_path / "x.patch").write_bytes(os.fsencode(found.patch))
    git(tmp_path / "copy", "apply", "../x.patch")
    assert (tmp_path / "copy" / "a.py").read_text() == "x = 2\n"
    assert not (tmp_path / "copy" / "b.py").exists()
    assert (tmp_path / "copy" / "c.bin").read_bytes() == b"caf\xe9\n"


def test_a_huge_patch_is_not_kept(tmp_path: Path) -> None:
    commit(tmp_path, a_py="x\n")
    (tmp_path / "a.py").write_text("".join(f"x = {n}\n" for n in range(100_000)))
    found = room.look(tmp_path)
    assert (found.dirty, found.changed, found.patch) == (True, ("a.py",), "")
    assert found.why == "the patch is over 500 kB and was not kept"
    assert found.digest == room.look(tmp_path).digest
    with (tmp_path / "a.py").open("a") as file:
        file.write("y = 1\n")  # far behind what is kept
    assert room.look(tmp_path).digest not in (None, found.digest)


def test_what_is_no_checkout_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert room.look(plain).why == f"{plain} is no git repository"
    assert "is not to be seen" in room.look(tmp_path / "absent").why
    git(plain, "init", "--quiet")
    assert room.look(plain).why == f"{plain} has no commit yet"
    commit(plain, a_py="")
    inside = plain / "site-packages"  # as a wheel's folder in somebody's repository
    inside.mkdir()
    assert room.look(inside).why.endswith("lies in a git repository that does not hold it")
    monkeypatch.setenv("PATH", str(inside))
    found = room.look(plain)
    assert (found.commit, found.why) == (None, "git is not installed on this machine")


def test_the_surrounding_git_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a git hook, which has GIT_DIR set."""
    head = commit(tmp_path / "mine", a_py="x\n")
    commit(tmp_path / "other", a_py="y\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert room.look(tmp_path / "mine").commit == head


def test_nothing_is_written_into_the_repository(tmp_path: Path) -> None:
    commit(tmp_path, a_py="x\n")
    os.utime(tmp_path / "a.py", (1, 1))  # git status would refresh the index
    before = (tmp_path / ".git" / "index").read_bytes()
    assert room.look(tmp_path).dirty is False
    assert (tmp_path / ".git" / "index").read_bytes() == before


def test_a_slow_git_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(tmp_path / "repo", a_py="x\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    real = shutil.which("git")
    (tools / "git").write_text(
        f'#!/bin/bash\n[[ $1 != status ]] || exec sleep 60\nexec {real} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(room, "PATIENCE", 1.0)
    began = time.monotonic()
    found = room.look(tmp_path / "repo")
    assert time.monotonic() - began < 20
    assert (found.commit, found.dirty) == (head, None)
    assert found.why == "changes: git status took longer than 1 s"


def test_a_colleague_s_checkout_has_at_least_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git asks nothing of a tree that is another user's, but for a reference."""
    head = commit(tmp_path, a_py="x\n")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(["git", "status"], cwd=tmp_path, capture_output=True, check=False)
    assert b"dubious ownership" in refused.stderr
    # Our calls have no GIT_ variables of the surroundings: git is told by a wrapper.
    tools = tmp_path.parent / f"{tmp_path.name}-bin"
    tools.mkdir()
    wrapper = "#!/bin/bash\nexport GIT_TEST_ASSUME_DIFFERENT_OWNER=1\n"
    (tools / "git").write_text(f'{wrapper}exec {shutil.which("git")} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    found = room.look(tmp_path)
    assert (found.commit, found.dirty) == (head, None)
    assert "dubious ownership" in found.why


# --- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("+WANDB_API_KEY=abcdef", "+WANDB_API_KEY=***"),
        ("-api_key: 'abcdef'", "-api_key: '***'"),
        ("+  run --wandb-key abc --steps 3", "+  run --wandb-key *** --steps 3"),
        (f"+login({KEY!r})", "+login('***')"),
        ("+print('value-of-the-variable')", "+print('***')"),
        ("+password=$PASSWORD  # by name", "+password=$PASSWORD  # by name"),
        ("+eos_token = 3", "+eos_token = 3"),
        ("+SITE_THING=abc", "+SITE_THING=***"),
        ("+secret=a&password=b", "+secret=***"),
        ("+" + "x" * 20_000, "+***"),
    ],
)
def test_secrets_in_a_patch_are_hidden(line: str, shown: str) -> None:
    environment = {"MY_API_KEY": "value-of-the-variable", "SHORT_API_KEY": "run"}
    text, count = secret.masked(f" a\n{line}\n b", environment, ["SITE_THING"])
    assert text == f" a\n{shown}\n b"
    assert count == (line != shown)


def test_hiding_takes_linear_time() -> None:
    began = time.monotonic()
    secret.masked("\n".join("ab9_-." * 1600 for _ in range(50)), {})
    assert time.monotonic() - began < 20


# --- image --------------------------------------------------------------------------------------


def test_images_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "nemo.sqsh"
    assert "No such file" in image.identify("pyxis", str(file))["why"]
    file.write_bytes(b"squash")
    found = image.identify("pyxis", str(file))
    assert found["digest"] == f"sha256:{hashlib.sha256(b'squash').hexdigest()}"
    assert (found["by"], found["size"], found["why"]) == ("its content", 6, None)
    monkeypatch.setattr(image, "SMALL", 5)
    large = image.identify("pyxis", str(file))
    assert (large["digest"], large["size"]) == (None, 6)
    assert large["why"] == "it is large, and has no nemo.sqsh.sha256 beside it"
    (tmp_path / "nemo.sqsh.sha256").write_text(f"{DIGEST}  nemo.sqsh\n")
    found = image.identify("pyxis", str(file))
    assert (found["digest"], found["by"]) == (f"sha256:{DIGEST}", "nemo.sqsh.sha256")
    os.utime(tmp_path / "nemo.sqsh.sha256", (1, 1))  # the image was replaced since
    stale = image.identify("pyxis", str(file))
    assert (stale["digest"], stale["why"]) == (None, "nemo.sqsh.sha256 is older than it")


def test_images_of_registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = f"example.org/rl@sha256:{DIGEST}"
    assert image.identify("docker", named)["digest"] == f"sha256:{DIGEST}"
    assert "a tag may move" in image.identify("pyxis", "example.org#rl:1")["why"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert image.identify("docker", "rl:1")["why"] == "docker is not on this machine"


@pytest.mark.parametrize("runtime", ["docker", "podman"])
@pytest.mark.parametrize("repo", ["[]", f'["example.org/rl@sha256:{DIGEST[::-1]}"]'])
def test_images_of_a_store(
    runtime: str, repo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker writes ``sha256:`` before its id, Podman does not."""
    prefix = "sha256:" if runtime == "docker" else ""
    tool = tmp_path / runtime
    tool.write_text(
        "#!/bin/bash\n"
        f'[[ "$*" == *" rl:1" ]] || {{ echo no such image >&2; exit 1; }}\n'
        f"echo '{prefix}{DIGEST} {repo}'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = image.identify(runtime, "rl:1")
    if repo == "[]":
        told = (f"sha256:{DIGEST}", f"its id, says {runtime} on this machine")
    else:
        told = (f"sha256:{DIGEST[::-1]}", f"its registry, says {runtime} on this machine")
    assert (found["digest"], found["by"]) == told
    absent = image.identify(runtime, "rl:2")
    assert (absent["digest"], absent["why"]) == (
        None,
        f"{runtime} on this machine does not hold it",
    )


# --- all of it ----------------------------------------------------------------------------------


def test_surroundings_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(tmp_path / "nemo-rl", a_py="x = 1\n")
    # Each way to name a secret, with a name and a value that say nothing by themselves.
    ways = {"FILED": "hidden-here-too", "LISTED": "listed-by-site", "HOOK": "https://chat/hook-1"}
    told = "".join(f"post({value!r})\n" for value in ways.values())
    (tmp_path / "nemo-rl" / "a.py").write_text(f"token = {KEY!r}\n{told}")
    filed = tmp_path / "secrets"
    filed.write_text("FILED=hidden-here-too\n")
    filed.chmod(0o600)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("LISTED", ways["LISTED"])
    monkeypatch.setenv("HOOK", ways["HOOK"])
    monkeypatch.delenv("HF_TOKEN", raising=False)
    made = request(
        "b300-colocated",
        f"site.paths.nemo_rl={tmp_path}/nemo-rl",
        f"site.secrets_file={filed}",
        "site.secrets=[LISTED]",
        "site.notify.webhook=HOOK",
    )
    found = surroundings.gather(made)
    facts = json.loads(json.dumps(found.facts()))
    checkout = facts["sources"]["checkout"]
    assert (checkout["commit"], checkout["dirty"]) == (head, True)
    assert (checkout["patch"], checkout["masked"]) == ("checkout.patch", 4)
    assert checkout["digest"] == hashlib.sha256(found.files()["checkout.patch"]).hexdigest()
    assert facts["secrets"] == ["FILED", "HOOK", "LISTED", "WANDB_API_KEY"]
    assert facts["image"]["name"] == "/shared/images/nemo-rl.sqsh"
    patch = found.files()["checkout.patch"].decode()
    assert "+token = '***'" in patch
    for value in (KEY, "0123456789abcdef", *ways.values()):
        assert value not in patch
        assert value not in json.dumps(facts)
    local = surroundings.gather(request("demo", "hardware.nodes=1", local=True)).facts()
    assert "checkout" not in local["sources"]
    assert local["image"] is None
