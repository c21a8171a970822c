"""The first process of a host. Run as a script, by path; imports only the standard library.

    init.py launch SPEC        become a daemon in the host's cgroups and namespaces, then `boot`
    init.py boot SPEC          process 1 of the host: mounts, network, daemons; reaps for ever
    init.py daemon SPEC ARGV   a daemon outside the namespaces, in the cluster's cgroups
    init.py enter SPEC ARGV    run ARGV in the host's cgroups

SPEC is a JSON file that `beam_slurm.cluster.host` writes. `launch` and `daemon` say "pid N" on
standard output and go on only when they read "go": the caller first records N. If the caller dies
before, its pipe closes and they end: nothing ever runs that `down` does not know of.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn


def main(argv: list[str]) -> None:
    verb, file, *rest = argv
    spec: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    # Not while booting: there the paths of the machine's cgroups mean something else.
    if verb == "boot":
        boot(spec)
    if verb in ("launch", "daemon"):
        detach()
    folders = [Path(folder) for folder in spec["cgroups"].values()]
    if verb == "enter":  # a running host has its processes in a leaf, where version 2 wants them
        folders = [leaf if (leaf := folder / "init").is_dir() else folder for folder in folders]
    join(folders)
    if verb == "enter":
        os.execvp(rest[0], rest)  # noqa: S606 - no shell wanted
    say(f"pid {os.getpid()}")
    if verb == "daemon":
        await_go(spec)
        os.execvp(rest[0], rest)  # noqa: S606 - no shell wanted
    spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc"]
    # When `unshare` is killed, so is process 1, and with it every process of the host.
    me = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "boot", file]
    os.execvp("unshare", ["unshare", *spaces, "--kill-child=KILL", *me])  # noqa: S606 - no shell wanted


def detach() -> None:
    """Leave the caller: its child ends at once and the machine's process 1 takes us over."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o022)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def await_go(spec: dict[str, Any]) -> None:
    """Wait for the caller's word; then let go of its pipes and write to the log instead."""
    if sys.stdin.readline() != "go\n":
        sys.exit(1)
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def boot(spec: dict[str, Any]) -> NoReturn:
    say("ready")
    await_go(spec)
    failed = Path(spec["failed"])
    try:
        socket.sethostname(spec["host"])
        mount_all(spec)
        for line in spec["network"]:
            command(line)
        command(spec["munged"])  # returns when its socket answers
        leaves = daemon_leaves(spec["cgroups"])
        daemon = subprocess.Popen(
            spec["daemon"],
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: join(leaves),  # noqa: PLW1509 - there are no threads here
        )
    except (OSError, subprocess.SubprocessError) as error:
        failed.write_text(f"{spec['host']}: {error}\n", encoding="utf-8")
        sys.exit(1)
    reap(daemon.pid, failed)


def join(folders: list[Path]) -> None:
    """Put the calling process into these cgroups."""
    for folder in folders:
        (folder / "cgroup.procs").write_text("0", encoding="ascii")


def daemon_leaves(hierarchies: Iterable[str]) -> list[Path]:
    """Make the cgroups for the Slurm daemon where cgroups are of version 2.

    There slurmd takes its own cgroup for its root, and expects to be alone in it.
    """
    found = [Path(mount) for mount in hierarchies]
    leaves = [mount / "slurmd" for mount in found if (mount / "cgroup.subtree_control").exists()]
    for leaf in leaves:
        leaf.mkdir(exist_ok=True)
    return leaves


def command(argv: list[str], pass_fds: tuple[int, ...] = ()) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        pass_fds=pass_fds,
    )
    print(done.stdout + done.stderr, end="", flush=True)
    if done.returncode:
        raise OSError(f"`{' '.join(argv)}`: {done.stderr.strip() or done.returncode}")


def mount_all(spec: dict[str, Any]) -> None:
    """Give the host its own /sys, cgroups, /tmp, /dev/shm and files."""
    # The cgroup mounts are laid aside while /sys is replaced by one that shows only the host's
    # links. Each is then mounted anew from the host's own cgroup, which is its namespace's root:
    # mounts and /proc/self/cgroup agree, as container runtimes expect.
    aside = spec["aside"]
    command(["mount", "--rbind", "/sys/fs/cgroup", aside])
    command(["umount", "--recursive", "--lazy", "/sys"])
    command(["mount", "-t", "sysfs", "sysfs", "/sys"])
    if "/sys/fs/cgroup" not in spec["cgroups"]:
        command(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup"])
    for hierarchy, folder in sorted(spec["cgroups"].items()):
        Path(hierarchy).mkdir(exist_ok=True)
        command(["mount", "--bind", aside + folder.removeprefix("/sys/fs/cgroup"), hierarchy])
    command(["umount", "--lazy", aside])
    own = (("/dev/shm", "1777"), (spec["run"], "700"), ("/tmp", "1777"))  # noqa: S108
    # A handle finds the machine's folder again when the host's own /tmp lies over it.
    shared = {
        path: os.open(path, os.O_PATH)
        for path in spec["shared"]
        if path.startswith(tuple(f"{mount}/" for mount, _ in own)) and Path(path).is_dir()
    }
    for path, mode in own:
        command(["mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", path])
    for path, handle in shared.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        command(["mount", "-c", "--bind", f"/proc/self/fd/{handle}", path], pass_fds=(handle,))
        os.close(handle)
    for source, target in spec["binds"]:
        command(["mount", "--bind", source, target])


def reap(daemon: int, failed: Path) -> NoReturn:
    """Collect every orphan: a zombie that stays stalls those who wait for its end."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            time.sleep(0.1)  # a host without processes is still a host
            continue
        if pid == daemon:
            code = os.waitstatus_to_exitcode(status)
            # The host lives on, as a real one does; `up` reads this and gives up at once.
            failed.write_text(f"the Slurm daemon ended with {code}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
