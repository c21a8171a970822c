"""The front door: parse, call, print. ``--help`` imports click and nothing heavy."""

from __future__ import annotations

import errno
import sys
from importlib import import_module

import click

from beam_slurm import __version__
from beam_slurm.errors import BeamSlurmError

# Name, and the line that --help shows: the command's module is imported when it is called.
COMMANDS = {
    "init": "Look at this cluster and write site.yaml.",
    "doctor": "Check everything a run needs, before the queue.",
    "submit": "Submit a run, or print its sbatch script (--dry-run).",
    "sweep": "Submit a profile at many points, and see which is best.",
    "plan": "Check a profile's arithmetic: parallelism, memory, storage, GPU-hours.",
    "prepare": "Download and convert model and data, once, and verify them.",
    "status": "Show all runs, or one run in detail.",
    "watch": "See what a run does, live and full screen.",
    "logs": "Print or follow a run's log.",
    "shell": "Open a shell beside a run, in its container.",
    "dashboard": "Say how to reach a run's Ray dashboard, or open it.",
    "report": "Draw runs as a page: accuracy, reward, lengths, step time, hours lost.",
    "convert": "Make a Hugging Face folder of a checkpoint, or a checkpoint of one.",
    "evaluate": "Score converted checkpoints on a set of problems, whoever trained them.",
    "cancel": "End a run.",
    "runs": "List, show and compare what ran; run it again; remove old runs.",
    "profiles": "List the profiles, or show one with the origin of its values.",
    "schema": "Print the JSON schema of profiles or site files, for editors.",
    "image": "Import a container image once, as a job.",
    "cluster": "A real Slurm of several hosts on this machine, to try things and to test.",
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"beam_slurm.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="beam-slurm")
def cli() -> None:
    """Launch Beam reinforcement learning on Slurm clusters.

    \b
    beam-slurm submit --profile b300-colocated --dry-run    read the script first
    beam-slurm submit --profile b300-colocated --wait       submit it and stay
    beam-slurm status                                       what is going on
    """


def main() -> None:
    """Run the command line; the one place where an error becomes text and an exit code."""
    try:
        sys.exit(cli.main(standalone_mode=False))
    except BeamSlurmError as error:
        _fail(str(error), error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough: `... | head`
        sys.exit(141)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EACCES):
            raise
        # A path that was named: no command asks of each by itself whether it can be one.
        _fail(f"{error.filename}: {error.strerror}\n  do:  name another path", 2)


def _fail(text: str, code: int) -> None:
    from beam_slurm.report.text import safe  # it may quote what a run has written

    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo(safe(text), err=True)
    sys.exit(code)
