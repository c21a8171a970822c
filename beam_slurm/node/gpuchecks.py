"""Preflight's checks of this node's GPUs: what the driver says, against what the run wants.

Only the GPUs that Slurm gave this step count: on a shared node the others are somebody else's.
"""

import errno
import os
import re
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from beam_slurm.node import examine, gpus
from beam_slurm.node.check import FAIL, OK, UNKNOWN, WARN, Check, few, size

NAMES = ("gpus", "gpu-type", "gpu-memory", "ecc", "xid", "clocks", "gpu-processes")
SMI = 30.0  # seconds that nvidia-smi gets: it opens every GPU, one after the other
AGAIN = 1.0  # seconds until clocks are looked at once more: a change of state holds them shortly
NEAR = 0.9  # data sheets round up, and the driver keeps some memory for itself
KERNEL_LOG = "/dev/kmsg"
RECORD = 8192  # bytes of the kernel's longest record, and some
STRAY = 0.05  # part of a GPU's memory that the driver alone never takes

ABSENT = "nvidia-smi is not here"
REPLACE = "drain the node and have the GPU tested; site.preflight.%s: warn takes it as it is"
RESET = "reset the GPU (nvidia-smi --gpu-reset) or reboot the node"

# What NVIDIA's catalogue answers with a reset, a reboot or a repair. 13, 31, 43 and 45 are the
# marks of programs that failed, and say nothing about the GPU.
BAD = {
    48: "double-bit ECC error",
    62: "the GPU's own controller has halted",
    64: "memory could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    95: "uncontained ECC error",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor has failed",
    140: "unrecovered ECC error",
    143: "the GPU could not be initialized",
}
SEEN = {63: "memory was remapped", 94: "contained ECC error"}
OLD = 24 * 3600.0  # seconds after which an Xid says no more that the GPU is bad now
STAMP = re.compile(r"\d+,\d+,(\d+),")  # of a record of the kernel: microseconds since boot


class Wanted(NamedTuple):
    """What the run wants of a node.

    Attributes:
        gpus: how many.
        kind: what their product name must hold, such as h200; "" does not matter.
        memory: bytes of each; 0 does not matter.
        exclusive: the node is this job's alone, so whatever is on a GPU was left behind.
    """

    gpus: int
    kind: str = ""
    memory: int = 0
    exclusive: bool = False

    @property
    def names(self) -> List[str]:
        """The checks that are made."""
        left_out = {"" if self.kind else "gpu-type", "" if self.memory else "gpu-memory"}
        return [name for name in NAMES if name not in left_out]


