"""The options by which every command that takes a profile is told which one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from beam_slurm.profiles import Resolved
    from beam_slurm.yamlfile import Key

F = TypeVar("F", bound=Callable[..., Any])

# Short words for settings that everybody changes: option -> (key, help).
SHORT = {
    "nodes": ("hardware.nodes", int, "Short for --set hardware.nodes=N."),
    "steps": ("recipe.steps", int, "Training steps in all, those before a resume included."),
    "save_every": ("recipe.checkpoint.every", int, "Save every N steps; also turns saving on."),
    "spares": ("job.spares", int, "Nodes beyond --nodes, to take over from those that fail."),
    "max_restarts": ("job.max_restarts", int, "Starts again by itself after a failure, at most."),
    "total_time": ("job.total_time", str, "Running time of all jobs of the run: 3-00:00."),
    "mail_type": ("job.mail_type", str, "When Slurm sends mail: BEGIN,END,FAIL,REQUEUE,ALL, ..."),
    "mail_user": ("job.mail_user", str, "To whom.  [default: the submitting user]"),
    "output_dir": ("job.output_dir", str, "Where the framework writes, in site.paths.outputs."),
}


def profile(command: F) -> F:
    """--profile, --site, --set and the short words; ``resolve`` takes their values."""
    return click.option(
        "--profile", required=True, help="A name (see profiles list), or the path of a YAML file."
    )(settings(command))


def settings(command: F) -> F:
    """The same for a command that may do without a profile."""
    command = changes(command)
    for name, (_, kind, text) in reversed(SHORT.items()):
        command = click.option(f"--{name.replace('_', '-')}", type=kind, help=text)(command)
    return command


def changes(command: F) -> F:
    """--site and --set."""
    command = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one value; may be repeated. Keys: profiles show.",
    )(command)
    return click.option(
        "--site",
        type=click.Path(path_type=Path),
        help="Site file.  [default: $BEAM_SLURM_SITE, ./site.yaml, ~/.config/beam-slurm/site.yaml]",
    )(command)


def resolve(profile: str, site: Path | None, **given: Any) -> Resolved:
    """The profile that the options name.

    Raises:
        BeamSlurmError: with the place of what is wrong.
    """
    from beam_slurm import profiles

    return profiles.resolve(profile, site=site, settings=parse(**given))


def folders_profile(
    profile: str | None, site: Path | None, settings: Sequence[tuple[Key, str]] = ()
) -> Resolved | None:
    """The profile of a command that takes a folder with one, or a run without; None of a run.

    Raises:
        BeamSlurmError: with the place of what is wrong.
    """
    from beam_slurm import profiles

    if profile:
        return profiles.resolve(profile, site=site, settings=settings)
    if site:
        raise click.UsageError("--site goes with --profile: a run has its own site in its record")
    return None


def parse(settings: tuple[str, ...], resume: bool = False, **short: Any) -> list[tuple[Key, str]]:
    """Keys and texts of --set, then of the short words: the later wins."""
    from beam_slurm import profiles

    found = profiles.parse_settings(settings)
    for name, value in short.items():
        if value is not None:
            found.append((tuple(SHORT[name][0].split(".")), str(value)))
    if short.get("save_every") is not None:
        found.append((("recipe", "checkpoint", "enabled"), "true"))
    if resume:
        found.append((("recipe", "checkpoint", "resume"), "true"))
    return found
