"""Proof that a folder holds a whole checkpoint, before a framework is asked to go on from it.

Two of the frameworks start from scratch where one small file is missing, and end well, so their own
exit code proves nothing. Layouts are those of the frameworks' main branches (the demo's: its
``checkpoint.py``); only names, sizes, ends and small files are read, never tensors.
"""

import itertools
import json
import os
import re
import time
from typing import Callable, Container, Dict, List, NamedTuple, Optional, Tuple

from beam_slurm.node import events, shards


class Found(NamedTuple):
    """What lies in a checkpoint folder.

    Attributes:
        step: training steps done in the checkpoint that the framework would go on from; None if
            it would start from scratch or fail.
        path: that checkpoint's folder.
        problems: what is unfinished, damaged or out of order, each with its reason.
        newest: the highest step that has a folder of its final name, whole or not; None if none.
    """

    step: Optional[int]
    path: Optional[str]
    problems: List[str]
    newest: Optional[int]


FRESH = 120.0  # seconds after which every node sees what was written
POLL = 2.0  # seconds until a folder is listed again
PATIENCE = 60.0  # seconds that a network file system may take to show what is there

EVALUATION = "evaluate"  # the task that takes the place of a framework, and its image's name

NOTHING = Found(None, None, [], None)


class Layout(NamedTuple):
    """How a framework lays out its checkpoints.

    Attributes:
        name: of a checkpoint's folder; its number may be spelled longer.
        damage: (folder, checkpoint's path, number) to what is wrong with it, "" if nothing.
        tracker: the file whose number it goes on from; "" if it goes by the names of folders.
        adapters: in a checkpoint that no tracker counts, the folder for its adapters; "" for none.
        unfinished: pattern of the name of a folder whose saving was broken off; "" if it has none.
        passes_over: whether it leaves damaged ones alone by itself.
        counts_from: the number of the first step.
    """

    name: str
    damage: Callable[[str, str, int], str]
    tracker: str = ""
    adapters: str = ""
    unfinished: str = ""
    passes_over: bool = False
    counts_from: int = 1


def latest(layout: str, folder: str) -> Found:
    """The checkpoint in ``folder`` that a framework would go on from.

    Args:
        layout: nemo-rl, skyrl, miles or demo; or evaluate, whose steps are its responses.
        folder: where the framework saves; may be missing.
    """
    if not os.path.isdir(folder):
        return NOTHING
    if layout == EVALUATION:
        return _responses(folder)
    try:
        plan = _plan(layout, folder)
        return (_tracked if plan.tracker else _highest)(plan, folder)
    except OSError as error:
        return Found(None, None, ["%s cannot be read: %s" % (folder, error.strerror)], None)


def _responses(folder: str) -> Found:
    """How many responses an evaluation has kept: the whole lines of its file behind the first."""
    path = os.path.join(folder, "responses.jsonl")
    try:
        with open(path, "rb") as file:
            kept = max(sum(line.endswith(b"\n") for line in file) - 1, 0)
    except OSError:
        return NOTHING
    return Found(kept, path, [], kept)


def numbered(layout: str, folder: str) -> Dict[int, str]:
    """Paths of all checkpoints in ``folder``, whole or not, by the number in their names."""
    return _numbered(folder, LAYOUTS[layout].name) if os.path.isdir(folder) else {}


def saved(layout: str, folder: str, steps: Container[int]) -> List[int]:
    """Those of ``steps`` whose checkpoint is whole, its saving over; no other one is looked at.

    A network file system may show one only later. Without a tracker's number the small files that
    are written last prove as much.

    Raises:
        OSError: the folder cannot be read.
    """
    plan = _plan(layout, folder)
    last = _read_tracker(os.path.join(folder, plan.tracker))[0] if plan.tracker else None
    return [
        number + 1 - plan.counts_from
        for number, path in numbered(layout, folder).items()
        if number + 1 - plan.counts_from in steps
        and (last is None or number <= last)
        and not plan.damage(folder, path, number)
    ]


def mend(layout: str, folder: str, patience: float = PATIENCE) -> Tuple[Found, List[str]]:
    """Put ``folder`` in order, so that the framework goes on from the newest whole checkpoint.

    What is damaged or beyond that one gets a name that no framework reads, ``damaged-...``, and a
    tracker file the number of that one. Nothing is deleted. Where nothing whole is left nothing is
    touched. No one else may write to ``folder`` meanwhile; broken off, it can be called again.

    A network file system may show a folder as it was a minute ago: the newest save is missing while
    the tracker names it. So what was written just now and looks wrong is looked at again first.

    Args:
        layout: nemo-rl, skyrl, miles or demo; or evaluate, whose steps are its responses.
        folder: where the framework saves; may be missing.
        patience: seconds until what looks wrong is taken to be so.

    Returns:
        What lies there afterwards, and what was done, a line each.
    """
    done = []  # type: List[str]
    problem = []
    if os.path.isdir(folder) and layout != EVALUATION:  # which puts its own file in order
        try:
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline and _may_settle(_plan(layout, folder), folder):
                time.sleep(min(POLL, patience))
            _mend(_plan(layout, folder), folder, done)
        except OSError as error:
            problem = ["%s cannot be put in order: %s" % (folder, error)]
    found = latest(layout, folder)
    return found._replace(problems=found.problems + problem), done


