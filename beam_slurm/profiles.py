"""From names and files to one typed Profile: loading, composition, and errors that name the line.

Later wins: the profile that is extended, the profile, its hardware file beneath both, the site
file, then ``--set``. Every value keeps the place that it came from.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from beam_slurm import schema
from beam_slurm.errors import BeamSlurmError
from beam_slurm.yamlfile import Document, Key, dotted, load, scalar

HOME = Path(str(files("beam_slurm"))) / "data" / "profiles"

SITE_VARIABLE = "BEAM_SLURM_SITE"


@dataclass(frozen=True)
class Resolved:
    """A profile with its origins.

    ``shipped`` is the profile that comes with beam-slurm, before anybody changed it:
    frameworks hand on what differs. ``document`` knows the place of each value.
    """

    profile: schema.Profile
    shipped: schema.Profile
    document: Document

    def origin(self, key: Key) -> str | None:
        """ "file:line" or "--set" of one value; None for a default of the schema."""
        return self.document.places.get(key)

    def assumption(self, key: str) -> str | None:
        """Why the value of a dotted key is an assumption; None if it is a fact or was set here."""
        why = self.profile.assumed.get(key)
        origin = self.origin(tuple(key.split("."))) or ""
        told = self.document.place(("assumed", key)) or ""
        same_file = origin.rpartition(":")[0] == told.rpartition(":")[0]
        return why if same_file or origin.startswith("profiles/hardware/") else None

    def values(self) -> Iterator[tuple[str, Any, str | None]]:
        """Every value as (dotted key, value, origin), in the order of the schema."""
        yield from self._values((), self.profile.model_dump(exclude={"assumed", "name"}))

    def _values(self, at: Key, tree: dict[str, Any]) -> Iterator[tuple[str, Any, str | None]]:
        for word, value in tree.items():
            key = (*at, word)
            if isinstance(value, dict) and value:
                yield from self._values(key, value)
            elif value not in (None, {}, []):
                yield dotted(key), value, self.origin(key)


def names() -> list[str]:
    """The profiles that come with beam-slurm."""
    return sorted(path.stem for path in HOME.glob("*.yaml"))


def resolve(
    profile: str,
    *,
    site: Path | None = None,
    settings: Sequence[tuple[Key, str]] = (),
    use_site: bool = True,
) -> Resolved:
    """Load ``profile`` (a name or a file), lay the site file and the settings on it, check all.

    Args:
        profile: a name of ``names()`` or the path of a YAML file.
        site: the site file; left out, ``site_file()`` looks for one.
        settings: keys and the text of their values, as ``parse_settings`` returns them.
        use_site: false leaves every site file alone.

    Raises:
        BeamSlurmError: with file, line, key, what is allowed and the nearest valid key.
    """
    shipped, document = _compose(profile, ())
    document.data["name"] = Path(profile).stem
    checked = _check(shipped)
    found = site or site_file()
    if use_site and found:
        local = load(found)
        document.merge(
            Document(
                {"site": local.data},
                {(): str(found), **{("site", *key): place for key, place in local.places.items()}},
            )
        )
    _say(document, settings)
    return Resolved(_check(document), checked, document)


def restore(
    file: Path,
    shipped: dict[str, Any],
    places: Mapping[str, str],
    settings: Sequence[tuple[Key, str]] = (),
) -> Resolved:
    """The profile that a run was submitted with, from what its folder says of it.

    Args:
        file: all of its values.
        shipped: those of the profile that came with beam-slurm.
        places: dotted key -> where the value came from; the whole is "".
        settings: what is to be otherwise, as ``parse_settings`` returns it.

    Raises:
        BeamSlurmError: this version has other keys, or takes other values; with the line of
            ``file``.
    """
    document = load(file)
    _say(document, settings)
    profile = _check(document)
    before = _check(Document(shipped, {(): f"the shipped profile beside {file}"}))
    told = {
        key: here if here.startswith("--set ") else places.get(dotted(key), "")
        for key, here in document.places.items()
    }
    told = {key: place for key, place in told.items() if place}
    return Resolved(profile, before, Document(document.data, told))


def changed(resolved: Resolved, values: Iterable[tuple[Key, Any, str]]) -> Resolved:
    """The same profile with other ``values``, each with its key and the place that it comes from.

    Raises:
        BeamSlurmError: with that place.
    """
    document = resolved.document.copy()
    for key, value, place in values:
        document.set(key, value, place)
    return Resolved(_check(document), resolved.shipped, document)


def site_file() -> Path | None:
    """$BEAM_SLURM_SITE, ./site.yaml, ~/.config/beam-slurm/site.yaml: the first that is there."""
    named = os.environ.get(SITE_VARIABLE)
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for path in (Path("site.yaml"), home / "beam-slurm" / "site.yaml"):
        if path.is_file():
            return path
    return None


def runs_folder(given: Path | None) -> Path:
    """Where a command looks for runs: what it was told, else the site file's ``paths.runs``."""
    if given:
        return given
    found = site_file()
    paths = load(found).data.get("paths") if found else None
    configured = paths.get("runs") if isinstance(paths, dict) else None
    return Path(configured) if configured else Path.cwd() / "runs"


