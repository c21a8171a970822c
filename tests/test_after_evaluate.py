"""An evaluation with a real model, too small to be right more often than by chance."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.models.beam")
pytest.importorskip("math_verify")

import tinymodels  # noqa: E402

from beam_slurm.after import evaluate, responses  # noqa: E402
from beam_slurm.after.engines import CUT, Placement, Request, Sampling, start  # noqa: E402
from beam_slurm.after.errors import Problem  # noqa: E402
from beam_slurm.after.tokenizer import Tokenizer  # noqa: E402

torch.set_num_threads(1)  # the tensors are far too small for more

SAMPLES = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymodels.beam(tmp_path_factory.mktemp("beam"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tinymodels.sums(tmp_path / "sums.jsonl")


@pytest.fixture
def words(model: Path, data: Path) -> Callable[..., list[str]]:
    """The command line; a later word of the same option replaces an earlier one."""

    def words(output: Path, *more: str) -> list[str]:
        return [
            *("--engine", "transformers", "--model", str(model), "--data", str(data)),
            *("--set", "sums", "--output", str(output)),
            *("--samples", str(SAMPLES), "--max-tokens", "8", *more),
        ]

    return words


def kept(output: Path) -> list[responses.Response]:
    return responses.read(output / evaluate.RESPONSES)[1]


def test_every_response_is_kept_and_scored(words, tmp_path: Path, capsys) -> None:
    output = tmp_path / "out"
    assert evaluate.main(words(output)) == 0
    found = kept(output)
    assert {(one.id, one.sample) for one in found} == {
        (f"sums:{line}", sample) for line in range(1, 7) for sample in range(SAMPLES)
    }
    answer = {f"sums:{line}": str(a + b) for line, (a, b) in enumerate(tinymodels.SUMS, 1)}
    for one in found:
        boxes = [word for word in one.text.split() if word in tinymodels.ANSWERS]
        assert one.right == (boxes[-1:] == [f"\\boxed{{{answer[one.id]}}}"])
        assert one.truncated == (one.finish == CUT)
        assert one.tokens == 8 if one.truncated else 1 <= one.tokens <= 8
    right = sum(one.right for one in found)
    assert 0 < right < len(found), "the test shows nothing if none is right, or all"
    assert {one.truncated for one in found} == {True, False}
    summary = json.loads((output / evaluate.SUMMARY).read_text())
    assert summary["scores"]["avg@4"]["value"] == pytest.approx(right / len(found))
    assert summary["settings"]["versions"]["torch"] == torch.__version__
    assert len(summary["wording"]) == 64
    said = capsys.readouterr().out
    assert "24 of 24 responses are to be generated" in said
    assert "24/24 responses, " in said
    share = f"{100 * right / len(found):.1f}"
    assert re.search(rf"^\S+: avg@4 {re.escape(share)} % \(95 %: \d+\.\d to \d+\.\d\)$", said, re.M)


def test_what_is_done_is_not_done_again(words, tmp_path: Path, capsys) -> None:
    output = tmp_path / "out"
    evaluate.main(words(output, "--samples", "1"))
    before = (output / evaluate.RESPONSES).read_bytes()
    evaluate.main(words(output, "--samples", "2"))
    said = capsys.readouterr().out
    assert "6 of 12 responses are to be generated" in said
    assert "12/12 responses, " in said  # all that there are, not this attempt's alone
    after = (output / evaluate.RESPONSES).read_bytes()
    assert after.startswith(before)
    evaluate.main(words(output, "--samples", "2"))
    said = capsys.readouterr().out
    assert "0 of 12 responses" in said
    assert "loading" not in said
    assert (output / evaluate.RESPONSES).read_bytes() == after


def test_a_killed_evaluation_ends_with_the_same_responses(words, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    many = ("--samples", "5")
    command = [sys.executable, "-m", "beam_slurm.after", "evaluate", *words(killed, *many)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as running:
        record = killed / evaluate.RESPONSES
        while not (record.exists() and record.read_bytes().count(b"\n") > 3):
            assert running.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
    done = len(kept(killed))
    assert 3 <= done < 30
    with record.open("ab") as file:
        file.write(b'{"id": "sums:1", "sam')  # what a kill amid a write leaves
    evaluate.main(words(killed, *many))
    evaluate.main(words(whole, *many))
    assert kept(killed) == kept(whole)
    summaries = [(each / evaluate.SUMMARY).read_text() for each in (killed, whole)]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--temperature", "0.5", "temperature: 1.0 there, 0.5 now"),
        ("--max-tokens", "9", "max_tokens: 8 there, 9 now"),
        ("--seed", "1", "seed: 0 there, 1 now"),
        ("--set", "others", 'set: "sums" there, "others" now'),
    ],
)
def test_responses_of_other_settings_are_refused(
    words, tmp_path: Path, option: str, value: str, named: str
) -> None:
    output = tmp_path / "out"
    evaluate.main(words(output, "--samples", "1"))
    before = (output / evaluate.RESPONSES).read_bytes()
    with pytest.raises(Problem, match="other settings") as refused:
        evaluate.main(words(output, "--samples", "1", option, value))
    assert refused.value.why == named
    assert (output / evaluate.RESPONSES).read_bytes() == before


def test_other_weights_at_the_same_place_are_refused(words, model: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(model, tmp_path / "model")
    (moved / "SHA256SUMS").write_text("0  model.safetensors\n")
    evaluate.main(words(tmp_path / "out", "--samples", "1", "--model", str(moved)))
    (moved / "SHA256SUMS").write_text("1  model.safetensors\n")
    with pytest.raises(Problem, match="other settings") as refused:
        evaluate.main(words(tmp_path / "out", "--samples", "1", "--model", str(moved)))
    assert refused.value.why.startswith("weights: ")


def test_two_evaluations_do_not_share_an_output_folder(words, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    with (output / evaluate.LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Problem, match="in use"):
            evaluate.main(words(output))
    assert not (output / evaluate.RESPONSES).exists()
    evaluate.main(words(output, "--samples", "1"))


def test_an_output_folder_that_cannot_be_made(words, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match="cannot be written"):
        evaluate.main(words(tmp_path / "file" / "out"))


# Model folders that are not fit: said before anything is made


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)


INDEX = '{"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}'


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (shutil.rmtree, "no Hugging Face folder"),
        (remove("config.json"), "no Hugging Face folder"),
        (write("config.json", "{"), "no Hugging Face folder"),
        (write("config.json", "[]"), "no Hugging Face folder"),
        (remove("model.safetensors"), "not whole"),
        (cut, "cut off"),
        (write("model.safetensors.index.json", INDEX), "not whole"),
        (write("model.safetensors.index.json", "{}"), "not whole"),
        (remove("tokenizer.json"), "tokenizer"),
        (write("tokenizer.json", "{"), "tokenizer"),
        (write("generation_config.json", '{"eos_token_id": 1'), "settings cannot be read"),
    ],
)
def test_a_model_that_is_not_whole_is_refused(
    words, model: Path, tmp_path: Path, damage: Callable[[Path], None], what: str
) -> None:
    bad = shutil.copytree(model, tmp_path / "model")
    damage(bad)
    with pytest.raises(Problem, match=what) as refused:
        evaluate.main(words(tmp_path / "out", "--model", str(bad)))
    assert refused.value.where.startswith(str(bad))
    assert "Errno" not in refused.value.why
    assert not (tmp_path / "out").exists()


def test_a_refusal_is_a_text_and_exit_code_2(words, tmp_path: Path) -> None:
    bad = words(tmp_path / "out", "--model", str(tmp_path / "none"))
    done = subprocess.run(
        [sys.executable, "-m", "beam_slurm.after", "evaluate", *bad],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/none/config.json: this is no Hugging Face")
    assert "Traceback" not in done.stderr


def test_an_architecture_that_nobody_knows(words, model: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(model, tmp_path / "model")
    config = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps({**config, "model_type": "unheard-of"}))
    with pytest.raises(Problem, match="cannot") as refused:
        evaluate.main(words(tmp_path / "out", "--model", str(bad)))
    assert "unheard-of" in refused.value.why


def test_a_response_has_to_fit_into_the_context(words, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="do not fit") as refused:
        evaluate.main(words(tmp_path / "out", "--max-tokens", "64"))
    most = refused.value.do.split()[1]
    assert evaluate.main(words(tmp_path / "out", "--samples", "1", "--max-tokens", most)) == 0


@pytest.mark.parametrize(
    "more",
    [
        ("--samples", "0"),
        ("--max-tokens", "0"),
        ("--temperature", "-1"),
        ("--top-p", "0"),
        ("--top-p", "1.1"),
        ("--temperature", "0"),
        ("--tensor-parallel", "2"),
        ("--engine", "sglang"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words, tmp_path: Path, more, capsys) -> None:
    with pytest.raises(SystemExit) as refused:
        evaluate.main(words(tmp_path / "out", *more))
    assert refused.value.code == 2
    assert more[0] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_here(words, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="vllm is not installed"):
        evaluate.main(words(tmp_path / "out", "--engine", "vllm"))


# The engine and the tokenizer alone


PROMPT = (3, 7, 5, 8, 6, 4)


def generate(model: Path, sampling: Sampling, seeds: range) -> list[tuple[int, ...]]:
    engine = start("transformers", model, Placement(), tinymodels.CONTEXT)
    made = list(engine.generate([Request(PROMPT, seed) for seed in seeds], sampling))
    assert [one.request for one in made] == list(range(len(seeds)))
    return [one.tokens for one in made]


def test_the_likeliest_tokens_are_the_models_own(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model)
    tokens = list(PROMPT)
    for _ in range(8):
        logits = loaded(input_ids=torch.tensor([tokens])).logits
        tokens.append(int(logits[0, -1].argmax()))
    sampling = Sampling(temperature=0, top_p=1, max_tokens=8, stop=())
    assert generate(model, sampling, range(1)) == [tuple(tokens[len(PROMPT) :])]


def test_a_response_depends_on_its_seed_alone(model: Path) -> None:
    sampling = Sampling(temperature=1, top_p=1, max_tokens=8, stop=(tinymodels.END,))
    together = generate(model, sampling, range(6))
    assert len(set(together)) > 3
    assert together[2:] == generate(model, sampling, range(2, 6))


def test_a_checkpoints_own_sampling_is_not_used(model: Path, tmp_path: Path) -> None:
    other = shutil.copytree(model, tmp_path / "model")
    own = {"do_sample": True, "top_k": 1, "repetition_penalty": 9.0, "max_new_tokens": 2}
    (other / "generation_config.json").write_text(json.dumps(own))
    sampling = Sampling(temperature=1, top_p=1, max_tokens=8, stop=(tinymodels.END,))
    assert generate(other, sampling, range(6)) == generate(model, sampling, range(6))


def test_a_response_ends_where_any_file_of_the_model_says(model: Path, tmp_path: Path) -> None:
    other = shutil.copytree(model, tmp_path / "model")
    (other / "generation_config.json").write_text('{"eos_token_id": [5, 4]}')
    stop = Tokenizer(other).stop
    assert stop == (tinymodels.END, 4, 5)
    sampling = Sampling(temperature=1, top_p=1, max_tokens=40, stop=stop)
    for tokens in generate(other, sampling, range(6)):
        assert not set(tokens[:-1]) & set(stop)


def test_a_question_becomes_a_turn_of_a_chat(model: Path, tmp_path: Path) -> None:
    chat = Tokenizer(model)
    assert chat.text(chat.prompt("1 + 2 ?")) == "user: 1 + 2 ? model:"
    plain = shutil.copytree(model, tmp_path / "model")
    tinymodels.tokenizer(plain, template=None)
    (plain / "chat_template.jinja").unlink()
    assert Tokenizer(plain).text(Tokenizer(plain).prompt("1 + 2 ?")) == "1 + 2 ?"


def test_seeds_are_apart_and_stay_what_they_are() -> None:
    seeds = {evaluate.seed_of(0, f"q:{line}", sample) for line in range(99) for sample in range(9)}
    assert len(seeds) == 99 * 9
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert evaluate.seed_of(0, "sums:1", 0) == 489589212


def test_an_answer_that_nobody_could_give_is_refused_first(words, tmp_path: Path) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text(
        '{"id": "a", "question": "1+1", "answer": "2"}\n'
        '{"id": "b", "question": "1+2", "answer": "}"}\n'
    )
    with pytest.raises(Problem, match="the answer of problem b cannot be compared"):
        evaluate.main([*words(tmp_path / "out"), "--data", str(data)])
    assert not (tmp_path / "out").exists()
