"""The request and its text. ``str(request)`` is the script: what dry-run prints is submitted.

This is the only room with Jinja. Values are shell-quoted by default; raw text is the marked
exception, made by the filters below and checked by each of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from beam_slurm import __version__, conflicts, frameworks, mounts, runs, secret
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.profiles import Resolved
from beam_slurm.schema import NAME, Profile

TEMPLATES = Path(str(files("beam_slurm"))) / "data" / "templates"


# What templates/ray_address.j2 exports.
_RAY_VARIABLES = ("MASTER_ADDR", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE")
_RAY_TOKEN = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - a variable's name


@dataclass(frozen=True)
class JobRequest:
    """Everything about one submission: typed, frozen, complete.

    Attributes:
        profile: the resolved profile.
        launch: what the framework needs.
        run: absolute path of the run folder; its name is the run's id and the job's comment.
        missing: what the site file must still say, as (key, what it is).
        local: run on this machine without Slurm.
    """

    profile: Profile
    launch: Launch
    run: Path
    missing: tuple[tuple[str, str], ...] = ()
    local: bool = False

    @property
    def token(self) -> str:
        """The job's comment, by which it can be found again."""
        return f"beam-slurm:{self.run.name}"

    def __str__(self) -> str:
        return render(self)


def make_request(
    resolved: Resolved,
    *,
    overrides: Sequence[str] = (),
    local: bool = False,
    run_id: str | None = None,
) -> JobRequest:
    """The request for a profile; ``overrides`` go to the end of the entry's argv as they are.

    Raises:
        BeamSlurmError: if the profile cannot be launched in the way asked for.
    """
    profile = resolved.profile
    for word in overrides:
        if "\0" in word:
            raise BeamSlurmError("an override contains a zero byte", why="no program can take it")
    secret.refuse("the overrides", overrides)
    for dotted, value, origin in resolved.values():
        parent, _, name = dotted.rpartition(".")
        where = dotted if isinstance(value, list) else parent
        secret.refuse(where, secret.words({name: value}), place=origin)
    if not NAME.fullmatch(profile.job_name):
        raise BeamSlurmError(
            f"{profile.job_name!r} cannot name a job",
            why="a name is 1 to 64 of A-Z a-z 0-9 . _ -",
            remedy="rename the profile's file, or set job.name",
        )
    if local and profile.hardware.nodes != 1:
        raise BeamSlurmError(
            f"{profile.name} wants {profile.hardware.nodes} nodes, without Slurm there is one",
            remedy="add --nodes 1, or submit to a Slurm cluster",
        )
    run = runs.root(profile.site.paths.runs).absolute() / (run_id or runs.new_id(profile.job_name))
    missing = Missing()
    launch = frameworks.launch(resolved, str(run), missing, overrides)
    conflicts.refuse(resolved, launch)
    return JobRequest(profile, launch, run, tuple(missing.items), local)


def render(request: JobRequest) -> str:
    """The whole script of a request."""
    profile = request.profile
    site, hardware = profile.site, profile.hardware
    launch = request.launch
    bare = launch.container is None or site.container == "bare"
    environment = {
        "PYTHONUNBUFFERED": "1",
        # One line a message and no colours: the log is read by programs too.
        "RAY_DEDUP_LOGS": "0",
        "RAY_COLOR_PREFIX": "0",
        **launch.environment,
        **site.environment,
    }
    template = "local.sh.j2" if request.local else "job.sbatch.j2"
    return (
        _jinja()
        .get_template(template)
        .render(
            version=__version__,
            profile=profile,
            hardware=hardware,
            recipe=profile.recipe,
            launch=launch,
            local=request.local,
            run=str(request.run),
            directives=_directives(request),
            unset_directives=[
                (name, f"site.{name}")
                for name in ("account", "partition")
                if not getattr(site, name)
            ],
            setup=[Raw(line) for line in site.setup],
            environment=sorted(environment.items()),
            container="bare" if bare else site.container,
            mounts=[*launch.mounts, *map(mounts.parse, site.mounts)],
            # Images have values of their own: these win only where the runtime is told their names.
            forwarded=[
                *sorted(environment),
                *_RAY_VARIABLES,
                *([_RAY_TOKEN] if profile.ray.auth == "token" else []),
                *launch.secrets,
            ],
            venv=(site.paths.venv or sys.prefix) if bare else None,
            network=_network(profile),
            # Without a token, whoever reaches the dashboard runs code: then this host alone does.
            dashboard_host=Raw('"$head_ip"') if profile.ray.auth == "token" else "127.0.0.1",
            tmp=site.paths.tmp,
            object_store=int(profile.ray.object_store_gb * 1e9)
            if profile.ray.object_store_gb
            else 0,
            cpus=os.cpu_count() or 1,
        )
    )