def records(seconds: float = 5.0) -> List[str]:
    """The kernel log since boot, as far as the kernel still has it, each line behind its stamp.

    Raises:
        OSError: it is not here, or this user may not read it.
    """
    found = []
    handle = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            try:
                record = os.read(handle, RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:  # overwritten while we read: go on behind it
                    raise
                continue
            found.append(record.decode(errors="replace").partition("\n")[0])
    finally:
        os.close(handle)
    return found


def look(
    wanted: Wanted,
    ask: Callable[[float], List[gpus.Gpu]] = gpus.ask,
    kernel_log: Callable[[], List[str]] = records,
) -> Iterator[Check]:
    """Each of ``wanted.names``.

    Args:
        wanted: by the run.
        ask: asks the driver, for at most so many seconds.
        kernel_log: gives the lines of the kernel log, with or without their stamps.
    """
    visible = examine.visible_gpus()
    try:
        listed = ask(SMI)
    except FileNotFoundError:
        yield _given(wanted.gpus, visible, ABSENT)
        yield from (Check(name, UNKNOWN, ABSENT) for name in wanted.names[1:])
        return
    except gpus.Broken as problem:
        need = "%d GPUs" % wanted.gpus
        yield Check("gpus", FAIL, str(problem), need, "reboot the node, or drain it")
        for name in wanted.names[1:]:  # the kernel may have said why
            said = Check(name, UNKNOWN, str(problem))
            yield _xids([], [], kernel_log) if name == "xid" else said
        return
    mine = gpus.own(listed, gpus.given())
    yield _count(wanted.gpus, visible, len(mine))
    if wanted.kind:
        yield _kind(wanted.kind, mine)
    if wanted.memory:
        yield _memory(wanted.memory, mine)
    yield _ecc(mine)
    yield _xids(listed, mine, kernel_log)
    yield _clocks(mine, ask)
    yield _processes(mine, wanted.exclusive)


def _given(count: int, visible: Optional[int], more: str = "") -> Check:
    """By Slurm's word alone."""
    need = "%d GPUs" % count
    if visible is None:
        return Check("gpus", UNKNOWN, "%s, and Slurm names no GPUs" % more, need)
    have = "Slurm gives %d" % visible
    if visible != count:
        return Check("gpus", FAIL, have, need, "see site.gpu_request and hardware.gpus_per_node")
    return Check("gpus", OK, "%s; %s" % (have, more) if more else have, need)


def _count(count: int, visible: Optional[int], listed: int) -> Check:
    if visible is not None and visible != count:
        return _given(count, visible)
    have, need = "nvidia-smi lists %d" % listed, "%d GPUs" % count
    if listed < count:
        do = "one may have fallen off the bus: reboot the node, or drain it"
        return Check("gpus", FAIL, have, need, do)
    return Check("gpus", OK, have, need)


def _kind(kind: str, mine: List[gpus.Gpu]) -> Check:
    names = sorted({gpu.name or "a GPU without a name" for gpu in mine})
    have = few(names) or "none"
    if mine and all(kind.lower() in name.lower() for name in names):
        return Check("gpu-type", OK, have, kind)
    do = "another partition, site.exclude for this node, or a profile for these GPUs"
    return Check("gpu-type", FAIL, have, kind, do)


def _memory(need: int, mine: List[gpus.Gpu]) -> Check:
    least = min((gpu.memory for gpu in mine if gpu.memory is not None), default=None)
    if least is None:
        return Check("gpu-memory", UNKNOWN, "nvidia-smi does not tell", size(need))
    if least < NEAR * need:
        do = "another partition, or hardware.gpu_memory_gb as it is here"
        return Check("gpu-memory", FAIL, size(least), size(need), do)
    return Check("gpu-memory", OK, size(least), size(need))


def _ecc(mine: List[gpus.Gpu]) -> Check:
    damaged, waiting = [], []
    for gpu in mine:
        found = list(gpu.damage)
        if gpu.uncorrectable:
            found.append("%d uncorrectable errors" % gpu.uncorrectable)
        damaged += ["%s: %s" % (gpu, what) for what in found]
        waiting += ["%s: %s" % (gpu, what) for what in gpu.pending]
    need = "no uncorrectable errors"
    if damaged:
        return Check("ecc", FAIL, few(damaged), need, RESET + "; " + REPLACE % "ecc")
    if waiting:
        return Check("ecc", WARN, few(waiting), need, RESET + " when no job runs on it")
    if all(gpu.uncorrectable is None for gpu in mine):
        return Check("ecc", UNKNOWN, "nvidia-smi does not count errors: is ECC off?", need)
    past = sum(gpu.aggregate or 0 for gpu in mine)
    return Check("ecc", OK, "none" + (", %d in the GPUs' life" % past if past else ""), need)


def _xids(
    listed: List[gpus.Gpu], mine: List[gpus.Gpu], kernel_log: Callable[[], List[str]]
) -> Check:
    need = "no Xid of a damaged GPU within a day and since the driver was loaded"
    try:
        dated = _dated(kernel_log(), time.monotonic())
    except OSError as error:
        have = "the kernel log is not readable here: %s" % (error.strerror or error)
        return Check("xid", UNKNOWN, have, need)
    others = {gpu.bus for gpu in listed} - {gpu.bus for gpu in mine}
    # One that nvidia-smi does not list any more may be ours: it counts.
    dated = [(xid, age) for xid, age in dated if xid.bus not in others]
    # One without a time may be of now.
    bad = _said([xid for xid, age in dated if age is None or age <= OLD], BAD)
    if bad:
        return Check("xid", FAIL, few(bad), need, RESET + "; " + REPLACE % "xid")
    seen = _said([xid for xid, _ in dated], SEEN)
    past = [(xid, age) for xid, age in dated if age is not None and age > OLD]
    seen += ["%s, more than a day ago" % said for said in _said([xid for xid, _ in past], BAD)]
    if seen:
        return Check("xid", WARN, few(seen), need, RESET + " when no job runs on it")
    return Check("xid", OK, "none", need)


def _dated(lines: List[str], now: float) -> List[Tuple[gpus.Xid, Optional[float]]]:
    """Each Xid since the driver was last loaded, and its age in seconds, None where not told.

    ``now`` is of the monotonic clock, which counts from boot as the kernel log does.
    """
    found = []  # type: List[Tuple[gpus.Xid, Optional[float]]]
    for line in lines:
        if gpus.LOADED in line:
            found = []
        stamp = STAMP.match(line)
        age = now - int(stamp.group(1)) / 1e6 if stamp else None
        found += [(xid, age) for xid in gpus.xids([line])]
    return found


def _said(found: List[gpus.Xid], meaning: Dict[int, str]) -> List[str]:
    """Each kind of Xid once a GPU, the newest first."""
    said = [
        "Xid %d on %s: %s" % (xid.number, xid.bus, meaning[xid.number])
        for xid in reversed(found)
        if xid.number in meaning
    ]
    return list(dict.fromkeys(said))


def _clocks(mine: List[gpus.Gpu], ask: Callable[[float], List[gpus.Gpu]]) -> Check:
    held = {gpu.bus: set(gpu.held) for gpu in mine if gpu.held}
    if held:
        time.sleep(AGAIN)
        try:
            mine = [gpu for gpu in ask(SMI) if gpu.bus in held]
        except (FileNotFoundError, gpus.Broken) as problem:
            return Check("clocks", UNKNOWN, str(problem), "as fast as asked for")
        slow = [
            "%s: %s, %s of %s MHz"
            % (gpu, ", ".join(sorted(held[gpu.bus] & set(gpu.held))), gpu.clock, gpu.max_clock)
            for gpu in mine
            if held[gpu.bus] & set(gpu.held)
        ]
        if slow:
            do = "cooling or power of the node; drain it until that is mended"
            return Check("clocks", FAIL, few(slow), "as fast as asked for", do)
    return Check("clocks", OK, "not held down", "as fast as asked for")


def _processes(mine: List[gpus.Gpu], exclusive: bool) -> Check:
    busy = []
    for gpu in mine:
        there = [process for process in gpu.processes if "C" in process.kind]
        busy += [
            "%s: %s (pid %d%s)" % (gpu, process.name or "?", process.pid, _of(process.memory))
            for process in there
        ]
        if not there and gpu.used and gpu.memory and gpu.used > STRAY * gpu.memory:
            # Processes of other containers are hidden, and so is a context that nobody owns.
            busy.append("%s: %s in use, by nobody that can be seen here" % (gpu, size(gpu.used)))
    if not busy:
        return Check("gpu-processes", OK, "none", "none")
    do = "end them" if exclusive else "end them, or ask whose they are: Slurm gave us these GPUs"
    return Check("gpu-processes", FAIL, few(busy), "none", do + "; if none is there: " + RESET)


def _of(memory: Optional[int]) -> str:
    return "" if memory is None else ", " + size(memory)
