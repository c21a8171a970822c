"""What a failed run's last lines look like, what that means, and what to do about it.

One row a cause. Within one line the first row that matches counts, so the special ones stand above
the general ones. ``docs/failures.md`` shows this table.
"""

from beam_slurm.node.causes_effect import EFFECTS
from beam_slurm.node.causes_machine import MACHINE
from beam_slurm.node.causes_run import RUN
from beam_slurm.node.rule import VAGUE, Rule

CLASSES = {
    "config": "the recipe, the site file or an override asks for something that cannot be",
    "oom": "a GPU or a node has not enough memory",
    "nccl": "the nodes do not reach each other, or one keeps the others waiting",
    "node": "one node or one of its GPUs is broken or gone",
    "storage": "a file system is full, gone or damaged",
    "container": "the image or its runtime does not do, or does not fit to the node",
    "time": "the time limit came first",
    "preempted": "a job of higher priority took the nodes",
    "cancelled": "somebody ended it",
    "framework": "the training program failed by itself",
}

RULES = [*MACHINE, *RUN, *EFFECTS]

# Nothing in the table was seen, by what failed first.
DEFAULTS = {
    "entry": Rule(
        "framework",
        VAGUE,
        "anything else that the entry says",
        (),
        "read its traceback (`beam-slurm logs RUN`); without one, attempt-*/ray/NODE.logs.tar.gz",
    ),
    "watchdog": Rule(
        "framework",
        VAGUE,
        "no step, no output and no checkpoint for too long",
        (),
        "attempt-*/stacks/NODE.txt shows where each process waits; raise recipe.watchdog if it "
        "was only slow",
    ),
    "slurm": Rule(
        "node",
        VAGUE,
        "a step that srun could not start or keep",
        (),
        "srun's words are in `beam-slurm logs RUN`; leave the node that they name out "
        "(site.exclude)",
    ),
    "ray": Rule(
        "node",
        VAGUE,
        "Ray did not start or ended on a node",
        (),
        "`beam-slurm logs RUN --ray NODE`, then attempt-*/ray/NODE.logs.tar.gz; leave the node "
        "out if it is the same again",
    ),
    "preflight": Rule(
        "node",
        VAGUE,
        "not enough nodes that are fit",
        (),
        "attempt-*/preflight.json says what each node lacks; leave the bad ones out "
        "(site.exclude) or ask for job.spares",
    ),
}
DEFAULTS["gate"] = DEFAULTS["ray"]