def _directives(request: JobRequest) -> list[tuple[str, Any]]:
    """The #SBATCH lines in the order in which people look for them; None is an option alone."""
    profile, site, hardware = request.profile, request.profile.site, request.profile.hardware
    gpu = site.gpu_names.get(hardware.gpu, hardware.gpu)
    gpus = f"{gpu}:{hardware.gpus_per_node}" if gpu else f"{hardware.gpus_per_node}"
    wanted: list[tuple[str, Any]] = [
        ("job-name", profile.job_name),
        ("comment", request.token),
        ("partition", site.partition),
        ("account", site.account),
        ("qos", site.qos),
        ("reservation", site.reservation),
        ("constraint", site.constraint),
        ("exclude", site.exclude),
        ("nodes", hardware.nodes),
        ("ntasks-per-node", 1),
    ]
    found = [(option, value) for option, value in wanted if value is not None]
    if site.gpu_request == "gres":
        found.append(("gres", f"gpu:{gpus}"))
    elif site.gpu_request == "gpus-per-node":
        found.append(("gpus-per-node", gpus))
    if hardware.cpus_per_node:
        found.append(("cpus-per-task", hardware.cpus_per_node))
    if hardware.exclusive:
        found += [("exclusive", None), ("mem", 0)]
    return [
        *found,
        ("time", profile.job.time),
        ("no-requeue", None),
        ("open-mode", "append"),
        ("chdir", str(request.run)),
        ("output", f"{request.run}/job-%j.log"),
        *((name, None if value is True else value) for name, value in site.directives.items()),
    ]


def _network(profile: Profile) -> Raw:
    network = profile.site.network
    words = [
        f" --{name}={shlex.quote(value)}"
        for name, value in (("interface", network.interface), ("prefix", network.prefix))
        if value
    ]
    return Raw("".join(words))


class Raw(str):
    """Text for the script as it is: already quoted, or the shell's to expand."""

    __slots__ = ()


@cache
def _jinja() -> jinja2.Environment:
    made = jinja2.Environment(  # noqa: S701 - this makes shell, not HTML; finalize quotes
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        comment_start_string="{##",  # bash has ${#array[@]}
        comment_end_string="##}",
        keep_trailing_newline=True,
    )
    made.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    made.filters.update(words=_words, json=_json, directive=_directive, comment=_comment)
    return made


def _quote(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    text = str(value)
    if not text.isprintable():
        return _ansi_c(text)
    quoted = shlex.quote(text)
    # A bare comma is right in bash, but in an array it looks like a slip: shellcheck says so.
    return f"'{quoted}'" if "," in quoted and not quoted.startswith("'") else quoted


def _ansi_c(text: str) -> str:
    """bash's $'...': keeps a value on one line, and sbatch refuses a script with a bare CR LF."""
    escaped = "".join(
        letter
        if letter.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
        for letter in text.replace("\\", "\\\\").replace("'", "\\'")
    )
    return f"$'{escaped}'"


def _words(values: Sequence[str]) -> Raw:
    return Raw(" ".join(_quote(value) for value in values))


def _json(value: Any) -> str:
    return json.dumps(dict(value), separators=(",", ":"))


def _directive(value: Any) -> Raw:
    """One word for an #SBATCH line: sbatch would cut it at white space and obey a second line."""
    text = str(value)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f'\"\\#]+", text):
        raise BeamSlurmError(
            f"{text!r} cannot stand in an #SBATCH line",
            why="white space, quotes, backslashes and # end or change a directive",
        )
    return Raw(text)


def _comment(value: Any) -> Raw:
    return Raw(" ".join(str(value).split()))
