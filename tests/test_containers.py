"""Runs in containers: Docker and Podman for real on the embedded Slurm, the others by their words.

The image is made here, without a registry: empty folders onto which the host's /usr, the virtual
environment and Python itself are mounted. Each embedded host has a Docker daemon and a Podman
store of its own, in its private /tmp.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import test_prepare

from beam_slurm import containers, imports, job, mounts, profiles, runs, submit
from beam_slurm.cluster import Cluster
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Scratch
from beam_slurm.node import lifeline
from beam_slurm.pack import node_program
from beam_slurm.schema import Site

HOSTS = ("node1", "node2")
DRIVER = Path(__file__).with_name("driver.py")
PATIENCE = 120.0
SOCKET = "/tmp/docker/socket"  # noqa: S108 - private to each host
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
                scratch=Scratch(f"/tmp/scratch-{made.run.name}", 0),  # noqa: S108
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


SITE = {
    "site.partition": "gpu",
    "site.account": "rl",
    "site.paths.runs": "/shared/runs",
    "site.paths.models": "/shared/models",
    "site.paths.outputs": "/shared/outputs",
    "site.paths.nemo_rl": "/shared/nemo-rl",
}


def script(runtime: str, image: str, *words: str) -> str:
    """The job script of b300-colocated on a site with this runtime."""
    given = [f"{key}={value}" for key, value in SITE.items()]
    given += [f"site.container={runtime}", f"site.images.nemo-rl-colocated={image}", *words]
    resolved = profiles.resolve("b300-colocated", settings=profiles.parse_settings(given))
    return str(job.make_request(resolved, run_id="golden-0123ab"))


def container(script: str) -> list[str]:
    """What bash makes of the script's container array."""
    block = script[script.index("mounts=(") : script.index("# 1. Ray")]
    given = "set -eu; node=(python3 node.pyz) RUN=/r SLURM_JOB_ID=17"
    program = f"{given}\n{block}printf '%s\\0' \"${{container[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def shellcheck(text: str) -> str:
    """What shellcheck has to say, nothing if all is well."""
    done = subprocess.run(
        ["shellcheck", "-"], input=text, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.fixture
def _no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(profiles.SITE_VARIABLE, raising=False)


@pytest.mark.usefixtures("_no_site")
@pytest.mark.parametrize(
    ("runtime", "image", "words"),
    [
        (
            "docker",
            "nvcr.io/me/nemo-rl:beam",
            ("site.container_options=[--device=/dev/infiniband]",),
        ),
        ("podman", "me/nemo-rl:beam", ("hardware.exclusive=false", "site.mounts=[/scratch:/s:ro]")),
        ("apptainer", "/shared/images/nemo-rl.sif", ("site.container_options=[--writable-tmpfs]",)),
    ],
)
def test_golden_scripts(runtime: str, image: str, words: tuple[str, ...]) -> None:
    """Every change of a job script is a reviewable diff: UPDATE_GOLDEN=1 writes them anew."""
    text = script(runtime, image, *words)
    path = Path(__file__).parent / "golden" / f"b300-colocated-{runtime}.sbatch"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert shellcheck(text) == ""


@pytest.mark.usefixtures("_no_site")
@pytest.mark.parametrize(
    ("runtime", "image", "file"),
    [
        ("pyxis", "nvcr.io/nvidia/x:1", "/shared/images/x.sqsh"),
        ("apptainer", "me/x:1", "/shared/my images/x.sif"),
    ],
)
def test_golden_imports(runtime: str, image: str, file: str) -> None:
    given = ["site.partition=gpu", f"site.container={runtime}", "site.setup=[module load x]"]
    site = profiles.resolve("demo", settings=profiles.parse_settings(given)).profile.site
    if " " in file:
        with pytest.raises(BeamSlurmError, match="cannot stand in an #SBATCH line"):
            str(imports.make(site, image, Path(file), "x-0123ab"))
        file = file.replace(" ", "-")
    text = str(imports.make(site, image, Path(file), "x-0123ab"))
    path = Path(__file__).parent / "golden" / f"image-{runtime}.sbatch"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert shellcheck(text) == ""


@pytest.mark.parametrize("exists", [False, True])
def test_an_import_is_whole_or_not_there(tmp_path: Path, exists: bool) -> None:
    """The script itself, with a stand-in for enroot that is killed in its work, then is not."""
    made = str(imports.make(Site(), "me/x:1", tmp_path / "x.sqsh", "x-0123ab"))
    enroot = tmp_path / "enroot"
    enroot.write_text('#!/bin/bash\necho half >"$3"; ((${FAIL:-0})) && kill -9 $$; echo $4 >"$3"\n')
    enroot.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(made)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "5"}

    def run(**more: str) -> int:
        return subprocess.run(["bash", script], env={**environment, **more}, check=False).returncode

    if exists:
        (tmp_path / "x.sqsh").write_text("before")
        assert run() == 2
        assert (tmp_path / "x.sqsh").read_text() == "before"
    else:
        assert run(FAIL="1") == 137
        assert not (tmp_path / "x.sqsh").exists()
        assert run() == 0
        assert (tmp_path / "x.sqsh").read_text() == "docker://me/x:1\n"
    assert not list(tmp_path.glob("*.part"))
    assert not list(Path("/tmp").glob("beam-image-5-*"))  # noqa: S108


