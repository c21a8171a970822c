"""What the machine must have before a cluster can be made."""

from __future__ import annotations

import os
import shutil
import sys

from beam_slurm.cluster.process import base_environment, run
from beam_slurm.errors import BeamSlurmError

PACKAGES = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
    "srun": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
INSTALL = "apt-get install slurm-wlm munge iproute2"


def missing_commands() -> list[str]:
    """The commands that a cluster needs and that this machine lacks."""
    path = base_environment()["PATH"]
    return [command for command in PACKAGES if not shutil.which(command, path=path)]


def check() -> None:
    """Check that a cluster can be made here.

    Raises:
        BeamSlurmError: names what is missing and how to get it.
    """
    if sys.platform != "linux":
        raise BeamSlurmError(
            "the embedded Slurm needs Linux", remedy="use a Debian 12 machine or container"
        )
    if missing := missing_commands():
        raise BeamSlurmError(
            f"the embedded Slurm needs commands that are missing: {', '.join(missing)}",
            remedy=INSTALL,
        )
    check_root()
    spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--cgroup", "--fork"]
    done = run(["unshare", *spaces, "true"], check=False)
    if done.returncode:
        raise BeamSlurmError(
            "this machine does not let root make namespaces",
            why=done.stderr.strip(),
            remedy="start the container with --privileged, or use a machine of your own",
        )


def check_root() -> None:
    """Raise unless run by root."""
    if os.geteuid() != 0:
        raise BeamSlurmError(
            "the embedded Slurm needs root: it makes network, process and mount namespaces",
            remedy="run the same command with sudo, or in a container as root",
        )
