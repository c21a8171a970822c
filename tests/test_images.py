"""How a site spells an image, and what each runtime is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from beam_slurm import images
from beam_slurm.errors import BeamSlurmError

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "runtime", "spelled"),
    [
        ("nvcr.io/nvidia/x:25.07", "pyxis", "nvcr.io#nvidia/x:25.07"),
        ("nvcr.io/nvidia/x:25.07", "docker", "nvcr.io/nvidia/x:25.07"),
        ("nvcr.io/nvidia/x:25.07", "podman", "nvcr.io/nvidia/x:25.07"),
        ("nvcr.io/nvidia/x:25.07", "apptainer", "docker://nvcr.io/nvidia/x:25.07"),
        ("radixark/miles:beam", "pyxis", "radixark/miles:beam"),
        ("docker.io/radixark/miles:beam", "pyxis", "radixark/miles:beam"),
        ("radixark/miles:beam", "docker", "radixark/miles:beam"),
        ("radixark/miles:beam", "podman", "docker.io/radixark/miles:beam"),
        ("radixark/miles:beam", "apptainer", "docker://radixark/miles:beam"),
        ("ubuntu", "podman", "docker.io/library/ubuntu"),
        ("localhost/mine:1", "podman", "localhost/mine:1"),
        ("registry:5000/a/b_c/d-e:V1.2_x", "pyxis", "registry:5000#a/b_c/d-e:V1.2_x"),
        (f"a/b@{DIGEST}", "docker", f"a/b@{DIGEST}"),
        (f"a/b:1@{DIGEST}", "podman", f"docker.io/a/b:1@{DIGEST}"),
        (f"a/b@{DIGEST}", "apptainer", f"docker://a/b@{DIGEST}"),
        ("/shared/x.sqsh", "pyxis", "/shared/x.sqsh"),
        ("/shared/x.sif", "apptainer", "/shared/x.sif"),
        ("<site.images.x>", "docker", "<site.images.x>"),
    ],
)
def test_each_runtime_is_told_its_own_spelling(text: str, runtime: str, spelled: str) -> None:
    assert images.spell(text, runtime) == spelled


@pytest.mark.parametrize(
    ("text", "runtime", "remedy"),
    [
        ("nvcr.io#nvidia/x:1", "docker", "write nvcr.io/nvidia/x:1"),
        ("nvcr.io#nvidia/x:1", "pyxis", "write nvcr.io/nvidia/x:1"),
        ("docker://nvcr.io#nvidia/x:1", "pyxis", "write nvcr.io/nvidia/x:1"),
        ("docker://me@nvcr.io#nvidia/x:1", "podman", "write nvcr.io/nvidia/x:1"),
        ("docker://a/b:1", "docker", "write a/b:1"),
        ("docker://a/b:1", "apptainer", "write a/b:1"),
        ("/x.sif", "pyxis", "-o FILE.sqsh; or set site.container: apptainer"),
        ("/x.sqsh", "apptainer", "-o FILE.sif; or set site.container: pyxis"),
        ("/x.tar", "pyxis", "-o FILE.sqsh"),
        ("/x.sqsh", "docker", "docker load"),
        ("x.sqsh", "pyxis", "absolute path"),
        ("~/x.sif", "apptainer", "absolute path"),
        (f"a/b@{DIGEST}", "pyxis", "name a tag"),
        (f"a/b:1@{DIGEST}", "apptainer", f"a/b@{DIGEST}"),
        ("a/b@sha256:12", "docker", "registry/name:tag"),
        ("A/B:1", "docker", "registry/name:tag"),
        ("a b", "docker", "registry/name:tag"),
        ("--privileged", "docker", "registry/name:tag"),
        ("a/b:1\n", "docker", "registry/name:tag"),
        ("", "podman", "registry/name:tag"),
    ],
)
def test_what_a_runtime_cannot_start_is_refused_with_the_right_spelling(
    text: str, runtime: str, remedy: str
) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        images.spell(text, runtime, "site.images.x")
    assert remedy in str(caught.value)
    assert str(caught.value).startswith("site.images.x: ")


@pytest.mark.parametrize(
    "site",
    ["directives: {output: x}", "directives: {time: 60}", "setup: [export HF_TOKEN=abc]"],
)
def test_an_import_refuses_what_a_run_refuses(site: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"container: pyxis\n{site}\n")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("beam-slurm"), "image", "import", "me/x:1"),
            *("-o", "/shared/x.sqsh", "--dry-run"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: site.yaml:2: ")
