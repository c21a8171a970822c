"""The training frameworks behind one interface: a profile in, a Launch out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beam_slurm.frameworks import demo, miles, nemo_rl, skyrl
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.profiles import Resolved

_MODULES: dict[str, Callable[[Resolved, str, Missing, Sequence[str]], Launch]] = {
    "demo": demo.launch,
    "miles": miles.launch,
    "nemo-rl": nemo_rl.launch,
    "skyrl": skyrl.launch,
}


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str]) -> Launch:
    """What the profile's framework needs to run in the run folder ``run``.

    Args:
        resolved: the profile.
        run: absolute path of the run folder.
        missing: takes what the site has not said yet.
        overrides: words for the end of the entry's argv, as they are.
    """
    return _MODULES[resolved.profile.framework.name](resolved, run, missing, overrides)
