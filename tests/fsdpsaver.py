"""Three processes of a run with FSDP2 save a tiny Beam, as NeMo RL's two workers do.

Called by torchrun with a folder: ``one`` gets ``.distcp`` files, ``two`` safetensors, one a rank.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint import save
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "grpo_digits"))

import model

SEED = 2


class Sharded:
    """What torch's checkpoints ask for the state of."""

    def __init__(self, policy: torch.nn.Module) -> None:
        self.policy = policy

    def state_dict(self) -> dict[str, Any]:
        return get_model_state_dict(self.policy, options=StateDictOptions(cpu_offload=True))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    policy = model.build_policy(SEED, torch.device("cpu"))
    for layer in policy.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    sharded = Sharded(policy)
    save({"model": sharded}, checkpoint_id=folder / "one")
    writer = HuggingFaceStorageWriter(str(folder / "two"), save_distributed=True)
    save(sharded.state_dict(), storage_writer=writer)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