@pytest.mark.parametrize(
    ("runtime", "file", "said"),
    [
        ("docker", "x.sqsh", "srun --nodes=N docker pull me/x:1"),
        ("bare", "x.sqsh", "without a container no image is needed"),
        ("pyxis", "x.sif", "end in .sqsh"),
        ("pyxis", "missing/x.sqsh", "there is no folder"),
        ("pyxis", "there.sqsh", "is there already"),
    ],
)
def test_what_cannot_be_imported_is_refused(
    tmp_path: Path, runtime: str, file: str, said: str
) -> None:
    (tmp_path / "there.sqsh").touch()
    with pytest.raises(BeamSlurmError, match=re.escape(said)):
        imports.submit(imports.make(Site(container=runtime), "me/x:1", tmp_path / file))


@pytest.mark.usefixtures("_no_site")
def test_odd_mounts_and_options_arrive_as_they_are() -> None:
    words = container(
        script(
            "docker",
            "me/x:1",
            'site.mounts=["/a b:/c $HOME\'s:ro"]',
            'site.container_options=["--label=a b", "--device=/dev/infiniband"]',
        )
    )
    assert "--needs=/a b:/c $HOME's:ro" in words
    assert "--volume=/a b:/c $HOME's:ro" in words
    assert words[-5:] == [
        "--workdir=/workspace/nemo-rl",
        "--label=a b",
        "--device=/dev/infiniband",
        "--entrypoint=",
        "me/x:1",
    ]
    pyxis = container(script("pyxis", "nvcr.io/me/x:1", "site.mounts=[/a b:/c]"))
    assert pyxis[0] == "--container-image=nvcr.io#me/x:1"
    assert pyxis[3].startswith("--container-mounts=/shared/nemo-rl:/workspace/nemo-rl,")
    assert pyxis[3].endswith(",/a b:/c,/r:/r,/tmp:/tmp")


