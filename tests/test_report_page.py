"""The report's page: what it says, that nothing in it can do harm, how a browser shows it."""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import browser
import folders
import pytest

from beam_slurm.metrics import Evaluation, History, Step
from beam_slurm.report import page
from beam_slurm.report.facts import Facts, gather
from beam_slurm.report.panel import shown
from beam_slurm.state import State

pytest.importorskip("matplotlib")
# Where everything must run, an absent browser is a failure.
needs_browser = pytest.mark.skipif(
    browser.program() is None and os.environ.get("BEAM_SLURM_REQUIRE_SLURM") != "1",
    reason="Chromium is not here",
)

VOID = ("br", "link", "meta")
EVIL = "<script>alert(1)</script>\x1b[31m & <img src=//evil.example/x>"


class Outline(HTMLParser):
    """A page's elements; an element that is closed in the wrong order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def restarted(root: Path) -> Facts:
    """A run that lost a node after step 37, went on from 20, and then ran out of memory."""
    run = folders.make(root, "demo-bad<b>&", steps=200)
    folders.bring_up(run)
    for at in range(1, 81):
        folders.measure(run, folders.train(at, time=folders.T0 + 100 + 10 * at))
        if at % 10 == 0:
            folders.measure(run, folders.evaluate(at, at / 100))
    folders.lost(run, "here")
    folders.event(run, "batch-started", 300, 1, node="n1")
    folders.event(run, "entry-started", 305, 1)
    last = {"began": folders.T0 + 300, "ended": folders.T0 + 2000, "stopped": "no more restarts"}
    why = {"class": "oom", "cause": EVIL, "lines": ["  indented", EVIL], "do": "use less"}
    folders.lost(run, None, 1, **{**last, **why})
    (run.path / "profile.yaml").write_text(
        "recipe:\n  reference:\n  - {metric: held-out/accuracy, first: 0.1, last: 0.9, note: '<i>'}"
    )
    commit = {"commit": "0123456789abcdef", "dirty": True}
    run.record(sources={"checkout": commit, "beam_slurm": {"commit": None, "why": "no git"}})
    return gather(run, State("failed", EVIL, 1, kind="oom", witnessed=True))


def several(root: Path) -> list[Facts]:
    """Runs of all frameworks, with long names, and one that has measured nothing."""
    found = []
    for at, framework in enumerate(("nemo-rl", "skyrl", "miles", "demo")):
        name = f"{framework}-with-a-rather-long-name-that-says-everything-{at}"
        history = History()
        for step in range(1, 41):
            history.add(Step(step, 40, reward=step / 40, step_time=90.0, training_time=30.0))
            if step % 5 == 0:
                history.add(Evaluation(step, "aime2025", None, 0.5 + at / 20, 30, 240))
        run = folders.make(root, name, framework=framework, profile=f"{framework}-profile")
        folders.bring_up(run)
        folders.outcome(run, 4000)
        found.append(replace(gather(run, State("succeeded")), history=history))
    waits = folders.make(root, "waits-1", job="99")
    return [*found, replace(gather(waits, State("pending", "Priority")), history=None)]


@pytest.fixture
def one(tmp_path: Path) -> str:
    return page.html(shown([restarted(tmp_path / "runs")]))


@pytest.fixture
def many(tmp_path: Path) -> str:
    return page.html(shown(several(tmp_path / "runs")))


def test_what_runs_say_stays_text(one: str) -> None:
    found = Outline(one)
    assert not {"script", "img", "b", "i", "iframe"} & {tag for tag, _ in found.elements}
    assert "demo-bad<b>&" in found.text
    assert found.text.count("<script>alert(1)</script> & <img src=//evil.example/x>") == 3
    assert "\x1b" not in one
    assert "  indented\n" in one
    assert not [name for _, given in found.elements for name in given if name.startswith("on")]


def test_a_page_asks_for_nothing(one: str, many: str) -> None:
    for text in (one, many):
        found = Outline(text)
        assert re.search(r"default-src 'none'; style-src 'unsafe-inline'; img-src data:", text)
        asked = [
            value or ""
            for _, given in found.elements
            for name, value in given.items()
            if name in ("src", "href", "xlink:href", "srcset", "data", "action")
        ]
        assert [it for it in asked if not it.startswith(("#", "data:"))] == []
        assert set(re.findall(r"url\((.)", text)) <= {"#"}
        assert "@import" not in text


def test_names_within_a_page_are_unique_and_there(one: str, many: str) -> None:
    for text in (one, many):
        found = Outline(text)
        names = [given["id"] for _, given in found.elements if "id" in given]
        assert len(names) == len(set(names))
        used = re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text)
        assert {a or b for a, b in used} <= set(names)


def test_a_drawing_takes_its_colours_from_the_page(one: str) -> None:
    assert "stroke: var(--run-1)" in one
    drawn = one[one.index("<svg") : one.rindex("</svg>")]
    assert re.findall(r"(?:fill|stroke): (#\w+)", drawn) == []
    assert "font-family" not in drawn


def test_the_page_of_a_run(one: str) -> None:
    found = Outline(one)
    assert [tag for tag, _ in found.elements if tag in ("h1", "h2")] == ["h1", *["h2"] * 4]
    assert len(found.all("svg")) == len(found.all("figure")) == 8
    assert all(it["aria-label"] for it in found.all("svg") if it.get("role") == "img")
    for said in (
        "failed (oom)",
        "use less",
        "Not started again: no more restarts",
        "checkout commit 0123456789, changed since",
        "80 of 80",
        "20 problems × 4 responses = 80: ± 10.7 points or less",
        "Dashed: published for demo, 10 → 90 % (<i>).",
        "failed (node): n2: Node failure restarted in its job: 4 fit nodes here, from step 20",
        "┊ new attempt",
    ):
        assert said in found.text, said
    assert "no git" not in found.text


def test_the_page_of_several_runs(many: str) -> None:
    found = Outline(many)
    assert "<title>5 runs</title>" in many
    assert len(found.all("article")) == 5
    colours = [it["stroke"] for it in found.all("path") if "stroke" in it]
    assert colours == [f"var(--run-{at})" for at in range(1, 6)]
    assert "Not measured by any of these runs: response length, log-prob difference" in found.text


def test_the_page_of_a_run_that_has_just_been_submitted(tmp_path: Path) -> None:
    facts = gather(folders.make(tmp_path), State("pending", "Priority"))
    found = Outline(page.html(shown([facts])))
    assert "pending Priority It has measured nothing yet." in found.text
    assert not found.all("figure")
    assert "Not measured" not in found.text


# --- in a browser -------------------------------------------------------------------------------


@pytest.fixture(params=["one", "many"])
def text(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_whole_and_says_nothing(tmp_path: Path, text: str, width: int) -> None:
    with browser.serving(text.encode(), width) as (address, asked):
        shows, complaints = browser.run(tmp_path, "--dump-dom", address)
    said = re.search(r'data-said="(.*?)"', shows)
    assert said, shows[:2000]
    wide, content, colour, scripts = json.loads(said[1].replace("&quot;", '"'))
    assert (wide, content, scripts) == (width, width, 0)
    assert colour == "rgb(255, 255, 255)"
    assert complaints == ""
    assert asked == ["/", "/page"]


@needs_browser
@pytest.mark.parametrize(("words", "paper"), [((), 255), (("--force-dark-mode",), 22)])
def test_it_is_dark_where_the_reader_likes_that(
    tmp_path: Path, one: str, words: tuple[str, ...], paper: int
) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "report.html").write_text(one)
    shot = tmp_path / "shot.png"
    where = (tmp_path / "report.html").as_uri()
    browser.run(tmp_path, *words, "--window-size=1280,800", f"--screenshot={shot}", where)
    found = image.open(io.BytesIO(shot.read_bytes())).convert("RGB")
    assert found.size == (1280, 800)
    assert found.getpixel((2, 2))[0] == paper
    # Not paper alone: the heading, the card, the first curves.
    assert len(found.getcolors(1 << 24)) > 100


@needs_browser
def test_it_prints_on_a_few_sheets(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.html").write_text(text)
    printed = tmp_path / "report.pdf"
    browser.run(tmp_path, f"--print-to-pdf={printed}", (tmp_path / "report.html").as_uri())
    pages = re.findall(rb"/Type\s*/Page\b", printed.read_bytes())
    assert 2 <= len(pages) <= 4
    boxes = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed.read_bytes())
    # A4, in points.
    assert {(round(float(w)), round(float(h))) for w, h in boxes} == {(595, 842)}
