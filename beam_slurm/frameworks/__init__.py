"""The training frameworks behind one interface: a profile in, a Launch or a Preparation out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from beam_slurm.frameworks import demo, miles, nemo_rl, skyrl
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.frameworks.preparation import Preparation
from beam_slurm.profiles import Resolved


class Framework(Protocol):
    """What a module of this package has.

    ``PATHS`` names the folders of ``site.paths`` on shared storage that its runs use.
    """

    PATHS: tuple[str, ...]

    def launch(
        self, resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str] = ()
    ) -> Launch:
        """How a run is started."""

    def prepare(self, resolved: Resolved, missing: Missing) -> Preparation:
        """What is downloaded and converted before the first run."""


_MODULES: dict[str, Framework] = {
    "demo": demo,
    "miles": miles,
    "nemo-rl": nemo_rl,
    "skyrl": skyrl,
}


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str]) -> Launch:
    """What the profile's framework needs to run in the run folder ``run``.

    Args:
        resolved: the profile.
        run: absolute path of the run folder.
        missing: takes what the site has not said yet.
        overrides: words for the end of the entry's argv, as they are.
    """
    return _MODULES[resolved.profile.framework.name].launch(resolved, run, missing, overrides)


def prepare(resolved: Resolved, missing: Missing) -> Preparation:
    """What the profile's framework downloads and converts before its first run.

    Args:
        resolved: the profile.
        missing: takes what the site has not said yet.
    """
    return _MODULES[resolved.profile.framework.name].prepare(resolved, missing)


def paths(name: str) -> tuple[str, ...]:
    """Folders of ``site.paths`` on shared storage that runs of the framework ``name`` use."""
    return _MODULES[name].PATHS
