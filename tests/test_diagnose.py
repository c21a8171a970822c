"""What broke, from the last lines of real-looking outputs, with what is before and behind it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from failed_outputs import CASES, TAIL, WATCHDOG
from hypothesis import given, settings
from hypothesis import strategies as st
from test_docs import leaves

from beam_slurm import schema
from beam_slurm.node.causes import CLASSES, DEFAULTS, RULES
from beam_slurm.node.diagnose import LONGEST, diagnose

DOCS = Path(__file__).parents[1] / "docs" / "failures.md"


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_found_among_what_is_around_it(name: str) -> None:
    case = CASES[name]
    noise = [f"(Worker pid={number}) step {number}" for number in range(100)]
    lines = [*noise, *case.text.splitlines()][-200:]
    found = diagnose(case.component, case.code, lines, case.why)
    assert found.cls == case.cls
    assert case.cause in found.cause
    assert len(found.cause) <= LONGEST
    assert found.do
    assert "\n" not in found.cause + found.do


@pytest.mark.parametrize(
    ("state", "cls"),
    [
        ("TIMEOUT", "time"),
        ("PREEMPTED", "preempted"),
        ("NODE_FAIL", "node"),
        ("OUT_OF_MEMORY", "oom"),
    ],
)
def test_slurms_word_on_why_it_ended_a_job_counts(state: str, cls: str) -> None:
    assert diagnose("slurm", 143, WATCHDOG.splitlines(), f"the job was ended: {state}").cls == cls


def test_each_row_of_the_table_has_an_output() -> None:
    seen = {
        (found.cls, found.do)
        for case in CASES.values()
        for found in [diagnose(case.component, case.code, case.text.splitlines(), case.why)]
    }
    assert {(rule.cls, rule.do) for rule in [*RULES, *DEFAULTS.values()]} == seen
    assert {cls for cls, _ in seen} == set(CLASSES)


@pytest.mark.parametrize("behind", ["", "srun: error: gpu001: task 0: Exited with exit code 2\n"])
def test_what_after_pyz_refuses_is_told_in_its_own_words(behind: str) -> None:
    what, why, do = (
        "Megatron Bridge is not installed",
        "No module named 'megatron'",
        "another image",
    )
    lines = f"/m: a checkpoint\nerror: {what}\n  why: {why}\n  do:  {do}\n{behind}".splitlines()
    assert diagnose("entry", 2, lines) == ("config", f"{what}: {why}", do)
    # Without a remedy it is the general one; the same word of somebody else is no refusal.
    assert diagnose("entry", 2, lines[:3]).cause == f"{what}: {why}"
    assert diagnose("entry", 2, lines[:3]).do == DEFAULTS["entry"].do
    assert diagnose("entry", 2, lines[:2]).cls == "framework"
    assert (
        diagnose("entry", 1, [*lines, "OSError: [Errno 28] No space left on device"]).cls
        == "storage"
    )


def test_the_first_cause_in_time_counts() -> None:
    full, bus = "OSError: [Errno 28] No space left on device", "GPU has fallen off the bus"
    assert diagnose("entry", 1, [full, bus]).cls == "storage"
    assert diagnose("entry", 1, [bus, full]).cls == "node"


def test_what_other_nodes_have_said_is_heard_where_nothing_else_is_known() -> None:
    events = [
        {"beam-slurm": "node-failed", "why": "n2: Ray's raylet was ended by signal 9 (SIGKILL)"}
    ]
    lost = ["(raylet) The node 10.0.0.4 was marked dead", *TAIL.splitlines()]
    assert diagnose("entry", 1, lost, "the entry exited with code 1", events).cls == "oom"
    assert diagnose("entry", 1, lost, "the entry exited with code 1").cls == "node"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 04-30 10:20:35 [worker.py:3] Free memory on device is less than desired, waiting",
        "(W pid=1) 2026-08-21 10:00:00.123 | INFO     | a:b:1 - No space left on device: retrying",
        "2026-09-16 10:20:03,241\tINFO worker.py:421 -- Stale file handle, retrying",
        "+ python train.py --note 'CUDA out of memory'",
        '    raise RuntimeError("CUDA out of memory")',
        "gpu1:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME is not set",
        "0 Workers (tasks / actors) killed due to memory pressure (OOM), 3 Workers crashed",
        "srun: error: gpu002: task 1: Killed",
        "(W pid=1) 2026-08-21 10:00:00.123 | WARNING  | a:b:1 - NCCL error, once more",
        "OSError: [Errno 116] Stale file handle, retrying in 5 s",
    ],
)
def test_a_word_that_stands_there_without_meaning_it_is_no_cause(line: str) -> None:
    assert diagnose("entry", 3, [line, "ValueError: odd"]).cause == "ValueError: odd"


@settings(max_examples=30)
@given(st.lists(st.text(max_size=60)), st.sampled_from(sorted(DEFAULTS)), st.integers(1, 255))
def test_any_output_has_an_answer(lines: list[str], component: str, code: int) -> None:
    found = diagnose(component, code, lines)
    assert found.cls in CLASSES
    assert "\n" not in found.cause


def test_without_any_line_there_is_still_an_answer() -> None:
    for component in DEFAULTS:
        found = diagnose(component, 1, [], "why")
        assert found.cls in CLASSES
        assert found.cause == "why"
        assert found.do


def test_the_keys_and_commands_that_advice_names_exist() -> None:
    known = {at for at, _ in leaves(schema.Profile)}
    known |= {f"site.{at}" for at, _ in leaves(schema.Site)}
    known |= {at.rpartition(".")[0] for at in known}
    for rule in [*RULES, *DEFAULTS.values()]:
        for key in re.findall(r"\b(?:site|recipe|hardware|job|ray)\.[a-z_.]*[a-z_]", rule.do):
            assert key in known, rule.do


def table() -> str:
    """The classes and the causes of each, as docs/failures.md shows them."""
    lines = ["| class | means |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in CLASSES.items()]
    lines += ["", "| seen | class | what to do |", "|---|---|---|"]
    rows = dict.fromkeys([*RULES, *DEFAULTS.values()])
    for name in CLASSES:
        lines += [f"| {rule.sign} | `{name}` | {rule.do} |" for rule in rows if rule.cls == name]
    return "\n".join(lines)


def test_the_docs_show_the_table() -> None:
    before, rest = DOCS.read_text().split("<!-- causes -->\n")
    found, _, after = rest.partition("<!-- end -->\n")
    if os.environ.get("UPDATE_DOCS"):
        DOCS.write_text(f"{before}<!-- causes -->\n{table()}\n<!-- end -->\n{after}")
        return
    assert found == table() + "\n"
