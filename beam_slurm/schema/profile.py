"""One complete launch: hardware, framework and recipe on a site."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from beam_slurm.schema.base import NAME, TIME, Line, Model, Text, Word
from beam_slurm.schema.framework import Framework
from beam_slurm.schema.hardware import Hardware
from beam_slurm.schema.recipe import Recipe
from beam_slurm.schema.site import Site


class Ray(Model):
    """The job's own Ray cluster."""

    auth: Literal["token", "off"] = "token"
    """Who may talk to it; token needs Ray 2.52."""
    dashboard: bool = True
    """On the head's private address; false leaves out `ray status` too."""
    deadline_s: PositiveInt = 900
    """Seconds until every node must have joined."""
    object_store_gb: PositiveFloat | None = None
    """Shared memory of each node for objects, in 10^9 bytes; left out: Ray decides."""


# Slurm's words for --mail-type, 22.05 to 25.11.
Mail = Literal[
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
]


class Job(Model):
    """What Slurm is asked for, beside the hardware."""

    time: str = "1-00:00:00"
    """Time limit in Slurm's spelling, "hh:mm:ss" or "d-hh:mm:ss"."""
    name: str | None = None
    """Name of job and run; left out: the profile's."""
    output_dir: Text | None = None
    """Where the framework writes, in site.paths.outputs; left out: a folder of the run's own."""
    spares: NonNegativeInt = 0
    """Nodes beyond hardware.nodes: the fittest of all run, the others take over from one that
    fails."""
    max_restarts: NonNegativeInt = 3
    """How often the run starts again by itself after a failure."""
    total_time: str | None = None
    """Running time of all attempts together; more than job.time needs several jobs, each of which
    goes on from the last one's checkpoint. Left out: job.time."""
    lead_s: PositiveInt | None = None
    """Seconds before the time limit at which the framework is asked to save; left out: a tenth of
    job.time, at most 900."""

    mail_type: list[Mail] = []
    """When Slurm itself sends mail, in its own words: [BEGIN, END, FAIL], TIME_LIMIT_80, ALL; of
    every job of the run, also of one that never begins."""
    mail_user: Word | None = None
    """To whom; left out: the submitting user."""

    @field_validator("mail_type", mode="before")
    @classmethod
    def _mail(cls, value: Any) -> Any:
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return words
        found = [word.strip().upper() for word in words]
        known = get_args(Mail)
        if unknown := [word for word in found if word not in known]:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}")
        if "NONE" in found and len(found) > 1:
            raise ValueError("NONE stands alone: Slurm would refuse it beside others")
        return found

    @model_validator(mode="after")
    def _sent(self) -> Self:
        if self.mail_user and not self.mail_type:
            raise ValueError("mail_user says to whom, and mail_type does not say when: set both")
        return self

    @field_validator("time", "total_time", mode="before")
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


class Profile(Model):
    """One complete launch: hardware, framework and recipe on a site."""

    name: Line
    """The name of its file."""
    description: Line
    """One line for people."""
    hardware: Hardware
    framework: Framework = Field(discriminator="name")
    recipe: Recipe
    ray: Ray = Ray()
    job: Job = Job()
    site: Site = Site()
    assumed: dict[str, str] = {}
    """Dotted key -> why its value is our assumption and not a fact, and how to override it."""

    @property
    def job_name(self) -> str:
        """Slurm's name for the job."""
        return self.job.name or self.name
