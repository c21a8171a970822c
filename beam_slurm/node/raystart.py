"""``ray start`` on one node: its words, and the child that becomes it.

The child imports Ray's command line while the head is still starting, and waits for the head's
port.
"""

import argparse
import os
import platform
import signal
import sys
import time
from typing import Any, Dict, Iterable, List

from beam_slurm.node import address, agent, events, gcs, ports

PLAIN = ("--log-style=pretty", "--log-color=false")  # a log for files, and for raylog


def command(args: argparse.Namespace, name: str) -> List[str]:
    """The words of ``ray start`` for this node."""
    head = name == args.nodes.split(",")[0]
    head_ip, gcs = os.environ["RAY_ADDRESS"].rsplit(":", 1)
    ip = head_ip if head else address.own(args.interface, args.prefix, toward=head_ip)
    options = {
        "node-ip-address": ip,
        "node-name": name,  # the gate counts nodes by this
        "num-cpus": args.cpus,
        "num-gpus": args.gpus,
        "resources": args.resources,
    }  # type: Dict[str, Any]
    options.update(ports.for_node(ip, int(os.environ["SLURM_JOB_ID"]), int(gcs), head))
    if args.object_store:
        options["object-store-memory"] = args.object_store
    if not head:
        options["address"] = os.environ["RAY_ADDRESS"]
        return _words(options)
    # Ray opens its own folder to everybody; the one around it stays ours.
    options.update({"port": gcs, "temp-dir": os.path.join(args.temp, "ray")})
    if args.dashboard:
        # Not include-dashboard=true: then Ray would wait for it before it starts its raylet.
        options["dashboard-host"], options["dashboard-port"] = args.dashboard.rsplit(":", 1)
    else:
        options["include-dashboard"] = "false"
        return ["--head", "--no-monitor", *_words(options)]  # it only serves `ray status`
    return ["--head", *_words(options)]


def _words(options: Dict[str, Any]) -> List[str]:
    return ["--%s=%s" % pair for pair in options.items()]


def _agent_port(words: List[str]) -> int:
    option = "--dashboard-agent-listen-port="
    return int(next(word for word in words if word.startswith(option))[len(option) :])


def fork(words: List[str], args: argparse.Namespace, name: str, signals: Iterable[int]) -> int:
    """Start the child that becomes ``ray start``, and hears ``signals`` as others do; its pid."""
    log = log_of(args.attempt, name)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        voice = os.dup(1)  # to the supervisor
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        # Nobody waits for the dashboard: it comes up while the nodes join. Ray's own log calls
        # that a failure to start it.
        os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "0")
        # Two of the head's servers take fixed ports unless told otherwise.
        os.environ.update(ports.metrics_of_head(int(os.environ["RAY_ADDRESS"].rpartition(":")[2])))
        os.environ["TMPDIR"] = args.temp  # what Ray and its workers leave there goes with it
        ray = _command_line()
        _tell_versions(voice, name)
        agent.announce(_agent_port(words))
        if "--head" not in words:
            _await_head(args.deadline)
        sys.argv = ["ray", "start", *PLAIN, "--block", "--disable-usage-stats", *words]
        print("$", " ".join(sys.argv), flush=True)
        ray.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as problem:
        print("%s: %s" % (type(problem).__name__, problem), flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


def log_of(attempt: str, name: str) -> str:
    """Where ``ray start`` of this node writes."""
    return os.path.join(attempt, "ray", name + ".log")


def _tell_versions(voice: int, name: str) -> None:
    """Nodes with another Ray or Python than the head's cannot work together."""
    import ray

    told = events.make("versions", node=name, ray=ray.__version__, python=platform.python_version())
    events.tell(told, voice)
    os.close(voice)


def _command_line() -> Any:
    """Ray's command line, without what no job needs; a Ray that lacks these names is left alone.

    Its client server would be one more port and a second of the head's start, and the commands
    of its dashboard are slow to import: Ray itself allows for their absence.
    """
    for unused in ("util.state.state_cli", "dashboard.modules.job.cli", "serve.scripts"):
        sys.modules["ray." + unused] = None  # type: ignore[assignment]
    from ray.scripts import scripts

    if hasattr(scripts, "get_ray_client_dependency_error"):
        scripts.get_ray_client_dependency_error = lambda: "not wanted"
    return scripts


def _await_head(seconds: float) -> None:
    """Return when the head itself is a node of Ray: until then a worker's raylet may not start.

    ``ray start`` would wait for that too, but looks only every other second, forty seconds long.
    """
    client = gcs.connect(seconds)
    deadline = time.monotonic() + seconds
    while not gcs.alive(client) and time.monotonic() < deadline:
        time.sleep(0.05)
