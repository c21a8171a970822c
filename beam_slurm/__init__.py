"""beam-slurm: launch Beam reinforcement learning on Slurm clusters."""

__version__ = "0.1.0"