@pytest.mark.usefixtures("_no_site")
@pytest.mark.parametrize(
    ("runtime", "gpus", "exclusive", "wanted"),
    [
        ("docker", "nvidia", True, "--gpus=all"),
        ("docker", "cdi", True, "--device=nvidia.com/gpu=all"),
        ("podman", "nvidia", True, "--device=nvidia.com/gpu=all"),
        ("apptainer", "nvidia", False, "--nv"),
        ("docker", "nvidia", False, "--assign=nvidia"),
        ("docker", "cdi", False, "--assign=cdi"),
        ("podman", "nvidia", False, "--assign=cdi"),
        ("docker", "none", False, None),
        ("apptainer", "none", True, None),
    ],
)
def test_how_gpus_are_handed_over(
    runtime: str, gpus: str, exclusive: bool, wanted: str | None
) -> None:
    image = "/x.sif" if runtime == "apptainer" else "me/x:1"
    extra = (f"site.container_gpus={gpus}", f"hardware.exclusive={str(exclusive).lower()}")
    words = container(script(runtime, image, *extra))
    about = [word for word in words if re.search("gpu|assign|--nv$", word)]
    assert about == (["--gpus=8", wanted] if wanted else [])


def test_the_container_is_told_every_variable_of_slurm_that_the_program_in_it_reads() -> None:
    read = set()
    for name in ("ray", "drive", "fit", "gcs", "ports", "processes", "address", "events"):
        text = (Path(job.__file__).parent / "node" / f"{name}.py").read_text()
        read |= set(re.findall(r"\bSLURMD?_\w+", text))
    assert read <= set(containers.SLURM_VARIABLES)


FAKE = """#!{python}
import json, os, signal, subprocess, sys, time
if sys.argv[1] not in ("run", "exec"):  # ps, rm
    open("asked", "a").write(" ".join(sys.argv[1:]) + "\\n")
    print("c1")
    sys.exit()
own = {{k: v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}}
open("said.json", "a").write(json.dumps([sys.argv[1:], own]) + "\\n")
{body}
"""


