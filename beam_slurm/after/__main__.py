"""The verbs of after.pyz; jobs call them in the training image, people need not."""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):
    sys.exit("error: this image's python is older than 3.10: name a newer one")

from importlib import import_module

from beam_slurm.after.errors import Problem

# Verb -> module, imported when it is called: each has heavy friends of its own.
VERBS = {
    "convert": "convert",
    "evaluate": "evaluate",
}


def main() -> None:
    """Run the verb of the command line; the one place where a Problem becomes text."""
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        sys.stderr.write("usage: after.pyz " + "|".join(VERBS) + " ...\n")
        sys.exit(2)
    verb = import_module("beam_slurm.after." + VERBS[sys.argv[1]])
    try:
        code = verb.main(sys.argv[2:])
    except Problem as problem:
        sys.stdout.flush()  # the lines that led to it come first in the job's log
        sys.stderr.write(f"error: {problem}\n")
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
