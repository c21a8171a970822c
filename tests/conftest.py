"""Fixtures for all tests: above all a real Slurm of four hosts, made once a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch
from shapes import SIZES, Shape
from webhooks import hook  # noqa: F401 - a fixture

from beam_slurm import runs
from beam_slurm.cluster import Cluster, requirements
from beam_slurm.errors import BeamSlurmError
from beam_slurm.profiles import SITE_VARIABLE
from beam_slurm.slurm import Job

# It holds helpers that assert, and is both imported and named in pytest_plugins.
pytest.register_assert_rewrite("conversions")


@pytest.fixture
def no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without site file, and none of the user's: what a test says is all there is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(SITE_VARIABLE, raising=False)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> dict[str, Job | None]:
    """What Slurm knows: nothing, unless a test puts a job in here."""
    known: dict[str, Job | None] = {}
    monkeypatch.setattr("beam_slurm.slurm.job", known.get)
    monkeypatch.setattr("beam_slurm.slurm.ask", lambda *words: "n1\nn2\n")
    return known


@pytest.fixture(scope="session")
def slurm_machine() -> None:
    """Skip where no cluster can be made; fail there if BEAM_SLURM_REQUIRE_SLURM=1."""
    try:
        requirements.check()
    except BeamSlurmError as error:
        if os.environ.get("BEAM_SLURM_REQUIRE_SLURM") == "1":
            pytest.fail(f"BEAM_SLURM_REQUIRE_SLURM is set, but: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def slurm(slurm_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of 4 hosts with 8 H200 each. A test that changes it puts it back.

    Its hosts see pytest's temporary folders, the checkout and the virtual environment.
    """
    cluster = Cluster(f"test-{os.getpid()}")
    here = (tmp_path_factory.getbasetemp(), Path(__file__).parents[1], Path(sys.prefix))
    try:
        cluster.up(hosts=4, gpus=8, gpu_type="h200", shared=here)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def slurm_env(slurm: Cluster) -> dict[str, str]:
    """A whole environment for commands that are to find the cluster; nothing global is set."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    return {**own, **slurm.environment()}


# The fixture's parameters are the session's: pytest sorts the tests of all files by them, so each
# of these comes up once, and goes before the next one comes.
@pytest.fixture(
    scope="session",
    params=SIZES,
    ids=lambda size: "{}x8-{}".format(*size),
)
def shape(
    request: pytest.FixtureRequest,
    slurm_machine: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shape]:
    """A whole cluster as a recipe wants it: its nodes, with 8 GPUs of its type each."""
    hosts, gpu = request.param
    cluster = Cluster(f"{gpu}-{hosts}-{os.getpid()}")
    here = (tmp_path_factory.getbasetemp(), Path(__file__).parents[1], Path(sys.prefix))
    try:
        cluster.up(hosts=hosts, gpus=8, gpu_type=gpu, shared=here, patience_s=180)
        yield Shape(hosts, gpu, cluster)
    finally:
        cluster.down()


@pytest.fixture
def launch(
    slurm: Cluster,
    slurm_env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Launch]:
    """A place to launch from; whatever a failed test leaves running is cancelled."""
    monkeypatch.setenv("SLURM_CONF", slurm_env["SLURM_CONF"])
    environment = {k: v for k, v in slurm_env.items() if not k.startswith("BEAM_SLURM")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    yield Launch(slurm, tmp_path, environment)
    for run in runs.all_runs(tmp_path / "runs"):
        if job := run.manifest.get("job"):
            slurm.run(["scancel", job], check=False)
