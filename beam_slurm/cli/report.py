"""``beam-slurm report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from beam_slurm.report.facts import Facts

EXAMPLES = """\b
Examples:
  beam-slurm report b300-colocated-7c1f9e           table here, report.html and .png in its folder
  beam-slurm report lr-1e-6 lr-3e-6 -o compare      two runs over each other, in ./compare
  beam-slurm report RUN_NEMO RUN_SKYRL RUN_MILES    three frameworks, scored alike
  beam-slurm report b300-colocated --json           the numbers, no figure
"""


@click.command(epilog=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[RUN]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for report.html and report.png.  [default: the run's own; ./report for several]",
)
@click.option("--json", "as_json", is_flag=True, help="For machines; draws only with --output.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def report(names: tuple[str, ...], output: Path | None, as_json: bool, folder: Path | None) -> None:
    """Draw runs: what they measured, beside what is published, and where their time went.

    One page that needs nothing else, and one picture. Several runs are drawn over each other,
    whatever their frameworks; what beam-slurm evaluate has scored of their checkpoints stands
    beside their own evaluations. Without RUN: the newest one. Needs matplotlib: pip install
    'beam-slurm[report]'.
    """
    import json

    from beam_slurm import profiles, runs
    from beam_slurm.report import terminal, text
    from beam_slurm.report.asjson import as_json as plain
    from beam_slurm.report.facts import gather_all, with_common

    root = profiles.runs_folder(folder)
    chosen = {run.path: run for run in (runs.find(name, root) for name in names or (None,))}
    gathered, problem = gather_all(list(chosen.values()))
    found = with_common(gathered, root)
    if problem:
        click.echo(f"note: from the runs' own files alone: {problem}", err=True)
    if as_json:
        told = [plain(facts) for facts in found]
        click.echo(json.dumps(told if len(found) > 1 else told[0], indent=1))
        if output is None:
            return
    else:
        text.console().print(terminal.show(found))
    where = output or (found[0].run.path if len(found) == 1 else Path("report"))
    for kind, path in write(found, where).items():
        click.echo(f"{kind:<6}  {path}", err=as_json)


def write(found: list[Facts], folder: Path) -> dict[str, Path]:
    """Page and picture in ``folder``, each whole or not at all; where they are, by kind.

    Of one run alone that has not trained but scored or converted a model, only the page.

    Raises:
        BeamSlurmError: matplotlib is absent, or the folder cannot be written.
    """
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import figure, page, panel
    from beam_slurm.runs import write_whole

    shown = panel.shown(found)
    files = {"page": page.html(shown).encode()}
    if len(found) > 1 or "task" not in found[0].manifest:  # one that did not train has no curves
        files["figure"] = figure.png(shown)
    names = {"page": "report.html", "figure": "report.png"}
    paths = {kind: folder / names[kind] for kind in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, content in files.items():
            write_whole(paths[kind], content)
    except OSError as error:
        raise BeamSlurmError(f"cannot write into {folder}", why=error.strerror) from error
    return paths
