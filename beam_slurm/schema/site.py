"""What this cluster is like: the one file that a user writes."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, PositiveFloat, field_validator, model_validator

from beam_slurm import mounts
from beam_slurm.node.verdicts import ALWAYS, SEVERITY
from beam_slurm.schema.base import Model, Path, Text, Word, one_line


def _network(value: str) -> str:
    if "/" not in value:
        raise ValueError("this is no network: write how long its prefix is, as 10.1.0.0/16")
    ipaddress.ip_network(value, strict=False)
    return value


class Network(Model):
    """Which of a node's addresses Ray uses. Left out: the one its name resolves to."""

    interface: str | None = None
    """Network interface, such as ib0."""
    prefix: Annotated[str, AfterValidator(_network)] | None = None
    """Network that the address lies in, such as 10.1.0.0/16."""


# A socket's path ends at 107 bytes. Below tmp come /beam-JOB-ATTEMPT (17 with eight digits and
# two), /ray/session_DATE_TIME_PID (47), and the longest of Ray's own,
# /sockets/dash_TaskEventsHead (28).
_LONGEST_TMP = 107 - 17 - 47 - 28


def _short(value: str) -> str:
    if len(value.encode()) > _LONGEST_TMP:
        raise ValueError(
            f"this is {len(value.encode())} bytes long, and Ray's sockets below it leave room for "
            f"{_LONGEST_TMP}: choose a shorter path, or make a link to it"
        )
    return value


class Paths(Model):
    """Where things lie on this cluster: absolute, the same on every node."""

    runs: Path | None = None
    """Run folders, on shared storage; left out: ./runs."""
    models: Path | None = None
    """Shared folder that holds Beam/."""
    datasets: Path | None = None
    """Shared folder of training and evaluation problems (SkyRL, Miles)."""
    outputs: Path | None = None
    """Shared folder for the frameworks' logs, evaluations and checkpoints."""
    scratch: Path | None = None
    """Node-local NVMe for optimizer state that is streamed from disk."""
    nemo_rl: Path | None = None
    """Checkout of NeMo RL, branch beam-support."""
    skyrl: Path | None = None
    """Checkout of SkyRL, branch beam-release."""
    miles: Path | None = None
    """Checkout of Miles, branch beam-image."""
    venv: Path | None = None
    """Virtual environment for runs without a container; left out: that of beam-slurm itself."""
    tmp: Annotated[Path, AfterValidator(_short)] = "/tmp"  # noqa: S108 - not itself shared
    """Node-local, at most 15 bytes; each job makes and removes its own folder in it."""


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is no name of an environment variable")
    return name


