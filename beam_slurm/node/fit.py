"""Whether this node is what the job asked for, before anything expensive happens on it."""

import contextlib
import os
import shutil
import stat

SHM = "/dev/shm"  # noqa: S108 - where Ray keeps objects


class Unfit(Exception):
    """This node is not what the job asked for; the text has both numbers."""


def check(gpus: int, object_store: int) -> None:
    """Raise Unfit for what would otherwise show only when a model is loaded.

    Args:
        gpus: how many GPUs the job wants on this node.
        object_store: bytes of shared memory that Ray is to take; 0 leaves it to Ray.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = len([device for device in visible.split(",") if device.strip()])
        if count != gpus:
            raise Unfit(
                "the step sees %d GPUs (CUDA_VISIBLE_DEVICES=%s), the job wants %d a node"
                % (count, visible, gpus)
            )
    if object_store:
        shm = os.statvfs(SHM)
        free = shm.f_bavail * shm.f_frsize
        if free < object_store:
            raise Unfit(
                "%s has %.1f GB free, ray.object_store_gb wants %.1f"
                % (SHM, free / 1e9, object_store / 1e9)
            )


def private_folder(path: str, need: int = 0) -> None:
    """Make ``path`` for this user alone; a left-over of the same job is emptied first.

    Raises:
        Unfit: there is no such place, less than ``need`` bytes are free in it, or somebody else
            has the name.
    """
    remove_folder(path)
    parent = os.path.dirname(path)
    try:
        room = os.statvfs(parent)
        os.mkdir(path, 0o700)
    except FileExistsError:
        raise Unfit("%s is there and is not ours" % path) from None
    except OSError as problem:
        raise Unfit("cannot make %s: %s" % (path, problem.strerror)) from None
    free = room.f_bavail * room.f_frsize
    if free < need:
        os.rmdir(path)
        raise Unfit("%s has %.1f GB free, the recipe needs %.1f" % (parent, free / 1e9, need / 1e9))


def remove_folder(path: str) -> None:
    """Remove ``path`` if it is a folder of this user; links and other people's stay."""
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
