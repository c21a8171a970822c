"""What may not be said: two spellings of one thing, and literal secrets. Errors name the places.

Slurm would take the last of two options without a word, or accept both and then fail every srun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from beam_slurm import mounts, secret
from beam_slurm.errors import BeamSlurmError
from beam_slurm.profiles import Resolved
from beam_slurm.yamlfile import Key, dotted

# sbatch's options by the key that says the same.
_KEYS: dict[str, str] = {
    **dict.fromkeys(("job-name",), "job.name"),
    **dict.fromkeys(("time", "time-min"), "job.time"),
    **dict.fromkeys(
        ("partition", "account", "qos", "reservation", "constraint", "exclude"), "site.{option}"
    ),
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), "hardware.nodes"),
    **dict.fromkeys(
        (
            *("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"),
            *("ntasks-per-gpu", "tres-per-node", "tres-per-task"),
        ),
        "hardware.gpus_per_node",
    ),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu", "mincpus"), "hardware.cpus_per_node"),
    **dict.fromkeys(
        ("exclusive", "oversubscribe", "share", "mem", "mem-per-cpu", "mem-per-gpu"),
        "hardware.exclusive",
    ),
}

# Options that would break what the script relies on.
_REFUSED = {
    "array": "one job is one run",
    "clusters": "the answer would come from another cluster: set SLURM_CLUSTERS",
    "chdir": "the run folder is the job's working directory",
    "comment": "the comment is how a run finds its job again",
    "export": "it takes PATH away, or cuts values at commas: use site.environment",
    "export-file": "use site.environment",
    "error": "the log is one file, so that lines keep their order",
    "open-mode": "a log is appended to, never cut",
    "output": "the log lies in the run folder",
    "parsable": "beam-slurm reads sbatch's answer",
    "signal": "it is there already: set job.lead_s",
    "test-only": "submit --dry-run | sbatch --test-only asks without submitting",
    "wait": "submit --wait waits",
    "requeue": "it is there already: set job.max_restarts, and site.again",
    "no-requeue": "set job.max_restarts to 0, or site.again to chain",
    "no-kill": "it is there already where the run has job.spares",
    "wrap": "the script is the job",
}


# What the script itself sets.
_SCRIPTS_OWN = re.compile(
    r"RUN|ATTEMPT|ALLOCATED|NODES|HEAD|CPUS|RAY_TEMP|MASTER_ADDR|RAY_ADDRESS|RAY_API_SERVER_ADDRESS"
    r"|RAY_AUTH_\w+|BEAM_SLURM_\w+|SLURM_\w+|SLURMD_\w+"
)

# What an image has of its own: the host's would hide it.
_IMAGES_OWN = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH")


def refuse(
    resolved: Resolved,
    needed: Sequence[mounts.Mount] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
    contained: bool = False,
) -> None:
    """Raise if a secret is written out, or one thing is said twice.

    Args:
        resolved: the profile, the site with it.
        needed: the framework's own mounts.
        settings: variables that keys of the profile say: name -> dotted key.
        contained: whether the programs run in a container.
    """
    for name, value, origin in resolved.values():
        parent, _, last = name.rpartition(".")
        where = name if isinstance(value, list) else parent
        words = secret.words({last: value})
        secret.refuse(where, words, place=origin, names=resolved.profile.site.secret_names)
    for option, value in resolved.profile.site.directives.items():
        _directive(resolved, option, value)
    for variable in resolved.profile.site.environment:
        if _SCRIPTS_OWN.fullmatch(variable):
            raise BeamSlurmError(
                f"site.environment.{variable} is the script's own",
                where=resolved.document.place(("site", "environment", variable)),
                why="the script sets it for each job",
                remedy="leave it out",
            )
        if contained and variable in _IMAGES_OWN:
            raise BeamSlurmError(
                f"site.environment.{variable} does not belong into a container",
                where=resolved.document.place(("site", "environment", variable)),
                why="the image has its own, and its programs would not be found any more",
                remedy="leave it out; to change the image's: site.container_options",
            )
        if variable in settings:
            _twice(resolved, ("site", "environment", variable), settings[variable])
    _mounts(resolved, needed)


def _directive(resolved: Resolved, option: str, value: object) -> None:
    key: Key = ("site", "directives", option)
    plugin = "an option of a plugin, which only srun has: use site.container_options"
    refused = plugin if option.startswith("container") else _REFUSED.get(option)
    if refused:
        raise BeamSlurmError(
            f"--{option} cannot be given in site.directives",
            where=resolved.document.place(key),
            why=refused,
        )
    if value is False:
        raise BeamSlurmError(
            f"{dotted(key)} is false",
            where=resolved.document.place(key),
            why="an option is given with a value, given alone (true), or left out",
        )
    if option in _KEYS:
        _twice(resolved, key, _KEYS[option].format(option=option))
    job = resolved.profile.job
    for own, given in (("mail-type", job.mail_type), ("mail-user", job.mail_user)):
        if option == own and given:
            _twice(resolved, key, f"job.{own.replace('-', '_')}")


def _twice(resolved: Resolved, key: Key, other: str) -> None:
    values = {name: (value, origin) for name, value, origin in resolved.values()}
    value, origin = values.get(other, (None, None))
    said = f" ({value}, {origin or 'the default'})" if other in values else ""
    raise BeamSlurmError(
        f"{dotted(key)} and {other}{said} say the same thing",
        where=resolved.document.place(key),
        remedy=f"leave out {dotted(key)} and set {other}",
    )


def _mounts(resolved: Resolved, needed: Sequence[mounts.Mount]) -> None:
    tmp = resolved.profile.site.paths.tmp
    own = [*needed, mounts.Mount(tmp, tmp)]
    taken = {_target(mount): (mount, f"{mount} is mounted anyway") for mount in own}
    for index, text in enumerate(resolved.profile.site.mounts):
        mount = mounts.parse(text)
        key: Key = ("site", "mounts", index)
        other, told = taken.setdefault(_target(mount), (mount, f"{dotted(key)} is {mount}"))
        if other != mount:
            raise BeamSlurmError(
                f"{mount.target} is mounted twice",
                where=resolved.document.place(key),
                why=f"{told}, {dotted(key)} is {mount}",
                remedy="leave one of them out",
            )


def _target(mount: mounts.Mount) -> str:
    return mount.target.rstrip("/") or "/"
