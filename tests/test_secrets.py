"""Secrets by name: from the submitting shell or from a file of one's own, values as they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_job import request, shellcheck

from beam_slurm import checks, job
from beam_slurm.doctor import login
from beam_slurm.doctor.subject import Subject
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node import secretfile
from beam_slurm.pack import node_program

pytestmark = pytest.mark.usefixtures("no_site")

VALUES = {
    "WANDB_API_KEY": "0123456789abcdef" * 2,
    "BASE64": "aGVsbG8gd29ybGQ==",
    "SHELL": "$(touch owned)`id`;\"x\" 'y' \\ #z",
    "SPACES": "a  b ",
    "UNICODE": "é☃",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets"
    lines = [f"{name}={value}" for name, value in VALUES.items()]
    path.write_text("# mine\n\n  # indented\n" + "\n".join(lines) + "\nCRLF=last\r\n")
    path.chmod(0o600)
    return path


def made(file: Path | str, *words: str) -> job.JobRequest:
    words = (f"site.secrets_file={file}", "hardware.nodes=1", "site.paths.venv=/usr", *words)
    return request("demo", *words, local=True)


def run(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script's environment block, as a job runs it, and then ``words``."""
    folder = Path.cwd()
    (folder / "node.pyz").write_bytes(node_program())
    head, _, _ = script.partition("\nexport RAY_AUTH_MODE")
    head = head.replace("RUN=/shared/runs/golden-0123ab", f"RUN={folder}")
    head = head.replace("/usr/bin/python ", "/usr/bin/env ")  # the check of the virtual environment
    return subprocess.run(
        ["bash", "-c", f'{head}\nexec "$@"', "shell.sh", *"1234567", *words],
        env={"PATH": os.environ["PATH"], "SLURMD_NODENAME": "n3", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_values_arrive_as_they_are_and_nothing_shows_them(file: Path) -> None:
    wanted = {**VALUES, "CRLF": "last"}
    assert secretfile.read(str(file)) == wanted
    made_of = made(file, "site.secrets=[HF_TOKEN]", "site.setup=['set -x']")
    script = job.shell(made_of)
    assert shellcheck(script) == ""
    done = run(script, "env", "-0", HF_TOKEN="hf")
    found = dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair)
    assert {name: found.get(name) for name in wanted} == wanted, done.stderr
    assert found["BEAM_SLURM_SECRETS"].split() == ["HF_TOKEN", *wanted]
    assert "+ set -u" in done.stderr  # the trace was on
    for value in VALUES.values():
        assert value not in done.stderr
        assert value not in str(made_of) + script
    assert not Path("owned").exists()


def loose(path: Path) -> None:
    path.chmod(0o640)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def foreign(path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)


def written(line: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(f"# mine\n{line}\n")

    write.__name__ = line.partition("=")[0]
    return write


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (loose, "mode 0640"),
        (link, "a link"),
        (pipe, "no regular file"),
        (foreign, "belongs to uid 65534"),
        (Path.unlink, "No such file"),
        (written("canary"), "line 2 is not NAME=value"),
        (written("export KEY=canary"), "line 2 is not NAME=value"),
        (written("KEY = canary"), "line 2 is not NAME=value"),
        (written("KEY='canary'"), "begins with a quotation mark"),
        (written("KEY="), "is empty"),
        (written("PATH=canary"), "line 2 sets PATH, which is the script's own"),
        (written("RAY_ADDRESS=canary"), "line 2 sets RAY_ADDRESS"),
    ],
)
def test_a_file_that_may_not_be_used_is_refused_here_and_by_the_job(
    change: Callable[[Path], None], said: str, file: Path
) -> None:
    change(file)
    request = made(file)
    with pytest.raises(BeamSlurmError) as refused:
        checks.secrets(request.profile.site)
    assert said in str(refused.value)
    assert str(file) in refused.value.what
    assert refused.value.remedy
    done = run(job.shell(request), "echo", "went on")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"beam-slurm: n3: site.secrets_file {file}: " in done.stderr
    assert said in done.stderr
    assert "canary" not in str(refused.value) + done.stderr


def test_a_file_on_the_nodes_alone_is_left_to_the_job(tmp_path: Path) -> None:
    file = tmp_path / "not-mounted-here" / "secrets"
    checks.secrets(made(file, "site.secrets=[ABSENT]").profile.site)


def test_a_secret_that_nobody_has_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IN_SHELL", "x")
    site = made(file, "site.secrets=[IN_SHELL, BASE64]").profile.site
    checks.secrets(site)
    monkeypatch.delenv("IN_SHELL")
    with pytest.raises(BeamSlurmError, match=r"IN_SHELL of site\.secrets is not set") as refused:
        checks.secrets(site)
    assert refused.value.remedy == "export IN_SHELL=..., or leave it out of site.secrets"


def test_doctor_looks_at_secrets(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)

    def verdicts(*words: str) -> dict[str, str]:
        subject = Subject(request("b300-colocated", *words).profile, None, alone=False)
        found = {check.name: check.verdict for check in login.check(subject)}
        del found["python3"]
        return found

    assert verdicts() == {"WANDB_API_KEY": "warn"}
    here = f"site.secrets_file={file}"
    assert verdicts(here) == {"secrets": "pass", "WANDB_API_KEY": "pass"}
    assert verdicts(here, "site.secrets=[ABSENT]") == {"secrets": "fail"}
    loose(file)
    assert verdicts(here) == {"secrets": "fail"}


def test_what_the_site_calls_a_secret_is_written_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, whatever that says, and by its value."""
    monkeypatch.setenv("DATA_PIN", "0123-canary-4567")
    for words, overrides, said in (
        (["site.environment={DATA_PIN: '1'}"], [], "DATA_PIN in site.environment is a secret"),
        ([], ["--pin=0123-canary-4567"], "--pin in the overrides is a secret"),
        ([], ["DATA_PIN=x"], "DATA_PIN in the overrides is a secret"),
    ):
        assert request("demo", *words, overrides=tuple(overrides))
        with pytest.raises(BeamSlurmError, match=said) as refused:
            request("demo", "site.secrets=[DATA_PIN]", *words, overrides=tuple(overrides))
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize("listed", [True, False])
def test_miles_gives_the_key_to_its_workers_alone(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher would write it into its log and its Ray job's words; told of no key, it leaves
    W&B out, so the trainer is told by us."""
    paths = [f"site.paths.{name}=/shared/{name}" for name in ("miles", "datasets", "scratch")]
    words = [*paths, "site.images.miles=/shared/images/miles.sqsh"]
    made = request("miles-lora", *words, *(["site.secrets=[WANDB_API_KEY]"] if listed else []))
    assert made.launch.withheld == ("WANDB_API_KEY",)
    assert " --withhold=WANDB_API_KEY --\n" in str(made)
    assert ("--use-wandb" in str(made)) == listed
    assert ("--wandb-group=golden-0123ab" in str(made)) == listed
    assert "--wandb-key" not in str(made)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert checks.unused(made) is None
    monkeypatch.setenv("WANDB_API_KEY", "canary")
    said = checks.unused(made)
    assert (said is None) == listed
    assert "canary" not in (said or "")
    assert said is None or "--set site.secrets=[WANDB_API_KEY]" in said
    assert checks.unused(request("b300-colocated")) is None
