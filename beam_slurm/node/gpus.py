"""What NVIDIA's driver says of this node's GPUs: nvidia-smi's XML, and Xids in the kernel log.

Only facts; ``gpuchecks`` judges them. What a driver or a GPU does not tell ("N/A", a field that an
older one does not have) is None or left out. Fields: ``nvidia-smi --help-query-gpu``. Xids:
https://docs.nvidia.com/deploy/xid-errors/
"""

import os
import re
import xml.etree.ElementTree as ET
from typing import Iterable, List, NamedTuple, Optional, Tuple

from beam_slurm.node import check

YES = ("Yes", "Active")

# Why clocks may be below what was asked for. Left out: idle, application clocks, the power limit
# and boost groups, which a healthy GPU has too.
HELD = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "sw_thermal_slowdown": "software thermal slowdown",
    "hw_power_brake_slowdown": "power brake",
}

XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:,\s*(.*))?")
LOADED = "NVRM: loading NVIDIA"  # the driver starts anew, and so do the GPUs


class Process(NamedTuple):
    """A process on a GPU; ``kind`` is C (computes), G (draws) or both; memory in bytes."""

    pid: int
    kind: str
    name: str
    memory: Optional[int]


class Gpu(NamedTuple):
    """One GPU. Memory in bytes, clocks in MHz.

    Attributes:
        minor: N of /dev/nvidiaN.
        bus: domain:bus:device in hexadecimal digits, as Xids name it.
        uncorrectable: uncorrectable ECC errors since the driver was loaded.
        aggregate: the same in its whole life.
        damage: what only a reset, a reboot or a new GPU mends.
        pending: what the next reset will mend, and may wait.
        held: why its clocks are held down, of HELD's values.
    """

    minor: Optional[int]
    uuid: str
    bus: str
    name: str
    memory: Optional[int]
    used: Optional[int]
    uncorrectable: Optional[int]
    aggregate: Optional[int]
    damage: List[str]
    pending: List[str]
    held: List[str]
    clock: Optional[int]
    max_clock: Optional[int]
    processes: List[Process]

    def __str__(self) -> str:
        return "GPU " + (self.bus if self.minor is None else str(self.minor))


class Xid(NamedTuple):
    """One line of the kernel log: which GPU (``bus`` as Gpu.bus), which number, and its text."""

    bus: str
    number: int
    text: str


class Broken(Exception):
    """nvidia-smi is here and does not tell; the text is what it said."""


