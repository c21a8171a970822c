"""The types of everything that a YAML file can say: hardware, framework, recipe, Ray, job, site.

Every model refuses unknown keys and wrong types; the comment beside a field is its documentation.
Units are in the names or beside the field. ``profiles`` loads and composes the files.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Job and run names: what every Slurm, file system and shell takes without quotes."""

TIME = re.compile(r"(?:\d+-)?\d+(?::\d{1,2}){0,2}")
"""Slurm's time limits: minutes, m:ss, h:mm:ss, d-h, d-hh:mm, d-hh:mm:ss."""


class Model(BaseModel):
    """Strict and frozen: what is not written here is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _one_line(value: str) -> str:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError("a line break or another control character is not allowed here")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("this must not be empty")
    return _one_line(value)


def _path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("this must be an absolute path: it is used on other machines")
    return _not_blank(value)


Line = Annotated[str, Field(min_length=1)]


class Hardware(Model):
    """The nodes of one run."""

    gpu: Line  # GPU type: h200, b200, b300; how Slurm spells it here is the site's to say
    nodes: PositiveInt
    gpus_per_node: PositiveInt
    gpu_memory_gb: PositiveFloat | None = None  # memory of one GPU, in 10^9 bytes
    cpus_per_node: PositiveInt | None = None  # CPUs to ask for; left out: the whole node's
    exclusive: bool = True  # whole nodes; false shares them with other jobs

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return self.nodes * self.gpus_per_node


class NemoRL(Model):
    """NVIDIA NeMo RL."""

    name: Literal["nemo-rl"]
    config: Line  # the recipe's YAML, relative to the checkout
    image: Line  # which of the site's images it needs: a key of site.images


class Demo(Model):
    """The digit-sum GRPO of examples/grpo_digits: real training, on any machine."""

    name: Literal["demo"]
    entry: list[str] | None = None  # another program instead of train.py: its whole argv


class Parallel(Model):
    """How one side of the run, training or generation, is cut over its GPUs."""

    backend: Line  # automodel-fsdp2, megatron, sglang, vllm, ...
    gpus: PositiveInt | None = None  # its own GPUs; left out: all of them, in turn
    tensor: PositiveInt | None = None
    pipeline: PositiveInt | None = None
    context: PositiveInt | None = None
    expert: PositiveInt | None = None
    engines: PositiveInt | None = None  # generation: how many inference engines
    gpus_per_engine: PositiveInt | None = None


class Evaluation(Model):
    """The held-out problems that the run scores itself on."""

    set: Line
    every: PositiveInt  # training steps between two evaluations
    problems: PositiveInt
    responses_per_problem: PositiveInt


class Checkpoint(Model):
    """Saving model and optimizer."""

    enabled: bool
    every: PositiveInt  # training steps between two checkpoints


class Reference(Model):
    """Results that the recipe's authors published."""

    metric: Line
    first: float
    last: float


class Recipe(Model):
    """What is trained, and how much of it."""

    schedule: Literal["colocated", "async"]
    training: Literal["full", "lora"] = "full"
    steps: PositiveInt
    prompts_per_step: PositiveInt
    responses_per_prompt: PositiveInt
    updates_per_step: PositiveInt = 1
    prompt_tokens: PositiveInt | None = None  # longest prompt
    response_tokens: PositiveInt | None = None  # longest response
    learning_rate: PositiveFloat
    optimizer: Line = "adamw"
    seed: int | None = None
    rollout: Parallel | None = None
    learner: Parallel | None = None
    evaluation: Evaluation
    checkpoint: Checkpoint
    reference: list[Reference] = []


class Ray(Model):
    """The job's own Ray cluster."""

    auth: Literal["token", "off"] = "token"  # who may talk to it; token needs Ray 2.52
    dashboard: bool = True  # on the head's private address; false leaves out `ray status` too
    deadline_s: PositiveInt = 900  # seconds until every node must have joined
    object_store_gb: PositiveFloat | None = None  # shared memory per node; left out: Ray decides


class Job(Model):
    """What Slurm is asked for, beside the hardware."""

    time: str = "1-00:00:00"  # Slurm's spelling: d-hh:mm:ss
    name: str | None = None  # left out: the profile's name

    @field_validator("time", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(f'put it in quotes ("{value}"): a bare number is read as minutes')
        if isinstance(value, str) and not TIME.fullmatch(value):
            raise ValueError('this is no Slurm time: write "hh:mm:ss" or "d-hh:mm:ss"')
        return value

    @field_validator("name")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        if value is not None and not NAME.fullmatch(value):
            raise ValueError("a name is 1 to 64 of A-Z a-z 0-9 . _ -")
        return value


class Network(Model):
    """Which of a node's addresses Ray uses. Left out: the one its name resolves to."""

    interface: str | None = None  # ib0
    prefix: str | None = None  # 10.1.0.0/16


class Paths(Model):
    """Where things lie on this cluster: absolute, the same on every node."""

    runs: str | None = None  # run folders, on shared storage; left out: ./runs
    models: str | None = None  # holds Beam/
    outputs: str | None = None  # logs, evaluations, checkpoints
    nemo_rl: str | None = None  # checkout of NeMo RL's Beam branch
    venv: str | None = None  # virtual environment for runs without a container
    tmp: str = "/tmp"  # noqa: S108 - node-local; a private folder is made inside it

    @field_validator("*")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return None if value is None else _path(value)


class Site(Model):
    """What this cluster is like: the one file that a user writes."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    gpu_names: dict[str, str] = {}  # our name -> the type in this cluster's gres; "" if it has none
    container: Literal["pyxis", "bare"] = "pyxis"
    images: dict[str, str] = {}  # e.g. nemo-rl-colocated: /shared/images/nemo-rl.sqsh
    mounts: list[str] = []  # SOURCE:TARGET, besides those that the framework needs
    environment: dict[str, str] = {}  # exported before Ray starts, on every node
    network: Network = Network()
    paths: Paths = Paths()

    @field_validator("partition", "account", "qos", "reservation", "constraint")
    @classmethod
    def _directive(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"\s", _not_blank(value)):
            raise ValueError("white space is not allowed here")
        return value

    @field_validator("images")
    @classmethod
    def _images(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            _not_blank(text)
        return value

    @field_validator("environment")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} is no name of an environment variable")
        return value

    @field_validator("mounts")
    @classmethod
    def _mounts(cls, value: list[str]) -> list[str]:
        for mount in value:
            if not re.fullmatch(r"/[^:,]*:/[^:,]*(?::r[ow])?", _one_line(mount)):
                raise ValueError(f"{mount!r} is no mount: write /source:/target or …:ro")
        return value


class Profile(Model):
    """One complete launch: hardware, framework and recipe on a site."""

    name: Line
    description: Line
    hardware: Hardware
    framework: NemoRL | Demo = Field(discriminator="name")
    recipe: Recipe
    ray: Ray = Ray()
    job: Job = Job()
    site: Site = Site()
    assumed: dict[str, str] = {}  # dotted key -> why its value is our assumption, not a fact

    @property
    def job_name(self) -> str:
        """Slurm's name for the job."""
        return self.job.name or self.name
