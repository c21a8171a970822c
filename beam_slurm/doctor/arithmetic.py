"""The plan's verdict as checks."""

from __future__ import annotations

from collections.abc import Iterator

from beam_slurm.doctor.checks import Check, Verdict, passed
from beam_slurm.doctor.subject import Subject
from beam_slurm.measure import planned


def check(subject: Subject) -> Iterator[Check]:
    """What arithmetic finds wrong with the profile; one pass if nothing."""
    if subject.alone:
        return
    wrong = [found for found in planned(subject.profile).findings if found.severity != "note"]
    for found in wrong:
        verdict: Verdict = "fail" if found.severity == "error" else "warn"
        yield Check("plan", verdict, f"{found.rule}: {found.text}", "", found.remedy)
    if not wrong:
        yield passed("plan", "parallelism, memory and storage fit")
