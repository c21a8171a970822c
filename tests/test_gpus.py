"""What nvidia-smi and the kernel log say, and what that means for a run.

The XML is a real H200's (driver 580), without its serial numbers; variants are edits of it.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from beam_slurm.node import gpuchecks, gpus
from beam_slurm.node.check import FAIL, OK, UNKNOWN, WARN, Check

H200 = (Path(__file__).parent / "fixtures" / "nvidia-smi-h200.xml").read_text()
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04"
WANTED = gpuchecks.Wanted(8, "h200", int(141e9), exclusive=True)


def smi(count: int = 8, edits: Mapping[str, str] | None = None) -> str:
    """nvidia-smi's answer of a node of ``count`` H200; ``edits`` (pattern -> text) change the
    last one."""
    before, block, after = re.split(r"(\t<gpu id.*</gpu>\n)", H200, flags=re.S)
    blocks = []
    for number in range(count):
        bus = f"00000000:{number + 1:02X}:00.0"
        text = block.replace("00000000:00:06.0", bus)
        text = text.replace("<minor_number>0<", f"<minor_number>{number}<")
        text = text.replace("GPU-00000000-", f"GPU-0000000{number}-")
        blocks.append(text)
    for pattern, new in (edits or {}).items():
        blocks[-1], found = re.subn(pattern, new, blocks[-1], count=1, flags=re.S)
        assert found, pattern
    return before + "".join(blocks) + after


def field(name: str, value: str) -> dict[str, str]:
    return {f"<{name}>[^<]*<": f"<{name}>{value}<"}


def process(kind: str, memory: str = "1024 MiB") -> dict[str, str]:
    told = f"<pid>4711</pid><type>{kind}</type><process_name>python</process_name>"
    told += f"<used_memory>{memory}</used_memory>"
    return {"<processes>": f"<processes><process_info>{told}</process_info>"}


def look(
    text: str, wanted: gpuchecks.Wanted = WANTED, log: tuple[str, ...] = (LOADED,)
) -> dict[str, Check]:
    """The checks by name."""
    found = gpuchecks.look(wanted, lambda seconds: gpus.parse(text), lambda: list(log))
    checks = {check.name: check for check in found}
    assert list(checks) == wanted.names
    return checks


def not_ok(checks: Mapping[str, Check]) -> dict[str, str]:
    return {name: check.verdict for name, check in checks.items() if check.verdict != OK}


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpuchecks, "AGAIN", 0)


def test_every_field_of_a_real_h200_is_read() -> None:
    (gpu,) = gpus.parse(H200)
    assert gpu == gpus.Gpu(
        minor=0,
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        bus="0000:00:06",
        name="NVIDIA H200",
        memory=143771 << 20,
        used=0,
        uncorrectable=0,
        aggregate=0,
        damage=[],
        pending=[],
        held=[],
        clock=345,
        max_clock=1980,
        processes=[],
    )
    checks = look(H200, WANTED._replace(gpus=1))
    assert not_ok(checks) == {}
    assert checks["gpu-type"].have == "NVIDIA H200"


def test_eight_of_them_are_fit() -> None:
    assert not_ok(look(smi())) == {}


OLD_NAMES = {
    "clocks_event_reasons>": "clocks_throttle_reasons>",
    "</clocks_event_reasons>": "</clocks_throttle_reasons>",
    "<clocks_event_reason_hw_slowdown>Not Active<.clocks_event_reason_hw_slowdown>": (
        "<clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>"
    ),
}
BEFORE_TURING = {
    r"<volatile>.*?</volatile>": "<volatile><double_bit><total>2</total></double_bit></volatile>"
}


@pytest.mark.parametrize(
    ("edits", "found", "said"),
    [
        (field("product_name", "NVIDIA H100"), {"gpu-type": FAIL}, "NVIDIA H100"),
        (field("total", "81559 MiB"), {"gpu-memory": FAIL}, "85.5 GB"),
        (field("total", "130000 MiB"), {}, ""),  # data sheets round
        (field("dram_uncorrectable", "3"), {"ecc": FAIL}, "GPU 7: 3 uncorrectable errors"),
        (field("sram_uncorrectable_secded", "1"), {"ecc": FAIL}, "1 uncorrectable"),
        (BEFORE_TURING, {"ecc": FAIL}, "2 uncorrectable"),
        (field("dram_correctable", "9"), {}, ""),
        (field("remapped_row_failure", "Yes"), {"ecc": FAIL}, "could not be remapped"),
        (field("unrepairable_memory", "Yes"), {"ecc": FAIL}, "beyond repair"),
        (field("sram_threshold_exceeded", "Yes"), {"ecc": FAIL}, "SRAM"),
        (field("gpu_recovery_action", "Reset"), {"ecc": FAIL}, "asks for: Reset"),
        (field("remapped_row_pending", "Yes"), {"ecc": WARN}, "waits for remapping"),
        (field("pending_retirement", "Yes"), {"ecc": WARN}, "waits for retirement"),
        (field("clocks_event_reason_hw_thermal_slowdown", "Active"), {"clocks": FAIL}, "GPU 7"),
        (field("clocks_event_reason_hw_power_brake_slowdown", "Active"), {"clocks": FAIL}, "brake"),
        (field("clocks_event_reason_sw_thermal_slowdown", "Active"), {"clocks": FAIL}, "345 of"),
        (OLD_NAMES, {"clocks": FAIL}, "hardware slowdown"),
        (field("clocks_event_reason_sw_power_cap", "Active"), {}, ""),
        (field("clocks_event_reason_applications_clocks_setting", "Active"), {}, ""),
        (process("C"), {"gpu-processes": FAIL}, "GPU 7: python (pid 4711, 1.1 GB)"),
        (process("M+C", "N/A"), {"gpu-processes": FAIL}, "python (pid 4711)"),
        (process("G"), {}, ""),
        (field("used", "70000 MiB"), {"gpu-processes": FAIL}, "73.4 GB in use, by nobody"),
        (field("used", "616 MiB"), {}, ""),  # older drivers count what they keep for themselves
        # What a driver does not tell is no fault.
        ({"<ecc_errors>.*</ecc_errors>": ""}, {}, ""),
        ({"<clocks_event_reasons>.*?</clocks_event_reasons>": ""}, {}, ""),
        ({"<processes>.*</processes>": ""}, {}, ""),
        ({"<remapped_rows>.*</remapped_rows>": ""}, {}, ""),
    ],
)
def test_one_gpu_of_eight_that_is_not_well(
    edits: dict[str, str], found: dict[str, str], said: str
) -> None:
    checks = look(smi(edits=edits))
    assert not_ok(checks) == found
    for name in found:
        assert said in checks[name].have
        assert checks[name].need
        assert checks[name].do


def test_a_gpu_without_counters_is_unknown_not_bad() -> None:
    none = {"<ecc_errors>.*</ecc_errors>": "", "<fb_memory_usage>.*?</fb_memory_usage>": ""}
    checks = look(smi(1, none), WANTED._replace(gpus=1))
    assert not_ok(checks) == {"ecc": UNKNOWN, "gpu-memory": UNKNOWN}


def test_clocks_that_are_held_only_once_are_not_held() -> None:
    answers = [smi(edits=field("clocks_event_reason_hw_slowdown", "Active")), smi()]
    found = gpuchecks.look(WANTED, lambda seconds: gpus.parse(answers.pop(0)), lambda: [])
    assert not_ok({check.name: check for check in found}) == {}
    assert answers == []


@pytest.mark.parametrize(
    ("lines", "verdict", "said"),
    [
        ([], OK, "none"),
        (["NVRM: Xid (PCI:0000:08:00): 79, GPU has fallen off the bus."], FAIL, "79 on 0000:08:00"),
        (["[ 1.5] NVRM: Xid (PCI:0000:08:00): 48, pid=7, name=x, DBE"], FAIL, "double-bit"),
        (["NVRM: Xid (PCI:0000:08:00): 63, pid=1896, Row Remapper"], WARN, "63"),
        (["NVRM: Xid (PCI:0000:08:00): 94, Contained"], WARN, "94"),
        (["NVRM: Xid (PCI:0000:08:00): 31, pid=7, MMU Fault"], OK, "none"),
        (["NVRM: Xid (PCI:0000:08:00): 119, GSP", LOADED], OK, "none"),  # it was reset since
        ([LOADED, "NVRM: Xid (PCI:0000:08:00.0): 119, GSP"], FAIL, "119"),
        (["NVRM: Xid (PCI:0000:ff:00): 79, not listed any more"], FAIL, "0000:ff:00"),
        (5 * ["NVRM: Xid (PCI:0000:08:00): 74, NVLink"], FAIL, "Xid 74 on 0000:08:00: NVLink"),
    ],
)
def test_what_the_kernel_log_says(lines: list[str], verdict: str, said: str) -> None:
    check = look(smi(), log=tuple(lines))["xid"]
    assert check.verdict == verdict
    assert said in check.have
    assert check.have.count("Xid") <= 1


DAY = 24 * 3600


@pytest.mark.parametrize(
    ("records", "verdict", "said"),
    [
        # (seconds ago, what), None without a stamp
        ([(60, 79)], FAIL, "79"),
        ([(DAY - 60, 79)], FAIL, "79"),
        ([(DAY + 60, 79)], WARN, "more than a day ago"),
        ([(40 * DAY, 79), (DAY - 60, 48)], FAIL, "48"),
        ([(40 * DAY, 31)], OK, "none"),
        ([(40 * DAY, 79), (30 * DAY, LOADED)], OK, "none"),
        ([(7200, 79), (3600, LOADED)], OK, "none"),
        ([(7200, LOADED), (3600, 79)], FAIL, "79"),
        ([(2 * DAY, 94)], WARN, "94"),
        ([(None, 79)], FAIL, "79"),
        ([(None, 79), (None, LOADED)], OK, "none"),
    ],
)
def test_an_old_xid_only_warns(
    monkeypatch: pytest.MonkeyPatch,
    records: list[tuple[int | None, int | str]],
    verdict: str,
    said: str,
) -> None:
    up = 100 * DAY
    monkeypatch.setattr(time, "monotonic", lambda: float(up))
    log = []
    for ago, what in records:
        text = f"NVRM: Xid (PCI:0000:08:00): {what}, x" if isinstance(what, int) else what
        stamp = "" if ago is None else f"4,1234,{(up - ago) * 1000000},-;"
        log.append(stamp + text)
    check = look(smi(), log=tuple(log))["xid"]
    assert (check.verdict, said in check.have) == (verdict, True), check


def test_a_kernel_log_that_nobody_may_read_is_unknown() -> None:
    def refuse() -> list[str]:
        raise PermissionError(1, "Operation not permitted")

    checks = gpuchecks.look(WANTED, lambda seconds: gpus.parse(smi()), refuse)
    (check,) = (check for check in checks if check.name == "xid")
    assert check.verdict == UNKNOWN
    assert "Operation not permitted" in check.have


def test_the_kernel_log_of_this_machine_is_read_or_refused() -> None:
    try:
        lines = gpuchecks.records()
    except OSError:
        return
    stamps = [gpuchecks.STAMP.match(line) for line in lines]
    times = [int(stamp.group(1)) / 1e6 for stamp in stamps if stamp]
    assert len(times) == len(lines)
    assert all(0 <= at <= time.monotonic() + 1 for at in times)
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize(
    ("count", "variables", "verdict", "said"),
    [
        (8, {}, OK, "lists 8"),
        (7, {}, FAIL, "lists 7"),
        (8, {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, OK, "lists 8"),
        (8, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, FAIL, "gives 4"),
        (8, {"CUDA_VISIBLE_DEVICES": ""}, FAIL, "gives 0"),
        (7, {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, FAIL, "lists 7"),
    ],
)
def test_how_many_gpus(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    variables: dict[str, str],
    verdict: str,
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check = look(smi(count))["gpus"]
    assert check.verdict == verdict
    assert said in check.have


@pytest.mark.parametrize("given", ["2,3", "GPU-00000002-0000-0000-0000-000000000000,3"])
def test_on_a_shared_node_only_the_step_s_own_gpus_count(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    wanted = WANTED._replace(gpus=2, exclusive=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # counted anew
    monkeypatch.setenv("SLURM_STEP_GPUS", given)
    log = ("NVRM: Xid (PCI:0000:08:00): 79, gone",)
    theirs = smi(edits={**process("C"), **field("dram_uncorrectable", "3")})
    assert not_ok(look(theirs, wanted, log)) == {}
    monkeypatch.setenv("SLURM_STEP_GPUS", "2,7")
    mine = not_ok(look(theirs, wanted, log))
    assert mine == {"ecc": FAIL, "gpu-processes": FAIL, "xid": FAIL}


def test_where_cgroups_hide_the_others_all_that_is_listed_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("SLURM_STEP_GPUS", "4,5")
    found = look(smi(2, process("C")), WANTED._replace(gpus=2))
    assert not_ok(found) == {"gpu-processes": FAIL}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts an nvidia-smi of this text on PATH; there is no other one."""

    def put(text: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}")
    return put


