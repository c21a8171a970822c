"""Verb ``examine``: what this node has, as JSON lines for doctor, which judges.

Only facts: what is enough depends on the profile. Every question has its own answer, so that one
bad folder does not hide the rest, and its own event, as Slurm carries only short lines whole.
"""

import contextlib
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterable, List, Optional

from beam_slurm.node import address, events

MANY = 2000  # entries of a folder that its fingerprint takes in
SHM = "/dev/shm"  # noqa: S108 - where Ray keeps objects


def main(argv: List[str]) -> int:
    """Read the question's file and print an event for each answer."""
    if len(argv) != 1:
        sys.stderr.write("usage: node.pyz examine ASK.json\n")
        return 2
    with open(argv[0]) as file:
        ask = json.load(file)
    facts = examine(ask)
    node = facts.pop("node")
    for name, fact in facts.items():
        answers = [{key: fact[key]} for key in fact] if isinstance(fact, dict) else [fact]
        for answer in answers or [{}]:
            events.tell(events.make("examined", node=node, **{name: answer}))
    events.tell(events.make("examined", node=node, complete=True))
    return 0


def gather(told: Iterable[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The facts of each node whose events are all there, as from `examine`."""
    found = {}  # type: Dict[str, Dict[str, Any]]
    for event in told:
        if event["beam-slurm"] == "examined":
            about = found.setdefault(event["node"], {})
            for name, fact in event.items():
                if isinstance(fact, dict):
                    about.setdefault(name, {}).update(fact)
                else:
                    about[name] = fact
    return {node: about for node, about in found.items() if about.pop("complete", False)}


def examine(ask: Dict[str, Any]) -> Dict[str, Any]:
    """The facts of this node.

    Args:
        ask: ``paths`` that should be the same everywhere, ``writable`` folders, ``seen`` files
            that the asker made, ``commands``, ``disks`` whose room counts; all by name; and the
            network's ``interface`` and ``prefix``.
    """
    ip, problem = "", ""
    try:
        ip = address.own(ask.get("interface") or "", ask.get("prefix") or "")
    except address.NoAddress as error:
        problem = str(error)
    return {
        "node": os.environ.get("SLURMD_NODENAME") or platform.node(),
        "paths": {name: fingerprint(path) for name, path in ask["paths"].items()},
        "writable": {name: unwritable(path) for name, path in ask["writable"].items()},
        "seen": {name: os.path.exists(path) for name, path in ask["seen"].items()},
        "commands": {name: shutil.which(name) or "" for name in ask["commands"]},
        "disks": {name: disk(path) for name, path in ask["disks"].items()},
        "visible_gpus": visible_gpus(),
        "gpu_names": gpu_names(),
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "shm_free": (disk(SHM) or {}).get("free", 0),
        "python": platform.python_version(),
        "address": ip,
        "address_problem": problem,
    }


def fingerprint(path: str) -> Optional[str]:
    """Names and sizes of what is in a folder, or a file's size, as one short word; None: not there.

    Times and inodes are left out: a copy of a model on each node's own disk is as good.
    """
    try:
        if not os.path.isdir(path):
            return "file-%d" % os.path.getsize(path)
        with os.scandir(path) as entries:
            found = sorted((e.name, e.stat().st_size if e.is_file() else 0) for e in entries)
    except OSError:
        return None
    text = json.dumps(found[:MANY]).encode()
    return "folder-%d-%s" % (len(found), hashlib.sha256(text).hexdigest()[:12])


def unwritable(path: str) -> str:
    """Why no file can be made in ``path``; "" if one was made, and removed again."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".beam-doctor-", dir=path) as file:
            file.write(b"beam-slurm doctor\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""


def disk(path: str) -> Optional[Dict[str, Any]]:
    """File system type and free bytes of a folder; None if it is not there."""
    try:
        about = os.statvfs(path)
    except OSError:
        return None
    return {"type": _type(os.path.realpath(path)), "free": about.f_bavail * about.f_frsize}


def visible_gpus() -> Optional[int]:
    """How many GPUs Slurm gave this step; None where it does not say."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    return len([device for device in visible.split(",") if device.strip()])


def gpu_names() -> List[str]:
    """What nvidia-smi calls each GPU; [] where it is not there."""
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False
        )
        if done.returncode == 0:
            return [line.strip() for line in done.stdout.decode().splitlines() if line.strip()]
    return []


def _type(path: str) -> str:
    """The type of the file system that holds ``path``."""
    best, found = "", ""
    with open("/proc/self/mounts", errors="replace") as file:
        for line in file:
            fields = line.split()
            place = fields[1].replace("\\040", " ")
            inside = path == place or path.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, found = place, fields[2]
    return found