class Contain:
    """node.pyz contain with a stand-in for the runtime's client that writes its words down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = str(folder / "node.pyz")
        Path(self.program).write_bytes(node_program())

    def fake(self, runtime: str, body: str) -> None:
        path = self.folder / runtime
        path.write_text(FAKE.format(python=sys.executable, body=body))
        path.chmod(0o755)

    def start(
        self, *words: str, verb: str = "ray", last: str = "x", **more: str
    ) -> subprocess.Popen[str]:
        environment = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "SLURM_JOB_ID": "17",
            "SLURM_RESTART_COUNT": "2",
            "SLURMD_NODENAME": "n3",
            **more,
        }
        return subprocess.Popen(
            [sys.executable, self.program, "contain", *words, "python3", self.program, verb, last],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *words: str, verb: str = "ray", last: str = "x", **more: str
    ) -> tuple[int, str, str]:
        child = self.start(*words, verb=verb, last=last, **more)
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err

    @property
    def said_file(self) -> Path:
        return self.folder / "said.json"

    @property
    def said(self) -> list[tuple[list[str], dict[str, str]]]:
        text = self.said_file.read_text()
        return [tuple(json.loads(line)) for line in text.splitlines()]

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def contain(tmp_path: Path) -> Contain:
    return Contain(tmp_path)


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_container_has_a_name_and_labels_and_is_removed(contain: Contain, runtime: str) -> None:
    contain.fake(runtime, "sys.exit(7)")
    code, _, _ = contain.run("--needs=/usr:/x:ro", "--", runtime, "run", "i:1", verb="drive")
    assert code == 7
    words, _ = contain.said[0]
    assert words[:3] == ["run", "--name=beam-17-2-n3-drive", "--label=beam-slurm=17-2-n3"]
    assert contain.asked == ["rm --force beam-17-2-n3-drive"]


@pytest.mark.parametrize(("verb", "removes"), [("ray", True), ("drive", False), ("hf", False)])
def test_the_clean_pass_removes_what_killed_tasks_left(
    contain: Contain, verb: str, removes: bool
) -> None:
    """The supervisor adds its word to Ray's step alone; elsewhere it is one of the entry's."""
    contain.fake("docker", "")
    assert contain.run("--", "docker", "run", "i", verb=verb, last="--clean")[0] == 0
    clean = ["ps --all --quiet --filter=label=beam-slurm=17-2-n3", "rm --force c1"]
    assert contain.asked[:-1] == (clean if removes else [])
    assert contain.said[0][0][-1] == "--clean"


def test_apptainer_has_a_home_of_its_own_for_each_role(contain: Contain, tmp_path: Path) -> None:
    contain.fake(
        "apptainer",
        "home = sys.argv[2].partition('=')[2]\n"
        "assert os.stat(home).st_mode & 0o7777 == 0o700 and not os.listdir(home)\n"
        "os.makedirs(home + '/.cache/uv')\n"
        "if os.environ.get('HANG'):\n"
        "    print('ready', flush=True); signal.pause()\n"
        "sys.exit(int(os.environ.get('CODE', '0')))",
    )
    home = tmp_path / "beam-home-17-2"
    words = (f"--home={home}", "--", "apptainer", "exec", "--cleanenv", "i.sif")
    for code in (0, 7):
        assert contain.run(*words, verb="drive", CODE=str(code))[0] == code
        assert not list(tmp_path.glob("beam-home-*"))
    assert contain.said[0][0][:3] == ["exec", f"--home={home}-drive", "--cleanenv"]
    # Two at once on the head, both told to end.
    both = [contain.start(*words, verb=verb, HANG="1") for verb in ("ray", "drive")]
    for child in both:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    assert sorted(path.name for path in tmp_path.glob("beam-home-*")) == [
        "beam-home-17-2-drive",
        "beam-home-17-2-ray",
    ]
    for child in both:
        child.terminate()
        assert child.wait(PATIENCE) == 143
    assert not list(tmp_path.glob("beam-home-*"))
    # What a killed task left, of either role: the clean pass.
    for role in ("ray", "drive"):
        (tmp_path / f"beam-home-17-2-{role}" / "cache").mkdir(parents=True)
    assert contain.run(*words, last="--clean")[0] == 0
    assert not list(tmp_path.glob("beam-home-*"))
    # No place for it: said before anything starts.
    contain.said_file.unlink()
    nowhere = ("--home=/no/such/place", *words[1:])
    code, _, err = contain.run(*nowhere, verb="drive")
    assert code == 69
    assert "cannot make /no/such/place-drive" in err
    assert not contain.said_file.exists()


def test_apptainer_is_told_values_by_its_environment_only(contain: Contain) -> None:
    contain.fake("apptainer", "sys.exit(0)")
    words = ("--env=NOTE", "--env=ABSENT", "--", "apptainer", "exec", "/i.sif")
    more = {"APPTAINERENV_HOSTS": "x", "OTHER": "x"}  # the host's, of which nobody has spoken
    assert contain.run(*words, NOTE="a,b 'c' $(id)", **more)[0] == 0
    said, own = contain.said[0]
    assert said[:2] == ["exec", "/i.sif"]
    assert own == {"APPTAINERENV_NOTE": "a,b 'c' $(id)"}
    assert not (contain.folder / "asked").exists()


@pytest.mark.parametrize(
    ("words", "environment", "wanted"),
    [
        (("--gpus=2",), {"CUDA_VISIBLE_DEVICES": "0,1"}, []),
        (("--gpus=2",), {}, []),  # whole nodes without gres
        (
            ("--gpus=2", "--assign=nvidia"),
            {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "4,6"},
            ['--gpus="device=4,6"'],
        ),
        (
            ("--gpus=1", "--assign=cdi"),
            {"SLURM_JOB_GPUS": "3"},
            ["--device=nvidia.com/gpu=3"],
        ),
    ],
)
def test_a_job_on_a_shared_node_hands_over_its_own_gpus(
    contain: Contain, words: tuple[str, ...], environment: dict[str, str], wanted: list[str]
) -> None:
    contain.fake("docker", "")
    assert contain.run(*words, "--", "docker", "run", "i", **environment)[0] == 0
    assert contain.said[0][0][5:-5] == wanted


@pytest.mark.parametrize(
    ("words", "environment", "why"),
    [
        (("--gpus=2",), {"CUDA_VISIBLE_DEVICES": ""}, "sees 0 GPUs"),
        (("--gpus=2", "--assign=cdi"), {}, "0 GPUs (none named), the job wants 2"),
        (("--needs=/no such:/x:ro",), {}, "/no such is not here"),
    ],
)
def test_a_node_without_gpus_or_mounts_fails_before_ray_by_name(
    contain: Contain, words: tuple[str, ...], environment: dict[str, str], why: str
) -> None:
    contain.fake("docker", "")
    command = (*words, "--", "docker", "run", "i")
    child = contain.start(*command, **environment)
    assert child.stdout
    event = json.loads(child.stdout.readline())
    assert (event["beam-slurm"], event["node"]) == ("node-failed", "n3")
    assert why in event["why"]
    child.send_signal(signal.SIGUSR2)  # it holds its task until all are told to stop
    assert child.wait(PATIENCE) == 1
    code, out, err = contain.run(*command, verb="drive", **environment)
    assert (code, out) == (69, "")  # the Ray step's word counts, and both run there
    assert f"n3: {why}" in err or why in err
    assert not (contain.folder / "said.json").exists()


def test_a_runtime_that_is_not_there_or_fails_is_named(contain: Contain) -> None:
    child = contain.start("--", "podman", "run", "i", PATH="/nowhere")
    assert child.stdout
    assert "podman is not on PATH" in json.loads(child.stdout.readline())["why"]
    child.terminate()
    assert child.wait(PATIENCE) == 1
    contain.fake(
        "docker",
        "print('docker: no such image', file=sys.stderr)\n"
        "print('See docker run --help', file=sys.stderr)\n"
        "sys.exit(125)",
    )
    child = contain.start("--", "docker", "run", "i")
    assert child.stdout
    assert json.loads(child.stdout.readline())["why"] == (
        "docker ended with code 125: docker: no such image"
    )
    child.terminate()
    assert child.wait(PATIENCE) == 1


def test_a_limit_that_the_daemon_may_not_lift_never_makes_the_run_fail(contain: Contain) -> None:
    contain.fake(
        "docker",
        "if '--ulimit=memlock=-1' in sys.argv:\n"
        "    sys.stderr.write('docker: Error response from daemon: error setting rlimit type 8')\n"
        "    sys.exit(125)",
    )
    code, _, err = contain.run("--", "docker", "run", "--ulimit=memlock=-1", "i")
    assert code == 0
    assert "n3: docker cannot lift the limit of locked memory" in err
    assert len(contain.said) == 2


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_signals_reach_the_container(contain: Contain, number: signal.Signals) -> None:
    contain.fake(
        "docker",
        f"signal.signal({int(number)}, lambda *a: sys.exit(0))\n"
        "print('ready', flush=True); signal.pause()",
    )
    child = contain.start("--", "docker", "run", "i")
    assert child.stdout
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    assert child.wait(PATIENCE) == 0
    assert contain.asked == ["rm --force beam-17-2-n3-ray"]


def test_a_container_that_does_not_end_is_removed_in_time(contain: Contain) -> None:
    """And what its killed program left on the node, too: here the end was Slurm's wish."""
    contain.fake(
        "docker",
        "if sys.argv[-1] == '--clean': sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
        "while True: signal.pause()",
    )
    child = contain.start("--", "docker", "run", "i")
    assert child.stdout
    child.stdout.readline()
    began = time.monotonic()
    child.terminate()
    out, _ = child.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 25  # well within Slurm's KillWait
    assert (child.returncode, out) == (1, "")  # whoever was told to end is no failed node
    assert contain.asked == ["rm --force beam-17-2-n3-ray"]
    assert [said[-1] for said, _ in contain.said] == ["x", "--clean"]


