"""Where a run hangs: the stacks of all its Python processes on this node, in one file.

py-spy shows Python's own stacks if it is on PATH. Otherwise, and where it may not look, there is
what /proc tells: which threads sleep, and in which call of the kernel.
"""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import List, NamedTuple, Optional, Tuple

from beam_slurm.node import check, events, processes
from beam_slurm.node.mask import Mask

AT_ONCE = 8  # py-spy reads the symbols of a large process for about a second of one core
ONE = 6.0  # seconds for one process
THREADS = 64  # of one process, where only /proc speaks
WIDTH = 160  # characters of a command in the table
OWN = "node.pyz"

# py-spy stops a process to look at it. One that is stopped already, or that hangs in the kernel,
# would refuse that or block it: there it reads without.
STILL = ("T", "t", "D")


class Process(NamedTuple):
    """One process of the job."""

    pid: int
    state: str  # as in /proc/PID/stat: R, S, D, T, Z, ...
    seconds: float  # of CPU time
    words: str
    python: bool


def dump(
    attempt: str, job: str, name: str, seconds: float = 20.0, mask: Optional[Mask] = None
) -> str:
    """Write the stacks of this job's Python processes to ``attempt``/stacks/NAME.txt.

    Args:
        attempt: the attempt's folder.
        job: Slurm's id of the job, as in SLURM_JOB_ID.
        name: this node's.
        seconds: after this, processes that were not asked yet are left with what /proc says.
        mask: takes known secrets out, which a command line may hold.

    Returns:
        The path of the file.

    Raises:
        OSError: it cannot be written.
    """
    deadline = time.monotonic() + seconds
    mask = mask or Mask(())
    # Before the table shortens them: half a secret is too much.
    found = [process._replace(words=_hide(mask, process.words)) for process in of_job(job)]
    spy = shutil.which("py-spy")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pythons = (process for process in found if process.python)
        texts = list(pool.map(lambda process: stack(process, spy, deadline), pythons))
    head = "Processes of job %s on %s, %s" % (job, name, time.strftime("%Y-%m-%d %H:%M:%S"))
    text = "\n\n".join([head, table(found), *texts]) + "\n"
    folder = os.path.join(attempt, "stacks")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name + ".txt")
    events.write_file(path, _hide(mask, text))
    return path


def of_job(job: str) -> List[Process]:
    """This user's processes of a job, by process id; without beam-slurm's own.

    A Ray worker that has given itself a title has overwritten its environment with it. It is known
    by its parent.
    """
    table = processes.parents()
    wanted = "SLURM_JOB_ID=" + job
    found = {pid for pid in table if wanted in _text(str(pid), "environ").split("\0")}
    border = set(found)
    while border:
        border = {pid for pid, parent in table.items() if parent in border} - found
        found |= border
    return [process for process in map(_look, sorted(found)) if process]


def table(found: List[Process]) -> str:
    """One line a process; of Ray's long command lines, the beginning."""
    rows = ["%8s  %-5s  %9s  %s" % ("PID", "STATE", "CPU (s)", "COMMAND")]
    for pid, state, seconds, words, _ in found:
        line = " ".join(words.split())
        short = line if len(line) <= WIDTH else line[:WIDTH] + " ..."
        rows.append("%8d  %-5s  %9.1f  %s" % (pid, state, seconds, short))
    return "\n".join(rows)


def stack(process: Process, spy: Optional[str], deadline: float) -> str:
    """The stacks of one process: py-spy's word, else what /proc tells."""
    said = "py-spy is not on PATH"
    if spy:
        tries = [["--nonblocking"]] if process.state in STILL else [[], ["--nonblocking"]]
        for more in tries:
            left = min(ONE, deadline - time.monotonic())
            said, done = _ask([spy, "dump", *more, "--pid", str(process.pid)], left)
            if done:
                return said
    return "\n".join(["Process %d: %s" % (process.pid, process.words), said, *kernel(process.pid)])


def kernel(pid: int) -> List[str]:
    """What /proc tells of each thread: name, state, the kernel's call in which it sleeps."""
    folder = "/proc/%d/task" % pid
    try:
        threads = sorted(map(int, os.listdir(folder)))
    except OSError:
        return ["it has ended"]
    lines = []
    for thread in threads[:THREADS]:
        about = "%d/task/%d" % (pid, thread)
        state = _text(about, "stat").rpartition(")")[2].split()[:1] or ["?"]
        place = _text(about, "wchan") or "?"
        lines.append("  thread %d %s: %s %s" % (thread, _text(about, "comm"), state[0], place))
        lines += ["    " + line for line in _text(about, "stack").splitlines()]
    if len(threads) > THREADS:
        lines.append("  and %d threads more" % (len(threads) - THREADS))
    return lines


def _hide(mask: Mask, text: str) -> str:
    return mask.whole(text.encode(errors="replace")).decode(errors="replace")


def _look(pid: int) -> Optional[Process]:
    """A process as it is now; None if it is over, another user's, or beam-slurm's own."""
    try:
        ours = os.stat("/proc/%d" % pid).st_uid == os.getuid()
    except OSError:
        return None
    fields, words = processes.stat(pid), [word for word in processes.words(pid) if word]
    own = pid == os.getpid() or any(os.path.basename(word) == OWN for word in words)
    if not ours or own or not fields or fields[0] in "ZX":
        return None
    ticks = int(fields[11]) + int(fields[12])  # in user mode and in the kernel
    return Process(
        pid,
        fields[0],
        ticks / os.sysconf("SC_CLK_TCK"),
        " ".join(words) or "[%s]" % processes.name(pid),
        _is_python(pid),
    )


def _is_python(pid: int) -> bool:
    """By what is running, not by what it calls itself."""
    try:
        return os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("python")
    except OSError:
        return False


def _ask(words: List[str], seconds: float) -> Tuple[str, bool]:
    """(what py-spy said, whether it could look)."""
    if seconds <= 0:
        return "the time was up", False
    try:
        done = check.ask(words, seconds)
    except (FileNotFoundError, check.Silent) as problem:
        return "py-spy: %s" % problem, False
    if done.code == 0:
        return done.out.rstrip(), True
    reasons = [line.strip() for line in done.err.split("Stack backtrace")[0].splitlines()]
    return "py-spy: " + " ".join(reason for reason in reasons if reason), False


def _text(about: str, name: str) -> str:
    """A file of /proc; "" if it is gone or not for us."""
    try:
        with open("/proc/%s/%s" % (about, name), errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
