"""Verb ``preflight``: begin an attempt with the fittest nodes. Run once, by the batch script.

    node.pyz preflight --run DIR --nodes N --allocated a,b,c --batch NAME ... -- STEP
    STEP: srun ... python3 node.pyz inspect OPTIONS

Runs that step on all allocated nodes that no earlier attempt has blamed, and judges what they
say. The table goes to the job's log, all of it into preflight.json, and one line for the script to
read to standard output: ``ATTEMPT_DIR NODES CPUS HEAD_IP GCS_PORT DASHBOARD_PORT``, NODES as a list
with commas, the head first.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional, Tuple

from beam_slurm.node import (
    address,
    again,
    attempts,
    checkpoint,
    claim,
    course,
    events,
    notify,
    settle,
    verdicts,
)
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.inspection import Inspection
from beam_slurm.node.outcome import cancelled, of_nothing, reason, taken

DEADLINE = 50.0  # seconds until a node that has not answered is unfit
SEVERITIES = ("fail", "warn", "off")


class NotEnough(Exception):
    """Fewer fit nodes than the run wants.

    Attributes:
        cause: one line with the first bad node, its check and both numbers.
        node: that node, or None if too few were left to ask.
        kind: the outcome's class: storage, container or node.
        do: what to do about it.
        blamed: nodes that later attempts leave out, as far as this one has found them.
    """

    def __init__(
        self, cause: str, node: Optional[str], kind: str, do: str, blamed: List[str]
    ) -> None:
        super().__init__(cause)
        self.node = node
        self.kind = kind
        self.do = do
        self.blamed = blamed


class Ended(BaseException):
    """Slurm has asked for the end; nobody on the way may take it for a failure of their own."""


def main(argv: List[str]) -> int:
    """Begin the attempt, or write down why it cannot."""
    args = _options(argv)
    began = time.time()
    rules = course.rules(args)
    attempt = attempts.begin(args.run)
    blamed = attempts.blamed(args.run)
    later = attempts.number(attempt) > 0
    told = []  # type: List[int]
    outcome = of_nothing(began, os.environ["SLURM_JOB_ID"], again.restarts())
    try:
        _on_end(_end)
        known = {}  # type: again.Fields
        if later and rules.again != "local":
            known = again.fields(again.own())
        _claim(args, rules, later)
        if args.resume or later:
            _prove(rules, first=not later)
        asked = [node for node in settle.left(rules, known) if node not in blamed]
        ready = prepare(args, attempt, asked)
        print(*ready)
        sys.stdout.flush()
        if rules.hook.variable:
            with notify.harmless(attempt, "start"):
                _tell_webhook(rules, attempt, ready[1].split(","))
        return 0
    except NotEnough as problem:
        outcome.update(
            {
                "class": problem.kind,
                "node": problem.node,
                "exit_code": 2 if problem.kind == "config" else NOT_UP,
                "cause": str(problem),
                "do": problem.do,
                "blamed": problem.blamed,
            }
        )
    except Ended:
        outcome.update(_ended(rules, began))
    _on_end(lambda number, frame: told.append(number))
    return settle.settle(rules, attempt, outcome, lambda: bool(told))


def _ended(rules: course.Rules, began: float) -> Dict[str, Any]:
    """Why Slurm has ended the job meanwhile."""
    known = again.fields(again.own()) if rules.again != "local" else {}
    word = reason(known, again.restarts(), began)
    return taken(word, known, again.restarts()) if word else cancelled()


def _claim(args: argparse.Namespace, rules: course.Rules, later: bool) -> None:
    """This run's folders are nobody else's.

    Raises:
        NotEnough: another job writes there.
    """
    user = claim.claim(args.output, rules.run, os.environ["SLURM_JOB_ID"]) if args.output else ""
    others = again.jobs_of(rules.run, "RUNNING") if later and rules.again != "local" else []
    if others:
        cause = "job %s is this run too, and running" % ", ".join(others)
        raise NotEnough(cause, None, "config", "leave one of them: scancel the other", [])
    if user:
        cause = "%s is the output folder of %s" % (args.output, user)
        do = "wait for its end, cancel it, or submit with another --output-dir"
        raise NotEnough(cause, None, "config", do, [])


def _prove(rules: course.Rules, first: bool) -> None:
    """Go on only from a whole checkpoint, or where nothing is lost.

    Two of the frameworks start from scratch without a word where a small file is missing.

    Raises:
        NotEnough: with what lies there instead.
    """
    # What a user asks to go on from is the user's; what this run has left is ours to mend.
    found = checkpoint.latest(rules.framework, rules.checkpoints) if first else settle.mended(rules)
    history = attempts.history(rules.run)
    # An attempt that died without a word has not asked this, nor has its guard.
    silent = history and (history[-1]["component"], history[-1]["class"]) == ("slurm", "node")
    why = course.in_vain(rules, history) if silent else ""
    if why:
        raise NotEnough(why, None, "config", "see how its attempts ended", [])
    if found.step is not None:
        events.say("goes on after step %d: %s" % (found.step, found.path))
        return
    why = course.unproven(rules, history, found)
    if first:
        why = "there is no whole checkpoint in %s to resume from: %s" % (
            rules.checkpoints,
            "; ".join(found.problems) or "it holds none",
        )
    if why:
        do = "see what lies in %s" % rules.checkpoints
        raise NotEnough(why, None, "config", do, [])
    events.say("nothing was saved yet: it begins at the first step")


def prepare(args: argparse.Namespace, attempt: str, asked: List[str]) -> Tuple[Any, ...]:
    """Inspect the nodes ``asked`` and write down what came of it; the line for the script.

    Raises:
        NotEnough: after everything is written down.
        Ended: the step and the canaries are gone by then.
    """
    if args.token:
        path = attempts.token(attempt)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        events.write_file(path, secrets.token_hex(32))
    began = time.monotonic()
    # What the last attempt has left is given a while to go.
    step = [*args.step, "--again"] if attempts.number(attempt) else args.step
    inspection = Inspection(asked, step, args.deadline)
    judged = verdicts.judge(inspection.run(), asked, args.severities)
    seconds = time.monotonic() - began
    chosen = verdicts.choose(judged, args.nodes, _batch())
    enough = len(chosen) == args.nodes
    allocated = args.allocated.split(",")
    uses = _uses(allocated, judged, chosen if enough else [])
    _tell_people(args.nodes, seconds, uses, judged)
    nodes = verdicts.content(uses, judged, inspection.reports)
    content = {"need": args.nodes, "seconds": round(seconds, 3), "nodes": nodes}
    _write_down(attempt, content, judged)
    if not enough:
        raise _not_enough(args.nodes, allocated, judged)
    head = inspection.reports[chosen[0]].facts
    events.record(
        attempt,
        events.make(
            "batch-started",
            node=chosen[0],
            head=head["address"],
            port=head["gcs"],
            nodes=chosen,
            job=os.environ["SLURM_JOB_ID"],
            task=again.task(),
            restart=again.restarts(),
        ),
    )
    _publish(attempt, chosen, inspection.reports, args.token)
    cpus = min(address.cpus(os.environ["SLURM_JOB_CPUS_PER_NODE"]))
    return (attempt, ",".join(chosen), cpus, head["address"], head["gcs"], head["dashboard"])


def _options(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node.pyz preflight")
    course.options(parser)
    parser.add_argument("--output", default="", help="the folder that the run writes into")
    parser.add_argument("--resume", action="store_true", help="the first attempt goes on too")
    parser.add_argument("--token", action="store_true", help="make a token for Ray")
    for severity in SEVERITIES:
        parser.add_argument("--" + severity, default="", help="checks that are to be so: a,b")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds for all nodes")
    parser.add_argument("step", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    args.step = args.step[1:] if args.step[:1] == ["--"] else args.step
    if "inspect" not in args.step:
        parser.error("behind -- comes the step: srun ... python3 node.pyz inspect OPTIONS")
    args.severities = {
        name: severity
        for severity in SEVERITIES
        for name in getattr(args, severity).split(",")
        if name
    }
    unknown = sorted(set(args.severities) - set(verdicts.SEVERITY))
    if unknown:
        parser.error("no such check: %s; there are %s" % (unknown[0], ", ".join(verdicts.SEVERITY)))
    return args


def _uses(allocated: List[str], judged: verdicts.Judged, chosen: List[str]) -> Dict[str, str]:
    """What becomes of each node, in the order of the allocation."""

    def use(node: str) -> str:
        if node not in judged:
            return "blamed"
        if node in chosen:
            return "head" if node == chosen[0] else "runs"
        return "spare" if verdicts.is_fit(judged[node]) else "unfit"

    return {node: use(node) for node in allocated}


def _tell_people(
    need: int, seconds: float, uses: Mapping[str, str], judged: verdicts.Judged
) -> None:
    fit = sum(map(verdicts.is_fit, judged.values()))
    events.say(
        "preflight: %d of %d nodes are fit, %d are needed (%.1f s)"
        % (fit, len(uses), need, seconds)
    )
    print(verdicts.table(uses, judged), file=sys.stderr, flush=True)


def _write_down(attempt: str, content: Mapping[str, Any], judged: verdicts.Judged) -> None:
    """preflight.json, and the events that later attempts and people read."""
    text = json.dumps(content, indent=1) + "\n"
    events.write_file(os.path.join(attempt, "preflight.json"), text, 0o666)
    blame = verdicts.culprits(judged)
    for node, names in blame.items():
        first = next(check for check in judged[node] if check.name == names[0])
        why = "%s: %s" % (first.name, first.have)
        events.record(attempt, events.make("blamed", node=node, why=why))
    fit = [node for node, checks in judged.items() if verdicts.is_fit(checks)]
    unfit = {
        node: [check.name for check in verdicts.failed(checks)]
        for node, checks in judged.items()
        if node not in fit
    }
    events.record(attempt, events.make("preflight", fit=fit, unfit=unfit))


def _not_enough(need: int, allocated: List[str], judged: verdicts.Judged) -> NotEnough:
    fit = sum(map(verdicts.is_fit, judged.values()))
    blamed = list(verdicts.culprits(judged))
    short = "%d of %d nodes are fit, %d are needed" % (fit, len(allocated), need)
    for node, checks in judged.items():
        for bad in verdicts.failed(checks)[:1]:
            needs = " (needs: %s)" % bad.need if bad.need else ""
            cause = "%s: %s: %s%s; %s" % (node, bad.name, bad.have, needs, short)
            return NotEnough(cause, node, verdicts.kind_of(judged), bad.do, blamed)
    return NotEnough(
        short + ": earlier attempts have blamed the others",
        None,
        "node",
        "mend the blamed nodes, or submit again with more --spares",
        blamed,
    )


def _tell_webhook(rules: course.Rules, attempt: str, nodes: List[str]) -> None:
    """The run has started; or it goes on after an attempt that could not say so any more."""
    where = "on %d node%s, the head is %s" % (len(nodes), "s" * (len(nodes) > 1), nodes[0])
    facts = {"state": "starting", "nodes": nodes, "job": os.environ["SLURM_JOB_ID"]}
    notify.tell(rules.hook, attempt, "start", "has started " + where, facts)
    number = attempts.number(attempt)
    for before in [it for it in attempts.folders(rules.run) if attempts.number(it) < number][-1:]:
        outcome = attempts.outcome(before)
        line = "goes on as attempt %d, %s: %s" % (number, where, outcome.get("cause"))
        notify.tell(rules.hook, before, "restart", line, outcome)


def _publish(
    attempt: str, chosen: List[str], reports: Mapping[str, verdicts.Report], token: bool
) -> None:
    """Where this attempt is to be reached, for the supervisor, shell and dashboard."""
    head = reports[chosen[0]].facts
    known = {
        "attempt": attempts.number(attempt),
        "job": os.environ["SLURM_JOB_ID"],
        "head": chosen[0],
        "ip": head["address"],
        "gcs": head["gcs"],
        "dashboard": head["dashboard"],
        "nodes": chosen,
        "addresses": {node: reports[node].facts["address"] for node in chosen},
        "token": attempts.token(attempt) if token else None,
    }
    text = json.dumps(known, indent=1) + "\n"
    events.write_file(os.path.join(attempt, "address.json"), text, 0o666)


def _batch() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _on_end(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _end(number: int, frame: Optional[FrameType]) -> None:
    _on_end(signal.SIG_IGN)  # a second request must not cut the tidying short
    raise Ended
