"""A person beside a run: a shell in its environment and container, a tunnel to its dashboard.

Both begin with the newest attempt's address.json, which its batch script writes as it starts.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run

SHELL = "shell.sh"
PORT = 8265  # the tunnel's end on the user's own machine: Ray's usual one


@dataclass(frozen=True)
class Address:
    """Where one attempt's Ray is.

    Attributes:
        job: Slurm's job, "" of a local run.
        attempt: its number.
        head: the head's name.
        ip: its address.
        gcs: port of the control store.
        dashboard: port of the dashboard, None if there is none.
        nodes: those that train.
        token: the token's file, None where Ray asks for none.
    """

    job: str
    attempt: int
    head: str
    ip: str
    gcs: int
    dashboard: int | None
    nodes: tuple[str, ...]
    token: str | None


def address(run: Run) -> Address:
    """Where the run is now.

    Raises:
        BeamSlurmError: it is over, or has not begun.
    """
    state = run.state()
    said = state.word + (f": {state.why}" if state.why else "")
    awaited = state.job is not None and state.job.ended and not state.ended
    if state.ended or awaited:
        said = state.why if awaited else said
        raise BeamSlurmError(
            f"{run.id} is over", why=said, remedy=f"beam-slurm status {run.id}; its files remain"
        )
    try:
        last = run.attempts[-1:]
        # Of an attempt that is over, nothing of it is there any more.
        path = last[0].path / "address.json" if last and not last[0].outcome else None
        found = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):
        found = {}
    if not found:
        raise BeamSlurmError(
            f"{run.id} has no nodes yet", why=f"it is {said}", remedy=f"beam-slurm status {run.id}"
        )
    return Address(
        job=str(found["job"]),
        attempt=int(found["attempt"]),
        head=found["head"],
        ip=found["ip"],
        gcs=int(found["gcs"]),
        dashboard=found["dashboard"],
        nodes=tuple(found["nodes"]),
        token=found["token"],
    )


def shell(run: Run, node: str | None = None, command: Sequence[str] = ()) -> list[str]:
    """argv of a shell beside the run, or of ``command`` in its place; its exit code is theirs.

    Args:
        run: one that is running.
        node: one of its nodes; left out, the head.
        command: a program and its words.

    Raises:
        BeamSlurmError: the run is not running, or not on that node.
    """
    where = address(run)
    if node is not None and node not in where.nodes:
        raise BeamSlurmError(
            f"{run.id} does not run on {node!r}", remedy="one of " + ", ".join(where.nodes)
        )
    script = run.path / SHELL
    if not script.is_file():
        raise BeamSlurmError(
            f"{run.id} has no {SHELL}",
            why="an older beam-slurm has submitted it",
            remedy=f"srun --jobid={where.job} --overlap --nodelist={node or where.head} --pty bash",
        )
    ports = (where.gcs, where.dashboard or 0)
    facts = (where.job, where.attempt, node or where.head, where.token or "", where.ip, *ports)
    return ["bash", str(script), *map(str, facts), *command]


@dataclass(frozen=True)
class Dashboard:
    """A run's dashboard and the way to it.

    Attributes:
        host: the address by which other machines find it, None if they do not.
        port: its port there.
        tunnel: the command for the user's own machine.
        token: the file with its token, None where it asks for none.
    """

    host: str | None
    port: int
    tunnel: str
    token: str | None

    @property
    def url(self) -> str:
        """Where a browser behind the tunnel finds it."""
        return f"http://127.0.0.1:{PORT}"

    @property
    def direct(self) -> str:
        """Where a browser on the cluster finds it."""
        return f"http://{self.host}:{self.port}"

    def answers(self) -> bool:
        """Whether this machine reaches it without a tunnel."""
        if self.host is None:
            return False
        try:
            with socket.create_connection((self.host, self.port), timeout=3):
                return True
        except OSError:
            return False


def dashboard(run: Run) -> Dashboard:
    """The run's dashboard.

    Raises:
        BeamSlurmError: the run is not running, or has none.
    """
    where = address(run)
    if where.dashboard is None:
        raise BeamSlurmError(
            f"{run.id} has no dashboard",
            why="ray.dashboard is false",
            remedy="leave that out for the next run; beam-slurm shell looks into this one",
        )
    login = f"{getpass.getuser()}@{socket.gethostname()}"
    if where.token:
        tunnel = f"ssh -N -L {PORT}:{where.ip}:{where.dashboard} {login}"
        return Dashboard(where.ip, where.dashboard, tunnel, where.token)
    # Without a token it listens on the head's loopback alone: the tunnel has to end there.
    tunnel = f"ssh -N -J {login} -L {PORT}:127.0.0.1:{where.dashboard} {where.head}"
    return Dashboard(None, where.dashboard, tunnel, None)
