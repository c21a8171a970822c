"""What a response answers and whether that is right, by math-verify itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import beam_slurm
from beam_slurm.after import answers, judge
from beam_slurm.after.answers import extracted, right
from beam_slurm.after.errors import Problem
from beam_slurm.after.judge import Judge

GARBAGE = "lorem {ipsum} $dolor$ \\sit{ 17 = 4 } amet\n" * 10_000

EXTRACTED = {
    "boxed": (r"So it is $\boxed{204}$.", "204"),
    "boxed, displayed": ("so\n\\[\n\\boxed{ 204 }\n\\]", "204"),
    "boxed with a space": (r"\boxed {204}", "204"),
    "fbox": (r"\fbox{204}", "204"),
    "nested braces": (r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"),
    "escaped braces": (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    "a box in a box": (r"\boxed{\boxed{204}}", "204"),
    "several boxes: the last": (r"\boxed{1}, no, \boxed{2}, no, \boxed{204}", "204"),
    "text in the box": (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
    "an empty box": (r"\boxed{204} \boxed{}", ""),
    "an unclosed box": (r"\boxed{1} or rather \boxed{204", ""),
    "an unclosed brace in it": (r"\boxed{\frac{1}{2}", ""),
    "a box after garbage": (GARBAGE + r"\boxed{204}" + GARBAGE, "204"),
    "a box and a line": ("\\boxed{204}\nAnswer: 3", "204"),
    "a line": ("It follows.\nAnswer: 204", "204"),
    "a line in bold": ("**Answer:** $204$\n\n", "$204$"),
    "a line wholly in bold": ("**Final answer: 204**", "204"),
    "a heading": ("## Answer:\n\n204", "204"),
    "a line with a box": ("Answer: \\boxed{204}", "204"),
    "several lines: the last": ("Answer: 1\nwait\nAnswer: 204\nthat is it", "204"),
    "not a line of its own": ("I need the answer: 204 or so", ""),
    "a line that says nothing": ("Answer:  ", ""),
    "the last number": ("which gives 204", ""),
    "the last formula": ("which gives $x = 204$", ""),
    "nothing": ("", ""),
    "only garbage": (GARBAGE, ""),
    "only empty lines": ("\n" * 200_000 + "answer", ""),
    "only boxes that do not close": (r"\boxed{" * 20_000, ""),
}


@pytest.mark.parametrize(("response", "wanted"), EXTRACTED.values(), ids=EXTRACTED.keys())
def test_what_a_response_answers(response: str, wanted: str) -> None:
    begun = time.process_time()
    assert extracted(response) == wanted
    assert time.process_time() - begun < 1  # no text takes quadratic time


# (in the box, the set's answer)
RIGHT = [
    ("204", "204"),
    (" 204 ", "204"),
    ("204.", "204"),
    ("204.0", "204"),
    ("$204$", "204"),
    (r"\(204\)", "204"),
    ("033", "33"),
    ("33", "033"),
    ("000", "0"),
    ("+7", "7"),
    (r"\text{204}", "204"),
    (r"\textbf{204}", "204"),
    (r"\mathbf{\text{204}}", "204"),
    (r"\emph{204}", "204"),
    ("**204**", "204"),
    (r"\textcolor{red}{204}", "204"),
    (r"204 \text{ minutes}", "204"),
    (r"204\text{ cm}^2", "204"),
    ("204 minutes", "204"),
    (r"204\ \mathrm{cm}", "204"),
    (r"\$204", "204"),
    (r"336^\circ", "336"),
    (r"336^{\circ}", "336"),
    ("336°", "336"),
    ("336", r"336^\circ"),  # as opencompass/AIME2025 has problem 5 of its second half
    ("336°", r"336^\circ"),
    ("1,234", "1234"),
    ("1{,}234", "1234"),
    (r"1\,234", "1234"),
    ("1,234,567", "1234567"),
    ("x = 204", "204"),
    ("m + n = 200 + 4 = 204", "204"),
    ("2^{10}", "1024"),
    (r"2 \cdot 102", "204"),
    ("-5", "-5"),
    ("−5", "-5"),
    (r"\frac{1}{2}", r"\frac{1}{2}"),
    (r"\dfrac{1}{2}", r"\frac{1}{2}"),
    (r"\tfrac12", r"\frac{1}{2}"),
    (r"\frac{2}{4}", r"\frac{1}{2}"),
    ("1/2", r"\frac{1}{2}"),
    ("0.5", r"\frac{1}{2}"),
    (".5", r"\frac{1}{2}"),
    (r"1\tfrac{1}{2}", r"\frac{3}{2}"),
    (r"50\%", r"\frac{1}{2}"),
    ("50%", "50"),
    (r"2\sqrt{2}", r"\sqrt{8}"),
    (r"\frac{\sqrt{3}}{2}", r"\frac{1}{2}\sqrt{3}"),
    (r"3\pi", r"3 \pi"),
    (r"\left(1, 2\right)", "(1,2)"),
    (r"\{2, 1\}", r"\{1,2\}"),
    ("[0, 1)", "[0,1)"),
    ("1 + x^2", "x^2+1"),
    (r"\text{Evelyn}", r"\text{Evelyn}"),
]

WRONG = [
    ("205", "204"),
    ("-204", "204"),
    ("2040", "204"),
    ("20", "204"),
    ("20 4", "204"),
    ("204.5", "204"),
    ("204.001", "204"),
    ("0.33", r"\frac13"),
    (r"\frac{1}{3}", r"\frac{1}{2}"),
    (r"\frac{204}{0}", "204"),
    (r"\frac{204}", "204"),
    ("204, 205", "204"),
    ("204 or 205", "204"),
    (r"204 \text{ or } 205", "204"),
    (r"204 \pm 1", "204"),
    (r"\pm 204", "204"),
    ("x > 204", "204"),
    ("204!", "204"),
    ("204 + C", "204"),
    ("x = 1, y = 204", "204"),
    ("(2,1)", "(1,2)"),
    (r"\text{I do not know}", "204"),
    (r"\text{Edwin}", r"\text{Evelyn}"),
    ("?", "204"),
    ("\\", "204"),
    ("\x00", "204"),
    ("\ud800", "204"),
    ("204 " * 250, "204"),
    ("9" * 1000, "204"),
]


@pytest.mark.parametrize(("box", "answer"), RIGHT)
def test_right_answers(box: str, answer: str) -> None:
    assert right(rf"Thus $\boxed{{{box}}}$.", answer)
    assert right(f"Thus:\n\nAnswer: {box}", answer)


@pytest.mark.parametrize(("box", "answer"), WRONG)
def test_wrong_answers(box: str, answer: str) -> None:
    assert not right(rf"Thus $\boxed{{{box}}}$.", answer)
    assert not right(f"Thus:\n\nAnswer: {box}", answer)


@pytest.mark.parametrize(
    "response", [found for found, answer in EXTRACTED.values() if not answer and "204" in found]
)
def test_a_number_that_is_no_answer_is_not_right(response: str) -> None:
    assert not right(response, "204")


def test_every_answer_that_aime_can_have() -> None:
    """The integers 0 to 999: right with and without leading zeros, and no other one is."""
    for number in range(1000):
        other = (number * 7 + 13) % 1000
        assert right(rf"\boxed{{{number:03}}}", str(number)), number
        assert right(rf"\boxed{{{number}}}", f"{number:03}"), number
        assert right(rf"\boxed{{{other}}}", str(number)) == (number == other), (number, other)


@pytest.mark.parametrize("endless", ["9^{9^{9^{9}}}", "(" * 900], ids=["tower", "braces"])
def test_an_answer_that_never_ends_is_wrong_and_the_next_is_judged(endless: str) -> None:
    quick = Judge(limit=1.0)
    assert quick.same("204", "204")  # it runs: what follows is the limit and no more
    assert not quick.same("204", endless)
    assert quick.same("204", "204")
    quick.close()


def test_a_busy_host_makes_no_right_answer_wrong() -> None:
    """Stopped for three times its limit, it has not computed for that long."""
    judge = Judge(limit=0.5)
    judge.version()
    assert judge._process
    judge._process.send_signal(signal.SIGSTOP)
    later = threading.Timer(1.5, judge._process.send_signal, [signal.SIGCONT])
    begun = time.monotonic()
    later.start()
    assert judge.same("204", "204")
    assert time.monotonic() - begun > 1, "it was asked while it stood still"
    judge.close()


def test_a_judge_that_was_killed_is_replaced() -> None:
    fragile = Judge()
    assert fragile.same("1", "1")
    assert fragile._process
    fragile._process.kill()
    fragile._process.wait()
    assert not fragile.same("1", "1")  # nobody knows what killed it: perhaps this answer
    assert fragile.same("1", "1")
    fragile.close()


def test_any_thread_may_ask() -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: right(rf"\boxed{{{n}}}", str(n - n % 2)), range(100)))
    assert found == [n % 2 == 0 for n in range(100)]


def test_the_process_ends_with_the_one_that_started_it() -> None:
    code = (
        "from beam_slurm.after.judge import Judge; import os, signal;"
        "found = Judge(); found.version(); print(found._process.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    process = Path("/proc", told.stdout.strip(), "stat")
    until = time.monotonic() + 30
    # A container's first process may never collect it: a zombie has ended too.
    while process.exists() and process.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_set_s_answer_that_nobody_can_give() -> None:
    for answer in {answer for _, answer in RIGHT}:
        assert answers.readable(answer), answer
    for answer in ("", "}", "1" * 1001):
        assert not answers.readable(answer)


def test_the_version_that_judges() -> None:
    major, minor, *_ = answers.version().split(".")
    assert (int(major), int(minor)) >= (0, 9)


def test_without_math_verify_it_is_told_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.syspath_prepend(tmp_path)
    for ask in (Judge().version, lambda: Judge().same("1", "1")):
        with pytest.raises(Problem, match="answers cannot be checked here") as caught:
            ask()
        assert caught.value.why == "ImportError: No module named math_verify"
        assert "pip install 'beam-slurm[evaluate]'" in caught.value.do


def test_it_judges_from_a_zipapp(tmp_path: Path) -> None:
    """As it is shipped: one file beside nothing else of beam-slurm."""
    package = Path(beam_slurm.__file__).parent
    program = tmp_path / "after.pyz"
    with zipfile.ZipFile(program, "w") as made:
        for module in (package / "__init__.py", *(package / "after").glob("*.py")):
            made.write(module, module.relative_to(package.parent))
        made.writestr(
            "__main__.py",
            "from beam_slurm.after import answers; print(answers.__file__);"
            "print(answers.right('Answer: 7', '007'))",
        )
    elsewhere = [at for at in sys.path if at and Path(at).resolve() != package.parent.resolve()]
    told = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(elsewhere)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == [f"{program}/beam_slurm/after/answers.py", "True"]


def test_what_a_library_prints_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "math_verify.py").write_text(
        "import os\nprint('true'); os.write(1, b'true\\n')\n"
        "LatexExtractionConfig = dict\n"
        "def parse(text, how, parsing_timeout): print('true'); return text\n"
        "def verify(gold, given, timeout_seconds): os.write(1, b'true\\n'); return gold == given\n"
    )
    asked = '\n["1", "1"]\n["1", "2"]\n'
    told = subprocess.run(
        [sys.executable, "-m", judge.__name__],
        input=asked,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    version, *verdicts = told.stdout.splitlines()
    assert "version" in json.loads(version)
    assert verdicts == ["true", "false"]
