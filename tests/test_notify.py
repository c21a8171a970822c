"""What a webhook is told: each thing once, in its form, and never at the run's expense."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import test_prepare
from click.testing import CliRunner
from launching import DRIVER, Launch
from nodes import course, environment, program
from nodes import preflight as preflight_of
from test_checkpoint import demo
from test_job import request, shellcheck
from test_supervise import FOREVER, RAY, STEP, WAIT, Supervise

from beam_slurm import checks, job, profiles, runs
from beam_slurm.cli.submit import submit
from beam_slurm.cluster import network
from beam_slurm.cluster.state import ClusterState
from beam_slurm.doctor import login
from beam_slurm.doctor.subject import Subject
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node import again, attempts, events, guard, notify, preflight, settle
from beam_slurm.node.course import Rules

pytestmark = pytest.mark.usefixtures("no_site")

KEY = "T0123/B4567/the-key-of-this-hook"  # what makes the URL a secret
PATIENCE = 60


class Hook(ThreadingHTTPServer):
    """A webhook on this host that answers ``code``, and keeps what it was sent."""

    daemon_threads = True

    def __init__(
        self,
        code: int = 200,
        header: tuple[str, str] = ("X-Nothing", ""),
        address: str = "127.0.0.1",
    ) -> None:
        super().__init__((address, 0), Handler)
        self.code, self.header = code, header
        self.bodies: list[bytes] = []
        self.kinds: list[str] = []
        self.released = threading.Event()  # what a silent one waits for
        self.released.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/{KEY}"

    @property
    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    @property
    def events(self) -> list[str]:
        return [str(message["event"]) for message in self.heard]


class Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.kinds.append(f"{self.path} {self.headers['Content-Type']}")
        self.server.released.wait()
        self.send_response(self.server.code)
        self.send_header(*self.server.header)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.released.set()
    made.shutdown()
    made.server_close()


def attempt(folder: Path, number: int = 0) -> Path:
    """An attempt's folder in a run whose submission has left its manifest."""
    program(folder)
    facts = {"profile": "demo", "nodes": 2, "gpus_per_node": 8, "steps": 100}
    (folder / "manifest.json").write_text(json.dumps(facts))
    path = folder / f"attempt-{number}"
    path.mkdir()
    return path


