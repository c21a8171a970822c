"""Verb ``secrets``: the NAME=value lines of a file that is its owner's alone.

Checked once on the login node, if it sees the file, and again by the job, which prints the lines
into a pipe of the script: no value stands in an argument, in a script or in another file.
"""

import os
import re
import socket
import stat
import sys
from typing import Dict, List

# Upper case only: what the script calls its own is lower case, or among those below.
LINE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
RESERVED = re.compile(
    r"RUN|ATTEMPT|NODES|HEAD|CPUS|PATH|HOME|RAY_\w+|SLURM\w*_\w+|BEAM_SLURM_\w+|MASTER_ADDR"
)


class Refused(Exception):
    """The file may not be used; the text says why, and never what stands in it.

    Attributes:
        remedy: what its owner can do.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def main(argv: List[str]) -> int:
    """Print the lines of the file ``argv[0]``; 2 and the reason if it may not be used."""
    try:
        found = read(argv[0])
    except (Refused, OSError) as problem:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        why = problem.strerror if isinstance(problem, OSError) else problem
        print(
            "beam-slurm: %s: site.secrets_file %s: %s" % (node, argv[0], why),
            file=sys.stderr,
        )
        return 2
    sys.stdout.write("".join("%s=%s\n" % pair for pair in found.items()))
    return 0


def read(path: str) -> Dict[str, str]:
    """The names and values in ``path``: one NAME=value a line, # for comments, values as they are.

    Raises:
        Refused: it is not a regular file, not ours, somebody else can read it, or a line is none.
        OSError: it is not there, or cannot be read.
    """
    # Neither a link that somebody has put there, nor a pipe that never ends.
    if os.path.islink(path):
        raise Refused("it is a link", "name the file itself")
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("it is no regular file", "name a file of NAME=value lines")
        if facts.st_uid != os.getuid():
            raise Refused(
                "it belongs to uid %d, and the run to uid %d" % (facts.st_uid, os.getuid()),
                "use a file of your own",
            )
        if facts.st_mode & 0o177:
            mode = stat.S_IMODE(facts.st_mode)
            raise Refused("it has mode %04o, others may use it" % mode, "chmod 600 %s" % path)
        return _parse(file.read())


def _parse(text: str) -> Dict[str, str]:
    found = {}  # type: Dict[str, str]
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise Refused(
                "line %d is not NAME=value" % number,
                "write it as WANDB_API_KEY=..., without export, spaces and quotation marks",
            )
        name, value = match.groups()
        if RESERVED.fullmatch(name):
            raise Refused("line %d sets %s, which is the script's own" % (number, name), "drop it")
        if not value or value[0] in "\"' " or "\0" in value:
            raise Refused(
                "line %d: the value of %s is empty, or begins with a quotation mark or a space, "
                "and values are taken as they are" % (number, name),
                "write it without",
            )
        found[name] = value
    return found
