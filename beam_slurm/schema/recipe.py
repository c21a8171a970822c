"""What is trained, how much of it, and how it is cut over the GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from beam_slurm.schema.base import Line, Model

Precision = Literal["bf16", "mxfp8"]


class Optimizer(Model):
    """The optimizer and where its state (FP32 master weights, two moments) lives."""

    name: Line = "adamw"
    """Name of the optimizer."""
    state: Literal["gpu", "host", "nvme"] = "gpu"
    """On the GPUs, in the nodes' RAM, or streamed from their own NVMe."""
    offloaded: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Which part of it lives there, if that is not the GPU; the rest stays on the GPUs."""


class Lora(Model):
    """Low-rank adapters on all linear layers; the base model is frozen."""

    rank: PositiveInt
    """Rank of the adapters."""
    alpha: PositiveFloat
    """Scale: an adapter counts alpha / rank."""


class Learner(Model):
    """How training is cut over its GPUs."""

    backend: Literal["automodel-fsdp2", "megatron"]
    """What trains."""
    nodes: PositiveInt | None = None
    """Its own nodes; left out: all of them, in turn with generation."""
    tensor: PositiveInt = 1
    """Tensor parallelism (TP), ways."""
    pipeline: PositiveInt = 1
    """Pipeline parallelism (PP), stages."""
    context: PositiveInt = 1
    """Context parallelism (CP), ways."""
    expert: PositiveInt = 1
    """Expert parallelism (EP), ways."""
    expert_tensor: PositiveInt = 1
    """Tensor parallelism inside the experts."""
    precision: Precision = "bf16"
    """Numbers of the forward and backward pass."""


class Rollout(Model):
    """How generation is cut over its GPUs."""

    backend: Literal["sglang", "vllm"]
    """What generates."""
    nodes: PositiveInt | None = None
    """Its own nodes; left out: all of them, in turn with training."""
    engines: PositiveInt
    """Inference engines (replicas)."""
    gpus_per_engine: PositiveInt
    """GPUs of one engine."""
    tensor: PositiveInt | None = None
    """Tensor parallelism of one engine; left out: gpus_per_engine / pipeline."""
    pipeline: PositiveInt = 1
    """Pipeline parallelism of one engine, stages."""
    precision: Precision = "bf16"
    """Numbers of generation."""
    kv_cache: Literal["bf16", "fp8_e4m3"] = "bf16"
    """Numbers of the KV cache."""
    in_flight_weight_updates: bool | None = None
    """Whether new weights arrive while responses are being generated."""
    routing_replay: bool = False
    """Training routes tokens to the experts that generation chose (R3)."""

    @property
    def tensor_size(self) -> int:
        """Tensor parallelism of one engine."""
        return self.tensor or max(1, self.gpus_per_engine // self.pipeline)


class Sampling(Model):
    """How responses are drawn."""

    temperature: PositiveFloat = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: probability mass that is kept."""


class Evaluation(Model):
    """The held-out problems that the run scores itself on."""

    sets: Annotated[list[Line], Field(min_length=1)]
    """Names of the sets."""
    every: PositiveInt
    """Training steps between two evaluations."""
    problems: PositiveInt
    """Problems of each set."""
    responses_per_problem: PositiveInt
    """Responses to each."""


class Checkpoint(Model):
    """Saving model and optimizer."""

    enabled: bool
    """Whether checkpoints are saved."""
    every: PositiveInt
    """Training steps between two checkpoints."""
    keep: PositiveInt | None = None
    """How many are kept; left out: all of them."""
    resume: bool = False
    """Go on from the newest checkpoint in the output folder; without it, a folder that holds one
    is refused."""


class Watchdog(Model):
    """How long a run may be silent before it counts as stuck and is started again."""

    enabled: bool = True
    """Whether anybody watches."""
    startup_s: PositiveInt = 7200
    """Seconds from the entry's start to its first step."""
    silence_s: PositiveInt = 1800
    """Seconds without a new step, line of the log or checkpoint."""
    step_s: PositiveInt = 7200
    """Seconds without a new step, whatever the log says."""
    pause_s: PositiveInt = 3600
    """Seconds more while the run scores itself or saves."""


class Storage(Model):
    """Room that the recipe's authors ask for on each node, in 10^9 bytes."""

    nvme_gb: PositiveFloat | None = None
    """Free node-local NVMe of each node that trains."""
    host_memory_gb: PositiveFloat | None = None
    """RAM of each node that trains."""


class Reference(Model):
    """A result that the recipe's authors published: its first and its last value."""

    metric: Line
    """What was measured."""
    first: float
    """Its first value."""
    last: float
    """Its last value."""
    note: Line | None = None
    """What first and last are, if not the run's first and last value."""
    steps: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)] | None = None
    """The steps of the first and the last value; left out: not published."""


class Recipe(Model):
    """What is trained, and how much of it."""

    schedule: Literal["colocated", "async", "turns"]
    """colocated: training and generation share the GPUs; async: each has its own and they overlap;
    turns: each has its own and they take turns."""
    training: Literal["full", "lora"] = "full"
    """All weights, or low-rank adapters on a frozen model."""
    lora: Lora | None = None
    """The adapters, if training is lora."""
    steps: PositiveInt
    """Training steps (NeMo RL: updates; Miles: rollouts), those before a resume included."""
    prompts_per_step: PositiveInt
    """Prompts of one step."""
    responses_per_prompt: PositiveInt
    """Responses to each prompt."""
    updates_per_step: PositiveInt = 1
    """Optimizer updates of one step."""
    prompt_tokens: PositiveInt | None = None
    """Longest prompt, in tokens."""
    response_tokens: PositiveInt | None = None
    """Longest response, in tokens."""
    learning_rate: PositiveFloat | None = None
    """Constant learning rate; left out: the framework's recipe has its own."""
    optimizer: Optimizer = Optimizer()
    sampling: Sampling | None = None
    overlong_penalty: bool | None = None
    """Whether the reward falls near the length limit."""
    sequence_mask: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] | None = None
    """Sequences whose geometric-mean probability ratio lies outside are left out."""
    seed: int | None = None
    """Random seed; left out, the framework's."""
    learner: Learner | None = None
    rollout: Rollout | None = None
    evaluation: Evaluation
    checkpoint: Checkpoint
    startup_s: PositiveInt = 1800
    """Seconds from the entry's start to its first step, as expected."""
    watchdog: Watchdog = Watchdog()
    storage: Storage = Storage()
    reference: list[Reference] = []
