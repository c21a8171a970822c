"""What the scripts say to each container runtime, and the import of an image."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from test_job import shellcheck

from beam_slurm import containers, imports, job, profiles
from beam_slurm.errors import BeamSlurmError
from beam_slurm.schema import Site

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
    block = script[script.index("mounts=(") : script.index("# 2. Ray")]
    given = "set -eu; node=(python3 node.pyz) RUN=/r SLURM_JOB_ID=17"
    program = f"{given}\n{block}printf '%s\\0' \"${{container[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.usefixtures("no_site")
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


@pytest.mark.usefixtures("no_site")
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
    assert not list(Path("/tmp").glob("beam-image-5-*"))


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


@pytest.mark.usefixtures("no_site")
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


@pytest.mark.usefixtures("no_site")
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