def _plan(layout: str, folder: str) -> Layout:
    """The layout of what lies in ``folder``.

    Miles' tracker is Megatron's, which has no part in saving adapters: beside those there is none.

    Raises:
        OSError: the folder cannot be read.
    """
    plan = LAYOUTS[layout]
    if plan.adapters and not os.path.lexists(os.path.join(folder, plan.tracker)):
        paths = list(numbered(layout, folder).values())
        if paths and os.path.isdir(os.path.join(paths[-1], plan.adapters)):
            return plan._replace(tracker="")
    return plan


def _mend(plan: Layout, folder: str, done: List[str]) -> None:
    found = _numbered(folder, plan.name)
    last = _read_tracker(os.path.join(folder, plan.tracker))[0] if plan.tracker else None
    # Beyond a tracker nothing counts as whole: its saving was not over. Where the tracker has no
    # number, the small files that are written last (see the rules of damage) prove as much.
    candidates = [number for number in found if last is None or number <= last]
    whole = _newest_whole(plan, folder, {number: found[number] for number in candidates})
    if whole is None:
        return
    if plan.tracker and last != whole:
        events.write_file(os.path.join(folder, plan.tracker), "%d" % whole)
        was = "nothing" if last is None else last
        done.append("%s says %d now, and said %s" % (plan.tracker, whole, was))
    for number in sorted(found, reverse=True):
        if number > whole:
            name = _set_aside(found[number])
            done.append("%s is set aside as %s" % (found[number], name))


def _may_settle(plan: Layout, folder: str) -> bool:
    """Whether what a framework would go on from looks wrong, and was written just now."""
    try:
        found = _numbered(folder, plan.name)
        newest = max(found, default=None)
        written = [] if newest is None else [found[newest]]
        last = newest
        if plan.tracker:
            tracker = os.path.join(folder, plan.tracker)
            last = _read_tracker(tracker)[0]
            written += [tracker] if os.path.lexists(tracker) else []
        if newest is not None and last == newest and not plan.damage(folder, found[last], last):
            return False
        return any(map(_is_fresh, written))
    except OSError:
        return True  # it went while we looked: this view of the folder was an old one


def _is_fresh(path: str) -> bool:
    """Whether this file, or anything in this folder, was written within FRESH."""
    written = [os.lstat(path).st_mtime]
    for at, folders, names in os.walk(path):
        written += [os.lstat(os.path.join(at, name)).st_mtime for name in folders + names]
    return time.time() - max(written) < FRESH


def _set_aside(path: str) -> str:
    """Give a folder a name that no framework reads, and return that name."""
    parent, name = os.path.split(path)
    for again in itertools.count(1):
        aside = "damaged-%s%s" % (name, "-%d" % again if again > 1 else "")
        if not os.path.lexists(os.path.join(parent, aside)):
            break
    os.rename(path, os.path.join(parent, aside))
    return aside


def _highest(plan: Layout, folder: str) -> Found:
    """By the names of folders: the highest is taken, whatever is in it; by the demo a whole one.

    NeMo RL's latest_checkpoint_status.json may run ahead of the folders: it is not asked.
    """
    found = _numbered(folder, plan.name)
    steps = 1 - plan.counts_from  # behind a checkpoint, more than its number
    problems = _unfinished(folder, plan.unfinished) if plan.unfinished else []
    newest = max(found) + steps if found else None
    whole = _newest_whole(plan, folder, found, problems)
    if whole is None:
        return Found(None, None, problems, newest)
    if whole + steps != newest and not plan.passes_over:
        problems.append(
            "the highest is what it goes on from: move %s away to go on from step %d"
            % (" and ".join(found[number] for number in found if number > whole), whole + steps)
        )
        return Found(None, None, problems, newest)
    return Found(whole + steps, found[whole], problems, newest)