@pytest.mark.parametrize("tidied", [True, False])
def test_what_a_killed_ray_has_left_is_removed_by_a_second_container(
    contain: Contain, tidied: bool
) -> None:
    contain.fake(
        "docker",
        "if sys.argv[-1] == '--clean':\n"
        f"    assert sys.stdin.fileno() == 0; sys.exit({int(not tidied)})\n"
        "print('out of memory', file=sys.stderr); os.kill(os.getpid(), 9)",
    )
    child = contain.start("--", "docker", "run", "i:1")
    assert child.stdout
    event = json.loads(child.stdout.readline())
    assert event["why"] == "docker ended with code 137: out of memory"
    child.send_signal(signal.SIGUSR2)
    # The supervisor takes 0 and 1 as tidied up, and makes its clean pass after any other code.
    assert child.wait(PATIENCE) == (1 if tidied else 137)
    assert contain.said[1][0] == ["run", "--pull=never", *contain.said[0][0][1:], "--clean"]
    assert set(contain.asked) == {"rm --force beam-17-2-n3-ray"}


def test_a_process_that_survives_the_client_holds_nobody_up(contain: Contain) -> None:
    contain.fake(
        "docker",
        "print('last words', file=sys.stderr, flush=True)\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(7)",
    )
    began = time.monotonic()
    code, _, err = contain.run("--", "docker", "run", "i", verb="drive")
    assert (code, err) == (7, "last words\n")
    assert time.monotonic() - began < 30


