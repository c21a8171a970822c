"""One message to a webhook: what it says, and what goes wrong on its way."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from pathlib import Path

import pytest
from webhooks import (
    KEY,
    Hook,
    attempt,
    dead,
    post,
    told,
)

from beam_slurm.node import notify

pytestmark = pytest.mark.usefixtures("no_site")


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