def parse_settings(texts: Iterable[str]) -> list[tuple[Key, str]]:
    """``key=value`` words of the command line, the key taken apart."""
    settings: list[tuple[Key, str]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BeamSlurmError(
                f"--set {text!r} is not key=value", remedy="for example --set recipe.steps=50"
            )
        settings.append((_key(key.strip()), value))
    return settings


def _compose(profile: str, chain: tuple[str, ...]) -> tuple[Document, Document]:
    """(the shipped profile that it starts from, the whole composition): both complete.

    Published is the nearest one that comes with beam-slurm; without any, the end of ``extends``.
    """
    path, shown = _find(profile)
    if str(path) in chain:
        raise BeamSlurmError(f"{shown} extends itself", why=" -> ".join([*chain, str(path)]))
    document = load(path, shown)
    if "name" in document.data:
        raise BeamSlurmError(
            "a profile's name is the name of its file",
            where=document.place(("name",)),
            remedy="leave the key name out; the job's name is job.name",
        )
    hardware = document.data.get("hardware")
    if isinstance(hardware, str):
        document = _with_hardware(document, hardware)
    base = document.data.pop("extends", None)
    if base is None:
        document.data["name"] = path.stem
        return document.copy(), document
    if not isinstance(base, str):
        raise BeamSlurmError(
            "extends takes the name of one profile", where=document.place(("extends",))
        )
    shipped, below = _compose(base, (*chain, str(path)))
    if isinstance(hardware, str):  # other nodes, not a mixture
        below.data.pop("hardware", None)
        assumed = below.data.get("assumed", {})
        for key in [key for key in assumed if key.startswith("hardware.")]:
            del assumed[key]
    below.merge(document)
    below.data["name"] = path.stem
    return (below.copy() if path.parent == HOME else shipped), below


def _with_hardware(document: Document, name: str) -> Document:
    """``document`` with its ``hardware: NAME`` replaced by that file's content."""
    path = HOME / "hardware" / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in path.parent.glob("*.yaml"))
        raise BeamSlurmError(
            f"hardware: {name!r} is unknown",
            where=document.place(("hardware",)),
            remedy=f"{_nearest(name, known)}one of {', '.join(known)}, or the keys themselves",
        )
    part = load(path, f"profiles/hardware/{path.name}")
    told = {f"hardware.{key}": why for key, why in part.data.pop("assumed", {}).items()}
    document.data["hardware"] = part.data
    document.data["assumed"] = {**told, **document.data.get("assumed", {})}
    for key, place in part.places.items():
        if key[:1] == ("assumed",):
            lifted = ("assumed", *(f"hardware.{word}" for word in key[1:]))
            document.places.setdefault(lifted, place)
        else:
            document.places["hardware", *key] = place
    return document


def _find(profile: str) -> tuple[Path, str]:
    if profile.endswith((".yaml", ".yml")) or "/" in profile:
        path = Path(profile)
        if not path.is_file():
            raise BeamSlurmError(f"there is no profile file {profile}")
        return path, profile
    path = HOME / f"{profile}.yaml"
    if not schema.NAME.fullmatch(profile) or not path.is_file():
        raise BeamSlurmError(
            f"profile {profile!r} is unknown",
            remedy=f"{_nearest(profile, names())}one of {', '.join(names())}, or a .yaml file",
        )
    return path, f"profiles/{path.name}"


def _key(text: str) -> Key:
    words = text.split(".")
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", word) for word in words):
        raise BeamSlurmError(
            f"--set {text!r} is no key", remedy="keys look like recipe.evaluation.every"
        )
    return tuple(words)


def _say(document: Document, settings: Sequence[tuple[Key, str]]) -> None:
    """Lay the settings on the document."""
    for key, text in settings:
        document.set(key, scalar(text, f"--set {dotted(key)}"), f"--set {dotted(key)}")
    _words_stay_words(document, settings)


