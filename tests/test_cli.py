"""The command line from outside: quick help, dry runs in pipes, one clear error for bad input."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_slurm.cluster import Cluster

COMMAND = str(Path(sys.executable).with_name("beam-slurm"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No site file, no Slurm on PATH."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "BEAM_SLURM"))}
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "bash").symlink_to("/bin/bash")
    return {**kept, "PATH": str(tools), "XDG_CONFIG_HOME": str(tmp_path)}


def call(
    *words: str, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("status", "NAME"),
        ("convert", "NAME"),
        ("evaluate", "NAME", "--set=mine"),
        ("evaluate", ".", "--profile=demo", "--set=mine", "--data=NAME.jsonl"),
    ],
)
def test_a_path_that_no_file_can_have_is_named(
    words: tuple[str, ...], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    said = call(
        *(word.replace("NAME", "x" * 300) for word in words),
        environment=environment,
        folder=tmp_path,
    )
    assert said.returncode == 2, said.stderr
    assert said.stderr.startswith("error: ")
    assert "xxx" in said.stderr
    assert "File name too long\n  do:  name another path\n" in said.stderr


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\nsys.argv = ['beam-slurm', '--help']\nfrom beam_slurm.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'ray', 'matplotlib', 'submitit', 'pydantic', 'jinja2', 'rich', 'yaml'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "heavy: []" in out.stdout

    def seconds(*words: str) -> float:
        began = time.perf_counter()
        subprocess.run(words, capture_output=True, check=True)
        return time.perf_counter() - began

    # In turn, so that whatever else the machine does hits both alike.
    ratios = [
        seconds(COMMAND, "--help") / seconds(sys.executable, "-c", "import click") for _ in range(7)
    ]
    assert statistics.median(ratios) <= 2.5


def test_every_command_has_help_with_an_example(
    environment: dict[str, str], tmp_path: Path
) -> None:
    from beam_slurm.cli import COMMANDS

    for name in COMMANDS:
        done = call(name, "--help", environment=environment, folder=tmp_path)
        assert done.returncode == 0
        assert f"beam-slurm {name}" in done.stdout.split("\n", 1)[1], name


def test_shell_completion_knows_the_commands(environment: dict[str, str], tmp_path: Path) -> None:
    more = {
        "_BEAM_SLURM_COMPLETE": "bash_complete",
        "COMP_WORDS": "beam-slurm s",
        "COMP_CWORD": "1",
    }
    done = call(environment={**environment, **more}, folder=tmp_path)
    assert {"plain,submit", "plain,status"} <= set(done.stdout.split())


def test_dry_run_needs_neither_slurm_nor_site_and_stays_in_a_pipe(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = call(
        "submit",
        "--profile",
        "b300-colocated",
        "--dry-run",
        environment=environment,
        folder=tmp_path,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("#!/bin/bash\n")
    assert "\x1b" not in done.stdout
    assert "<site.images.nemo-rl-colocated>" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "site.images.nemo-rl-colocated" in done.stderr
    assert not (tmp_path / "runs").exists()
    script = tmp_path / "x.sbatch"
    done = call(
        "submit",
        "--profile",
        "demo",
        "--dry-run",
        "-o",
        str(script),
        environment=environment,
        folder=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert script.read_text().startswith("#!/bin/bash\n")
    pipe = f"'{COMMAND}' submit --profile demo --dry-run | /usr/bin/head -n 1"
    short = subprocess.run(
        ["/bin/bash", "-c", pipe],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert short.stderr == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "b300-colocate"], "did you mean b300-colocated?"),
        (["--profile", "demo", "--set", "recipe.stpes=1"], "did you mean steps?"),
        (["--profile", "demo", "--set", "recipe.steps=x"], "recipe.steps is 'x'"),
        (["--profile", "demo", "--set", "job.name=a/b"], "job.name is 'a/b'"),
        (["--profile", "demo", "--set", "job.name=a\nb"], "job.name is 'a\\nb'"),
        (["--profile", "demo", "--nodes", "0"], "hardware.nodes is 0"),
        (["--profile", "demo", "--site", "absent.yaml"], "cannot read absent.yaml"),
        (["--profile", "demo"], "scontrol is not on PATH"),
        (["--profile", "b300-colocated"], "site.images.nemo-rl-colocated: ..."),
        (["--profile", "demo", "--dry-run", "-o", "absent/x"], "cannot write absent/x"),
        (["--profile", "demo", "--local"], "--nodes 1"),
        (["--profile", "demo", "-o", "x"], "--output goes with --dry-run"),
        (["--profile", "demo", "--dry-run", "--", "a.api_key=0123456789"], "is a secret"),
    ],
)
def test_bad_input_is_one_clear_error(
    words: list[str], said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = call("submit", *words, environment=environment, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_time_without_quotes_is_explained(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: demo\njob:\n  time: 1:30:00\n")
    done = call(
        "submit", "--profile", str(path), "--dry-run", environment=environment, folder=tmp_path
    )
    assert done.returncode == 2
    assert f"{path}:3: job.time: YAML reads 1:30:00 as the number 5400" in done.stderr
    assert 'do:  put it in quotes: "1:30:00"' in done.stderr


def test_unknown_runs_are_refused(environment: dict[str, str], tmp_path: Path) -> None:
    for command in ("status", "logs", "report", "cancel"):
        done = call(command, "nobody", environment=environment, folder=tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "nobody" in done.stderr


def test_profiles_list_and_show(environment: dict[str, str], tmp_path: Path) -> None:
    done = call("profiles", "list", "--json", environment=environment, folder=tmp_path)
    assert {"b200-mxfp8", "demo", "miles-lora"} < {row["name"] for row in json.loads(done.stdout)}
    done = call(
        "profiles", "show", "b300-colocated", "--json", environment=environment, folder=tmp_path
    )
    found = json.loads(done.stdout)
    assert found["recipe.steps"]["origin"] == "profiles/h200-colocated.yaml:12"
    assert found["job.time"]["assumed"]
    done = call("profiles", "show", "b300-colocated", environment=environment, folder=tmp_path)
    assert "assumed" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("words", [["recipe.seed=3"], ["x", "--", "y"], ["y", "--", "--z"]])
def test_a_word_that_is_no_option_is_not_taken_for_the_entry_s(
    words: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    done = call(
        "submit", "--profile", "demo", "--dry-run", *words, environment=environment, folder=tmp_path
    )
    assert done.returncode == 2
    assert f"{words[0]!r} is no option" in done.stderr
    assert done.stdout == ""


def test_a_plan_with_errors_stops_the_submission_unless_forced(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("submit", "--profile", "h200-colocated", "--nodes", "8")
    refused = call(*words, environment=environment, folder=tmp_path)
    assert refused.returncode == 2
    assert "expert-world: EP128 does not divide the 64 GPUs that train" in refused.stderr
    assert "--set recipe.rollout.engines=4" in refused.stderr
    assert "nothing was submitted" in refused.stderr
    for word, code in (("--force", 2), ("--dry-run", 0)):
        done = call(*words, word, environment=environment, folder=tmp_path)
        assert done.returncode == code
        assert "expert-world" in done.stderr
        assert "nothing was submitted" not in done.stderr  # --force: the site file is next
        assert ("submit would refuse this" in done.stderr) == (word == "--dry-run")
    assert not list(tmp_path.glob("runs*"))


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "9"], "wants 9 nodes, partition gpu gives at most 4"),
        (["--spares", "1"], "wants 4 nodes and 1 spare, partition gpu gives at most 4"),
        (
            ["--set", "job.time=8-00:00:00"],
            "8-00:00:00 is over partition gpu's limit of 7-00:00:00",
        ),
        (["--set", "site.partition=absent"], "partition 'absent' is unknown"),
        (["--output-dir", "/proc/no/x"], "/proc/no is not there"),
        (["--set", "site.directives={segment: 4}"], "this sbatch has no option --segment"),
        (["--set", "hardware.gpu=b300"], "sbatch refuses"),
        (["--set", "hardware.gpus_per_node=9"], "sbatch refuses"),
        (["--set", "site.paths.runs=/proc/runs"], "cannot make the run folder"),
        (["--set", "site.paths.runs=/dev/null/runs"], "cannot make the run folder"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_and_leaves_nothing(
    words: list[str], said: str, slurm: Cluster, slurm_env: dict[str, str], tmp_path: Path
) -> None:
    environment = {**slurm_env, "XDG_CONFIG_HOME": str(tmp_path)}
    done = call("submit", "--profile", "demo", *words, environment=environment, folder=tmp_path)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "\n  do:  " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))
    assert slurm.run(["squeue", "--noheader"]).stdout == ""


@pytest.mark.slurm
def test_a_container_without_pyxis_or_image_is_refused(
    slurm: Cluster, slurm_env: dict[str, str], tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "paths: {nemo_rl: /srv, models: /srv, outputs: /srv}\n"
        "images: {nemo-rl-colocated: /srv/absent.sqsh}\n"
    )
    done = call(
        *["submit", "--profile", "b300-colocated", "--nodes", "2", "--set", "hardware.gpu=h200"],
        "--force",
        environment=slurm_env,
        folder=tmp_path,
    )
    assert done.returncode == 2
    assert re.search("no --container-image|the image /srv/absent.sqsh is not there", done.stderr)
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slurm
def test_a_controller_that_is_down_is_an_error_and_nothing_is_submitted(
    slurm_env: dict[str, str], tmp_path: Path
) -> None:
    whole = Path(slurm_env["SLURM_CONF"])
    for source in whole.parent.iterdir():
        if source.is_file():
            (tmp_path / source.name).write_text(source.read_text())
    text = re.sub(
        "SlurmctldHost=.*", "SlurmctldHost=ctl(127.0.0.1)\nSlurmctldPort=9", whole.read_text()
    )
    (tmp_path / "slurm.conf").write_text(text)
    environment = {**slurm_env, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    done = call("submit", "--profile", "demo", environment=environment, folder=tmp_path)
    assert done.returncode == 2
    assert "controller does not answer" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
