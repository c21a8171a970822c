"""``beam-slurm watch``: a run, full screen and live.

``gathering`` reads, in threads, so that a hanging controller or file system stops nothing here;
``frame`` says what is shown, ``terminal`` owns the keyboard, and ``screen`` is the loop between.
"""

from __future__ import annotations

import sys

from rich.console import Console

from beam_slurm import progress
from beam_slurm.runs import Run


def watch(run: Run, console: Console) -> int:
    """Show a run until the user leaves; without a keyboard, until it is over: ``progress.watch``.

    Returns:
        0 if the user leaves a run that goes on, else its exit code as ``--wait`` gives it; 130
        after Ctrl-C, 128 + N after signal N.

    Raises:
        BeamSlurmError: Slurm has not answered for half an hour.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or console.is_dumb_terminal:
        return progress.watch(run, console)
    from beam_slurm.watch.screen import Screen

    return Screen(run, console).show()
