"""The nodes of one run."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, PositiveFloat, PositiveInt

from beam_slurm.schema.base import Line, Model


class Hardware(Model):
    """The nodes of one run, and what one of them has."""

    gpu: Annotated[Line, AfterValidator(str.lower)]
    """GPU type: h200, b200, b300. How Slurm spells it here is the site's to say."""
    nodes: PositiveInt
    """Nodes of the run."""
    gpus_per_node: PositiveInt
    """GPUs of one node."""
    gpu_memory_gb: PositiveFloat | None = None
    """Memory of one GPU, in 10^9 bytes."""
    host_memory_gb: PositiveFloat | None = None
    """RAM of one node, in 10^9 bytes."""
    nvme_gb: PositiveFloat | None = None
    """Free node-local NVMe of one node, in 10^9 bytes."""
    cpus_per_node: PositiveInt | None = None
    """CPUs to ask for; left out, the whole node's if it is exclusive."""
    exclusive: bool = True
    """Whole nodes with all their memory; false shares them with other jobs."""

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return self.nodes * self.gpus_per_node