def _tracked(plan: Layout, folder: str) -> Found:
    """By the number in a tracker file; without one SkyRL and Miles start from scratch."""
    tracker = os.path.join(folder, plan.tracker)
    found = _numbered(folder, plan.name)
    steps = 1 - plan.counts_from  # behind a checkpoint, more than its number
    newest = max(found) + steps if found else None
    last, problem = _read_tracker(tracker)
    if last is None:
        if newest is None and not os.path.exists(tracker):
            return NOTHING
        return Found(None, None, [problem], newest)
    problems = [
        "%s is further than %s (%d): its saving was broken off" % (found[other], tracker, last)
        for other in found
        if other > last
    ]
    path = found.get(last, os.path.join(folder, plan.name % last))
    why = plan.damage(folder, path, last) if last in found else "it is not there"
    if why:
        return Found(None, None, ["%s is damaged: %s" % (path, why), *problems], newest)
    return Found(last + steps, path, problems, newest)


def _newest_whole(
    plan: Layout, folder: str, found: Dict[int, str], problems: Optional[List[str]] = None
) -> Optional[int]:
    """The highest number whose checkpoint is whole; what is wrong with those above goes to
    ``problems``. Older ones are not looked at: that would take long where all are kept."""
    for number in sorted(found, reverse=True):
        why = plan.damage(folder, found[number], number)
        if not why:
            return number
        if problems is not None:
            problems.append("%s is damaged: %s" % (found[number], why))
    return None


def _nemo_rl_damage(folder: str, path: str, step: int) -> str:
    return (
        _json_damage(path, "training_info.json")
        or _empty(path, "policy/weights")
        or shards.damage(path)
    )


def _skyrl_damage(folder: str, path: str, step: int) -> str:
    return _lost(path, "trainer_state.pt") or _empty(path, "policy") or shards.damage(path)


def _miles_damage(folder: str, path: str, number: int) -> str:
    """The state of the data is written after the model, into a folder of its own."""
    name = "rollout/global_dataset_state_dict_%d.pt" % number
    state = shards.torch_damage(os.path.join(folder, name))
    return _empty(path, ".") or shards.damage(path) or ("%s %s" % (name, state) if state else "")


def _demo_damage(folder: str, path: str, step: int) -> str:
    return (
        _lost(path, "model.pt", "optimizer.pt", "state.json")
        or _json_damage(path, "state.json")
        or shards.damage(path)
    )


LAYOUTS: Dict[str, Layout] = {
    "nemo-rl": Layout("step_%d", _nemo_rl_damage, unfinished=r"tmp_step_\d+"),
    "skyrl": Layout("global_step_%d", _skyrl_damage, "latest_ckpt_global_step.txt"),
    # Ids of rollouts count from 0: the checkpoint of id N has N + 1 rollouts behind it.
    "miles": Layout(
        "iter_%07d",
        _miles_damage,
        "latest_checkpointed_iteration.txt",
        adapters="adapter",
        counts_from=0,
    ),
    "demo": Layout("step_%06d", _demo_damage, unfinished=r"tmp_step_\d+", passes_over=True),
}


def _numbered(folder: str, name: str) -> Dict[int, str]:
    """Paths of the sub-folders of this name, by their number, lowest first."""
    pattern = re.sub("%.*d", r"(\\d+)", name)
    found = {}
    for entry in os.listdir(folder):
        match = re.fullmatch(pattern, entry)
        if match and os.path.isdir(os.path.join(folder, entry)):
            found[int(match.group(1))] = os.path.join(folder, entry)
    return dict(sorted(found.items()))


def _unfinished(folder: str, pattern: str) -> List[str]:
    return [
        "%s is unfinished: its saving was broken off" % os.path.join(folder, name)
        for name in sorted(os.listdir(folder))
        if re.fullmatch(pattern, name)
    ]


def _read_tracker(path: str) -> Tuple[Optional[int], str]:
    """(the number in a tracker file, what is wrong with it)."""
    try:
        with open(path, "rb") as file:
            text = file.read(100).decode(errors="replace").strip()
    except OSError:
        return None, "%s is not there" % path
    if not text.isdigit():
        return None, "%s holds %r, not a number" % (path, text)
    return int(text), ""


def _empty(path: str, name: str) -> str:
    """What is wrong with a sub-folder that must hold something; "" if nothing."""
    try:
        return "" if os.listdir(os.path.join(path, name)) else "it is empty in %s" % name
    except OSError:
        return "it has no %s" % name


def _lost(path: str, *names: str) -> str:
    lost = [name for name in names if not os.path.isfile(os.path.join(path, name))]
    return "it has no " + ", ".join(lost) if lost else ""


def _json_damage(path: str, name: str) -> str:
    try:
        with open(os.path.join(path, name), "rb") as file:
            json.loads(file.read().decode())
    except FileNotFoundError:
        return "it has no " + name
    except ValueError:
        return "its %s is no JSON" % name
    return ""