def _words_stay_words(document: Document, settings: Sequence[tuple[Key, str]]) -> None:
    """Give the keys that want a word the text as typed: account 0123 is no number."""
    try:
        schema.Profile.model_validate(document.data)
    except ValidationError as error:
        typed = dict(settings)
        for detail in error.errors():
            key, _ = _locate(detail["loc"])
            if detail["type"] == "string_type" and key in typed:
                document.set(key, typed[key], f"--set {dotted(key)}")


def _check(document: Document) -> schema.Profile:
    try:
        return schema.Profile.model_validate(document.data)
    except ValidationError as error:
        raise _explain(error, document) from error


def _explain(error: ValidationError, document: Document) -> BeamSlurmError:
    """The first problem in full, the others by one line each."""
    problems = [_problem(detail, document) for detail in error.errors()]
    where, what, remedy = problems[0]
    more = "".join(f"\n  and: {place or ''}: {text}" for place, text, _ in problems[1:])
    return BeamSlurmError(what + more, where=where, remedy=remedy)


def _problem(detail: ErrorDetails, document: Document) -> tuple[str | None, str, str | None]:
    key, model = _locate(detail["loc"])
    where = document.place(key)
    name = dotted(key)
    if detail["type"] == "extra_forbidden":
        if key == ("site", "site"):
            return where, "a site file holds the keys themselves", "leave out the line site:"
        allowed = sorted(model.model_fields) if model else []
        if len(key) == 1:
            allowed = sorted({*allowed, "extends"} - {"name"})
        inside = dotted(key[:-1]) or "a profile"
        elsewhere = [full for full in _keys() if full.rpartition(".")[2] == key[-1]]
        hint = f"did you mean {elsewhere[0]}? " if elsewhere else _nearest(str(key[-1]), allowed)
        return (
            where,
            f"the key {name} is unknown",
            f"{hint}{inside} takes {', '.join(allowed)}",
        )
    if detail["type"] == "missing":
        started = ("extends",) in document.places
        whole = "" if started else " (or extends: NAME, to start from a profile)"
        return where, f"the key {name} is missing", f"add {name}{whole}"
    if detail["type"] == "union_tag_not_found":
        return where, f"{name}.name is missing", f"one of {', '.join(schema.BY_NAME)}"
    given = detail.get("input")
    if detail["type"] == "union_tag_invalid":
        key = (*key, "name")
        frameworks = list(schema.BY_NAME)
        tag = detail["ctx"]["tag"]
        return (
            document.place(key),
            f"{dotted(key)} is {tag!r}",
            f"{_nearest(tag, frameworks)}one of {', '.join(frameworks)}",
        )
    message = detail["msg"].removeprefix("Value error, ")
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    what = f"{name}: {message}" if isinstance(given, dict) else f"{name} is {given!r}: {message}"
    if detail["type"] == "string_type" and isinstance(given, int | float):
        return where, f"{name} is {given!r} and must be text", f'put it in quotes: "{given}"'
    if detail["type"] == "model_type":
        _, inner = _locate((*detail["loc"], ""))
        keys = [f"{name}.{word}" for word in inner.model_fields] if inner else []
        return where, f"{name} is {given!r}: it is no single value", f"its keys: {', '.join(keys)}"
    if detail["type"] == "bool_type":
        return where, f"{name} is {given!r}", "write true or false"
    nearest = ""
    expected = detail.get("ctx", {}).get("expected")
    if isinstance(expected, str) and isinstance(given, str):
        nearest = _nearest(given, re.findall(r"'([^']+)'", expected)).strip()
    return where, what, nearest or None


def _keys(model: type[BaseModel] = schema.Profile, at: str = "") -> Iterator[str]:
    """Every dotted key of a profile that has one model."""
    for name, field in model.model_fields.items():
        yield at + name
        inner = _model_of(field.annotation)
        if inner:
            yield from _keys(inner, f"{at}{name}.")


def _locate(loc: tuple[int | str, ...]) -> tuple[Key, type[BaseModel] | None]:
    """pydantic's location without its union tags, and the model that holds its last word."""
    model: type[BaseModel] | None = schema.Profile
    holder = model
    key: list[str | int] = []
    for word in loc:
        if key == ["framework"] and word in schema.BY_NAME:
            model = schema.BY_NAME[str(word)]
            continue
        key.append(word)
        holder = model
        field = model.model_fields.get(str(word)) if model else None
        model = _model_of(field.annotation) if field else None
    return tuple(key), holder


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _nearest(word: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(allowed), 1, 0.5)
    return f"did you mean {close[0]}? " if close else ""
