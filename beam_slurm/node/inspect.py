"""Verb ``inspect``: whether this node is fit for the run, on the host, before Ray starts.

One task a node of one step; ``preflight`` reads what it prints and judges all nodes together. Each
check becomes an event as soon as it has an answer:

    {"beam-slurm": "checked", "node": ..., "name": ..., "verdict": ..., "have", "need", "do"}
    {"beam-slurm": "fingerprint", "node": ..., "path": ..., "is": ...}
    {"beam-slurm": "inspected", "node": ..., "address", "gcs", "dashboard", "clock", "python"}

The last one says that there is no more to come. Slurm carries lines of less than 1024 bytes whole
and mixes the parts of longer ones with those of other nodes: so an event holds one check.

Checks run beside each other. One that hangs, as on a file server that is gone, costs its own answer
and nobody else's.

A restart in the same job comes seconds after the last attempt, whose killed ranks may take a minute
to go: with ``--again`` what they hold is asked for until it is free.
"""

import argparse
import hashlib
import json
import os
import platform
import queue
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from beam_slurm.node import address, assets, canary, events, examine, gpuchecks, hostchecks, ports
from beam_slurm.node.check import FAIL, OK, UNKNOWN, Check

PATIENCE = 40.0  # seconds until a check that has no answer has failed
ASK = 2.0  # seconds until what the last attempt may still hold is asked for again
HELD = ("gpu-processes", "containers", "memory", "shm", "scratch", "tmp")
LINGER = 3.0  # seconds that the batch host gets to find this node's canaries


class Look(NamedTuple):
    """Checks that are made together: the names that they will have, and how."""

    names: Tuple[str, ...]
    make: Callable[[], Iterable[Check]]


def parser() -> argparse.ArgumentParser:
    """The options: a run says what it needs, and the rest is not looked at."""
    made = argparse.ArgumentParser(prog="node.pyz inspect")
    made.add_argument("--gpus", type=int, default=0, help="GPUs on this node")
    made.add_argument("--gpu", default="", help="their type, such as h200")
    made.add_argument("--gpu-memory", type=int, default=0, help="bytes of each")
    made.add_argument("--exclusive", action="store_true", help="the node is this job's alone")
    made.add_argument("--host-memory", type=int, default=0, help="bytes of RAM")
    made.add_argument("--object-store", type=int, default=0, help="bytes of shared memory")
    made.add_argument("--scratch", default="", help="folder that the run will make on a local disk")
    made.add_argument("--scratch-need", type=int, default=0, help="free bytes there")
    made.add_argument("--tmp", default="", help="where Ray's temporary folder will be")
    made.add_argument("--path", action="append", default=[], help="what must be here: of mounts")
    made.add_argument("--same", action="append", default=[], help="the same on every node: a model")
    made.add_argument("--shared", action="append", default=[], help="one folder for all nodes")
    made.add_argument("--made", default="", help="the file that the login node has made in one")
    made.add_argument("--image", default="", help="the container image, as the runtime takes it")
    made.add_argument("--runtime", default="", help="pyxis, docker, podman or apptainer")
    made.add_argument("--interface", default="", help="network interface for Ray")
    made.add_argument("--prefix", default="", help="network for Ray")
    made.add_argument("--again", action="store_true", help="an attempt has just ended here")
    made.add_argument("--canary", default="", help="the batch host's word; preflight adds it")
    return made


def main(argv: List[str]) -> int:
    """Look at everything that was asked for, and say so."""
    args = parser().parse_args(argv)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    facts = {"python": platform.python_version()}  # type: Dict[str, Any]
    if args.canary:  # srun ends us: nobody may find it then
        signal.signal(signal.SIGTERM, lambda number, frame: _leave(args, node))
    answers = queue.Queue()  # type: queue.Queue[Tuple[Optional[Check], bool]]
    looks = plan(args, node, facts)
    for look in looks:
        threading.Thread(target=_answer, args=(look, answers, args.again), daemon=True).start()
    # In order, each with its answer so far.
    left = {name: None for look in looks for name in look.names}  # type: Dict[str, Optional[Check]]
    running, deadline = len(looks), time.monotonic() + PATIENCE
    while running:
        try:
            found, last = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if found is None:
            running -= 1
            continue
        if not last:
            left[found.name] = found
            continue
        left.pop(found.name, None)
        _tell(node, found)
    for name, before in left.items():
        _tell(node, before or _unanswered(name, lasting=not (args.again and name in HELD)))
    events.tell(events.make("inspected", node=node, clock=time.time(), **facts))
    if args.canary:
        canary.wait(args.shared, args.canary, node, LINGER)
    os._exit(0)  # a thread that hangs in the kernel cannot be waited for


