"""The verbs of node.pyz; the rendered script calls them, people need not."""

import sys

if sys.version_info < (3, 8):
    sys.exit("beam-slurm: this node's python3 is older than 3.8: put a newer one first on PATH")

from importlib import import_module

from beam_slurm.node import lifeline

# Verb -> module, imported when it is called: a zipapp compiles what it imports each time.
VERBS = {
    "inspect": "inspect",
    "preflight": "preflight",
    "supervise": "supervise",
    "contain": "contain",
    "ray": "ray",
    "drive": "drive",
    "left": "left",
    "guard": "guard",
    "notify": "notify",
    "secrets": "secretfile",
    "shell": "shell",
    "verify": "assets",
    "examine": "examine",
}


def main() -> None:
    """Run the verb of the command line."""
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        sys.exit("usage: node.pyz " + "|".join(VERBS) + " ...")
    lifeline.watch()
    verb = import_module("beam_slurm.node." + VERBS[sys.argv[1]])
    sys.exit(verb.main(sys.argv[2:]))


if __name__ == "__main__":
    main()
