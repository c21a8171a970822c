"""What the nodes' own checks mean together: which are fit, and which of them run.

Nothing here reads or asks: reports in, verdicts out.
"""

import statistics
from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from beam_slurm.node.check import FAIL, OK, WARN, Check, few
from beam_slurm.node.gpuchecks import ABSENT

OFF = "off"
FEW = 4  # of so many nodes one may be to blame
SKEW = 5.0  # seconds by which a node's clock may differ from the others'

# Every check, and what becomes of a node that does not pass it unless the site says otherwise.
SEVERITY = {
    "answer": FAIL,
    "gpus": FAIL,
    "gpu-type": FAIL,
    "gpu-memory": FAIL,
    "ecc": FAIL,
    "xid": FAIL,
    "clocks": FAIL,
    "gpu-processes": FAIL,
    "containers": FAIL,
    "memory": FAIL,
    "shm": FAIL,
    "memlock": WARN,
    "nofile": WARN,
    "scratch": FAIL,
    "tmp": FAIL,
    "mounts": FAIL,
    "model": FAIL,
    "outputs": FAIL,
    "image": FAIL,
    "address": FAIL,
    "clock": WARN,
}
STORAGE = ("scratch", "tmp", "mounts", "model", "outputs")
CONTAINER = ("image", "containers")
ALWAYS = ("answer", "address")  # without these Ray cannot start, whatever the site says


class Report(NamedTuple):
    """What came from one node.

    Attributes:
        checks: its own, as far as they came.
        facts: address, gcs, dashboard, python, as in the event ``inspected``.
        fingerprints: by path, None where it is not there.
        offset: seconds by which its clock is ahead of the batch host's; None: it has not finished.
        unseen: shared folders where the batch host did not find its canary.
        silence: why it has not finished, as far as is known.
    """

    checks: List[Check]
    facts: Dict[str, Any]
    fingerprints: Dict[str, Optional[str]]
    offset: Optional[float] = None
    unseen: Sequence[str] = ()
    silence: str = ""


Judged = Dict[str, List[Check]]


def judge(
    reports: Mapping[str, Report], nodes: Sequence[str], severities: Mapping[str, str]
) -> Judged:
    """All checks of each of ``nodes``, in the order of SEVERITY.

    Args:
        reports: by node; one that is missing has not said a word.
        nodes: all that were asked.
        severities: fail, warn or off for the checks where the site differs from SEVERITY.
    """
    nobody = Report([], {}, {})
    everybody = {node: reports.get(node, nobody) for node in nodes}
    answered = {node: said for node, said in everybody.items() if said.offset is not None}
    shared = {
        "model": _models(answered),
        "clock": _clocks(answered),
        "address": _addresses(answered),
        "gpus": _lost_drivers(answered),
    }
    found = {}
    for node, said in everybody.items():
        checks = {check.name: check for check in said.checks}
        checks["answer"] = _answer(said)
        common = [verdicts[node] for verdicts in shared.values() if node in verdicts]
        for check in common + ([_unseen(said)] if said.unseen else []):
            own = checks.get(check.name)
            if own is None or own.verdict != FAIL:  # a node's own word says more
                checks[check.name] = check
        found[node] = _severe(checks, severities)
    return found


def is_fit(checks: Iterable[Check]) -> bool:
    """Whether nothing keeps a node from running."""
    return all(check.verdict != FAIL for check in checks)


def failed(checks: Iterable[Check]) -> List[Check]:
    """The checks that keep a node from running."""
    return [check for check in checks if check.verdict == FAIL]


def choose(judged: Judged, need: int, batch: str) -> List[str]:
    """The ``need`` fittest nodes, the head first; fewer if there are no more.

    Those with fewer warnings win, else the order of ``judged``, in which they come. The batch host
    is the head if it is fit: then nobody has to reach the supervisor over the network.
    """
    order = list(judged)

    def rank(node: str) -> Tuple[bool, int, int]:
        warnings = sum(check.verdict == WARN for check in judged[node])
        return (node != batch, warnings, order.index(node))

    best = sorted((node for node in order if is_fit(judged[node])), key=rank)[:need]
    return sorted(best, key=lambda node: (node != batch, order.index(node)))


