"""Runs in containers: Docker and Podman for real on the embedded Slurm.

The image is made here, without a registry: empty folders onto which the host's /usr, the virtual
environment and Python itself are mounted. Each embedded host has a Docker daemon and a Podman
store of its own, in its private /tmp.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import test_prepare

from beam_slurm import job, mounts, profiles, runs, submit
from beam_slurm.cluster import Cluster
from beam_slurm.frameworks.launch import Scratch

HOSTS = ("node1", "node2")
DRIVER = Path(__file__).with_name("driver.py")
PATIENCE = 120.0
SOCKET = "/tmp/docker/socket"
IMAGES = {"docker": "beam-test:1", "podman": "localhost/beam-test:1"}

# What the image lacks: the host's programs, the virtual environment and the tests' own.
PROGRAMS = (
    "/usr:/usr:ro",
    *(f"{path}:{path}:ro" for path in sorted({sys.prefix, sys.base_prefix})),
    f"{DRIVER.parent}:{DRIVER.parent}:ro",
)

START_DOCKER = f"""
mkdir -p /tmp/docker
dockerd --iptables=false --bridge=none --storage-driver=vfs --data-root=/tmp/docker/data \
  --exec-root=/tmp/docker/exec --pidfile=/tmp/docker/pid --host=unix://{SOCKET} \
  >/tmp/docker/log 2>&1 </dev/null &
until docker --host unix://{SOCKET} version >/dev/null 2>&1; do
  kill -0 $! || {{ tail -n 5 /tmp/docker/log >&2; exit 1; }}
  sleep 0.1
