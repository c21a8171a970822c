"""Preflight's checks of a node beside its GPUs: memory, limits, disks, and what must be there."""

import os
import resource
import shutil
from typing import Iterator, List, Optional, Set

from beam_slurm.node import examine
from beam_slurm.node.check import (
    FAIL,
    OK,
    UNKNOWN,
    WARN,
    Answer,
    Check,
    Silent,
    ask,
    few,
    size,
)

FILES = 65536  # open files that Ray asks for on large clusters
SPILL = 0.05  # Ray spills nothing to a file system with less than this part free
DAEMONS = ("docker", "podman")
LABEL = "beam-slurm"  # contain's label on its containers: JOB-RESTART-NODE
PATIENCE = 5.0  # seconds that a container runtime gets

MEMORY = ("tmpfs", "ramfs")
NETWORK = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "orangefs",
    "panfs",
    "pvfs2",
    "smb3",
    "smbfs",
    "virtiofs",
    "wekafs",
)

CGROUPS = "/sys/fs/cgroup"


def memory(need: int) -> Check:
    """RAM that a program of this step could have now, in bytes, against ``need``."""
    have, what = _available(), "free in the node"
    limit = _limit()
    if limit is not None and (have is None or limit < have):
        have, what = limit, "allowed for this job (--mem)"
    if have is None:
        return Check("memory", UNKNOWN, "/proc/meminfo does not tell", size(need))
    said = "%s %s" % (size(have), what)
    if have < need:
        do = "nodes with more RAM; or end what holds it: ps, ls /dev/shm"
        return Check("memory", FAIL, said, size(need), do)
    return Check("memory", OK, said, size(need))


def shm(need: int) -> Check:
    """Free shared memory in bytes, against what Ray is to take."""
    about = examine.disk(examine.SHM)
    free = about["free"] if about else 0
    have = "%s free in %s" % (size(free), examine.SHM)
    if free < need:
        do = "a smaller ray.object_store_gb, or a larger /dev/shm; old files there?"
        return Check("shm", FAIL, have, size(need), do)
    return Check("shm", OK, have, size(need))


def limits() -> Iterator[Check]:
    """Locked memory and open files, as this step may raise them."""
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if locked == resource.RLIM_INFINITY:
        yield Check("memlock", OK, "unlimited", "unlimited")
    else:
        do = "LimitMEMLOCK=infinity for slurmd, memlock out of PropagateResourceLimits"
        yield Check("memlock", FAIL, size(locked), "unlimited: RDMA locks its buffers", do)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    have = "unlimited" if files == resource.RLIM_INFINITY else "%d open files" % files
    if files != resource.RLIM_INFINITY and files < FILES:
        yield Check("nofile", FAIL, have, "%d" % FILES, "LimitNOFILE=1048576 for slurmd")
    else:
        yield Check("nofile", OK, have, "%d" % FILES)


def scratch(path: str, need: int) -> Check:
    """The place of ``path``, a folder that the run will make: a real disk of this node, and room
    for ``need`` bytes."""
    place = os.path.dirname(path.rstrip("/"))
    wanted = size(need) if need else "a disk of this node"
    do = "set site.paths.scratch to the nodes' own NVMe"
    about = examine.disk(place)
    if about is None:
        return Check("scratch", FAIL, "%s is not there" % place, wanted, do)
    kind = about["type"]
    if kind in MEMORY:
        have = "%s is %s: the node's memory, no disk" % (place, kind)
        return Check("scratch", FAIL, have, wanted, do)
    if _remote(kind):
        have = "%s is %s: not this node's own" % (place, kind)
        return Check("scratch", FAIL, have, wanted, do)
    have = "%s (%s) has %s free" % (place, kind, size(about["free"]))
    if about["free"] < need:
        return Check("scratch", FAIL, have, wanted, "remove what earlier jobs left there; or " + do)
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("scratch", FAIL, "%s: not ours to write" % place, wanted, do)
    return Check("scratch", OK, have, wanted)


def tmp(path: str) -> Check:
    """Where Ray keeps sockets and logs: local, ours to write, not full."""
    need = "a folder of this node, writable"
    do = "set site.paths.tmp to a folder that every node has for itself"
    about = examine.disk(path)
    if about is None:
        return Check("tmp", FAIL, "%s is not there" % path, need, do)
    problem = examine.unwritable(path)
    if problem:
        return Check("tmp", FAIL, "%s: %s" % (path, problem), need, do)
    if _remote(about["type"]):
        have = "%s is %s: Ray's sockets do not work there" % (path, about["type"])
        return Check("tmp", FAIL, have, need, do)
    room = os.statvfs(path)
    have = "%s (%s) has %s free" % (path, about["type"], size(about["free"]))
    if room.f_blocks and room.f_bavail < SPILL * room.f_blocks:
        more = "more than %.0f %% free: else Ray does not spill objects" % (100 * SPILL)
        return Check("tmp", WARN, have, more, "remove old files of %s" % path)
    return Check("tmp", OK, have, need)


