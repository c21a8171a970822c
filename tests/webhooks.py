"""A webhook that hears what runs tell it, and runs that tell it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from nodes import program
from test_supervise import RAY, Supervise

from beam_slurm.node import attempts, notify
from beam_slurm.node.course import Rules

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


def dead() -> str:
    """A URL where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/{KEY}"


def rules(folder: Path, webhook: bool = True) -> Rules:
    """Those of a job of two nodes."""
    return Rules(
        *(str(folder), "script.sbatch", ["n1", "n2"], "demo", 100, 20, "", 3, "requeue"),
        *(0, 0, 0, 1),
        notify.Hook("HOOK", "json", "restart") if webhook else notify.Hook(),
    )