def plan(args: argparse.Namespace, node: str, facts: Dict[str, Any]) -> List[Look]:
    """What is to be looked at; ``facts`` will hold this node's address and ports."""
    looks = [
        Look(("memlock", "nofile"), hostchecks.limits),
        Look(("address",), lambda: _address(args, facts)),
    ]
    if args.gpus:
        wanted = gpuchecks.Wanted(args.gpus, args.gpu, args.gpu_memory, args.exclusive)
        looks.append(Look(tuple(wanted.names), lambda: gpuchecks.look(wanted)))
    if args.runtime in hostchecks.DAEMONS:
        job = os.environ.get("SLURM_JOB_ID", "")
        looks.append(
            Look(
                ("containers",),
                lambda: [hostchecks.containers(args.runtime, job, args.exclusive)],
            )
        )
    singles = (
        ("memory", args.host_memory, lambda: hostchecks.memory(args.host_memory)),
        ("shm", args.object_store, lambda: hostchecks.shm(args.object_store)),
        ("scratch", args.scratch, lambda: hostchecks.scratch(args.scratch, args.scratch_need)),
        ("tmp", args.tmp, lambda: hostchecks.tmp(args.tmp)),
        ("mounts", args.path, lambda: hostchecks.mounts(args.path)),
        ("model", args.same, lambda: _same(node, args.same)),
        ("outputs", args.shared, lambda: _shared(args, node)),
        ("image", args.image, lambda: hostchecks.image(args.image, args.runtime)),
    )  # type: Tuple[Tuple[str, Any, Callable[[], Check]], ...]
    looks += [Look((name,), _alone(make)) for name, wanted, make in singles if wanted]
    return looks


def fingerprint(path: str) -> Optional[str]:
    """``examine.fingerprint``, and for a model what its index and its config say; None: not there.

    Two versions of a model have shards of the same names and sizes.
    """
    found = examine.fingerprint(path)
    if found is None:
        return None
    said = hashlib.sha256()
    for name in (assets.INDEX, "config.json"):
        try:
            with open(os.path.join(path, name), "rb") as file:
                said.update(file.read())
        except OSError:
            continue
    return "%s-%s" % (found, said.hexdigest()[:12])


def _answer(look: Look, answers: "queue.Queue[Tuple[Optional[Check], bool]]", again: bool) -> None:
    """Put each check and whether that is the last word on it, and None at the end.

    With ``again`` what fails for want of something in HELD is asked for over and over; ``main``
    says when that has been long enough.
    """
    left = set(look.names)
    try:
        while left:
            for found in look.make():
                held = again and found.verdict == FAIL and found.name in HELD
                if found.name in left:
                    answers.put((found._replace(lasting=not held), not held))
                if not held:
                    left.discard(found.name)
            if left:
                time.sleep(ASK)
    except Exception as error:  # a node that we fail to ask is not a bad node
        for name in look.names:
            if name in left:
                have = "not asked: %s: %s" % (type(error).__name__, error)
                answers.put((Check(name, UNKNOWN, have), True))
    answers.put((None, True))


def _unanswered(name: str, lasting: bool) -> Check:
    have = "no answer within %.0f s" % PATIENCE
    do = "does storage hang on this node? see its kernel log"
    return Check(name, FAIL, have, "an answer", do, lasting)


def _leave(args: argparse.Namespace, node: str) -> None:
    canary.wait(args.shared, args.canary, node, 0)
    os._exit(128 + signal.SIGTERM)


def _alone(make: Callable[[], Check]) -> Callable[[], Iterable[Check]]:
    return lambda: [make()]


def _tell(node: str, found: Check) -> None:
    """One event of less than events.LONGEST bytes: long paths are cut, what to do is not."""
    event = events.make("checked", node=node, **found._asdict())
    over = len(json.dumps(event)) - events.LONGEST
    if over > 0:
        event["have"] = found.have[: max(80, len(found.have) - over - 3)] + "..."
    events.tell(event)


def _address(args: argparse.Namespace, facts: Dict[str, Any]) -> Iterable[Check]:
    need = "an address that the other nodes reach, and free ports"
    try:
        ip = address.own(args.interface, args.prefix)
        gcs, dashboard = ports.for_head(ip, int(os.environ.get("SLURM_JOB_ID") or 0))
    except address.NoAddress as problem:
        do = "set site.network.interface or site.network.prefix to the nodes' fabric"
        return [Check("address", FAIL, str(problem), need, do)]
    except ports.NoPorts as problem:
        do = "who listens there? ss -tlnp on this node"
        return [Check("address", FAIL, str(problem), need, do)]
    facts.update(address=ip, gcs=gcs, dashboard=dashboard)
    return [Check("address", OK, ip, need)]


def _same(node: str, paths: List[str]) -> Check:
    """Here only whether they are there: ``verdicts`` compares what the nodes say."""
    missing = []
    for path in paths:
        found = fingerprint(path)
        events.tell(events.make("fingerprint", node=node, path=path, **{"is": found}))
        if found is None:
            missing.append(path)
    if missing:
        do = "it must be on storage that this node mounts"
        have = "not there: " + ", ".join(missing)
        return Check("model", FAIL, have, "the same on every node", do)
    return Check("model", OK, ", ".join(paths), "the same on every node")


def _shared(args: argparse.Namespace, node: str) -> Check:
    folders, word = args.shared, args.canary  # type: List[str], str
    need = "one shared folder on all nodes, writable"
    problems = []
    for folder in folders:
        problem = canary.answer(folder, word, node) if word else examine.unwritable(folder)
        if problem:
            problems.append("%s %s" % (folder, problem))
    # Looked for last: by then a network file system has asked its server about this folder anew.
    if not problems and args.made and not os.path.isfile(args.made):
        problems.append("%s is not what the login node has there" % os.path.dirname(args.made))
    if problems:
        do = "set site.paths.outputs and site.paths.runs to storage that every node mounts"
        if args.made:
            do = "-o, site.paths.outputs and site.paths.runs: on storage that all nodes mount"
        return Check("outputs", FAIL, "; ".join(problems), need, do)
    return Check("outputs", OK, ", ".join(folders), need)
