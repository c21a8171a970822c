"""The text of slurm.conf and its companions. Pure functions: nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from beam_slurm.cluster.spec import CONTROLLER, ClusterSpec


def slurm_conf(name: str, spec: ClusterSpec, root: Path, addresses: Mapping[str, str]) -> str:
    """Return slurm.conf.

    Args:
        name: the cluster's name.
        spec: the cluster's size.
        root: the cluster's state folder.
        addresses: address of every host, the controller included, by name.
    """
    gres = f" Gres=gpu:{spec.gpu_type}:{spec.gpus}" if spec.gpus else ""
    lines = [
        f"ClusterName={name}",
        # Addresses, not names: the real machine's /etc/hosts does not know these hosts.
        f"SlurmctldHost={CONTROLLER}({addresses[CONTROLLER]})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        # The same path everywhere; each host has its own socket mounted there.
        f"AuthInfo=socket={munge_socket(root)}",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={root}/log/{CONTROLLER}.slurmctld.log",
        f"SlurmdLogFile={root}/log/%n.slurmd.log",
        f"PlugStackConfig={root}/etc/plugstack.conf",
        "",
        "# Steps are killed by cgroup: with linuxproc a daemon outlives its step.",
        "ProctrackType=proctrack/cgroup",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "MpiDefault=none",
        "MailProg=/bin/true",
        # The limits of whoever submits need not fit a machine without CAP_SYS_RESOURCE.
        "PropagateResourceLimits=NONE",
        "",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        # A laptop's two cores may pose as a whole node.
        "SlurmdParameters=config_overrides",
        "",
        "# A dead host is noticed in 30 s, not 300, and returns by itself.",
        "SlurmdTimeout=30",
        "ReturnToService=2",
        "KillWait=5",
        "MinJobAge=3600",
        "SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,"
        "batch_sched_delay=0",
        "",
        "# No database, as on many sites: sacct answers that it is disabled.",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={root}/log/jobcomp.txt",
        "",
    ]
    lines += [
        f"NodeName={node} NodeAddr={addresses[node]} NodeHostname={node} CPUs={spec.cpus}"
        f" RealMemory={spec.memory_mb}{gres} State=UNKNOWN"
        for node in spec.nodes
    ]
    lines += [
        "PartitionName=gpu Nodes=ALL Default=YES DefaultTime=1:00:00 MaxTime=7-00:00:00 State=UP",
        *spec.extra_conf,
    ]
    return "\n".join(lines) + "\n"


def gres_conf(spec: ClusterSpec, root: Path) -> str:
    """Return gres.conf. Slurm sets CUDA_VISIBLE_DEVICES only for GPUs that have device files."""
    if not spec.gpus:
        return ""
    return f"AutoDetect=off\nName=gpu Type={spec.gpu_type} File={root}/dev/nvidia" + (
        "0\n" if spec.gpus == 1 else f"[0-{spec.gpus - 1}]\n"
    )


def cgroup_conf(version: int) -> str:
    """Return cgroup.conf for a machine whose cgroups are of ``version`` 1 or 2."""
    # Without systemd nobody else makes the scope that Slurm wants on version 2.
    return f"CgroupPlugin=cgroup/v{version}\n" + ("IgnoreSystemd=yes\n" if version == 2 else "")


def hosts_file(addresses: Mapping[str, str], outside: Mapping[str, str]) -> str:
    """Return the /etc/hosts that the hosts see.

    Args:
        addresses: address of every host by name.
        outside: names of the real machine and the address by which the hosts reach it.
    """
    named = {**addresses, **{name: ip for name, ip in outside.items() if name not in addresses}}
    return "127.0.0.1 localhost\n::1 localhost\n" + "".join(
        f"{ip} {name}\n" for name, ip in named.items()
    )


def munge_socket(root: Path) -> Path:
    """The socket of munged, at the same path inside and outside the hosts."""
    return root / "munge" / "socket"


def munged_argv(root: Path, host: str) -> list[str]:
    """The command that starts munged for ``host`` (``client`` for the real machine)."""
    return [
        "munged",
        # The folders are root's alone, where munged would have its socket open to everyone.
        "--force",
        f"--socket={munge_socket(root)}",
        f"--key-file={root}/munge.key",
        f"--pid-file={root}/munge/pid",
        f"--seed-file={root}/munge/seed",
        f"--log-file={root}/log/{host}.munged.log",
    ]
