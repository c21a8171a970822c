"""The embedded Slurm: a real cluster of several hosts on one Linux machine."""

from beam_slurm.cluster.cluster import Cluster, HostStatus
from beam_slurm.cluster.spec import ClusterSpec

__all__ = ["Cluster", "ClusterSpec", "HostStatus"]
