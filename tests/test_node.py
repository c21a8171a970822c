"""The node program's parts that need no cluster: addresses, ports, events, temp folders, logs."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from beam_slurm import pack
from beam_slurm.node import address, drive, events, fit, gcs, ports, processes, raylog


@pytest.mark.parametrize(
    ("text", "counts"),
    [("72", [72]), ("72(x3),36", [72, 72, 72, 36]), ("1,2(x2)", [1, 2, 2])],
)
def test_cpus_per_node(text: str, counts: list[int]) -> None:
    assert address.cpus(text) == counts


def test_the_address_is_never_one_that_others_cannot_reach() -> None:
    assert not any(
        address.usable(ip) for ip in ("127.0.0.1", "127.0.1.1", "169.254.3.4", "0.0.0.0")
    )
    assert address.usable("10.1.2.3")
    with pytest.raises(address.NoAddress, match="'absent0' is not here"):
        address.own(interface="absent0")
    with pytest.raises(address.NoAddress, match=r"lies in 203\.0\.113\.0/24"):
        address.own(prefix="203.0.113.0/24")
    assert address.own(interface="lo") == "127.0.0.1"  # the site's word counts


def test_jobs_get_disjoint_blocks_outside_the_ephemeral_range() -> None:
    blocks = ports.blocks()
    low, high = map(int, Path(ports.EPHEMERAL).read_text().split())
    assert len(blocks) >= 10
    assert all(base + ports.BLOCK <= low or base > high for base in blocks)
    chosen = {ports.for_head("127.0.0.1", job)[0] for job in range(len(blocks))}
    assert len(chosen) == len(blocks)
    node = ports.for_node("127.0.0.1", 7, 12000, head=True)
    assert len(set(node.values())) == len(node)
    assert {12000, 12001}.isdisjoint(node.values())
    assert node["min-worker-port"] > max(
        port for name, port in node.items() if "worker" not in name
    )


def test_a_block_with_a_taken_port_is_passed_over() -> None:
    first, _ = ports.for_head("127.0.0.1", 3)
    with socket.create_server(("127.0.0.1", first)):
        assert ports.for_head("127.0.0.1", 3)[0] == first + ports.BLOCK


def test_no_free_block_names_the_taken_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_free", lambda ip, port: False)
    with pytest.raises(ports.NoPorts, match=r"taken: \d+"):
        ports.for_head("127.0.0.1", 1)


def test_events_survive_the_way_through_srun_and_file(tmp_path: Path) -> None:
    event = events.make("node-failed", node="a", why='quote " and\nbreak')
    line = json.dumps(event)
    assert "\n" not in line
    assert events.parse(line) == event
    for other in ("", "hello", '{"x": 1}', events.MARK, events.MARK + ' "cut'):
        assert events.parse(other) is None
    events.record(str(tmp_path), event)
    events.record(str(tmp_path), event)
    assert (tmp_path / "events.jsonl").read_text() == 2 * (line + "\n")
    events.write_file(str(tmp_path / "x"), "text")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "x"]


def test_a_temp_folder_is_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "beam-1-0"
    fit.private_folder(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "old").touch()
    fit.private_folder(str(folder))
    assert not list(folder.iterdir())

    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    link = tmp_path / "beam-2-0"
    link.symlink_to(target)
    with pytest.raises(fit.Unfit, match="is not ours"):
        fit.private_folder(str(link))
    fit.remove_folder(str(link))
    assert (target / "precious").exists()


def test_a_daemon_s_last_words_are_its_own_without_chatter(tmp_path: Path) -> None:
    logs = tmp_path / "ray" / "session_2026-11-29_20-10-00_1_2" / "logs"
    logs.mkdir(parents=True)
    assert raylog.last_words(str(tmp_path), "raylet") == []
    (logs / "raylet.out").write_text("[2026-11-29 20:10:00,1 I 7 7] fine\nagent timed out\n")
    assert raylog.last_words(str(tmp_path), "raylet") == ["agent timed out"]
    (logs / "raylet.err").write_text("E: no shared memory\n")
    assert raylog.last_words(str(tmp_path), "raylet") == ["E: no shared memory"]


def test_a_scratch_folder_needs_room_and_a_disk(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit.private_folder(str(folder), need=1)
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(fit.Unfit, match=rf"{tmp_path} has .* GB free, the recipe needs 1000000000"):
        fit.private_folder(str(folder), need=10**18)
    assert not folder.exists()
    with pytest.raises(fit.Unfit, match=r"cannot make .*/nvme/run: No such file"):
        fit.private_folder(str(tmp_path / "nvme" / "run"))


def test_a_node_with_other_gpus_or_little_shared_memory_is_unfit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    fit.check(2, 0)
    with pytest.raises(fit.Unfit, match=r"sees 2 GPUs .* wants 8"):
        fit.check(8, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(fit.Unfit, match="sees 0 GPUs"):
        fit.check(8, 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(fit.Unfit, match="GB free"):
        fit.check(8, 10**18)


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (["$ ray start", "ValueError: no"], 1, "ray start failed with exit code 1: ValueError: no"),
        ([], 127, "ray start failed with exit code 127"),
        (
            [raylog.STARTED, "  raylet [exit code=-9]"],
            1,
            "Ray's raylet was ended by signal 9 (SIGKILL)",
        ),
        ([raylog.STARTED, "  gcs_server [exit code=1]"], 1, "Ray's gcs_server exited with code 1"),
        ([raylog.STARTED], 0, "Ray ended by itself"),
    ],
)
def test_the_cause_in_ray_s_own_words(lines: list[str], code: int, said: str) -> None:
    assert raylog.cause(lines, code) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "exited with code 3"), (-9, "signal 9"), (137, "SIGKILL"), (255, "exited with code 255")],
)
def test_how_a_process_ended(code: int, said: str) -> None:
    assert said in raylog.how(code)


def test_the_gate_wants_exactly_what_was_asked_for() -> None:
    assert drive.difference(["a", "b"], 4, {"a": 2, "b": 2}) == ""
    assert drive.difference(["a", "b"], 4, {"a": 2}) == "1 of 2 nodes joined Ray, missing: b"
    with pytest.raises(drive.NotUp, match="not this job's: x"):
        drive.difference(["a"], 2, {"a": 2, "x": 2})
    with pytest.raises(drive.NotUp, match="Ray has 3 GPUs, the job 4: a 1, b 2"):
        drive.difference(["a", "b"], 4, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("joined", "said"),
    [({"a": 1.0}, "Ray is up: 1 node, 1 GPU, "), ({"a": 2.0, "b": 2.0}, "2 nodes, 4 GPUs, ")],
)
def test_who_is_in_ray_is_counted_for_people(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    joined: dict[str, float],
    said: str,
) -> None:
    monkeypatch.setattr(gcs, "connect", lambda seconds: None)
    monkeypatch.setattr(gcs, "alive", lambda client: joined)
    drive.gate([*joined], int(sum(joined.values())), 1.0)
    assert said in capfd.readouterr().err


def test_daemons_that_fork_twice_are_found_and_ended(tmp_path: Path) -> None:
    """A step's grandchild that has left its session, as Ray's daemons do, and ignores SIGTERM."""
    program = f"""
import os, signal, subprocess, sys, time
sys.path.insert(0, {str(Path(processes.__file__).parents[2])!r})
from beam_slurm.node import processes
processes.adopt_orphans()
ready, say = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(say, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
pid = int(os.read(ready, 20))
assert pid in processes.descendants()
processes.end_all(0.2)
assert not processes.descendants()
print(pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_the_node_program_is_one_file_that_needs_nothing_else(tmp_path: Path) -> None:
    data = pack.node_program()
    assert data == pack.node_program()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert "__main__.py" in names
    assert all(name == "__main__.py" or name.startswith("beam_slurm/") for name in names)
    path = tmp_path / "node.pyz"
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    verbs = "inspect|preflight|supervise|contain|ray|drive|left|guard|notify|secrets|shell"
    verbs += "|verify|examine"
    assert (done.returncode, done.stderr) == (1, f"usage: node.pyz {verbs} ...\n")


def test_the_node_program_keeps_to_python_3_8() -> None:
    """Compiled with 3.8's grammar: newer syntax would break on the nodes, not here."""
    import ast

    for path in Path(processes.__file__).parent.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
