"""What ``runs show``, ``runs diff`` and ``runs rerun`` print of the records."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from beam_slurm.records import compare, prune
from beam_slurm.records.compare import Differences
from beam_slurm.records.record import Record
from beam_slurm.records.surroundings import TITLES
from beam_slurm.report import attempts, text
from beam_slurm.report.overview import label
from beam_slurm.report.text import safe
from beam_slurm.state import State


def as_json(record: Record, state: State) -> dict[str, Any]:
    """Everything that is recorded of a run, for machines."""
    values = {
        key: {
            "value": value,
            "origin": record.places.get(key),
            "assumed": record.assumed.get(key),
        }
        for key, value in record.values.items()
    }
    run = record.run
    return {
        "id": run.id,
        "folder": str(run.path),
        "moved_from": str(run.moved) if run.moved else None,
        "remarks": record.remarks,
        "state": state.word,
        "why": state.why,
        "bytes": prune.size(run),
        "manifest": record.manifest,
        "jobs": run.jobs,
        "attempts": [attempts.as_json(attempt) for attempt in run.attempts],
        "values": values,
    }


def show(record: Record, state: State) -> RenderableType:
    """A run's record: what ran, from which code, where, and where each value came from."""
    head = Text.assemble((safe(record.run.id), "bold"), "  ", label(state))
    if state.why:
        head.append(f"  {safe(state.why)}")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _rows(record):
        facts.add_row(name, safe(value))
    values = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("key", "value", "from"):
        values.add_column(title, overflow="fold")
    for key, value in record.values.items():
        mark = " (assumed)" if key in record.assumed else ""
        place = record.places.get(key) or ("default" if record.places else "–")
        values.add_row(safe(key), f"{plain(value)}{mark}", safe(place))
    told = [f"assumed  {key}: {why}" for key, why in record.assumed.items() if key in record.values]
    return Group(head, facts, "", values, *(Text(safe(line), "yellow") for line in told))


def _rows(record: Record) -> list[tuple[str, str]]:
    manifest, run = record.manifest, record.run
    rows = [("profile", f"{manifest.get('profile', '–')} ({manifest.get('framework', '–')})")]
    rows.append(("created", text.date(run.created)))
    if manifest.get("rerun_of"):
        rows.append(("rerun of", str(manifest["rerun_of"])))
    if record.overrides is not None:
        rows.append(("overrides", shlex.join(record.overrides) or "none"))
    if record.settings:
        said = "  ".join(f"{key}={plain(value)}" for key, value in record.settings.items())
        rows.append(("settings", said))
    rows += [(safe(TITLES.get(name, name)), _source(it)) for name, it in record.sources.items()]
    if record.image:
        rows.append(("image", _image(record.image)))
    if record.versions:
        titles = {"beam_slurm": "beam-slurm", "python": "Python", "slurm": "Slurm"}
        found = [
            f"{titles.get(name, name)} {version}"
            for name, version in record.versions.items()
            if version
        ]
        rows.append(("versions", ", ".join(found)))
    if record.version >= 2:
        rows.append(("secrets", ", ".join(record.secrets) or "none"))
    if told := manifest.get("script_sha256"):
        rows.append(("script", f"sha256:{told}"))
    for attempt in run.attempts:
        where = " ".join(attempt.chosen) or "nodes not chosen yet"
        job = f"job {attempt.job}, " if attempt.job else ""
        said = attempts.told(attempt)
        line = f"{job}{text.date(attempt.began)}, {where}" + (f": {said}" if said else "")
        rows.append((f"attempt {attempt.number}", line))
    if not run.attempts:
        rows.append(("job", ", ".join(run.jobs) or "–"))
    return [*rows, ("folder", str(run.path)), ("disk", text.size(prune.size(run)))]


def _source(source: dict[str, Any]) -> str:
    if not source.get("commit"):
        return f"{source.get('path')}: {source.get('why')}"
    said = f"{source['commit']} ({source.get('branch') or 'no branch'}) in {source.get('path')}"
    if source.get("dirty"):
        kept = f": {source['patch']}" if source.get("patch") else ""
        hidden = f", secrets hidden in it: {source['masked']}" if source.get("masked") else ""
        said += f"\nchanged since: {_names(source.get('changed'))}{kept}{hidden}"
    if untracked := compare.untracked(source):
        said += f"\nnot in git: {' '.join(untracked)}"
    return said + (f"\nnot known: {source['why']}" if source.get("why") else "")


def _names(found: Any) -> str:
    return " ".join(map(str, found)) if isinstance(found, list) else ""


def _image(image: dict[str, Any]) -> str:
    if image.get("digest"):
        return f"{image.get('name')}\n{image['digest']}, by {image.get('by')}"
    facts = (
        f"{text.size(size)} of {text.date(image.get('modified'))}; "
        if isinstance(size := image.get("size"), int)
        else ""
    )
    return f"{image.get('name')}\n{facts}no digest: {image.get('why')}"


def differences(found: Differences, names: tuple[str, str]) -> Table:
    """What two runs do not share, section by section."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", *map(safe, names)):
        grid.add_column(title, overflow="fold")
    for section, rows in found.items():
        grid.add_row(Text(section, "bold"))
        for key, (first, second) in rows.items():
            grid.add_row(f"  {safe(key)}", plain(first), plain(second))
    return grid


def plain(value: Any) -> str:
    """A value as it would be typed; "–" for what is not said."""
    if value is None:
        return "–"
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def patch(lines: Sequence[str]) -> Text:
    """A unified diff in its usual colours."""
    shown = Text()
    for line in lines:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        shown.append(f"{safe(line)}\n", colour)
    return shown
