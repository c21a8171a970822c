"""`init` and `doctor` on the real embedded Slurm: ten faults, each planted and each found."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from beam_slurm.cluster import Cluster
from beam_slurm.profiles import resolve

pytestmark = pytest.mark.slurm

COMMAND = str(Path(sys.executable).with_name("beam-slurm"))
PROFILE = "h200-colocated"

# Stands in for the pyxis plugin, which changes nothing here but what srun says of itself.
PYXIS = """#!/bin/bash
here=$(dirname "$0")
PATH=${PATH//$here:/}
[[ $* == --help ]] && echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"
exec srun "$@"
"""


class Site:
    """A folder with everything that a run of NeMo RL wants, on a cluster of four hosts."""

    def __init__(self, cluster: Cluster, folder: Path, environment: dict[str, str]) -> None:
        self.cluster, self.folder = cluster, folder
        self.environment = {k: v for k, v in environment.items() if not k.startswith("BEAM_SLURM")}
        self.environment["XDG_CONFIG_HOME"] = str(folder)
        self.settings: list[str] = []

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a user types it in the folder."""
        return subprocess.run(
            [COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def set(self, text: str) -> None:
        self.settings += ["--set", text]

    def doctor(self, *words: str, profile: str = PROFILE) -> dict[str, Any]:
        """The report, whose exit code must fit it."""
        done = self.call("doctor", "--profile", profile, "--json", *self.settings, *words)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        assert done.returncode == (0 if found["ok"] else 2)
        return found

    def furnish(self) -> None:
        """A checkout, a tiny whole model, an image, outputs, pyxis, and the site file."""
        framework = resolve(PROFILE, use_site=False).profile.framework
        recipe = self.folder / "nemo-rl" / str(getattr(framework, "config", ""))
        recipe.parent.mkdir(parents=True)
        recipe.write_text("grpo: {}\n")
        model(self.folder / "models" / "Beam")
        (self.folder / "image.sqsh").write_bytes(b"hsqs" + bytes(100))
        (self.folder / "outputs").mkdir()
        tool(self.folder / "bin" / "srun", PYXIS)
        self.environment["PATH"] = f"{self.folder}/bin:{self.environment['PATH']}"
        paths = {"runs": "runs", "models": "models", "outputs": "outputs", "nemo_rl": "nemo-rl"}
        site = {
            "partition": "gpu",
            "container": "pyxis",
            "images": {"nemo-rl-colocated": str(self.folder / "image.sqsh")},
            "paths": {key: str(self.folder / name) for key, name in paths.items()},
        }
        (self.folder / "site.yaml").write_text(json.dumps(site))
        self.set("hardware.nodes=4")


def tool(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def model(folder: Path) -> None:
    """Two shards of safetensors, each with one vector."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "beam"}')
    (folder / "tokenizer.json").write_text("{}")
    names = {}
    for number, tensor in enumerate(("embed", "head"), 1):
        header = {tensor: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
        text = json.dumps(header).encode()
        names[tensor] = f"model-0000{number}-of-00002.safetensors"
        (folder / names[tensor]).write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    index = {"metadata": {"total_size": 32}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def bad(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Failed checks by their names, less the plan's: a 501B does not fit on these four hosts."""
    failed = [check for check in found["checks"] if check["verdict"] == "fail"]
    return {check["name"]: check for check in failed if check["name"] != "plan"}


@pytest.fixture
def bare(slurm: Cluster, slurm_env: dict[str, str], tmp_path: Path) -> Site:
    return Site(slurm, tmp_path, slurm_env)


@pytest.fixture
def site(bare: Site) -> Site:
    bare.furnish()
    return bare


@contextmanager
def partition(cluster: Cluster, planted: str, restored: str) -> Iterator[None]:
    """The partition as an operator changed it, for a while."""
    cluster.run(["scontrol", "update", "PartitionName=gpu", planted])
    try:
        yield
    finally:
        cluster.run(["scontrol", "update", "PartitionName=gpu", restored])


# --- ten faults -----------------------------------------------------------------------------


@contextmanager
def controller_down(site: Site) -> Iterator[None]:
    conf = Path(site.environment["SLURM_CONF"]).read_text()
    conf = re.sub(r"^SlurmctldHost=.*$", "SlurmctldHost=ctl(127.0.0.1)", conf, flags=re.M)
    (site.folder / "slurm.conf").write_text(conf + "SlurmctldPort=1\n")  # nobody listens there
    site.environment["SLURM_CONF"] = str(site.folder / "slurm.conf")
    yield


@contextmanager
def partition_closed(site: Site) -> Iterator[None]:
    with partition(site.cluster, "State=DOWN", "State=UP"):
        yield


@contextmanager
def too_few_gpus(site: Site) -> Iterator[None]:
    site.set("hardware.gpus_per_node=9")
    yield


@contextmanager
def wrong_gpu_type(site: Site) -> Iterator[None]:
    site.set("hardware.gpu=b300")
    yield


@contextmanager
def image_missing(site: Site) -> Iterator[None]:
    (site.folder / "image.sqsh").unlink()
    yield


@contextmanager
def evaluations_image_missing(site: Site) -> Iterator[None]:
    site.set(f"site.images.evaluate={site.folder}/vllm.sqsh")
    yield


@contextmanager
def shard_missing(site: Site) -> Iterator[None]:
    (site.folder / "models" / "Beam" / "model-00002-of-00002.safetensors").unlink()
    yield


@contextmanager
def output_not_writable(site: Site) -> Iterator[None]:
    outputs = str(site.folder / "outputs")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", outputs], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", outputs], check=True)


@contextmanager
def no_pyxis(site: Site) -> Iterator[None]:
    (site.folder / "bin" / "srun").unlink()
    yield


@contextmanager
def account_refused(site: Site) -> Iterator[None]:
    with partition(site.cluster, "AllowAccounts=rl", "AllowAccounts=ALL"):
        yield


@contextmanager
def time_over_the_limit(site: Site) -> Iterator[None]:
    site.set("job.time=7-00:01:00")
    yield


FAULTS: list[tuple[Callable[[Site], Any], set[str], str, str]] = [
    (controller_down, {"controller"}, "DOWN", "operators"),
    (partition_closed, {"partition"}, "gpu is DOWN", "site.partition"),
    (too_few_gpus, {"GPUs a node", "sbatch"}, "at most 8 h200", "gpus_per_node=8"),
    (wrong_gpu_type, {"GPU type", "sbatch"}, "gpu has h200", "profiles list"),
    (image_missing, {"image"}, "image.sqsh is not there", "site.images.nemo-rl-colocated"),
    (evaluations_image_missing, {"image"}, "vllm.sqsh is not there", "site.images.evaluate"),
    (shard_missing, {"model"}, "model-00002-of-00002", "prepare"),
    (output_not_writable, {"outputs folder"}, "Read-only", "site.paths.outputs"),
    (no_pyxis, {"runtime"}, "--container-image", "pyxis"),
    (account_refused, {"account"}, "no account is set", "site.account"),
    (time_over_the_limit, {"time limit"}, "7-00:00:00", "job.time=7-00:00:00"),
]


def test_nothing_fails_where_nothing_is_planted(site: Site) -> None:
    found = site.doctor()
    assert bad(found) == {}
    assert "expert-world" in str([c for c in found["checks"] if c["name"] == "plan"])
    names = {check["name"] for check in found["checks"]}
    looked_for = set().union(*(fault[1] for fault in FAULTS))
    assert names >= looked_for - {"account"}, names  # the partition takes every account
    assert not (site.folder / "runs").exists()  # it changes nothing
    assert not list(site.folder.rglob(".beam-doctor*"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0].__name__)
def test_each_planted_fault_is_found_and_nothing_else(
    site: Site, fault: tuple[Callable[[Site], Any], set[str], str, str]
) -> None:
    plant, names, have, remedy = fault
    with plant(site):
        found = bad(site.doctor())
    assert set(found) == names
    assert any(have in check["have"] for check in found.values()), found
    assert any(remedy in check["remedy"] for check in found.values()), found


def test_slurm_really_never_starts_a_job_of_a_refused_account(site: Site) -> None:
    submit = ["sbatch", "--parsable", "--nodes=1", "--account=zz", "--wrap=true"]
    asked = ["sbatch", "--test-only", "--nodes=1", "--account=zz", "--wrap=true"]
    with partition(site.cluster, "AllowAccounts=rl", "AllowAccounts=ALL"):
        assert site.cluster.run(asked).returncode == 0  # so asking sbatch is not enough
        job = site.cluster.run(submit, cwd=site.folder).stdout.strip()
        try:
            said = site.cluster.run(["scontrol", "show", "job", "--oneliner", job]).stdout
        finally:
            site.cluster.run(["scancel", job])
    assert "JobState=PENDING" in said
    assert "account" in said


def test_what_the_site_file_does_not_say_is_named(site: Site) -> None:
    text = json.loads((site.folder / "site.yaml").read_text())
    del text["paths"]["models"], text["images"]
    (site.folder / "site.yaml").write_text(json.dumps(text))
    found = [check for check in site.doctor()["checks"] if check["name"] == "site file"]
    assert {check["have"].split()[0] for check in found} == {
        "site.paths.models",
        "site.images.nemo-rl-colocated",
    }
    assert all("site.yaml" in check["remedy"] for check in found)


def test_the_text_shows_what_is_needed_and_what_to_do(site: Site) -> None:
    done = site.call("doctor", "--profile", PROFILE, "--set", "hardware.nodes=5")
    assert done.returncode == 2
    assert re.search(r"^pass  partition +gpu is up, 4 nodes$", done.stdout, re.M)
    lines = done.stdout.split("fail  nodes", 1)[1].splitlines()
    assert "4 usable of 4" in lines[0]
    assert lines[1] == "      needs: 5 nodes"
    assert "--nodes" in lines[2]


def test_a_drained_node_is_not_counted(site: Site) -> None:
    update = ["scontrol", "update", "NodeName=node2"]
    site.cluster.run([*update, "State=DRAIN", "Reason=test"])
    try:
        found = bad(site.doctor())
    finally:
        site.cluster.run([*update, "State=RESUME"])
    assert set(found) == {"nodes", "sbatch"}
    assert "node2 drained" in found["nodes"]["remedy"]


# --- init -----------------------------------------------------------------------------------


def test_init_writes_a_site_file_with_which_the_demo_runs_unchanged(bare: Site) -> None:
    done = bare.call("init")
    assert done.returncode == 0, done.stderr
    assert "beam-slurm doctor" in done.stdout
    written = (bare.folder / "site.yaml").read_bytes()
    assert b"\npartition: gpu\n" in written
    alone = bare.call("doctor", "--json")
    assert alone.returncode == 0, alone.stdout
    script = bare.call("submit", "--profile", "demo", "--dry-run").stdout
    bare.cluster.run(["sbatch", "--test-only"], stdin=None, input=script)
    settings = [word for text in ("steps=2", "evaluation.every=2", "checkpoint.enabled=false")
                for word in ("--set", f"recipe.{text}")]  # fmt: skip
    words = ["--wait", "--json", *settings]
    done = bare.call("submit", "--profile", "demo", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = Path(json.loads(done.stdout.splitlines()[0])["folder"])
    assert folder.parent == bare.folder / "runs"
    outcome = json.loads((folder / "attempt-0" / "outcome.json").read_text())
    assert outcome["state"] == "succeeded"
    again = bare.call("init")
    assert again.returncode == 2
    assert "there already" in again.stderr
    assert (bare.folder / "site.yaml").read_bytes() == written


def test_init_tells_programs_what_it_found(bare: Site) -> None:
    done = bare.call("init", "--json", "-o", "other.yaml")
    found = json.loads(done.stdout)
    assert found["file"] == "other.yaml"
    assert found["found"]["paths.runs"] == str(bare.folder / "runs")
    assert "paths.models" in found["asked"]


def test_without_slurm_init_says_so_and_writes_nothing(bare: Site) -> None:
    bare.environment["PATH"] = str(bare.folder)
    done = bare.call("init")
    assert done.returncode == 2
    assert "is not on PATH" in done.stderr
    assert not (bare.folder / "site.yaml").exists()


# --- on the nodes ---------------------------------------------------------------------------


def nodes(found: dict[str, Any]) -> dict[str, set[str]]:
    """Names of the failed checks of each node that has any."""
    failed = {
        node: {check["name"] for check in checks if check["verdict"] == "fail"}
        for node, checks in found["nodes"].items()
    }
    return {node: names for node, names in failed.items() if names}


def test_the_nodes_are_asked_and_the_bad_one_is_named(site: Site) -> None:
    # Every host has a /tmp of its own: on node3 the folder is missing.
    folder = f"/tmp/own-{os.getpid()}"
    for node in ("node1", "node2", "node4"):
        site.cluster.exec(node, ["mkdir", folder])
    site.set(f"site.paths.tmp={folder}")
    try:
        found = site.doctor("--on-nodes")
    finally:
        for node in ("node1", "node2", "node4"):
            site.cluster.exec(node, ["rmdir", folder])
    assert sorted(found["nodes"]) == ["node1", "node2", "node3", "node4"]
    assert nodes(found) == {"node3": {"tmp"}}
    assert found["job"] is None
    first = {check["name"]: check for check in found["nodes"]["node1"]}
    assert first["GPUs"]["have"].startswith("8")
    assert {"model", "nemo_rl", "image nemo-rl-colocated", "outputs", "address"} <= set(first)
    assert not list((site.folder).glob("runs*"))  # as before
    assert not list((site.folder / "outputs").iterdir())


def test_other_content_and_a_scratch_in_memory_are_found(site: Site) -> None:
    # node2 sees an empty folder instead of the model, and every host's /tmp is memory.
    model_folder = str(site.folder / "models" / "Beam")
    site.cluster.exec("node2", ["mount", "-t", "tmpfs", "tmpfs", model_folder])
    site.set("site.paths.scratch=/tmp")
    try:
        found = site.doctor("--on-nodes")  # which needs no scratch
        streamed = site.doctor("--on-nodes", "--set", "hardware.gpu=h200", profile="b200-bf16")
    finally:
        site.cluster.exec("node2", ["umount", model_folder])
    assert nodes(found) == {"node2": {"model"}}
    assert nodes(streamed) == {
        "node1": {"scratch"},
        "node2": {"model", "scratch"},
        "node3": {"scratch"},
        "node4": {"scratch"},
    }


def test_a_node_that_does_not_see_the_runs_is_named(site: Site) -> None:
    (site.folder / "runs").mkdir()
    runs = str(site.folder / "runs")
    site.cluster.exec("node4", ["mount", "-t", "tmpfs", "tmpfs", runs])
    try:
        done = site.call("doctor", "--profile", PROFILE, *site.settings, "--on-nodes")
    finally:
        site.cluster.exec("node4", ["umount", runs])
    assert done.returncode == 2
    assert re.search(r"^fail  answer on node4: .*node4", done.stdout, re.M), done.stdout
    assert not list(Path(runs).iterdir())


def test_a_job_that_does_not_start_is_given_up_and_cancelled(site: Site) -> None:
    held = ["sbatch", "--parsable", "--nodes=1", "--exclusive", "--wrap=sleep 600"]
    job = site.cluster.run(held, cwd=site.folder).stdout.strip()
    try:
        words = ["--profile", PROFILE, *site.settings, "--on-nodes", "--timeout", "3"]
        done = site.call("doctor", *words)
    finally:
        site.cluster.run(["scancel", job])
    assert done.returncode == 2
    number = re.search(r"job (\d+) did not end within 3 s", done.stderr)
    assert number, done.stderr
    said = site.cluster.run(["scontrol", "show", "job", number[1]]).stdout
    assert "JobState=CANCELLED" in said
    assert not (site.folder / "runs").exists()


def test_an_interrupt_cancels_the_job(site: Site) -> None:
    held = ["sbatch", "--parsable", "--nodes=1", "--exclusive", "--wrap=sleep 600"]
    job = site.cluster.run(held, cwd=site.folder).stdout.strip()
    words = [COMMAND, "doctor", "--profile", PROFILE, *site.settings, "--on-nodes"]
    try:
        running = subprocess.Popen(
            words,
            cwd=site.folder,
            env=site.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that started the tests in the background has left Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        with running:
            assert running.stderr
            told = (re.search(r"job (\d+): pending", line) for line in running.stderr)
            number = next(match[1] for match in told if match)
            running.send_signal(signal.SIGINT)
            try:
                assert running.wait(timeout=60) == 130
            finally:
                running.kill()
    finally:
        site.cluster.run(["scancel", job])
    said = site.cluster.run(["scontrol", "show", "job", number]).stdout
    assert "JobState=CANCELLED" in said
    assert not (site.folder / "runs").exists()


def test_nobody_asks_the_nodes_before_the_rest_is_right(site: Site) -> None:
    with partition(site.cluster, "State=DOWN", "State=UP"):
        done = site.call("doctor", "--profile", PROFILE, *site.settings, "--on-nodes")
    assert done.returncode == 2
    assert "the nodes are not asked" in done.stderr