def culprits(judged: Judged) -> Dict[str, List[str]]:
    """Node -> the checks for which later attempts leave it out.

    A check is to a node's blame where few fail it, one or a quarter of them, and at least half of
    all pass it. What more nodes fail is a setting's or the site's fault, whatever it is: to leave
    them all out would end the run. Nor are they blamed for what may be gone by itself next time.
    """
    answered = [node for node, checks in judged.items() if "answer" not in _names(checks)]
    blame = {}  # type: Dict[str, List[str]]
    for name in SEVERITY:
        bad = [node for node, checks in judged.items() if name in _names(checks)]
        passed = sum(node not in bad for node in answered)
        if len(bad) > max(1, len(judged) // FEW) or 2 * passed < len(judged):
            continue
        for node in bad:
            if all(check.lasting for check in judged[node] if check.name == name):
                blame.setdefault(node, []).append(name)
    return {node: blame[node] for node in judged if node in blame}


def _names(checks: Iterable[Check]) -> List[str]:
    return [check.name for check in failed(checks)]


def kind_of(judged: Judged) -> str:
    """The class of a run that has too few fit nodes: storage, container or node."""
    names = {check.name for checks in judged.values() for check in failed(checks)}
    if names and names <= set(STORAGE):
        return "storage"
    return "container" if names and names <= set(CONTAINER) else "node"


def _answer(said: Report) -> Check:
    if said.offset is not None:
        return Check("answer", OK, "complete", "an answer")
    do = "is the node up, and python3 3.8 or newer on its PATH?"
    return Check("answer", FAIL, said.silence or "no answer", "an answer", do)


def _unseen(said: Report) -> Check:
    have = "the batch host does not see what this node writes in " + ", ".join(said.unseen)
    do = "set site.paths.outputs and site.paths.runs to storage that every node mounts"
    return Check("outputs", FAIL, have, "one shared folder on all nodes", do)


def _models(answered: Mapping[str, Report]) -> Dict[str, Check]:
    """Nodes whose copy is not what most nodes have."""
    found = {}  # type: Dict[str, Check]
    paths = list(dict.fromkeys(path for said in answered.values() for path in said.fingerprints))
    for path in paths:
        seen = [said.fingerprints[path] for said in answered.values() if path in said.fingerprints]
        most = Counter(word for word in seen if word).most_common(1)
        for node, said in answered.items():
            word = said.fingerprints.get(path)
            if most and word and word != most[0][0]:
                have = "%s is %s, on %d other nodes %s" % (path, word, most[0][1], most[0][0])
                do = "one shared folder, or the same copy on every node"
                found[node] = Check("model", FAIL, have, "the same on every node", do)
    return found


def _clocks(answered: Mapping[str, Report]) -> Dict[str, Check]:
    """Everybody's clock against the middle one; of two, the batch host's side counts."""
    offsets = {node: said.offset for node, said in answered.items() if said.offset is not None}
    if not offsets:
        return {}
    middle = min(
        (statistics.median_low(offsets.values()), statistics.median_high(offsets.values())), key=abs
    )
    need = "at most %.0f s from the other nodes" % SKEW
    found = {}
    for node, offset in offsets.items():
        have = "%+.1f s from the other nodes" % (offset - middle)
        if abs(offset - middle) > SKEW:
            do = "set the node's clock: chronyc makestep"
            found[node] = Check("clock", FAIL, have, need, do)
        else:
            found[node] = Check("clock", OK, have, need)
    return found


def _addresses(answered: Mapping[str, Report]) -> Dict[str, Check]:
    """Nodes whose address another one has too."""
    counts = Counter(said.facts.get("address") for said in answered.values())
    found = {}
    for node, said in answered.items():
        ip = said.facts.get("address")
        if ip and counts[ip] > 1:
            have = "%s, as %d other nodes have" % (ip, counts[ip] - 1)
            do = "set site.network.interface or site.network.prefix to the nodes' fabric"
            found[node] = Check("address", FAIL, have, "an address of its own", do)
    return found


def _lost_drivers(answered: Mapping[str, Report]) -> Dict[str, Check]:
    """Nodes without nvidia-smi, where others have it."""
    lost = [
        node
        for node, said in answered.items()
        if any(check.name == "ecc" and check.have == ABSENT for check in said.checks)
    ]
    if not 0 < len(lost) < len(answered):
        return {}
    have = ABSENT + ", and other nodes have it"
    do = "install the driver on this node, or drain it"
    return {node: Check("gpus", FAIL, have, "the same driver everywhere", do) for node in lost}


def _severe(checks: Mapping[str, Check], severities: Mapping[str, str]) -> List[Check]:
    """In order, with the site's word on what fails."""
    found = []
    for name, default in SEVERITY.items():
        severity = default if name in ALWAYS else severities.get(name, default)
        if name in checks and severity != OFF:
            check = checks[name]
            if check.verdict == FAIL and severity == WARN:
                check = check._replace(verdict=WARN)
            found.append(check)
    return found


def summary(checks: Iterable[Check]) -> str:
    """``ok``, or the names of what is not: ``fail: scratch; warn: memlock, nofile``."""
    parts = []
    for verdict in (FAIL, WARN):
        names = [check.name for check in checks if check.verdict == verdict]
        if names:
            parts.append("%s: %s" % (verdict, ", ".join(names)))
    return "; ".join(parts) or "ok"


def table(uses: Mapping[str, str], judged: Judged) -> str:
    """What people read in the log: a line a node, then each finding once with its nodes.

    Args:
        uses: node -> what becomes of it: head, runs, spare, unfit or blamed.
        judged: the nodes that were asked.
    """
    wide = max((len(node) for node in uses), default=0)
    lines = ["%-*s  %-6s  result" % (max(wide, 4), "node", "use")]
    for node, use in uses.items():
        said = (
            summary(judged[node]) if node in judged else "not asked: an earlier attempt blamed it"
        )
        lines.append("%-*s  %-6s  %s" % (max(wide, 4), node, use, said))
    findings = {}  # type: Dict[Check, List[str]]
    for node, checks in judged.items():
        for check in checks:
            if check.verdict in (FAIL, WARN):
                findings.setdefault(check, []).append(node)
    order = list(SEVERITY)
    for check in sorted(findings, key=lambda one: (one.verdict != FAIL, order.index(one.name))):
        lines += ["%s %s on %s: %s" % (check.verdict, check.name, few(findings[check]), check.have)]
        lines += ["  need: %s" % check.need] if check.need else []
        lines += ["  do:   %s" % check.do] if check.do else []
    return "\n".join(lines)


def content(
    uses: Mapping[str, str], judged: Judged, reports: Mapping[str, Report]
) -> Dict[str, Any]:
    """Each node's part of preflight.json: its use, as in `table`, all checks, and its facts."""
    return {
        node: {
            "use": use,
            "checks": [check._asdict() for check in judged.get(node, [])],
            "facts": reports[node].facts if node in reports else {},
        }
        for node, use in uses.items()
    }
