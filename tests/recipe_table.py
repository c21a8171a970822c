"""What the ten published recipes are, written down by hand from their texts and not from our code.

Words in braces are places: models, datasets, outputs, scratch and checkout as the run sees them,
``shared`` for the hosts' outputs, and ``run`` for the run's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Where the published container lines mount what the hosts have.
INSIDE = {
    "models": "/root/models",
    "datasets": "/root/datasets",
    "outputs": "/root/shared_data",
    "scratch": "/scratch",
}
CHECKOUTS = {"NeMo RL": "/workspace/nemo-rl", "SkyRL": "/workspace/SkyRL", "Miles": "/root/miles"}


@dataclass(frozen=True)
class Recipe:
    """One published recipe.

    Attributes:
        framework: its name for people.
        nodes: nodes of 8 GPUs each.
        gpu: type of the GPUs.
        entry: the whole argv that starts it.
        environment: every variable that it needs before Ray starts.
        resources: Ray custom resources of each node.
        scratch: (folder on each node's NVMe, bytes that must be free), if it needs one.
        checkpoints: where the hosts find its checkpoints; None if it saves none.
        values: the profile's values by dotted key below ``recipe``.
        reference: published results as (metric, first, last).
        assumed: keys whose values no text states, besides COMMON_ASSUMED.
    """

    framework: str
    nodes: int
    gpu: str
    entry: tuple[str, ...]
    environment: Mapping[str, str]
    resources: Mapping[str, float] = field(default_factory=dict)
    scratch: tuple[str, float] | None = None
    checkpoints: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[tuple[str, float, float], ...] = ()
    assumed: frozenset[str] = frozenset()

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * 8


# Of datasheets and habits, whatever the recipe.
COMMON_ASSUMED = frozenset(
    {
        "hardware.gpu_memory_gb",
        "hardware.host_memory_gb",
        "hardware.nvme_gb",
        "ray.deadline_s",
        "job.time",
    }
)

BOXED_LENGTHS = {"prompt_tokens": 1024, "response_tokens": 4096}

# --- NeMo RL: entry, YAML names and the two BEAM_ variables are published word by word.

NEMO_RL_ENVIRONMENT = {
    "BEAM_CHECKPOINT": "{models}/Beam",
    "BEAM_LOG_DIR": "{outputs}/{run}",
    "HF_HOME": "{models}/huggingface",
    "NRL_MEGATRON_CHECKPOINT_DIR": "{models}/nemo-rl-megatron",
    "OMP_NUM_THREADS": "16",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
NEMO_RL_RESOURCES = {"worker_units": 8, "slurm_managed_ray_cluster": 1}
NEMO_RL_VALUES = {
    **BOXED_LENGTHS,
    "training": "full",
    "steps": 200,
    "prompts_per_step": 32,
    "responses_per_prompt": 8,
    "updates_per_step": 1,
    "learning_rate": 1e-6,
    "optimizer.name": "adamw",
    "evaluation.sets": ["aime2025"],
    "evaluation.every": 5,
    "evaluation.problems": 30,
    "evaluation.responses_per_problem": 8,
    "checkpoint.enabled": False,
    "checkpoint.every": 20,
    "rollout.gpus_per_engine": 16,
}
NEMO_RL_COLOCATED = {
    **NEMO_RL_VALUES,
    "schedule": "colocated",
    "overlong_penalty": True,
    "learner.backend": "automodel-fsdp2",
    "learner.nodes": None,
    "rollout.backend": "sglang",
    "rollout.nodes": None,
}
NEMO_RL_YAML = "examples/configs/recipes/llm/grpo-beam-501b-"

# --- SkyRL: folder, variables and defaults are published, the scripts' names are lost.

SKYRL_SCRIPTS = "examples/train/models/reflection/beam/"


def skyrl_lora(nodes: int, prompts: int, mini_batch: int, engines: int) -> tuple[str, ...]:
    """One script for both sizes is our assumption, so what differs is always stated."""
    return (
        "bash",
        SKYRL_SCRIPTS + "run_beam_lora.sh",
        f"trainer.placement.policy_num_nodes={nodes}",
        f"trainer.train_batch_size={prompts}",
        f"trainer.policy_mini_batch_size={mini_batch}",
        f"generator.inference_engine.num_engines={engines}",
    )


SKYRL_ENVIRONMENT = {
    "MODEL_PATH": "{models}/Beam",
    "DATA_DIR": "{datasets}",
    "MAX_TRAINING_STEPS": "50",
    "CKPT_PATH": "{outputs}/{run}/checkpoints",
    "EXPORT_PATH": "{outputs}/{run}/exports",
    "RAY_RUNTIME_ENV_HOOK": "ray._private.runtime_env.uv_runtime_env_hook.hook",
    "SKYRL_RAY_PG_TIMEOUT_IN_S": "1800",
    "SKYRL_WORKER_NCCL_TIMEOUT_IN_S": "3600",
    "SKYRL_WAIT_UNTIL_INFERENCE_SERVER_HEALTHY_TIMEOUT_S": "3600",
    "RAY_worker_register_timeout_seconds": "600",
}
SKYRL_LORA = {
    **SKYRL_ENVIRONMENT,
    "CKPT_INTERVAL": "10",
    "RESUME_MODE": "latest",  # not in the text: by this a run's later attempts go on by themselves
}
SKYRL_FULL = {
    **SKYRL_ENVIRONMENT,
    "CKPT_INTERVAL": "25",
    "RESUME_MODE": "latest",
    "OPTIMIZER_STATE_DISK_DIR": "{scratch}/{run}",
}
SKYRL_VALUES = {
    "schedule": "colocated",
    "steps": 50,
    "prompts_per_step": 64,
    "responses_per_prompt": 8,
    "updates_per_step": 2,
    "prompt_tokens": 2048,
    "response_tokens": 8192,
    "sampling.temperature": 1.0,
    "sampling.top_p": 1.0,
    "overlong_penalty": True,
    "evaluation.sets": ["aime2024", "aime2025"],
    "evaluation.every": 5,
    "evaluation.problems": 30,
    "evaluation.responses_per_problem": 8,
    "checkpoint.enabled": True,
    "learner.backend": "megatron",
    "learner.tensor": 4,
    "learner.pipeline": 2,
    "learner.nodes": None,
    "rollout.backend": "vllm",
    "rollout.gpus_per_engine": 16,
    "rollout.tensor": 8,
    "rollout.pipeline": 2,
    "rollout.nodes": None,
    "rollout.routing_replay": True,
    "rollout.kv_cache": "bf16",
}
SKYRL_LORA_VALUES = {
    **SKYRL_VALUES,
    "training": "lora",
    "lora.rank": 64,
    "lora.alpha": 64,
    "learning_rate": 1e-5,
    "checkpoint.every": 10,
    "learner.expert": 8,
}
SKYRL_FULL_VALUES = {
    **SKYRL_VALUES,
    "training": "full",
    "lora": None,
    "learning_rate": None,
    "optimizer.state": "nvme",
    "checkpoint.every": 25,
    "learner.expert": 32,
    "rollout.engines": 4,
    "storage.nvme_gb": 700,
}
SKYRL_REFERENCE = (
    ("aime2025/accuracy", 0.61, 0.79),
    ("response_tokens", 950, 1400),
    ("logprob_difference", 0.02, 0.008),
)
SKYRL_NAMES = frozenset({"framework.script", "framework.model_variable", "framework.data_script"})
SKYRL_LAYOUT = SKYRL_NAMES | {
    "recipe.learner.tensor",
    "recipe.learner.pipeline",
    "recipe.learner.expert",
    "recipe.rollout.engines",
    "recipe.rollout.gpus_per_engine",
    "recipe.rollout.tensor",
    "recipe.rollout.pipeline",
}

# --- Miles: launchers' names, commands and some flags are published, their folder is lost.

MILES_ENVIRONMENT = {"MILES_SCRIPT_EXTERNAL_RAY": "1", "PYTHONNOUSERSITE": "1"}
MILES_FULL = {**MILES_ENVIRONMENT, "SCRATCH": "{scratch}/{run}"}
MILES_VALUES = {
    **BOXED_LENGTHS,
    "steps": 100,
    "prompts_per_step": 32,
    "responses_per_prompt": 8,
    "updates_per_step": 1,
    "overlong_penalty": True,
    "evaluation.sets": ["aime2025"],
    "evaluation.every": 5,
    "evaluation.problems": 30,
    "evaluation.responses_per_problem": 8,
    "checkpoint.enabled": True,
    "checkpoint.every": 20,
    "learner.backend": "megatron",
    "learner.tensor": 4,
    "learner.pipeline": 2,
    "rollout.backend": "sglang",
    "rollout.gpus_per_engine": 16,
}
MILES_ASSUMED = frozenset(
    {
        "framework.script",
        "framework.prepare_script",
        "framework.checkpoints",
        "recipe.steps",
        "recipe.learner.tensor",
        "recipe.learner.pipeline",
        "recipe.learner.expert",
        "recipe.rollout.backend",
        "recipe.rollout.engines",
        "recipe.rollout.gpus_per_engine",
    }
)

TABLE: dict[str, Recipe] = {
    "h200-colocated": Recipe(
        framework="NeMo RL",
        assumed=frozenset({"recipe.checkpoint.keep"}),
        nodes=16,
        gpu="h200",
        entry=(
            "python",
            "examples/run_grpo.py",
            "--config",
            NEMO_RL_YAML + "16n8g-fsdp2ep128-automodel-sglang.yaml",
        ),
        environment=NEMO_RL_ENVIRONMENT,
        resources=NEMO_RL_RESOURCES,
        values={**NEMO_RL_COLOCATED, "learner.expert": 128, "rollout.engines": 8},
        reference=(
            ("aime2025/accuracy", 0.5333, 0.65),
            ("aime2025/response_tokens", 3201, 2604),
        ),
    ),
    "b300-colocated": Recipe(
        framework="NeMo RL",
        assumed=frozenset({"recipe.checkpoint.keep"}),
        nodes=8,
        gpu="b300",
        entry=(
            "python",
            "examples/run_grpo.py",
            "--config",
            NEMO_RL_YAML + "8n8g-b300-fsdp2ep64-automodel-sglang.yaml",
        ),
        environment=NEMO_RL_ENVIRONMENT,
        resources=NEMO_RL_RESOURCES,
        values={**NEMO_RL_COLOCATED, "learner.expert": 64, "rollout.engines": 4},
    ),
    "h200-async": Recipe(
        framework="NeMo RL",
        assumed=frozenset({"recipe.checkpoint.keep"}),
        nodes=16,
        gpu="h200",
        entry=(
            "python",
            "examples/run_grpo.py",
            "--config",
            NEMO_RL_YAML + "16n8g-tp2pp3ep32-megatron-vllm-async.yaml",
            # The published file has these very numbers: said again, so that they are checked.
            "cluster.num_nodes=16",
            "cluster.gpus_per_node=8",
            "policy.generation.colocated.resources.num_nodes=4",
            "policy.generation.colocated.resources.gpus_per_node=8",
        ),
        environment=NEMO_RL_ENVIRONMENT,
        resources=NEMO_RL_RESOURCES,
        values={
            **NEMO_RL_VALUES,
            "schedule": "async",
            "overlong_penalty": False,
            "optimizer.state": "host",
            "optimizer.offloaded": 0.5,
            "learner.backend": "megatron",
            "learner.nodes": 12,
            "learner.tensor": 2,
            "learner.pipeline": 3,
            "learner.expert": 32,
            "rollout.backend": "vllm",
            "rollout.nodes": 4,
            "rollout.engines": 2,
            "rollout.in_flight_weight_updates": False,
        },
    ),
    "b200-lora-16": Recipe(
        framework="SkyRL",
        nodes=2,
        gpu="b200",
        entry=skyrl_lora(nodes=2, prompts=32, mini_batch=32, engines=1),
        environment=SKYRL_LORA,
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **SKYRL_LORA_VALUES,
            "prompts_per_step": 32,
            "updates_per_step": 1,
            "rollout.engines": 1,
        },
        assumed=SKYRL_NAMES,
    ),
    "b200-lora": Recipe(
        framework="SkyRL",
        nodes=4,
        gpu="b200",
        entry=skyrl_lora(nodes=4, prompts=64, mini_batch=32, engines=2),
        environment=SKYRL_LORA,
        checkpoints="{shared}/{run}/checkpoints",
        values={**SKYRL_LORA_VALUES, "rollout.engines": 2},
        reference=SKYRL_REFERENCE,
        assumed=SKYRL_LAYOUT,
    ),
    "b200-bf16": Recipe(
        framework="SkyRL",
        nodes=8,
        gpu="b200",
        entry=("bash", SKYRL_SCRIPTS + "run_beam_bf16.sh"),
        environment=SKYRL_FULL,
        scratch=("{scratch}/{run}", 0.7e12),
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **SKYRL_FULL_VALUES,
            "learner.precision": "bf16",
            "rollout.precision": "bf16",
            "sequence_mask": None,
        },
        reference=SKYRL_REFERENCE,
        assumed=SKYRL_LAYOUT,
    ),
    "b200-mxfp8": Recipe(
        framework="SkyRL",
        nodes=8,
        gpu="b200",
        entry=("bash", SKYRL_SCRIPTS + "run_beam_mxfp8.sh"),
        environment=SKYRL_FULL,
        scratch=("{scratch}/{run}", 0.7e12),
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **SKYRL_FULL_VALUES,
            "learner.precision": "mxfp8",
            "rollout.precision": "mxfp8",
            "sequence_mask": [0.99, 1.01],
        },
        reference=(
            ("generation_throughput", 1.0, 1.44),
            ("logprob_difference", 0.03, 0.02),
        ),
        assumed=SKYRL_LAYOUT,
    ),
    "miles-h200-async": Recipe(
        framework="Miles",
        nodes=12,
        gpu="h200",
        entry=(
            "python",
            "scripts/run_beam.py",
            "execute",
            "--num-nodes=12",
            "--num-gpus-per-node=8",
            "--model-dir={models}",
            "--data-dir={datasets}",
            "--output-dir={outputs}/{run}",
            "--num-rollout=100",
            "--optimizer-disk-dir={scratch}/{run}/optimizer",
            "--extra-args=--actor-num-nodes=8 --actor-num-gpus-per-node=8 --rollout-num-gpus=32 "
            "--save-trigger-sentinel={outputs}/{run}/save-now",
        ),
        environment=MILES_FULL,
        scratch=("{scratch}/{run}", 2e12),
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **MILES_VALUES,
            "schedule": "async",
            "training": "full",
            "optimizer.state": "nvme",
            "learner.nodes": 8,
            "learner.expert": 32,
            "rollout.nodes": 4,
            "rollout.engines": 2,
            "storage.nvme_gb": 2000,
        },
        reference=(
            ("aime2025/accuracy", 0.4625, 0.5583),
            ("aime2025/response_tokens", 3148, 2777),
        ),
        assumed=MILES_ASSUMED,
    ),
    "miles-colocated": Recipe(
        framework="Miles",
        nodes=8,
        gpu="b300",
        entry=(
            "python",
            "scripts/run_beam.py",
            "execute-colocate",
            "--num-nodes=8",
            "--num-gpus-per-node=8",
            "--model-dir={models}",
            "--data-dir={datasets}",
            "--output-dir={outputs}/{run}",
            "--num-rollout=100",
            "--optimizer-disk-dir={scratch}/{run}/optimizer",
            "--extra-args=--save-trigger-sentinel={outputs}/{run}/save-now",
        ),
        environment=MILES_FULL,
        scratch=("{scratch}/{run}", 0),  # the text gives no number
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **MILES_VALUES,
            "schedule": "colocated",
            "training": "full",
            "optimizer.state": "nvme",
            "learner.nodes": None,
            "learner.expert": 32,
            "rollout.nodes": None,
            "rollout.engines": 4,
            "storage.nvme_gb": None,
        },
        assumed=MILES_ASSUMED | {"hardware.gpu"},
    ),
    "miles-lora": Recipe(
        framework="Miles",
        nodes=4,
        gpu="b200",
        entry=(
            "python",
            "scripts/run_beam_lora.py",
            "execute",
            "--num-nodes=4",
            "--num-gpus-per-node=8",
            "--model-dir={models}",
            "--data-dir={datasets}",
            "--output-dir={outputs}/{run}",
            "--num-rollout=100",
            "--extra-args=--actor-num-nodes=2 --actor-num-gpus-per-node=8 --rollout-num-gpus=16 "
            "--save-trigger-sentinel={outputs}/{run}/save-now",
        ),
        environment=MILES_ENVIRONMENT,
        checkpoints="{shared}/{run}/checkpoints",
        values={
            **MILES_VALUES,
            "schedule": "async",
            "training": "lora",
            "lora.rank": 64,
            "lora.alpha": 64,
            "optimizer.state": "gpu",
            "learner.nodes": 2,
            "learner.expert": 8,
            "rollout.nodes": 2,
            "rollout.engines": 1,
            "storage.nvme_gb": None,
        },
        assumed=MILES_ASSUMED
        | {
            "hardware.gpu",
            "recipe.lora.rank",
            "recipe.lora.alpha",
            "recipe.learner.nodes",
            "recipe.rollout.nodes",
        },
    ),
}

NAMES = tuple(sorted(TABLE))
