"""node.pyz contain and lifeline, with a stand-in for the runtime's own command.

The client alone stands in: tests/test_containers.py has the real ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_slurm import job
from beam_slurm.node import lifeline
from beam_slurm.pack import node_program

PATIENCE = 120.0

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
            "BEAM_SLURM_ATTEMPT": "2",
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


def test_a_person_s_container_has_their_input_and_a_home_for_each_shell(
    contain: Contain, tmp_path: Path
) -> None:
    contain.fake(
        "apptainer",
        "signal.signal(signal.SIGINT, lambda *a: os.write(1, b'again\\n'))\n"
        "for line in sys.stdin: print('heard', line.strip(), flush=True)",
    )
    home = tmp_path / "beam-home-17-2"
    words = ["contain", "--interactive", f"--home={home}", "--", "apptainer", "exec", "i", "bash"]
    shells = [
        subprocess.Popen(
            [sys.executable, contain.program, *words],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "17"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    for shell in shells:
        assert shell.stdin
        assert shell.stdout
        shell.stdin.write("one\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == "heard one\n"
    homes = {f"beam-home-17-2-shell-{shell.pid}" for shell in shells}
    assert {path.name for path in tmp_path.glob("beam-home-*")} == homes
    for shell in shells:
        os.killpg(shell.pid, signal.SIGINT)  # Ctrl-C
        assert shell.stdout
        assert shell.stdout.readline() == "again\n"
        out, _ = shell.communicate("two\n", timeout=PATIENCE)
        assert (out, shell.returncode) == ("heard two\n", 0)
    assert not list(tmp_path.glob("beam-home-*"))


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