def test_the_program_is_asked_and_its_answer_read(
    program: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text(smi(2))
    program(f'[ "$*" = "-q -x" ] && exec /bin/cat {tmp_path}/answer')
    assert [gpu.name for gpu in gpus.ask(5)] == 2 * ["NVIDIA H200"]


def test_no_nvidia_smi_is_an_answer_of_its_own(
    program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    checks = {check.name: check for check in gpuchecks.look(WANTED)}
    assert checks["gpus"].verdict == OK
    assert not_ok(checks) == dict.fromkeys(WANTED.names[1:], UNKNOWN)
    assert all(gpuchecks.ABSENT in check.have for check in checks.values())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert next(gpuchecks.look(WANTED)).verdict == FAIL


def test_a_driver_that_does_not_answer_is_a_bad_node_and_the_kernel_may_know_why(
    program: Callable[[str], None],
) -> None:
    said = "Unable to determine the device handle for GPU0: 0000:08:00.0: Unknown Error"
    program(f"echo '{said}'; exit 15")
    log = ["NVRM: Xid (PCI:0000:08:00): 79, gone"]
    checks = {check.name: check for check in gpuchecks.look(WANTED, kernel_log=lambda: log)}
    others = dict.fromkeys(WANTED.names, UNKNOWN)
    assert not_ok(checks) == {**others, "gpus": FAIL, "xid": FAIL}
    assert checks["gpus"].have == f"nvidia-smi ended with code 15: {said}"
    program("exec /bin/sleep 60")
    began = time.monotonic()
    with pytest.raises(gpus.Broken, match="did not answer within"):
        gpus.ask(0.2)
    assert time.monotonic() - began < 30
