"""A built wheel in an empty environment: templates, profiles and the node program travel along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_wheel_renders_from_any_folder(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "beam_slurm/data/templates/job.sbatch.j2" in names
    assert "beam_slurm/data/templates/containers/pyxis.j2" in names
    assert "beam_slurm/data/templates/report/page.html.j2" in names
    assert "beam_slurm/data/profiles/hardware/b300x64.yaml" in names
    assert "beam_slurm/data/examples/grpo_digits/train.py" in names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]

    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", str(empty)], check=True)
    subprocess.run(
        [str(empty / "bin" / "pip"), "install", "--quiet", str(wheel)],
        check=True,
        capture_output=True,
    )
    heavy = subprocess.run(
        [str(empty / "bin" / "pip"), "list"], check=True, capture_output=True, text=True
    ).stdout
    assert not {"torch", "ray", "matplotlib"} & {line.split()[0] for line in heavy.splitlines()}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for profile in ("demo", "b300-colocated"):
        done = subprocess.run(
            [str(empty / "bin" / "beam-slurm"), "submit", "--profile", profile, "--dry-run"],
            cwd=elsewhere,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("#!/bin/bash\n")
        assert str(ROOT) not in done.stdout