def post(
    path: Path, url: str, *words: str, text: str = "it has ended", **more: str
) -> subprocess.CompletedProcess[str]:
    """The verb, with a short message."""
    node = [sys.executable, str(path.parent / "node.pyz"), "notify"]
    return subprocess.run(
        [*node, f"--attempt={path}", "--event=end", "--webhook=HOOK", *words],
        input=json.dumps({"event": "end", "text": text}),
        env={"PATH": os.environ["PATH"], "HOOK": url, "BEAM_SLURM_SECRETS": "HOOK", **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def told(path: Path) -> list[tuple[str, str, str]]:
    """What the attempt's events say of its messages: sent or not, of what, why not."""
    return [
        (event["beam-slurm"], event["of"], event.get("why", ""))
        for event in attempts.told(str(path))
        if event["beam-slurm"].endswith("notified")
    ]


# --- one message ------------------------------------------------------------------------------


def test_a_message_for_programs_and_one_for_people(tmp_path: Path, hook: Hook) -> None:
    path = attempt(tmp_path)
    odd = 'a & b: <!channel> "x" é \x1b[31m'
    for form in ("json", "slack"):
        done = post(path, hook.url, f"--form={form}", text=odd)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert hook.heard[0] == {"event": "end", "text": odd}
    assert hook.heard[1] == {"text": 'a &amp; b: &lt;!channel&gt; "x" é \x1b[31m'}
    assert hook.kinds == [f"/{KEY} application/json"] * 2
    assert told(path) == [("notified", "end", "")] * 2
    post(path, hook.url, "--form=slack", text="x" * 5000)
    assert len(hook.heard[2]["text"]) == notify.LONGEST


def test_no_secret_is_sent(tmp_path: Path, hook: Hook) -> None:
    known = {"BEAM_SLURM_SECRETS": "HOOK TOKEN", "TOKEN": "hunter2-of-the-run"}
    coded = base64.b64encode(known["TOKEN"].encode()).decode()
    text = f"it said {known['TOKEN']} and {coded} to {hook.url}"
    post(attempt(tmp_path), hook.url, text=text, **known)
    assert hook.heard[0]["text"] == "it said *** and *** to ***"


def dead() -> str:
    """A URL where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/{KEY}"


def refuses(path: Path, url: str, *words: str, **more: str) -> str:
    """Why a message was not sent: one line in the log and one event, without the URL."""
    done = post(path, url, *words, **more)
    ((word, of, why),) = told(path)
    assert (done.returncode, word, of) == (1, "not-notified", "end")
    assert done.stderr == f"beam-slurm: the webhook was not told of the end: {why}\n"
    for file in path.rglob("*"):
        assert KEY not in file.read_text()
    assert KEY not in done.stderr
    return why


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "its variable is not set"),
        (f"file:///etc/{KEY}", "its URL is no https://host/..."),
        (f"https:{KEY}", "its URL is no https://host/..."),
        (f"https://a b/{KEY}", "its URL is no https://host/..."),
        (f"https://host/{KEY}\n", "its URL is no https://host/..."),
        (f"https://host:x/{KEY}", "its URL is malformed"),
        (
            "https://me:the-key-of-this-hook@host/",
            "its URL holds a user name: urllib does not send it",
        ),
        (f"http://hooks.slack.com/{KEY}", "http:// is for localhost and private addresses"),
        (f"http://8.8.8.8/{KEY}", "http:// is for localhost and private addresses"),
        (f"https://nowhere.invalid/{KEY}", ""),  # the resolver's own words
    ],
)
def test_urls_that_cannot_be(tmp_path: Path, url: str, why: str) -> None:
    assert refuses(attempt(tmp_path), url).startswith(why)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "10.1.2.3", "[fd00::1]", "[::1]"])
def test_plain_http_stays_in_the_house(host: str) -> None:
    assert notify.unfit(f"http://{host}:8080/x") == ""


def test_a_dead_one(tmp_path: Path) -> None:
    assert refuses(attempt(tmp_path), dead()) == "Connection refused"


@pytest.mark.parametrize("code", [302, 307, 404, 500])
def test_one_that_answers_something_else(tmp_path: Path, hook: Hook, code: int) -> None:
    """Nor is a redirection followed: to the run's facts it would be a stranger."""
    elsewhere = Hook()
    hook.code, hook.header = code, ("Location", elsewhere.url)
    assert refuses(attempt(tmp_path), hook.url) == f"it answered {code}"
    assert (len(hook.bodies), elsewhere.bodies) == (1, [])


def test_one_that_never_answers(tmp_path: Path, hook: Hook) -> None:
    hook.released.clear()
    began = time.monotonic()
    assert refuses(attempt(tmp_path), hook.url, "--seconds=1") == "no answer within 1 s"
    assert time.monotonic() - began < 10
    assert len(hook.bodies) == 1


DRIP = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
there, _ = server.accept()
there.recv(100)
try:
    while True:
        there.sendall(b"H")
        time.sleep(0.1)
except OSError:
    print("gone", flush=True)
"""


def test_one_that_drips(tmp_path: Path) -> None:
    """Each byte comes in time, and the answer never."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIP], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/{KEY}"
        assert refuses(attempt(tmp_path), url, "--seconds=1") == "no answer within 1 s"
        assert server.stdout.readline() == "gone\n"


def test_one_that_speaks_no_tls(tmp_path: Path, hook: Hook) -> None:
    url = hook.url.replace("http:", "https:")
    assert refuses(attempt(tmp_path), url)
    assert hook.bodies == []


def test_a_certificate_must_be_trusted(tmp_path: Path) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    made += ["-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/certificate", "-days", "2"]
    subprocess.run(made, check=True, capture_output=True)
    serve = ["openssl", "s_server", "-quiet", "-naccept", "1", "-accept", "localhost:0"]
    serve += ["-key", f"{tmp_path}/key", "-cert", f"{tmp_path}/certificate"]
    serve.remove("-quiet")
    with subprocess.Popen(
        serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout
        said = next(line for line in server.stdout if line.startswith("ACCEPT "))
        url = f"https://localhost:{said.rpartition(':')[2].strip()}/{KEY}"
        why = refuses(attempt(tmp_path / "run"), url)
        assert why.startswith("its certificate is not trusted: self")


def test_the_proxy_of_the_environment_is_used(tmp_path: Path, hook: Hook) -> None:
    proxy = hook.url.removesuffix(f"/{KEY}")
    done = post(attempt(tmp_path), f"http://10.255.255.1/{KEY}", http_proxy=proxy)
    assert (done.returncode, hook.events) == (0, ["end"])
    assert hook.kinds[0].startswith(f"http://10.255.255.1/{KEY}")


# --- when -------------------------------------------------------------------------------------

WORDS = ("--webhook=HOOK", "--notify=start,end,failure,restart")


def known(hook: Hook | str) -> dict[str, str]:
    """The job's environment where the site has that webhook."""
    url = hook if isinstance(hook, str) else hook.url
    return {"HOOK": url, "BEAM_SLURM_SECRETS": "HOOK"}


def run(folder: Path, hook: Hook | str, driver: str, *words: str) -> Supervise:
    attempt(folder)
    supervise = Supervise(folder)
    supervise.run(RAY, driver, *WORDS, *words, **known(hook))
    return supervise


def test_the_end_is_told_and_the_training_does_not_have_the_url(tmp_path: Path, hook: Hook) -> None:
    driver = f'echo "url=${{HOOK-none}} {hook.url}"; echo "step 100/100 reward 1"; end 0'
    supervise = run(tmp_path, hook, driver)
    (message,) = hook.heard
    assert message == {
        "event": "end",
        "run": tmp_path.name,
        "profile": "demo",
        "state": "succeeded",
        "class": None,
        "cause": "the entry finished",
        "do": None,
        "stopped": None,
        "next": None,
        "attempt": 0,
        "steps": {"last": 100, "of": 100},
        "nodes": ["n1", "n2"],
        "gpus": 16,
        "job": "17",
        "folder": str(tmp_path),
        "time": message["time"],
        "text": f"{tmp_path.name} (demo, job 17, step 100 of 100): "
        "succeeded: the entry finished (exit code 0)",
    }
    assert abs(message["time"] - time.time()) < PATIENCE
    assert "url=none ***\n" in supervise.log
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert KEY.encode() not in file.read_bytes(), file
    assert KEY not in supervise.log + supervise.words
    assert told(tmp_path / "attempt-0") == [("notified", "end", "")]


def test_a_failure_is_told_with_its_cause_and_remedy(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, STEP + "echo 'torch.OutOfMemoryError: CUDA out of memory.'; end 3")
    (message,) = hook.heard
    assert (message["event"], message["state"], message["class"]) == ("failure", "failed", "oom")
    assert message["steps"] == {"last": 30, "of": 100}
    assert message["do"]
    assert message["do"] in message["text"]
    assert message["stopped"] == "job.max_restarts is 0"


def test_a_cancelled_run_has_ended(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, f"kill $PPID; {FOREVER}")
    assert [(it["event"], it["state"]) for it in hook.heard] == [("end", "cancelled")]


def test_only_what_the_site_wants_is_told(tmp_path: Path, hook: Hook) -> None:
    run(tmp_path, hook, STEP + "end 3", "--notify=end,restart")
    assert hook.bodies == []


@pytest.mark.parametrize("silent", [True, False])
def test_a_bad_webhook_costs_a_moment_and_no_more(tmp_path: Path, hook: Hook, silent: bool) -> None:
    hook.released.clear()
    began = time.monotonic()
    supervise = run(tmp_path, hook if silent else dead(), 'echo "step 100/100 reward 1"; end 0')
    took = time.monotonic() - began
    outcome = attempts.outcome(str(tmp_path / "attempt-0"))
    assert (outcome["state"], outcome["exit_code"]) == ("succeeded", 0)
    assert supervise.words.count("the webhook was not told of the end: ") == 1
    assert [word for word, *_ in told(tmp_path / "attempt-0")] == ["not-notified"]
    assert took < notify.MOMENT + 10


def test_a_run_folder_without_room_hurts_nobody(tmp_path: Path, hook: Hook) -> None:
    attempt(tmp_path)
    (tmp_path / "notified").write_text("no folder")
    supervise = Supervise(tmp_path)
    found = supervise.run(RAY, 'echo "step 100/100 reward 1"; end 0', *WORDS, **known(hook))
    assert found["state"] == "succeeded"
    assert "the webhook was not told of the end: File exists" in supervise.words
    assert hook.bodies == []


def test_a_message_is_not_waited_for_until_somebody_reads_it(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's last words may be longer than a pipe, and its reader may hang or be gone."""
    path = attempt(tmp_path)
    given = notify.Hook("HOOK", "json", "end,restart")
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(notify, "MOMENT", 0.1)
    long = "x" * 300_000
    (tmp_path / "node.pyz").write_text("import time; time.sleep(600)")
    notify.tell(given, str(path), "restart", long, {}, last=True)
    assert told(path) == [("not-notified", "restart", "it took too long")]
    program(tmp_path)
    monkeypatch.setattr(notify, "MOMENT", PATIENCE)
    notify.tell(given, str(path), "end", long, {}, last=True)
    assert told(path)[1:] == [("notified", "end", "")]
    assert hook.heard[0]["text"].endswith(long)


@pytest.mark.parametrize(
    ("facts", "stop"),
    [({"state": object()}, TypeError), ({"steps": 3}, AttributeError), ({}, RuntimeError)],
)
def test_whatever_goes_wrong_with_a_message_the_run_goes_on(
    tmp_path: Path,
    facts: dict[str, Any],
    stop: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_more(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new process")

    path = attempt(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", no_more)
    notify.tell(notify.Hook("HOOK", "json", "end"), str(path), "end", "it has ended", facts)
    assert told(path) == [("not-notified", "end", stop.__name__)]
    said = f"beam-slurm: the webhook was not told of the end: {stop.__name__}\n"
    assert capsys.readouterr().err == said


def test_a_log_without_room_hurts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        events.say("it has ended")


@pytest.mark.parametrize(("on", "word"), [("[]", "''"), ("[end]", "end")])
def test_no_process_of_others_gets_the_url(on: str, word: str, tmp_path: Path) -> None:
    """Whatever is told, a job's steps, a shell beside it and a preparation are without it."""
    words = ("site.notify.webhook=HOOK", f"site.notify.on={on}")
    made = request("demo", *words)
    assert f"--webhook=HOOK --form=json --notify={word}\n" in str(made)
    assert shellcheck(str(made)) == ""
    beside = job.shell(made)
    assert "\nunset HOOK " in beside
    assert shellcheck(beside) == ""
    before = str(test_prepare.request("b200-lora", *words, here=True))
    assert "\nunset HOOK " in before
    assert shellcheck(before) == ""
    folder = tmp_path / "run"
    supervise = run(folder, "https://a/b", 'echo "url=${HOOK-none}"; end 0', f"--notify={on[1:-1]}")
    assert "url=none\n" in supervise.log


def test_restarts_are_told_one_by_one_and_then_the_failure(tmp_path: Path, hook: Hook) -> None:
    """The batch shell begins again in the same process: see test_supervise."""
    node = program(tmp_path)
    rules = course(tmp_path, "--max-restarts=9", *WORDS, checkpoints=tmp_path / "checkpoints")
    demo(tmp_path / "checkpoints", 4)
    (tmp_path / "script.sbatch").write_text(f"""
        export ATTEMPT={tmp_path}/attempt-$(ls {tmp_path} | grep -c attempt)
        mkdir $ATTEMPT && cd $ATTEMPT
        exec {shlex.join([*node, "supervise", *rules])} --attempt=$ATTEMPT --on=n1 \\
          -- 3 bash -c {shlex.quote(RAY)} bash -c {shlex.quote(WAIT + STEP + "end 3")}
    """)
    done = subprocess.run(
        ["bash", tmp_path / "script.sbatch"],
        env=environment(**known(hook)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 3, done.stderr
    count = len(attempts.folders(str(tmp_path)))
    # Each is a process of its own, and may be overtaken.
    said = sorted((it["attempt"], it["event"]) for it in hook.heard)
    assert said == [*((k, "restart") for k in range(count - 1)), (count - 1, "failure")]
    restart = next(it for it in hook.heard if it["event"] == "restart")
    assert count > 1
    assert restart["next"]["how"] == "here"
    assert "goes on in this job, as attempt 1" in restart["text"]


# --- beginnings, and ends that could not be told -----------------------------------------------


def begin(folder: Path, hook: Hook, code: int = 0) -> str:
    """A preflight that finds its node fit; the attempt's folder."""
    node = program(folder)
    done = subprocess.run(
        [*node, "preflight", *course(folder, "--max-restarts=3", *WORDS), "--", *node, "inspect"],
        env=environment(**known(hook)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stderr
    return "".join(done.stdout.split()[:1])


def test_a_run_starts_once(tmp_path: Path, hook: Hook) -> None:
    """Whoever begins after an attempt that left no word tells of its end."""
    first = begin(tmp_path, hook)
    assert hook.events == ["start"]
    assert hook.heard[0]["nodes"] == [socket.gethostname()]
    second = begin(tmp_path, hook)
    assert hook.events == ["start", "restart"]
    lost = hook.heard[1]
    assert (lost["attempt"], lost["class"], lost["state"]) == (0, "node", "failed")
    assert "goes on as attempt 1" in lost["text"]
    assert "it ended without a word" in lost["text"]
    given = notify.Hook("HOOK", "json", "start,end,failure,restart")
    os.environ.update(known(hook))
    try:
        for _ in range(2):  # it cannot be told twice, whoever tries
            notify.tell(given, second, "restart", "goes on", {}, last=True)
            notify.tell(given, first, "restart", "goes on", {}, last=True)
    finally:
        for name in known(hook):
            del os.environ[name]
    assert hook.events == ["start", "restart", "restart"]
    begin(tmp_path, hook, code=2)  # two attempts have brought no new step
    assert hook.events == ["start", "restart", "restart", "failure"]


def child() -> int:
    """The process that this one has started for its message."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"\0notify\0" in (path / "cmdline").read_bytes():
                return int(path.name)
    raise AssertionError("there is none")


def test_slurm_s_signals_do_not_end_a_message(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel signals every process of the job, and then waits for KillWait."""
    path = attempt(tmp_path)
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    hook.released.clear()
    notify.tell(notify.Hook("HOOK", "json", "end"), str(path), "end", "cancelled", {})
    os.kill(child(), signal.SIGTERM)
    hook.released.set()
    deadline = time.monotonic() + PATIENCE
    while not told(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert told(path) == [("notified", "end", "")]


def test_an_attempt_whose_nodes_are_unfit_has_not_started(tmp_path: Path, hook: Hook) -> None:
    os.environ.update(known(hook))
    try:
        done = preflight_of(tmp_path, *WORDS, inspect=("--scratch=/nowhere/at/all",))
    finally:
        for name in known(hook):
            del os.environ[name]
    assert done.returncode != 0
    assert hook.bodies == []  # nodes.environment hands nothing on: its variable is not set
    assert [of for _, of, _ in told(tmp_path / "attempt-0")] == ["failure"]


@pytest.mark.parametrize("webhook", [True, False])
def test_earlier_attempts_may_be_gone(
    tmp_path: Path, hook: Hook, webhook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has made room: what was told of them, or not, is gone with them."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    begin(tmp_path, hook)
    shutil.rmtree(tmp_path / "attempt-0")
    (tmp_path / "attempt-4").mkdir()
    (tmp_path / "attempt-4" / "outcome.json").write_text("{}")
    preflight._tell_webhook(rules(tmp_path, webhook), str(tmp_path / "attempt-4"), ["n1"])
    assert hook.events == ["start"]


OUTCOME = {"state": "failed", "class": "node", "cause": "lost", "exit_code": 69, "do": "see it"}
FOLLOWING = {"how": "undecided", "why": "what follows is being decided", "job": None}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({}, "None: None (exit code None)"),
        ({**OUTCOME, "next": None}, "failed (node): lost (exit code 69); do: see it"),
        (
            {**OUTCOME, "next": FOLLOWING},
            "failed (node): lost (exit code 69); may go on, as attempt 3: "
            "what follows is being decided",
        ),
    ],
)
def test_any_outcome_has_its_line(outcome: dict[str, Any], said: str) -> None:
    assert settle.last_line(outcome, 2) == said


STUB = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
[[ ${0##*/} != sbatch ]] || echo 18
"""


def rules(folder: Path, webhook: bool = True) -> Rules:
    """Those of a job of two nodes."""
    return Rules(
        *(str(folder), "script.sbatch", ["n1", "n2"], "demo", 100, 20, "", 3, "requeue"),
        *(0, 0, 0, 1),
        notify.Hook("HOOK", "json", "restart") if webhook else notify.Hook(),
    )


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands write into this file how they were called; job 17 is ours."""
    for name in ("sbatch", "scancel", "scontrol", "squeue"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(STUB)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_the_guard_of_an_array_s_task_gives_back_that_task_alone(
    tmp_path: Path, called: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last task has the array's own number."""
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert guard._give_back(rules(tmp_path), str(attempt(tmp_path)), "n1") == 1
    calls = called.read_text().splitlines()
    assert "sbatch --parsable --dependency=afterany:17_3 --exclude=n1 script.sbatch" in calls
    assert calls[-1] == "scancel 17_3"
    monkeypatch.setattr(again, "chain", lambda *_: ("", "no"))
    path = attempt(tmp_path / "other")
    assert guard._give_back(rules(tmp_path / "other"), str(path), "n1") == 1
    assert called.read_text().splitlines()[-1] == "scontrol requeue 17_3"


@pytest.mark.parametrize("broken", ["outcome", "tell", "disk"])
def test_nothing_keeps_the_guard_from_giving_the_job_back(
    tmp_path: Path, called: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = attempt(tmp_path)
    if broken == "outcome":
        monkeypatch.setattr(attempts, "outcome", lambda _: {})
        assert guard._give_back(rules(tmp_path), str(path), "n1") == 1
    else:
        of = {"tell": (notify, "tell"), "disk": (attempts, "write_off")}[broken]
        monkeypatch.setattr(*of, fail)
        with pytest.raises(OSError, match="No space"):
            guard._give_back(rules(tmp_path), str(path), "n1")
    assert called.read_text().splitlines()[-1] == "scancel 17"


def test_the_guard_tells_that_the_first_node_is_lost(
    tmp_path: Path, hook: Hook, called: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = attempt(tmp_path)
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    assert guard._give_back(rules(tmp_path), str(path), "n1") == 1
    assert called.read_text().splitlines()[-1] == "scancel 17"
    (message,) = hook.heard
    assert (message["event"], message["next"]["job"]) == ("restart", "18")
    assert "n1: it has not answered for 60 s" in message["text"]
    assert "goes on in job 18, as attempt 1" in message["text"]


@pytest.mark.parametrize("submitted", [True, False])
def test_a_decision_that_dies_with_the_first_node_is_made_by_the_guard(
    tmp_path: Path, called: Path, submitted: bool
) -> None:
    """How the attempt ended stands already; another job may be in the queue already."""
    path = attempt(tmp_path)
    (path / "outcome.json").write_text(
        json.dumps({**OUTCOME, "blamed": ["n2"], "ended": time.time(), "next": FOLLOWING})
    )
    assert not guard._settled(attempts.outcome(str(path)))
    if submitted:
        queue = f"#!/bin/bash\necho 19 beam-slurm:{tmp_path.name}\n"
        (tmp_path / "bin" / "squeue").write_text(queue)
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    words = called.read_text()
    assert ("sbatch" in words) is not submitted
    assert words.splitlines()[-1] == "scancel 17"
    outcome = attempts.outcome(str(path))
    assert outcome["cause"] == "lost"
    assert outcome["blamed"] == ["n1", "n2"]
    assert outcome["next"]["job"] == ("19" if submitted else "18")
    assert guard._settled(outcome)


def test_the_guard_ends_a_run_that_was_over_when_its_first_node_died(
    tmp_path: Path, called: Path
) -> None:
    path = attempt(tmp_path)
    (path / "outcome.json").write_text(
        json.dumps({"state": "succeeded", "cause": "", "next": FOLLOWING})
    )
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    assert called.read_text() == "scancel 17\n"
    assert attempts.outcome(str(path))["next"] is None


@pytest.mark.slurm
def test_on_a_real_slurm_over_a_requeue(launch: Launch) -> None:
    """The hosts reach this machine by the bridge; the entry sleeps in each attempt."""
    state = ClusterState.load(launch.cluster.root)
    assert state
    hook = Hook(address=network.gateway(state.subnet))
    words = ["--profile", "demo", "--max-restarts", "1", "--mail-type", "end,FAIL"]
    words += ["--set", f"framework.entry=[python, {DRIVER}]", "--set", "site.notify.webhook=HOOK"]
    done = launch.call("submit", "--json", *words, MODE="sleep", HOOK=hook.url)
    assert done.returncode == 0, done.stderr
    run = runs.Run(Path(json.loads(done.stdout)["folder"]))
    launch.started(run)
    launch.until("the start", lambda: hook.events == ["start"])
    assert launch.slurm(run)["MailType"] == "END,FAIL"
    assert "HOOK" not in json.loads((run.path / "seen.json").read_text())["environment"]
    (run.path / "seen.json").unlink()
    launch.cluster.run(["scontrol", "requeue", run.manifest["job"]])
    launch.until("the requeue", lambda: launch.slurm(run)["JobState"] == "PENDING")
    launch.cluster.run(["scontrol", "update", f"jobid={run.manifest['job']}", "starttime=now"])
    launch.until("the second attempt", (run.path / "seen.json").exists)
    assert launch.call("cancel", run.id).returncode == 0
    launch.over(run)
    launch.until("the end", lambda: len(hook.events) > 2)
    said = [(it["event"], it["attempt"], it["state"]) for it in hook.heard]
    assert said == [("start", 0, "starting"), ("restart", 0, "preempted"), ("end", 1, "cancelled")]
    assert hook.heard[1]["next"]["how"] == "slurm"
    assert {it["job"] for it in hook.heard} == {run.manifest["job"]}
    for file in (path for path in run.path.rglob("*") if path.is_file()):
        assert KEY.encode() not in file.read_bytes(), file
    launch.nothing_left(run)


# --- what a site may say ------------------------------------------------------------------------


def refusal(*words: str) -> BeamSlurmError:
    with pytest.raises(BeamSlurmError) as caught:
        request("demo", *words)
    return caught.value


def test_a_url_in_the_site_file_is_refused_and_not_repeated() -> None:
    url = f"https://hooks.slack.com/services/{KEY}"
    error = refusal(f"site.notify.webhook={url}")
    assert "webhook is no name of a variable" in str(error)
    assert KEY not in str(error)
    # Nor anywhere else, where a name or its shape betrays it.
    assert "is a secret" in str(refusal(f"site.environment.WHERE={url}"))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("site.notify.webhok=X", "the key site.notify.webhok is unknown"),
        ("site.notify.form=teams", "site.notify.form is 'teams'"),
        ("site.notify.on=[begin]", "site.notify.on[0] is 'begin'"),
        ("site.notify.webhook=my-hook", "webhook is no name of a variable"),
        ("job.mail_type=[END, DONE]", "'DONE' is none of NONE, BEGIN, END"),
        ("job.mail_type=NONE,END", "NONE stands alone"),
        ("job.mail_user=me@example.org", "mail_type does not say when"),
    ],
)
def test_words_that_make_no_sense(word: str, said: str) -> None:
    assert said in str(refusal(word))


def test_mail_is_said_once() -> None:
    error = refusal("site.directives={mail-type: FAIL}", "job.mail_type=END")
    assert "site.directives.mail-type and job.mail_type" in str(error)
    script = str(request("demo", "site.directives={mail-type: FAIL}", "site.account=x"))
    assert script.count("mail-type") == 1
    short = str(request("demo", "job.mail_type=end, time_limit_80"))
    assert "#SBATCH --mail-type=END,TIME_LIMIT_80\n" in short
    assert shellcheck(short) == ""


def test_the_command_line_asks_for_mail() -> None:
    words = ["--profile", "demo", "--mail-type", "begin,FAIL", "--mail-user", "me@example.org"]
    done = CliRunner().invoke(submit, [*words, "--dry-run"])
    assert "#SBATCH --mail-type=BEGIN,FAIL\n#SBATCH --mail-user=me@example.org\n" in done.output
    local = CliRunner().invoke(submit, [*words, "--nodes", "1", "--local", "--dry-run"])
    assert "#SBATCH" not in local.output
    assert "it is Slurm that sends mail, and this run does without" in local.output


def test_a_webhook_that_is_not_there_is_found_before_the_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = request("demo", "site.notify.webhook=HOOK").profile.site
    monkeypatch.delenv("HOOK", raising=False)
    with pytest.raises(BeamSlurmError, match="HOOK") as caught:
        checks.secrets(site)
    assert caught.value.why == "its variable is not set"
    monkeypatch.setenv("HOOK", f"http://hooks.slack.com/{KEY}")
    with pytest.raises(BeamSlurmError) as caught:
        checks.secrets(site)
    assert "use https://" in str(caught.value)
    assert KEY not in str(caught.value)
    monkeypatch.setenv("HOOK", f"https://hooks.slack.com/{KEY}")
    checks.secrets(site)
    monkeypatch.delenv("HOOK")
    file = tmp_path / "secrets"
    file.write_text(f"HOOK=https://hooks.slack.com/{KEY}\n")
    file.chmod(0o600)
    words = profiles.parse_settings(("site.notify.webhook=HOOK", f"site.secrets_file={file}"))
    profile = profiles.resolve("demo", settings=words).profile
    checks.secrets(profile.site)
    (found,) = (
        it for it in login.check(Subject(profile, None, alone=True)) if it.name == "secrets"
    )
    assert (found.verdict, KEY in found.have) == ("pass", False)