def mounts(paths: List[str]) -> Check:
    """Whether everything that a container is given is here."""
    missing = [path for path in paths if not os.path.exists(path)]
    need = "every source of a mount"
    if missing:
        do = "mount it on this node, or take it out of site.mounts or site.paths"
        return Check("mounts", FAIL, "not there: " + few(missing), need, do)
    return Check("mounts", OK, "%d there" % len(paths), need)


def image(name: str, runtime: str) -> Check:
    """Whether the run's container image can be started here."""
    if runtime != "pyxis" and shutil.which(runtime) is None:
        do = "install it, or another site.container"
        return Check("image", FAIL, "%s is not on PATH" % runtime, runtime, do)
    if name.startswith(("/", ".", "~")):
        return _image_file(os.path.expanduser(name))
    if runtime not in DAEMONS:
        have = "%s is no file: every node fetches it when it starts" % name
        do = "beam-slurm submit makes one file of it for all nodes"
        return Check("image", WARN, have, "a file", do)
    try:
        answer = ask([runtime, "image", "inspect", "--format={{.Id}}", name], PATIENCE)
    except (FileNotFoundError, Silent) as problem:
        return Check("image", FAIL, str(problem), name, "restart the daemon of %s" % runtime)
    if answer.code == 0:
        return Check("image", OK, name, name)
    said = _last(answer)
    if "no such image" in said.lower() or "image not known" in said.lower():
        have = "%s is not on this node: it is pulled when Ray starts" % name
        return Check("image", WARN, have, name, "%s pull %s, before the run" % (runtime, name))
    return Check("image", FAIL, said, name, "does %s image inspect work on this node?" % runtime)


def containers(runtime: str, job: str, exclusive: bool) -> Check:
    """Containers that should not be on this node any more.

    Those of this job are always left-overs, of an earlier attempt. Other people's are, where the
    node is this job's alone: ours by their label, others only if they have GPUs (WARN: the site's
    own monitoring may).
    """
    listing = '{{.ID}} {{.Names}} {{.Label "%s"}}' % LABEL
    labelled = ["ps", "--filter=label=" + LABEL, "--format=" + listing]
    try:
        answer = ask([runtime, *labelled], PATIENCE)
        if answer.code:
            return Check("containers", UNKNOWN, _last(answer), "none left behind")
        rows = [line.split() for line in answer.out.splitlines() if line.strip()]
        left = [row[1] for row in rows if exclusive or row[-1].split("-")[0] == job]
        others = _with_gpus(runtime, {row[0] for row in rows}) if exclusive else []
    except FileNotFoundError:
        return Check("containers", UNKNOWN, "%s is not here" % runtime, "none left behind")
    except Silent as problem:
        return Check("containers", UNKNOWN, str(problem), "none left behind")
    do = "%s rm --force NAME" % runtime
    if left:
        return Check("containers", FAIL, "left behind: " + few(left), "none left behind", do)
    if others:
        have = "with GPUs: " + few(others)
        return Check("containers", WARN, have, "none left behind", do + ", unless the site's own")
    return Check("containers", OK, "none", "none left behind")


def _with_gpus(runtime: str, known: Set[str]) -> List[str]:
    """Names of the running containers, ``known`` left out, that were given GPUs."""
    found = ask([runtime, "ps", "--quiet"], PATIENCE).out.split()
    found = [name for name in found if name not in known]
    if not found:
        return []
    told = "{{.Name}} {{json .HostConfig}}"
    lines = ask([runtime, "inspect", "--format=" + told, *found], PATIENCE).out.splitlines()
    rows = [line.partition(" ") for line in lines]
    marks = ('"gpu"', "nvidia.com/gpu", "/dev/nvidia", '"Runtime":"nvidia"')
    return [name.lstrip("/") for name, _, host in rows if any(mark in host for mark in marks)]


def _image_file(path: str) -> Check:
    try:
        with open(path, "rb") as file:
            empty = not file.read(1)
    except OSError as error:
        do = "put it on storage that every node mounts: site.images"
        return Check("image", FAIL, "%s: %s" % (path, error.strerror), "the image's file", do)
    if empty:
        return Check("image", FAIL, "%s is empty" % path, "the image's file", "make it again")
    return Check("image", OK, path, "the image's file")


def _last(answer: Answer) -> str:
    lines = [line for line in (answer.err or answer.out).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "exit code %d" % answer.code


def _remote(kind: str) -> bool:
    """Whether a type of file system is storage of others: FUSE hardly ever is a disk."""
    return kind in NETWORK or kind.startswith("fuse.")


def _available() -> Optional[int]:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _limit() -> Optional[int]:
    """The least limit of the cgroups that this process is in; None if none has any."""
    found = []
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in rows:
        if controllers == "memory":
            found += _limits_above(CGROUPS + "/memory", path, "memory.limit_in_bytes")
        elif not controllers:
            found += _limits_above(CGROUPS, path, "memory.max")
    return min(found) if found else None


def _limits_above(root: str, path: str, name: str) -> List[int]:
    """What this cgroup and every one above it allow, in bytes."""
    found = []
    while True:
        try:
            with open("%s%s/%s" % (root, path.rstrip("/"), name)) as file:
                text = file.read().strip()
        except OSError:
            text = ""
        if text.isdigit():  # "max" is no limit
            found.append(int(text))
        if path in ("", "/"):
            return found
        path = os.path.dirname(path)
