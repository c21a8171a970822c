"""Known secrets in a stream of bytes: none comes out however it is cut, nothing else changes."""

from __future__ import annotations

import base64
import json
import shlex
import time
import urllib.parse
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_slurm.node.mask import STARS, Mask, names_in

# Few letters, so that values overlap, hold each other and begin alike.
VALUES = st.lists(st.text("ab/", min_size=6, max_size=9).map(str.encode), min_size=1, max_size=3)
TEXTS = st.lists(st.text("ab/%", max_size=12).map(str.encode), max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """Values, and a text that is made of them, of parts of them and of other words."""
    values = draw(VALUES)
    parts = st.sampled_from([*values, *(value[:4] for value in values), *draw(TEXTS), b"ab"])
    return values, b"".join(draw(st.lists(parts, max_size=8)))


@given(streams(), st.lists(st.integers(0, 200)))
def test_any_cut_of_a_stream_gives_what_the_whole_gives(
    stream: tuple[list[bytes], bytes], places: list[int]
) -> None:
    values, text = stream
    mask = Mask(values)
    whole = mask.whole(text)
    assert b"".join(mask.feed(part) for part in cut(text, places)) + mask.flush() == whole
    assert mask.flush() == b""
    assert not any(value in whole for value in values)


@given(streams(), st.lists(st.integers(0, 200)))
def test_only_what_may_begin_a_value_is_held_back(
    stream: tuple[list[bytes], bytes], places: list[int]
) -> None:
    values, text = stream
    mask = Mask(values)
    seen = b""
    for part in cut(text, places):
        mask.feed(part)
        seen += part
        held = mask._held
        assert seen.endswith(held)
        assert not held or any(form.startswith(held) and form != held for form in mask.forms)


@given(st.binary(max_size=300), st.lists(st.binary(min_size=8, max_size=20), max_size=4))
def test_text_without_a_value_is_unchanged(text: bytes, values: list[bytes]) -> None:
    mask = Mask(values)
    if not any(form in text for form in mask.forms):
        assert mask.whole(text) == text


@given(st.text("ab", min_size=6, max_size=8), st.text("ab", max_size=4), st.text("c", max_size=3))
def test_the_longer_of_two_values_that_begin_alike_is_covered_whole(
    value: str, more: str, after: str
) -> None:
    mask = Mask([value.encode(), (value + more).encode()])
    assert mask.whole(f"{value}{more}{after}".encode()) == STARS + after.encode()


SECRET = 'p@ss/w\'ord "1"\\é\n2'  # every spelling below differs from the bare one


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        urllib.parse.quote(SECRET, safe="").lower(),
        json.dumps({"key": SECRET}),
        json.dumps({"key": SECRET}, ensure_ascii=False),
        repr({"key": SECRET}),
        repr(SECRET.encode()),
        shlex.quote(SECRET),
        "'" + SECRET.replace("'", "'\\''") + "'",
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_each_spelling_of_a_value_is_masked(spelling: str) -> None:
    said = Mask([SECRET.encode() + b"\n"]).whole(f"before {spelling} after".encode()).decode()
    assert said.startswith("before ")
    assert said.endswith(" after")
    assert "***" in said
    for part in ("p@ss", "ord", "%40", "cEBzcy93"):
        assert part not in said


def test_a_whole_text_does_not_disturb_the_stream() -> None:
    mask = Mask([b"abcdef"])
    assert mask.feed(b"12abc") == b"12"
    assert mask.whole(b"def") == b"def"
    assert mask.feed(b"def34") + mask.flush() == b"***34"


def test_short_values_are_left_alone() -> None:
    assert Mask([b"12345", b"", b"  abc  "]).whole(b"12345 abc") == b"12345 abc"
    assert Mask([b"123456"]).whole(b"1234567") == b"***7"


def test_values_of_named_variables() -> None:
    environ = {"WANDB_API_KEY": "abcdef", "HF_TOKEN": "", "HOME": "/home/me"}
    assert names_in(environ, ["WANDB_API_KEY", "HF_TOKEN", "ABSENT"]) == [b"abcdef"]


def test_a_log_of_gigabytes_goes_through_in_a_minute() -> None:
    values = [bytes([65 + number]) * 4 + b"-secret-value/%d" % number for number in range(4)]
    mask = Mask(values)
    block = b"(Worker pid=26713, ip=10.65.16.209) step 12: {'train/loss': 0.1234}\n" * 960
    begun = time.process_time()
    for _ in range(100):
        mask.feed(block)
    spent = time.process_time() - begun
    assert 100 * len(block) / spent > 50e6
