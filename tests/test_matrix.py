"""Every recipe in every container runtime: its script, read by people, shellcheck and sbatch.

UPDATE_GOLDEN=1 writes the scripts anew: each change of one is a reviewable diff.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from recipe_table import NAMES, TABLE
from shapes import Shape

from beam_slurm import job, profiles
from beam_slurm.schema import Site

pytestmark = pytest.mark.usefixtures("no_site")

GOLDEN = Path(__file__).parent / "golden" / "matrix"

RUNTIMES = get_args(Site.model_fields["container"].annotation)

# An image as each runtime wants it: pyxis and Apptainer read a file on shared storage.
IMAGES = {
    "pyxis": "/shared/images/{}.sqsh",
    "docker": "registry.example/rl/{}:beam",
    "podman": "registry.example/rl/{}:beam",
    "apptainer": "/shared/images/{}.sif",
    "bare": "unused/{}",
}

SITE = {
    "site.partition": "gpu",
    "site.account": "rl",
    "site.paths.runs": "/shared/runs",
    "site.paths.models": "/shared/models",
    "site.paths.datasets": "/shared/datasets",
    "site.paths.outputs": "/shared/outputs",
    "site.paths.scratch": "/nvme",
    "site.paths.nemo_rl": "/shared/nemo-rl",
    "site.paths.skyrl": "/shared/skyrl",
    "site.paths.miles": "/shared/miles",
    "site.paths.venv": "/shared/venv",
}


def script(profile: str, runtime: str) -> str:
    """The script of a recipe on a site that has said everything and uses that runtime."""
    words = [f"{key}={value}" for key, value in SITE.items()]
    words += [f"site.container={runtime}"]
    words += [
        f"site.images.{name}={IMAGES[runtime].format(name)}"
        for name in ("nemo-rl-colocated", "nemo-rl-async", "skyrl", "miles")
    ]
    resolved = profiles.resolve(profile, settings=profiles.parse_settings(words))
    request = job.make_request(resolved, run_id="golden-0123ab")
    assert request.missing == ()
    return str(request)


def directives(text: str) -> dict[str, str]:
    """The #SBATCH lines by option."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.MULTILINE))


@pytest.mark.parametrize("profile", NAMES)
def test_scripts_are_as_reviewed_and_please_shellcheck(profile: str) -> None:
    recipe = TABLE[profile]
    paths = [GOLDEN / f"{profile}-{runtime}.sbatch" for runtime in RUNTIMES]
    for path, runtime in zip(paths, RUNTIMES, strict=True):
        text = script(profile, runtime)
        if os.environ.get("UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), path.name
        asked = directives(text)
        assert asked["nodes"] == str(recipe.nodes)
        assert asked["gpus-per-node"] == f"{recipe.gpu}:8"
        assert asked["ntasks-per-node"] == "1"
        assert {"exclusive", "requeue"} <= set(asked)
        assert "no-kill" not in asked  # no spare could take a lost node's place
        assert asked["signal"] == "B:USR1@900"
        # The entry stands in the script, word by word, and Ray is told of its resources.
        assert f"--nodes={recipe.nodes} --ntasks={recipe.nodes}" in text
        assert f"--gpus={recipe.gpus} " in text
        assert recipe.entry[1] in text
        assert ("--resources=" in text) == bool(recipe.resources)
    done = subprocess.run(["shellcheck", *paths], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def ask(shape: Shape, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What sbatch says of a script without submitting it."""
    command = ["sbatch", "--test-only", *words]
    return shape.cluster.run(command, input=text, stdin=None, check=False)


@pytest.mark.slurm
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_slurm_of_the_right_shape_takes_the_script(shape: Shape, runtime: str) -> None:
    mine = [name for name in NAMES if TABLE[name].gpu == shape.gpu]
    fit = [name for name in mine if TABLE[name].nodes <= shape.hosts]
    assert any(TABLE[name].nodes == shape.hosts for name in fit)
    cpus = shape.cluster.spec().cpus
    for name in fit:
        done = ask(shape, script(name, runtime))
        assert done.returncode == 0, f"{name}: {done.stderr}"
        said = re.search(r"using (\d+) processors on nodes (\S+) in partition gpu", done.stderr)
        assert said, done.stderr
        hosts = shape.cluster.run(["scontrol", "show", "hostnames", said[2]]).stdout.split()
        assert len(hosts) == TABLE[name].nodes, f"{name}: {done.stderr}"
        assert int(said[1]) == TABLE[name].nodes * cpus  # whole nodes
    for name in set(mine) - set(fit):
        done = ask(shape, script(name, runtime))
        assert done.returncode != 0, f"{name}: {done.stderr}"


@pytest.mark.slurm
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_slurm_of_other_gpus_refuses_the_script(shape: Shape, runtime: str) -> None:
    """The nodes would be there, their GPUs are not: the type counts, and not the number alone."""
    for name in NAMES:
        if TABLE[name].gpu != shape.gpu:
            nodes = min(TABLE[name].nodes, shape.hosts)
            done = ask(shape, script(name, runtime), f"--nodes={nodes}")
            assert done.returncode != 0, f"{name}: {done.stderr}"
            assert "not available" in done.stderr