done
"""

PODMAN_CONF = """
[engine]
runtime = "runc"  # crun refuses a machine with both versions of cgroups
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "/tmp/podman/tmp"
"""

PODMAN_STORAGE = """
[storage]
driver = "vfs"
graphroot = "/tmp/podman/root"
runroot = "/tmp/podman/run"
"""


class Runtime:
    """One container runtime on the hosts of the cluster, and what it holds there."""

    def __init__(self, name: str, cluster: Cluster, folder: Path) -> None:
        self.name = name
        self.cluster = cluster
        self.folder = folder
        self.environment = {
            "DOCKER_HOST": f"unix://{SOCKET}",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def start(self) -> None:
        """Start the daemons and make the image on every host."""
        (self.folder / "containers.conf").write_text(PODMAN_CONF)
        (self.folder / "storage.conf").write_text(PODMAN_STORAGE)
        archive = self.folder / "image.tar"
        image(archive)
        path = f"ENV PATH=/site:{sys.prefix}/bin:/usr/bin:/bin"  # /site: programs of a test's own
        for host in HOSTS:
            if self.name == "docker":
                self.on(host, "bash", "-c", START_DOCKER)
            self.on(host, self.name, "import", "--change", path, str(archive), IMAGES[self.name])

    def stop(self) -> None:
        if self.name == "docker":
            for host in HOSTS:
                self.on(host, "bash", "-c", "kill $(cat /tmp/docker/pid)", check=False)

    def on(self, host: str, *words: str, check: bool = True) -> str:
        """What a command on a host prints."""
        done = self.cluster.exec(host, words, check=False, env=self.environment)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def containers(self) -> dict[str, list[str]]:
        """Names of the containers on each host that has any."""
        found = {
            host: self.on(host, self.name, "ps", "--all", "--format={{.Names}}").split()
            for host in HOSTS
        }
        return {host: sorted(names) for host, names in found.items() if names}


def image(archive: Path) -> None:
    """A root file system of folders and links: everything else is mounted.

    As in real images, root's home is for root alone.
    """
    with tarfile.open(archive, "w") as tar:
        for name in ("usr", "etc", "root", "dev", "proc", "sys", "run", "tmp", "var", "sbin"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o700 if name == "root" else 0o755
            tar.addfile(folder)
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)


@pytest.fixture(scope="module", params=["docker", "podman"])
def runtime(
    request: pytest.FixtureRequest, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    """Skip where it cannot be started; fail there if BEAM_SLURM_REQUIRE_SLURM=1."""
    made = Runtime(request.param, slurm, tmp_path_factory.mktemp(request.param))
    try:
        made.start()
    except (AssertionError, OSError, subprocess.SubprocessError) as problem:
        why = f"{request.param} cannot be started on this machine: {problem}"
        made.stop()
        if os.environ.get("BEAM_SLURM_REQUIRE_SLURM") == "1":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    yield made
    made.stop()


class Launch:
    """Launches of the tests' driver in a container."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self.run: runs.Run

    def submit(self, *words: str, mounted: tuple[str, ...] = (), **environment: str) -> None:
        environment.setdefault("NOTE", 'it\'s "mine", $HOME')
        given = [
            "hardware.nodes=2",
            "hardware.exclusive=false",
            "hardware.cpus_per_node=2",  # Ray starts a worker for each
            "ray.dashboard=false",
            "job.max_restarts=0",
            "site.exclude=node[3-4]",
            f"site.container={self.runtime.name}",
            "site.container_gpus=none",  # the embedded hosts' GPUs are stand-ins
            f"site.paths.runs={self.folder}/runs",
            f"framework.entry=[python, {DRIVER}]",
            f"site.environment={json.dumps(environment)}",
            *words,
        ]
        made = job.make_request(profiles.resolve("demo", settings=profiles.parse_settings(given)))
        made = replace(
            made,
            launch=replace(
                made.launch,
                container=IMAGES[self.runtime.name],
                mounts=tuple(mounts.parse(text) for text in (*PROGRAMS, *mounted)),
                scratch=Scratch(f"/tmp/scratch-{made.run.name}", 0),
            ),
        )
        self.run = submit.submit(made)

    def until(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited {PATIENCE} s in vain: {what}\n{self.log()}"
            time.sleep(0.1)

    def log(self) -> str:
        return self.run.log.read_text() if self.run.log else ""

    def slurm(self) -> dict[str, str]:
        job_id = self.run.manifest["job"]
        told = self.runtime.cluster.run(["scontrol", "show", "job", "--oneliner", job_id]).stdout
        return dict(re.findall(r"(\w+)=(\S*)", told))

    def started(self) -> None:
        """Wait until the entry has looked around on a complete Ray."""
        self.until(
            "the entry's start",
            lambda: (
                "entry looked around" in self.log()
                or self.slurm()["JobState"] not in ("PENDING", "RUNNING")
            ),
        )
        assert "entry looked around" in self.log(), self.log()

    def over(self) -> dict[str, str]:
        running = ("PENDING", "RUNNING", "COMPLETING")
        self.until("the job's end", lambda: self.slurm()["JobState"] not in running)
        return self.slurm()

    def nothing_left(self) -> None:
        """No container, no process, no temp and no scratch folder of the run on its hosts."""
        job_id = self.run.manifest["job"]
        script = (
            f"ls -d /tmp/beam-{job_id}-* /tmp/scratch-* 2>/dev/null;"
            " pgrep -x raylet; pgrep -x gcs_server;"
            f" grep -lz '^SLURM_JOB_ID={job_id}$' /proc/[0-9]*/environ 2>/dev/null; true"
        )
        self.until("no container", lambda: not self.runtime.containers())
        for host in HOSTS:
            self.until(
                f"nothing on {host}",
                lambda host=host: not self.runtime.on(host, "bash", "-c", script).strip(),
            )


@pytest.fixture
def launch(
    runtime: Runtime, slurm_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launch]:
    """A place to launch from; whatever a failed test leaves running is cancelled."""
    for name, value in {**slurm_env, **runtime.environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(profiles.SITE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    yield Launch(runtime, tmp_path)
    for run in runs.all_runs(tmp_path / "runs"):
        if job_id := run.manifest.get("job"):
            runtime.cluster.run(["scancel", job_id], check=False)


@pytest.mark.slurm
def test_ray_and_the_entry_run_in_containers_and_the_exit_code_is_kept(
    launch: Launch, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    launch.submit(mounted=(f"{data}:/data:ro",), MODE="7")
    done = launch.over()
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", "7:0"), launch.log()
    seen = json.loads((launch.run.path / "seen.json").read_text())
    assert seen["nodes"] == list(HOSTS)
    assert seen["resources"]["GPU"] == 16
    environment = seen["environment"]
    assert environment["NOTE"] == 'it\'s "mine", $HOME'
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["SLURMD_NODENAME"] == "node1"
    assert "SLURM_JOB_NODELIST" not in environment  # nothing of the host that nobody has named
    assert launch.run.outcome["component"] == "entry"
    launch.nothing_left()


@pytest.mark.slurm
def test_scancel_leaves_no_container(launch: Launch) -> None:
    launch.submit(MODE="sleep")
    launch.started()
    job_id = launch.run.manifest["job"]
    assert launch.runtime.containers() == {
        "node1": [f"beam-{job_id}-0-node1-drive", f"beam-{job_id}-0-node1-ray"],
        "node2": [f"beam-{job_id}-0-node2-ray"],
    }
    launch.runtime.cluster.run(["scancel", job_id])
    assert launch.over()["JobState"] == "CANCELLED"
    launch.nothing_left()


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("host", "victim"),
    [
        ("node2", r"^\S*python3 \S+/node\.pyz contain .*node\.pyz ray "),  # the task on the host
        ("node1", r"^\S*python3 \S+/node\.pyz contain .*node\.pyz drive "),
        ("node2", r"^python3 \S+/node\.pyz ray "),  # the container's own first process
    ],
)
def test_a_killed_task_leaves_no_container(launch: Launch, host: str, victim: str) -> None:
    launch.submit(MODE="sleep")
    launch.started()
    launch.runtime.on(host, "pkill", "-9", "-f", victim)
    assert launch.over()["JobState"] == "FAILED", launch.log()
    launch.nothing_left()


@pytest.mark.slurm
def test_no_container_outlives_a_job_that_is_killed_as_a_whole(launch: Launch) -> None:
    """Supervisor, srun and tasks of the head die at once: nobody is left to remove anything."""
    launch.submit(MODE="sleep")
    launch.started()
    launch.runtime.on("node1", "pkill", "-9", "-f", r"node\.pyz (contain|supervise) ")
    began = time.monotonic()
    launch.over()
    launch.nothing_left()
    assert time.monotonic() - began < 40


@pytest.mark.slurm
def test_a_mount_that_is_missing_on_a_node_is_named_before_ray(launch: Launch) -> None:
    here = "/tmp/only-here/data"
    launch.runtime.on("node1", "mkdir", "-p", here)
    launch.submit(mounted=(f"{here}:/data",))
    assert launch.over()["ExitCode"] == "69:0", launch.log()
    assert launch.run.outcome["node"] == "node2"
    assert f"mounts: not there: {here}" in launch.run.outcome["cause"]
    assert launch.runtime.on("node2", "ls", here, check=False) == ""
    launch.nothing_left()


@pytest.mark.slurm
def test_prepare_runs_in_the_container(
    launch: Launch, slurm_env: dict[str, str], tmp_path: Path
) -> None:
    """Its steps download to the folders that are mounted; the network is a stand-in."""
    site = test_prepare.Site(tmp_path, {**slurm_env, **launch.runtime.environment})
    own = (*PROGRAMS, f"{tmp_path}:{tmp_path}", f"{tmp_path}/venv/bin:/site:ro")
    settings = (
        f"site.container={launch.runtime.name}",
        f"site.images.nemo-rl-colocated={IMAGES[launch.runtime.name]}",
        f"site.mounts={json.dumps(own)}",
        "site.exclude=node[3-4]",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    done = site.prepare("--profile", "b300-colocated", "--wait", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"beam-slurm: {tmp_path}/models/Beam is whole" in done.stdout
    assert len(site.calls) == 3
    assert site.calls[0].endswith("--local-dir /root/models/Beam")  # the container's path
    launch.until("no container", lambda: not launch.runtime.containers())
