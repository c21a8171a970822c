"""The types of everything that a YAML file can say: hardware, framework, recipe, Ray, job, site.

Units are in the names or in the text below a field. ``profiles`` loads and composes the files.
"""

from beam_slurm.schema.base import NAME, TIME, Model
from beam_slurm.schema.framework import BY_NAME, Demo, Miles, NemoRL, SkyRL
from beam_slurm.schema.hardware import Hardware
from beam_slurm.schema.profile import Job, Profile, Ray
from beam_slurm.schema.recipe import (
    Checkpoint,
    Evaluation,
    Learner,
    Lora,
    Optimizer,
    Recipe,
    Reference,
    Rollout,
    Sampling,
    Storage,
    Watchdog,
)
from beam_slurm.schema.site import Network, Notify, Paths, Site

__all__ = [
    "BY_NAME",
    "NAME",
    "TIME",
    "Checkpoint",
    "Demo",
    "Evaluation",
    "Hardware",
    "Job",
    "Learner",
    "Lora",
    "Miles",
    "Model",
    "NemoRL",
    "Network",
    "Notify",
    "Optimizer",
    "Paths",
    "Profile",
    "Ray",
    "Recipe",
    "Reference",
    "Rollout",
    "Sampling",
    "Site",
    "SkyRL",
    "Storage",
    "Watchdog",
]