class Notify(Model):
    """What is sent when a run starts, ends, fails or starts again: see docs/notifications.md."""

    webhook: str | None = None
    """Name of the variable that holds the webhook's URL; left out: nothing is sent. The URL is a
    secret like those of site.secrets, and the training does not get it."""
    form: Literal["json", "slack"] = "json"
    """json: all facts, for programs; slack: {"text": ...}, one line for people."""
    on: list[Literal["start", "end", "failure", "restart"]] = ["start", "end", "failure", "restart"]
    """start: its nodes have been chosen; end: it has succeeded or was cancelled; failure: it has
    failed and does not go on; restart: an attempt has ended and the run goes on."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        # An error of the whole, since one of the key would repeat its value: it may be the URL.
        if self.webhook is not None and not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.webhook):
            raise ValueError(
                "webhook is no name of a variable, such as BEAM_WEBHOOK; the URL is a secret: "
                "export it in the shell that submits, or put it into site.secrets_file"
            )
        return self


def _mount(text: str) -> str:
    mounts.parse(text)
    return text


def _directive(value: str | int | bool) -> str | int | bool:
    if isinstance(value, str):
        one_line(value)
    return value


class Site(Model):
    """What this cluster is like."""

    partition: Word | None = None
    """--partition; left out: the cluster's default."""
    account: Word | None = None
    """--account."""
    qos: Word | None = None
    """--qos."""
    reservation: Word | None = None
    """--reservation."""
    constraint: Word | None = None
    """--constraint: features that the nodes must have."""
    exclude: Word | None = None
    """--exclude: nodes that are not to be used, as node[3,17]."""
    directives: dict[str, Annotated[str | int | bool, AfterValidator(_directive)]] = {}
    """More #SBATCH options, without --: {mail-type: FAIL}; true is an option without a value."""
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    """How GPUs are asked for; none where nodes come whole."""
    gpu_names: dict[str, str] = {}
    """Our name of a GPU type -> the type in this cluster's gres, "" if it has none."""
    price_per_gpu_hour: PositiveFloat | None = None
    """What one GPU costs for an hour."""
    currency: Text = "USD"
    """Currency of that price."""
    container: Literal["pyxis", "docker", "podman", "apptainer", "bare"] = "pyxis"
    """The container runtime; bare: a virtual environment on the nodes themselves."""
    container_gpus: Literal["nvidia", "cdi", "none"] = "nvidia"
    """How Docker and Podman are given GPUs: NVIDIA's runtime, CDI devices, or not at all."""
    container_options: list[Text] = []
    """More words for the runtime's own command line, such as --device=/dev/infiniband."""
    images: dict[str, Text] = {}
    """The profile's image name (framework.image) -> image: a reference or a file. Under the name
    evaluate: where evaluations run, if the training image has no vLLM (that of NeMo RL's colocated
    recipes has SGLang); left out, in the training image."""
    mounts: list[Annotated[str, AfterValidator(_mount)]] = []
    """SOURCE:TARGET[:ro], besides those that the framework needs."""
    environment: dict[str, str] = {}
    """Exported before Ray starts, on every node."""
    setup: list[Text] = []
    """Shell lines for the start of the job, such as module load cuda."""
    again: Literal["requeue", "chain"] = "requeue"
    """How a run that cannot go on in its job gets the next one: Slurm requeues the job, or the job
    submits another (for sites that forbid the first)."""
    preflight: dict[str, Literal["fail", "warn", "off"]] = {}
    """Check of a node before Ray starts -> what becomes of a node that does not pass it; see
    docs/preflight.md for their names."""
    secrets: list[Annotated[str, AfterValidator(_variable)]] = []
    """Names of variables of the submitting shell that runs need and nobody may read: handed into
    the container by name, and masked in the log."""
    secrets_file: Path | None = None
    """File of NAME=value lines, yours alone (mode 0600), read by the job; its names count as
    secrets."""
    notify: Notify = Notify()
    run_mode: Literal["0700", "0750", "0755"] = "0700"
    """Who may look into run folders."""
    outputs_gb: PositiveFloat | None = None
    """Room for checkpoints on paths.outputs, in 10^9 bytes; left out: what is free there."""
    network: Network = Network()
    paths: Paths = Paths()

    @property
    def secret_names(self) -> list[str]:
        """All variables that this site calls secret."""
        hook = [self.notify.webhook] if self.notify.webhook else []
        return list(dict.fromkeys([*self.secrets, *hook]))

    @field_validator("environment")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            _variable(name)
        return value

    @field_validator("run_mode", mode="before")
    @classmethod
    def _mode(cls, value: object) -> object:
        # YAML takes 0750 for an octal number, which is what was meant.
        return f"0{value:o}" if type(value) is int else value

    @field_validator("preflight")
    @classmethod
    def _checks(cls, value: dict[str, str]) -> dict[str, str]:
        known = sorted(set(SEVERITY) - set(ALWAYS))
        for name in value:
            if name not in known:
                raise ValueError(f"there is no check {name!r} to change: {', '.join(known)}")
        return value

    @field_validator("directives")
    @classmethod
    def _options(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        for name in value:
            if not re.fullmatch(r"[a-z][a-z-]+", name):
                raise ValueError(f"{name!r} is no long option of sbatch: write mail-type")
        return value
