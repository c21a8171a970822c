"""An output folder belongs to one run at a time: a mark in it says to which.

The login node reads it before a submission (``beam_slurm.resume``); the job reads it again, since
what that machine saw may be old, and a run that waited in the queue has been overtaken.
"""

import json
import os

from beam_slurm.node import again, events

MARKER = ".beam-slurm.json"
ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING")


def claim(output: str, run: str, job: str) -> str:
    """Mark ``output`` as this run's; who uses it instead, or "".

    A mark that cannot be written is no reason to stop: the canaries will tell why.
    """
    path = os.path.join(output, MARKER)
    try:
        with open(path) as file:
            before = json.load(file)
        other, their = str(before["run"]), str(before["job"])
    except (OSError, ValueError, KeyError, TypeError):
        other, their = run, job
    if os.path.realpath(other) != os.path.realpath(run):
        state = again.fields(their).get("JobState")
        if state in ALIVE:
            return "job %s of %s, which is %s" % (their, other, state)
    try:
        os.makedirs(output, exist_ok=True)
        events.write_file(path, json.dumps({"run": run, "job": job}) + "\n", 0o666)
    except OSError as problem:
        events.say("%s cannot be marked as this run's: %s" % (output, problem.strerror))
    return ""