def given() -> List[str]:
    """The GPUs that Slurm gave this step, by their numbers on the node; [] where it names none.

    Where cgroups hide the others, CUDA_VISIBLE_DEVICES counts anew: so it is asked last.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    given = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return [device.strip() for device in given.split(",") if device.strip()]


def ask(seconds: float) -> List[Gpu]:
    """Every GPU that nvidia-smi lists.

    Raises:
        FileNotFoundError: nvidia-smi is not here.
        Broken: it has failed, or did not answer within ``seconds``.
    """
    try:
        answer = check.ask(["nvidia-smi", "-q", "-x"], seconds)
    except check.Silent as problem:
        raise Broken(str(problem)) from None
    try:
        return parse(answer.out)
    except ET.ParseError:
        said = (answer.err + answer.out).strip().splitlines()
        last = said[-1].strip() if said else "nothing"
        raise Broken("nvidia-smi ended with code %d: %s" % (answer.code, last)) from None


def parse(text: str) -> List[Gpu]:
    """The GPUs of ``nvidia-smi -q -x``.

    Raises:
        ET.ParseError: that is no XML.
    """
    log = ET.fromstring(text)  # noqa: S314 - the driver's own, from this machine
    return [_gpu(at) for at in log.findall("gpu")]


def own(gpus: List[Gpu], given: List[str]) -> List[Gpu]:
    """Those that Slurm gave this step, by number or UUID; all, where only they can be seen."""
    if len(gpus) <= len(given):
        return gpus
    mine = [gpu for gpu in gpus if {str(gpu.minor), gpu.uuid} & set(given)]
    return mine if given and len(mine) == len(given) else gpus


def xids(lines: Iterable[str]) -> List[Xid]:
    """The Xids since the driver was last loaded."""
    found = []  # type: List[Xid]
    for line in lines:
        told = XID.search(line)
        if LOADED in line:
            found = []
        elif told:
            found.append(Xid(_bus(told.group(1)), int(told.group(2)), told.group(3) or ""))
    return found


def _gpu(at: ET.Element) -> Gpu:
    damage, pending = _memory_health(at)
    return Gpu(
        minor=_number(at, "minor_number"),
        uuid=_text(at, "uuid"),
        bus=_bus(_text(at, "pci/pci_bus_id") or at.get("id", "")),
        name=_text(at, "product_name"),
        memory=_bytes(at, "fb_memory_usage/total"),
        used=_bytes(at, "fb_memory_usage/used"),
        uncorrectable=_uncorrectable(at.find("ecc_errors/volatile")),
        aggregate=_uncorrectable(at.find("ecc_errors/aggregate")),
        damage=damage,
        pending=pending,
        held=_held(at),
        clock=_number(at, "clocks/sm_clock"),
        max_clock=_number(at, "max_clocks/sm_clock"),
        processes=[
            Process(
                _number(process, "pid") or 0,
                _text(process, "type"),
                _text(process, "process_name"),
                _bytes(process, "used_memory"),
            )
            for process in at.findall("processes/process_info")
        ],
    )


def _memory_health(at: ET.Element) -> Tuple[List[str], List[str]]:
    """(damage, pending) of Gpu."""
    damage = [
        what
        for path, what in (
            ("remapped_rows/remapped_row_failure", "a row could not be remapped"),
            ("ecc_errors/unrepairable_memory", "memory beyond repair"),
            ("ecc_errors/aggregate/sram_threshold_exceeded", "too many SRAM errors"),
        )
        if _text(at, path) in YES
    ]
    action = _text(at, "gpu_recovery_action")
    if action not in ("", "None"):
        damage.append("the driver asks for: %s" % action)
    pending = [
        what
        for path, what in (
            ("remapped_rows/remapped_row_pending", "a row waits for remapping"),
            ("retired_pages/pending_retirement", "a page waits for retirement"),
            ("ecc_errors/channel_repair_pending", "a channel waits for repair"),
            ("ecc_errors/tpc_repair_pending", "a TPC waits for repair"),
        )
        if _text(at, path) in YES
    ]
    return damage, pending


def _uncorrectable(at: Optional[ET.Element]) -> Optional[int]:
    """Uncorrectable errors of all memories together: one counter each, of names that differ."""
    if at is None:
        return None
    counters = [part for part in at if "uncorrectable" in part.tag]
    counters += at.findall("double_bit/total")  # as before Turing
    told = [text for text in ((part.text or "").strip() for part in counters) if text.isdigit()]
    return sum(map(int, told)) if told else None


def _held(at: ET.Element) -> List[str]:
    found = []
    for word in ("event", "throttle"):  # before driver 535
        for reason, what in HELD.items():
            path = "clocks_%s_reasons/clocks_%s_reason_%s" % (word, word, reason)
            if _text(at, path) in YES:
                found.append(what)
    return found


def _bus(text: str) -> str:
    """One spelling of a PCI address: nvidia-smi has a longer domain, and a function."""
    parts = text.lower().partition(".")[0].split(":")
    return ":".join([parts[0][-4:], *parts[1:]])


def _text(at: ET.Element, path: str) -> str:
    """The text of a field, "" where it is not told."""
    text = (at.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]") else text


def _number(at: ET.Element, path: str) -> Optional[int]:
    """The number with which a field begins; units differ by field and are always the same."""
    told = re.match(r"\d+", _text(at, path))
    return int(told.group()) if told else None


def _bytes(at: ET.Element, path: str) -> Optional[int]:
    mebibytes = _number(at, path)
    return None if mebibytes is None else mebibytes << 20
