"""What bring-up needs of Ray beyond its command line: the agent's port, the dashboard's answer."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from shapes import COMMAND, clean_environment

from beam_slurm import runs
from beam_slurm.cluster import Cluster
from beam_slurm.node import agent, dashboard


def test_the_raylet_finds_its_agent_s_port_before_the_agent_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = pytest.importorskip("ray._private.services")
    raylet = pytest.importorskip("ray._raylet")
    started: list[Any] = []
    monkeypatch.setattr(
        services, "start_ray_process", lambda *args, **more: started.append((args, more))
    )
    agent.announce(11002)
    command = ["raylet", f"--session_dir={tmp_path}", "--node_id=" + "ab" * 28]
    services.start_ray_process(["gcs_server"], "gcs_server", fate_share=True)
    assert not list(tmp_path.iterdir())
    services.start_ray_process(command, "raylet", fate_share=True)
    # What Ray itself waits for, by Ray's own name for it.
    name = raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME
    found = raylet.wait_for_persisted_port(str(tmp_path), "ab" * 28, name, timeout_ms=1000)
    assert found == 11002
    assert started == [
        ((["gcs_server"], "gcs_server"), {"fate_share": True}),
        ((command, "raylet"), {"fate_share": True}),
    ]


class Answer(BaseHTTPRequestHandler):
    """Refuses twice, as a dashboard does that is still starting, and whoever has no token."""

    refusals = 2

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer 0123"
        status = 200 if allowed and self.path == "/api/version" else 401
        if allowed and Answer.refusals:
            Answer.refusals -= 1
            status = 503
        self.send_response(status)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    made = HTTPServer(("127.0.0.1", 0), Answer)
    token = tmp_path / "token"
    token.write_text("0123\n")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{made.server_port}")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_an_entry_waits_until_the_dashboard_answers(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "refusals", 2)
    dashboard.wait(60)
    assert Answer.refusals == 0
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(dashboard.Silent, match="HTTP status 401"):
        dashboard.wait(0)


def test_a_silent_dashboard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(dashboard.Silent, match=r"at 127\.0\.0\.1:9 did not answer within 0 s"):
        dashboard.wait(0)


@pytest.mark.slurm
def test_a_node_whose_agent_is_slow_joins_all_the_same(slurm: Cluster, tmp_path: Path) -> None:
    """Ray's raylet would wait 15 s for its agent, and then abort."""
    services = pytest.importorskip("ray._private.services")
    program = Path(services.RAY_PATH) / "dashboard" / "agent.py"
    slow = tmp_path / "agent.py"
    slow.write_text("import time\n\ntime.sleep(25)\n" + program.read_text())
    driver = Path(__file__).with_name("driver.py")
    slurm.exec("node2", ["mount", "--bind", str(slow), str(program)])
    try:
        done = subprocess.run(
            [
                *(COMMAND, "submit", "--profile", "demo", "--nodes", "2", "--wait"),
                *("--set", f"framework.entry=[python, {driver}]"),
                *("--set", "site.directives={nodelist: 'node[1-2]'}"),
            ],
            cwd=tmp_path,
            env=clean_environment(tmp_path, slurm),
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    finally:
        slurm.exec("node2", ["umount", str(program)])
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = runs.all_runs(tmp_path / "runs")
    up = [event["node"] for event in run.events() if event["beam-slurm"] == "node-up"]
    assert sorted(up) == ["node1", "node2"]
