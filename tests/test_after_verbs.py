"""The command line of after.pyz: verbs, errors as text, and nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_slurm.after import __main__ as after
from beam_slurm.after.errors import Problem


def call(monkeypatch: pytest.MonkeyPatch, verb: Callable[[list[str]], int], *words: str) -> None:
    """Have the command line name a verb of this test."""
    stand_in = type(sys)("beam_slurm.after.of_this_test")
    monkeypatch.setattr(stand_in, "main", verb, raising=False)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setitem(after.VERBS, "try", "of_this_test")
    monkeypatch.setattr(sys, "argv", ["after.pyz", "try", *words])


def test_a_problem_becomes_text_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(argv: list[str]) -> int:
        raise Problem("it broke", where=argv[0], why="it was thin", do="take a thicker one")

    call(monkeypatch, broken, "config.json")
    with pytest.raises(SystemExit) as ended:
        after.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: config.json: it broke\n  why: it was thin\n  do:  take a thicker one\n"


def test_a_verb_gets_its_words_and_gives_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    call(monkeypatch, len, "--to", "hf", "x")
    with pytest.raises(SystemExit) as ended:
        after.main()
    assert ended.value.code == 3


@pytest.mark.parametrize("words", [[], ["train"]])
def test_no_verb_or_another_is_told_the_verbs(words: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "beam_slurm.after", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert told.returncode == 2
    assert told.stderr == "usage: after.pyz convert|evaluate ...\n"


def test_the_pure_modules_load_nothing_heavy() -> None:
    program = (
        "import sys, beam_slurm.after.folder\n"
        "heavy = {'torch', 'transformers', 'safetensors', 'numpy'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('beam_slurm')\n"
        "    and not name.startswith('beam_slurm.after')))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert told.stdout == "[]\n['beam_slurm']\n"