def test_a_request_to_end_is_not_lost_while_the_client_starts(contain: Contain) -> None:
    """It comes when the client runs already and nobody has hold of it yet."""
    contain.fake("docker", "signal.pause()")
    program = (
        "import os, signal, subprocess, sys\n"
        f"sys.argv[:1] = [{contain.program!r}]\n"
        "from beam_slurm.node import contain\n"
        "start = subprocess.Popen\n"
        "def popen(words, **more):\n"
        "    child = start(words, **more)\n"
        "    if words[1] == 'run': os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return child\n"
        "contain.subprocess.Popen = popen\n"
        "sys.exit(contain.main(sys.argv[1:]))"
    )
    environment = {
        "PATH": f"{contain.folder}:/usr/bin:/bin",
        "PYTHONPATH": str(Path(job.__file__).parents[1]),
        "SLURM_JOB_ID": "17",
    }
    words = ("--", "docker", "run", "i", "python3", contain.program, "drive", "x")
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=contain.folder,
        env=environment,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 143


@pytest.mark.parametrize(("verb", "wanted"), [("ray", True), ("drive", True), ("hf", False)])
def test_only_our_own_programs_have_a_lifeline(contain: Contain, verb: str, wanted: bool) -> None:
    """Others neither know what it is, nor should they wait for a word on standard input."""
    contain.fake("docker", "sys.exit(0)")
    program = ["python3", contain.program, verb] if wanted else [verb, "download"]
    done = subprocess.run(
        [sys.executable, contain.program, "contain", "--", "docker", "run", "i", *program],
        cwd=contain.folder,
        env={"PATH": f"{contain.folder}:/usr/bin:/bin", "SLURM_JOB_ID": "17"},
        check=False,
    )
    assert done.returncode == 0
    assert ("--interactive" in contain.said[0][0]) == wanted


def test_a_program_ends_when_its_lifeline_does() -> None:
    program = "from beam_slurm.node import lifeline; import signal; lifeline.watch()\n"
    program += "print('ready', flush=True)\nwhile True: signal.pause()"
    environment = {**os.environ, "PYTHONPATH": str(Path(job.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**environment, lifeline.VARIABLE: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(PATIENCE) == -signal.SIGTERM


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
    here = "/tmp/only-here/data"  # noqa: S108 - private to each host, unknown to this machine
    launch.runtime.on("node1", "mkdir", "-p", here)
    launch.submit(mounted=(f"{here}:/data",))
    assert launch.over()["ExitCode"] == "69:0", launch.log()
    assert launch.run.outcome["node"] == "node2"
    assert f"{here} is not here" in launch.run.outcome["cause"]
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
