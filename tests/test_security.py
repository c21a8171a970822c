"""Secrets are nowhere but in the environment, and Ray belongs to nobody but its owner.

One launch whose entry repeats its secrets as loudly as it can; while it runs, everything around it
is looked at, also as another user.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch

from beam_slurm import attach, runs

pytestmark = pytest.mark.slurm

ENTRY = Path(__file__).with_name("leaky.py")
ANYWHERE = "/mnt"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

KNOCK = """
import http.client, json, os, sys
ip, gcs, port, token, folder = sys.argv[1:]
said = {}
for path in (token, folder):
    try:
        said[path] = os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        said[path] = type(error).__name__
key = said[token] if os.access(token, os.R_OK) else ""
job = json.dumps({"entrypoint": "id"})
for method, path, body in (("GET", "/api/version", None), ("POST", "/api/jobs/", job)):
    for headers in ({}, {"Authorization": "Bearer " + (key or "0" * 64)}):
        asked = http.client.HTTPConnection(ip, int(port), timeout=20)
        asked.request(method, path, body, {"Content-Type": "application/json", **headers})
        said.setdefault(path, []).append(asked.getresponse().status)
print(json.dumps(said), flush=True)
os.environ.update(HOME="/", RAY_NUM_REDIS_GET_RETRIES="2")  # or it tries for 20 s
if key:
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token)
import ray
from ray._raylet import GcsClient
try:
    GcsClient(address=ip + ":" + gcs)
except BaseException as error:
    print(type(error).__name__, flush=True)
try:
    ray.init(address=ip + ":" + gcs, log_to_driver=False)
    print("let in", sorted(node["NodeName"] for node in ray.nodes()), flush=True)
except BaseException as error:
    print("refused", type(error).__name__, error, flush=True)
os._exit(0)
"""


class Visitor:
    """Somebody on another node of the run, by default its owner."""

    def __init__(self, launch: Launch, where: attach.Address, *user: str) -> None:
        folder = str(Path(where.token or "").parent)
        words = (where.ip, where.gcs, where.dashboard, where.token, folder)
        # Where everybody may run it, whoever's home this Python is installed in.
        python = f"{ANYWHERE}/base/bin/python3.{sys.version_info.minor}"
        packages = f"PYTHONPATH={ANYWHERE}/venv/lib/python3.{sys.version_info.minor}/site-packages"
        done = launch.cluster.exec(
            where.nodes[1],
            [*user, "env", "-i", "PATH=/bin", packages, python, "-c", KNOCK, *map(str, words)],
        )
        first, *rest = done.stdout.splitlines()
        found = json.loads(first)
        self.token, self.folder = found[where.token], found[folder]
        self.http = found["/api/version"], found["/api/jobs/"]
        self.ray = "\n".join(rest)


@contextlib.contextmanager
def python_for_everybody(launch: Launch, host: str) -> Iterator[None]:
    """This Python and its packages at a place on ``host`` that any user can reach."""
    folders = {sys.base_prefix: f"{ANYWHERE}/base", sys.prefix: f"{ANYWHERE}/venv"}
    launch.cluster.exec(host, ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", ANYWHERE])
    try:
        for source, target in folders.items():
            launch.cluster.exec(host, ["mkdir", target])
            launch.cluster.exec(host, ["mount", "--bind", source, target])
        yield
    finally:
        launch.cluster.exec(host, ["umount", "--recursive", ANYWHERE])


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a file, and of all that is packed in it."""
    yield str(path), path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                yield f"{path}:{name}", packed.read(name)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as packed:
            for member in packed:
                if file := packed.extractfile(member):
                    yield f"{path}:{member.name}", file.read()


class Search:
    """What was seen around a run, and whether a secret was in it."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}

    def add(self, what: str, data: str | bytes) -> str | bytes:
        self.seen[what] = data.encode() if isinstance(data, str) else data
        return data

    def found(self, values: dict[str, str]) -> list[str]:
        return [
            f"{name} in {what}"
            for what, data in self.seen.items()
            for name, value in values.items()
            if value.encode() in data
        ]


def test_secrets_stay_in_the_environment_and_ray_with_its_owner(launch: Launch) -> None:
    values = {name: secrets.token_hex(16) for name in ("SHELL_KEY", "FILE_KEY")}
    file = launch.folder / "secrets"
    file.write_text(f"# mine\nFILE_KEY={values['FILE_KEY']}\n")
    file.chmod(0o600)
    words = (
        *("--nodes", "2", "--set", f"framework.entry=[python, {ENTRY}, SHELL_KEY, FILE_KEY]"),
        *("--set", "site.secrets=[SHELL_KEY]", "--set", f"site.secrets_file={file}"),
        *("--set", "site.setup=['set -x']"),  # what somebody in search of a mistake does
    )
    exported = {"SHELL_KEY": values["SHELL_KEY"]}
    search = Search()

    def look(*command: str) -> str:
        done = launch.call(*command, **exported)
        search.add(" ".join(command), done.stdout + done.stderr)
        return done.stdout

    assert "SHELL_KEY" in look("submit", "--profile", "demo", "--dry-run", *words)
    run = launch.submit(*words, **exported)
    launch.until("the leaks", lambda: launch.log(run).count("EXEC") == 4 or run.state().ended)
    log = launch.log(run)
    for who in ("entry", "task"):
        assert f"{who}: EXEC: train.py --wandb-key '***'" in log

    # What the supervisor masks by.
    assert "'BEAM_SLURM_SECRETS': 'SHELL_KEY FILE_KEY'" in log

    around(launch, run, search)
    assert "running" in look("status", run.id)
    look("status", run.id, "--json")
    assert ":8265" in look("dashboard", run.id)
    assert "EXEC" in look("logs", run.id)

    launch.until("the dashboard", attach.dashboard(run).answers)
    where = attach.address(run)
    with python_for_everybody(launch, where.nodes[1]):
        owner = Visitor(launch, where)
        other = Visitor(launch, where, *NOBODY)
    values["token"] = owner.token
    assert len(owner.token) == 64
    assert owner.http == ([401, 200], [401, 200])  # without and with the token
    assert owner.ray == f"let in {sorted(where.nodes)}"
    assert other.token == other.folder == "PermissionError"
    assert other.http == ([401, 403], [401, 403])  # without a token, and with one made up
    assert other.ray.startswith("AuthenticationError\nrefused ConnectionError"), other.ray

    (run.path / "looked").touch()
    assert launch.over(run)["JobState"] == "COMPLETED", launch.log(run)
    for path in run.path.rglob("*"):
        if path.is_file():
            for name, data in contents(path):
                search.add(name, data)
    assert str(run.path / "script.sbatch") in search.seen
    assert search.found(values) == []
    launch.nothing_left(run)


def around(launch: Launch, run: runs.Run, search: Search) -> None:
    """What anybody on the cluster sees of a running job."""
    for host in launch.cluster.spec().nodes:
        script = "cat /proc/[0-9]*/cmdline 2>/dev/null; true"
        search.add(f"argv on {host}", launch.cluster.exec(host, ["bash", "-c", script]).stdout)
    for command in (
        ["scontrol", "write", "batch_script", run.manifest["job"], "-"],
        ["scontrol", "show", "job", "--details", run.manifest["job"]],
        ["scontrol", "show", "step"],
        ["squeue", "--format=%all"],
    ):
        search.add(" ".join(command), launch.cluster.run(command).stdout)
    assert b"supervise" in search.seen["argv on node1"]
    assert any(b"SHELL_KEY" in data for data in search.seen.values())
