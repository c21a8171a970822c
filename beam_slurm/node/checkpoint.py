"""Proof that a folder holds a whole checkpoint, before a framework is asked to go on from it.

Two of the frameworks start from scratch where one small file is missing, and end well, so their own
exit code proves nothing. Layouts are those of the frameworks' main branches (the demo's: its
``checkpoint.py``); only names, sizes and small files are read, never tensors.
"""

import argparse
import json
import os
import re
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple


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


def main(argv: List[str]) -> int:
    """Verb ``resume``: 0 if the run can go on from a whole checkpoint, 2 and the reason if not."""
    parser = argparse.ArgumentParser(prog="node.pyz resume")
    parser.add_argument("--framework", required=True, choices=sorted(LAYOUTS))
    parser.add_argument("folder", help="where the framework saves")
    args = parser.parse_args(argv)
    found = latest(args.framework, args.folder)
    if found.step is None:
        why = "; ".join(found.problems) or "it holds none"
        print(
            "beam-slurm: there is no whole checkpoint in %s to resume from: %s"
            % (args.folder, why),
            file=sys.stderr,
        )
        return 2
    print("beam-slurm: goes on after step %d: %s" % (found.step, found.path), flush=True)
    return 0


NOTHING = Found(None, None, [], None)


def latest(layout: str, folder: str) -> Found:
    """The checkpoint in ``folder`` that a framework would go on from.

    Args:
        layout: nemo-rl, skyrl, miles or demo.
        folder: where the framework saves; may be missing.
    """
    if not os.path.isdir(folder):
        return NOTHING
    try:
        return LAYOUTS[layout](folder)
    except OSError as error:
        return Found(None, None, ["%s cannot be read: %s" % (folder, error.strerror)], None)


def _nemo_rl(folder: str) -> Found:
    """The highest ``step_N``, whatever is in it: latest_checkpoint_status.json may run ahead."""
    found = _numbered(folder, r"step_(\d+)")
    problems = _unfinished(folder, r"tmp_step_\d+")
    damage = {step: _nemo_rl_damage(found[step]) for step in found}
    problems += ["%s is damaged: %s" % (found[step], why) for step, why in damage.items() if why]
    newest = max(found, default=None)
    if newest is None:
        return Found(None, None, problems, None)
    if damage[newest]:
        whole = max((step for step in found if not damage[step]), default=None)
        if whole is not None:
            problems.append(
                "NeMo RL takes the highest: move %s away to go on from step %d"
                % (found[newest], whole)
            )
        return Found(None, None, problems, newest)
    return Found(newest, found[newest], problems, newest)


def _nemo_rl_damage(path: str) -> str:
    try:
        with open(os.path.join(path, "training_info.json"), "rb") as file:
            json.loads(file.read().decode())
    except OSError:
        return "it has no training_info.json"
    except ValueError:
        return "its training_info.json is no JSON"
    return _empty(path, "policy/weights")


def _skyrl(folder: str) -> Found:
    """The step in the tracker; without one SkyRL starts from scratch, with a line in its log."""
    tracker = os.path.join(folder, "latest_ckpt_global_step.txt")
    found = _numbered(folder, r"global_step_(\d+)")
    newest = max(found, default=None)
    step, problem = _tracked(tracker)
    if step is None:
        if newest is None and not os.path.exists(tracker):
            return NOTHING
        return Found(None, None, [problem], newest)
    problems = [
        "%s is further than %s (%d): its saving was broken off" % (found[other], tracker, step)
        for other in sorted(found)
        if other > step
    ]
    path = os.path.join(folder, "global_step_%d" % step)
    why = "it is not there" if step not in found else ""
    if not why and not _size(os.path.join(path, "trainer_state.pt")):
        why = "it has no trainer_state.pt"
    why = why or _empty(path, "policy")
    if why:
        return Found(None, None, ["%s is damaged: %s" % (path, why), *problems], newest)
    return Found(step, path, problems, newest)


def _miles(folder: str) -> Found:
    """Ids of rollouts count from 0: the checkpoint of id N has N + 1 rollouts behind it."""
    tracker = os.path.join(folder, "latest_checkpointed_iteration.txt")
    found = _numbered(folder, r"iter_(\d{7})")
    newest = max(found) + 1 if found else None
    last, problem = _tracked(tracker)
    if last is None:
        if newest is None and not os.path.exists(tracker):
            return NOTHING
        return Found(None, None, [problem], newest)
    problems = [
        "%s is further than %s (%d): its saving was broken off" % (found[other], tracker, last)
        for other in sorted(found)
        if other > last
    ]
    path = os.path.join(folder, "iter_%07d" % last)
    why = _empty(path, ".") if last in found else "it is not there"
    state = os.path.join(folder, "rollout", "global_dataset_state_dict_%d.pt" % last)
    if why:
        return Found(None, None, ["%s is damaged: %s" % (path, why), *problems], newest)
    if not _size(state):
        return Found(None, None, ["%s is not there, or empty" % state, *problems], newest)
    return Found(last + 1, path, problems, newest)


def _demo(folder: str) -> Found:
    """The newest whole ``step_N``; whatever else there is, it leaves alone."""
    found = _numbered(folder, r"step_(\d+)")
    problems = _unfinished(folder, r"tmp_step_\d+")
    whole = []
    for step, path in found.items():
        names = ("model.pt", "optimizer.pt", "state.json")
        lost = [name for name in names if not _size(os.path.join(path, name))]
        if lost:
            problems.append("%s is damaged: it has no %s" % (path, ", ".join(lost)))
        else:
            whole.append(step)
    newest = max(found, default=None)
    if not whole:
        return Found(None, None, problems, newest)
    return Found(max(whole), found[max(whole)], problems, newest)


LAYOUTS: Dict[str, Callable[[str], Found]] = {
    "nemo-rl": _nemo_rl,
    "skyrl": _skyrl,
    "miles": _miles,
    "demo": _demo,
}


def _numbered(folder: str, pattern: str) -> Dict[int, str]:
    """Paths of the sub-folders of this name, by their number, lowest first."""
    found = {}
    for name in os.listdir(folder):
        match = re.fullmatch(pattern, name)
        if match and os.path.isdir(os.path.join(folder, name)):
            found[int(match.group(1))] = os.path.join(folder, name)
    return dict(sorted(found.items()))


def _unfinished(folder: str, pattern: str) -> List[str]:
    return [
        "%s is unfinished: its saving was broken off" % os.path.join(folder, name)
        for name in sorted(os.listdir(folder))
        if re.fullmatch(pattern, name)
    ]


def _tracked(path: str) -> Tuple[Optional[int], str]:
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


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
