"""The verbs of node.pyz; the rendered script calls them, people need not."""

import sys

if sys.version_info < (3, 8):
    sys.exit("beam-slurm: this node's python3 is older than 3.8: put a newer one first on PATH")

from beam_slurm.node import (
    address,
    assets,
    checkpoint,
    contain,
    drive,
    examine,
    lifeline,
    ray,
    supervise,
)

VERBS = {
    "head": address,
    "supervise": supervise,
    "contain": contain,
    "ray": ray,
    "drive": drive,
    "resume": checkpoint,
    "verify": assets,
    "examine": examine,
}


def main() -> None:
    """Run the verb of the command line."""
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        sys.exit("usage: node.pyz " + "|".join(VERBS) + " ...")
    lifeline.watch()
    sys.exit(VERBS[sys.argv[1]].main(sys.argv[2:]))


if __name__ == "__main__":
    main()
