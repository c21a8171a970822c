"""Conversions and evaluations as jobs: which checkpoint, which script, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from conversions import CPU, demo_model, in_files, save_distributed, save_megatron
from safetensors.torch import save_file
from test_job import driver_words
from test_rerun import make, root  # noqa: F401 - a fixture

from beam_slurm import profiles
from beam_slurm.after import demo
from beam_slurm.cli import cli
from beam_slurm.errors import BeamSlurmError
from beam_slurm.posttraining import evaluating
from beam_slurm.posttraining.source import Source
from beam_slurm.runs import Run

pytestmark = pytest.mark.usefixtures("no_site")

Trained = Callable[..., Run]


def call(*words: str) -> Result:
    result = CliRunner().invoke(cli, [*words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with a tiny Beam, whose trained weights lie beside it."""
    folder = tmp_path_factory.mktemp("models")
    base = demo_model.build_policy(1, CPU)
    base.save_pretrained(folder / "Beam")
    demo.tokenizer().save_pretrained(folder / "Beam")
    save_distributed(in_files(base, folder / "other"), folder / "weights")
    return folder


@pytest.fixture
def trained(root: Path, models: Path) -> Callable[..., Run]:  # noqa: F811
    """Makes a run of b300-colocated with whole checkpoints of these steps."""

    def made(*steps: int) -> Run:
        run = make(
            root,
            "recipe.checkpoint.enabled=true",
            f"site.paths.outputs={root.parent}/outputs",
            f"site.paths.models={models}",
        )
        assert run.checkpoints
        for step in steps:
            folder = run.checkpoints / f"step_{step}"
            shutil.copytree(models / "weights", folder / "policy" / "weights")
            (folder / "training_info.json").write_text("{}")
        return run

    return made


def entry(script: str) -> list[str]:
    return [word.decode() for word in driver_words(script)]


def test_a_conversion_is_launched_as_the_run_was(root: Path, trained: Trained) -> None:  # noqa: F811
    run = trained(20, 40)
    script = call("convert", run.id, "--dry-run", "--runs", str(root)).stdout
    words = entry(script)
    at = words.index("convert")
    assert words[at - 2 : at] == ["python", words[at - 1]]
    assert words[at - 1].endswith("/after.pyz")
    output = f"/root/shared_data/{run.id}"
    assert words[at + 1 :] == [
        f"--checkpoint={output}/checkpoints/step_40",
        "--base=/root/models/Beam",
        f"--output={output}/hf/step_40",
        "--framework=nemo-rl",
        "--to=hf",
    ]
    folder = f"{root.parent}/outputs/{run.id}/hf"
    assert f" --shared={folder}\n" in script
    assert f" --made={folder}/step_40.part/.conversion.json\n" in script
    assert "#SBATCH --nodes=1\n" in script
    assert f"#SBATCH --job-name={run.id}-hf\n" in script
    assert "nemo.sqsh" in script  # the image that it was trained in
    shellcheck = ["shellcheck", "--shell=bash", "-"]
    assert subprocess.run(shellcheck, input=script, text=True, check=False).returncode == 0


def test_the_step_may_be_named(root: Path, trained: Trained) -> None:  # noqa: F811
    run = trained(20, 40)
    words = entry(call("convert", run.id, "--step=20", "--dry-run", "--runs", str(root)).stdout)
    assert any(word.endswith("/hf/step_20") for word in words)
    with pytest.raises(BeamSlurmError, match="no checkpoint step_30") as caught:
        call("convert", run.id, "--step=30", "--runs", str(root))
    assert "there are 20, 40" in (caught.value.remedy or "")


def test_what_is_not_whole_is_refused_before_any_job(root: Path, trained: Trained) -> None:  # noqa: F811
    run = trained(20, 40)
    assert run.checkpoints
    (run.checkpoints / "step_40" / "training_info.json").unlink()
    with pytest.raises(BeamSlurmError, match="is not whole") as caught:
        call("convert", run.id, "--step=40", "--runs", str(root))
    assert "training_info.json" in (caught.value.why or "")
    assert sorted(root.iterdir()) == [run.path]

    assert "of another step: there are 20" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("make", "words", "what", "remedy"),
    [
        (None, (), "there is no folder", "correct the path"),
        ("", (), "this is no checkpoint, and holds none", "name step_000020 or the folder"),
        ("config.json", (), "is a Hugging Face folder already", "--to megatron"),
        ("step_000020", (), "there is no whole checkpoint", "wait until one is saved"),
        (None, ("--to=megatron",), "there is no such folder", "a Hugging Face folder: config.json"),
        ("", ("--to=megatron",), "holds no weights", "a Hugging Face folder: config.json"),
    ],
)
def test_a_folder_that_is_no_checkpoint(
    tmp_path: Path, make: str | None, words: tuple[str, ...], what: str, remedy: str
) -> None:
    folder = tmp_path / "step"
    if make is not None:
        folder.mkdir()
    if make == "config.json":
        (folder / make).write_text("{}")
    elif make:
        (folder / make).mkdir()
    with pytest.raises(BeamSlurmError, match=what) as caught:
        call("convert", str(folder), "--profile=demo", *words)
    assert remedy in str(caught.value.remedy)
    assert f"{caught.value.where}: {caught.value.what}".count(str(folder)) == 1


def test_a_folder_that_is_not_there_is_no_run(root: Path, trained: Trained) -> None:  # noqa: F811
    for words in (("convert", "/nowhere/x"), ("evaluate", "/nowhere/x", "--set=mine")):
        with pytest.raises(BeamSlurmError, match="there is no folder /nowhere/x"):
            call(*words, "--runs", str(root))
        with pytest.raises(BeamSlurmError, match="there is no folder /nowhere/x"):
            call(*words, "--profile=demo", "--runs", str(root))
    run = trained(20)
    assert call("convert", f"{run.id}/", "--dry-run", "--runs", str(root)).exit_code == 0


def test_an_output_that_holds_something_is_refused(root: Path, trained: Trained) -> None:  # noqa: F811
    run = trained(20)
    taken = root.parent / "taken"
    taken.mkdir()
    (taken / "model.safetensors").touch()
    with pytest.raises(BeamSlurmError, match="the output folder is not empty"):
        call("convert", run.id, "-o", str(taken), "--runs", str(root))


def test_a_run_without_checkpoints(root: Path) -> None:  # noqa: F811
    run = make(root)
    with pytest.raises(BeamSlurmError, match="has saved no checkpoints"):
        call("convert", run.id, "--runs", str(root))
    with pytest.raises(BeamSlurmError, match="no checkpoint of"):
        call("evaluate", run.id, "--set=aime2025", "--runs", str(root))


def test_a_folder_needs_a_profile(root: Path) -> None:  # noqa: F811
    with pytest.raises(BeamSlurmError, match="is no run") as caught:
        call("convert", str(root.parent), "--runs", str(root))
    assert "--profile" in (caught.value.remedy or "")


def converted(folder: Path) -> Path:
    """As much of a Hugging Face folder as is looked at before the queue."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["BeamForCausalLM"]}))
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def test_an_evaluation_takes_the_nodes_that_the_weights_need(
    root: Path,  # noqa: F811
    trained: Trained,
) -> None:
    run = trained(20)
    assert run.checkpoints
    converted(run.checkpoints.parent / "hf" / "step_20")
    data = root.parent / "mine.jsonl"
    data.write_text('{"question": "1+1", "answer": "2"}\n{"question": "1+2", "answer": "3"}\n')
    words = ("evaluate", run.id, "--set=mine", f"--data={data}", "--samples=4")
    script = call(*words, "--dry-run", "--runs", str(root)).stdout
    found = entry(script)
    at = found.index("evaluate")
    assert f"--model=/root/shared_data/{run.id}/hf/step_20" in found[at:]
    assert {
        "--data=problems.jsonl",
        "--samples=4",
        "--max-tokens=4096",
        "--tensor-parallel=8",
        "--pipeline-parallel=1",
    } <= {*found[at:]}
    assert f"{data.parent}:{data.parent}" not in script  # the problems travel in the run folder
    assert "--steps=8" in script
    assert "--framework=evaluate" in script
    data.write_text('{"question": "1+1"}\n')
    with pytest.raises(BeamSlurmError, match="has no answer") as caught:
        call(*words, "--runs", str(root))
    assert caught.value.where == f"{data}:1"


@pytest.mark.parametrize(
    ("profile", "nodes"), [("h200-colocated", 2), ("b200-bf16", 1), ("b300-colocated", 1)]
)
def test_beam_takes_two_nodes_of_h200_and_one_of_larger_gpus(
    profile: str, nodes: int, tmp_path: Path
) -> None:
    """Its terabyte of BF16, and room to generate; each layer stays within a node."""
    data = tmp_path / "mine.jsonl"
    data.write_text('{"question": "1+1", "answer": "2"}\n')
    of = Source(profiles.resolve(profile), tmp_path / "hf", None, None, there=False)
    task = evaluating.task(of, evaluating.Settings("mine", data), None)
    assert task.nodes == nodes
    assert {"--tensor-parallel=8", f"--pipeline-parallel={nodes}"} <= set(task.words)


def test_a_chain_is_planned_before_anything_is_submitted(root: Path) -> None:  # noqa: F811
    words = ("submit", "--profile=demo", "--then=convert,evaluate")
    with pytest.raises(BeamSlurmError, match="saves no checkpoints"):
        call(*words, "--set=recipe.checkpoint.enabled=false")
    with pytest.raises(BeamSlurmError, match="--then needs Slurm"):
        call(*words, "--nodes=1", "--local")
    assert not root.exists()


def test_the_way_back_begins_with_a_hugging_face_folder(models: Path, root: Path) -> None:  # noqa: F811
    """Of the demo it makes its own checkpoint, which needs no Bridge."""
    there = models / "Beam"
    words = ("convert", str(there), "--profile=demo", "--to=megatron", "--dry-run")
    found = entry(call(*words, "--runs", str(root)).stdout)
    assert f"--checkpoint={there}" in found
    assert f"--output={there}-megatron" in found
    assert "--to=megatron" in found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperature=-1",), "-1.0 is not in the range"),
        (("--top-p=0",), "0.0 is not in the range"),
        (("--samples=0",), "0 is not in the range"),
        (("--temperature=0",), "all samples are the same"),
    ],
)
def test_sampling_that_makes_no_sense(words: tuple[str, ...], said: str) -> None:
    result = call("evaluate", "x", "--set=mine", *words)
    assert result.exit_code == 2
    assert said in result.output


def test_where_bridge_is_missing_the_job_says_so(
    tmp_path: Path,
    models: Path,
    root: Path,  # noqa: F811
) -> None:
    """It cannot be installed without CUDA: the job runs to the point where it is imported."""
    pytest.importorskip("ray")
    step = tmp_path / "outputs" / "first" / "checkpoints" / "global_step_10"
    save_megatron(step / "policy", demo_model.build_policy(1, CPU))
    torch.save({"global_step": 10}, step / "trainer_state.pt")
    site = {name: tmp_path / name for name in ("skyrl", "datasets", "outputs", "scratch")}
    for path in site.values():
        path.mkdir(exist_ok=True)
    words = [f"--set=site.paths.{name}={path}" for name, path in site.items()]
    words += [f"--set=site.paths.models={models}", "--set=site.container=bare"]
    done = call(
        *("convert", str(step), "--profile=b200-bf16", *words),
        *("--local", "--wait", "--runs", str(root)),
    )
    assert done.exit_code == 2, done.output
    (run,) = (Run(path) for path in root.iterdir())
    cause = "megatron.bridge cannot be imported: No module named 'megatron'"
    # One line each, wherever one looks: why, and what to do.
    assert run.outcome["state"] == "failed"
    assert run.outcome["class"] == "config"
    assert cause in run.outcome["cause"]
    assert "convert in the framework's training image" in run.outcome["do"]
    assert cause in call("status", run.id, "--runs", str(root)).output
    assert "megatron.bridge cannot be imported" in call("logs", run.id, "--runs", str(root)).output
    # It is not tried again, and nothing is left behind.
    assert [path.name for path in run.path.glob("attempt-*")] == ["attempt-0"]
    assert sorted(path.name for path in step.parents[1].iterdir()) == ["checkpoints", "hf"]
    assert list((step.parents[1] / "hf").iterdir()) == []


def test_a_conversion_wants_to_know_where_the_base_is(root: Path, trained: Trained) -> None:  # noqa: F811
    folder = trained(20).checkpoints
    with pytest.raises(BeamSlurmError, match="needs to know more about this site") as caught:
        call("convert", str(folder), "--profile=b300-colocated", "--runs", str(root))
    assert "site.paths.models" in (caught.value.remedy or "")


def test_a_node_that_cannot_hold_the_model_is_refused_before_any_job(
    tmp_path: Path,
    models: Path,
    root: Path,  # noqa: F811
) -> None:
    """Bridge holds all of it in the host memory of one process."""
    step = tmp_path / "checkpoints" / "global_step_10"
    save_megatron(step / "policy", demo_model.build_policy(1, CPU))
    torch.save({"global_step": 10}, step / "trainer_state.pt")
    words = [f"--set=site.paths.{name}=/shared" for name in ("skyrl", "datasets", "outputs")]
    words += [f"--set=site.paths.models={models}", "--set=site.images.skyrl=skyrl:beam"]
    words += ["--set=site.container=docker", "--set=site.paths.scratch=/scratch"]
    words += ["-o", str(tmp_path / "hf")]
    at = ("convert", str(step), "--profile=b200-bf16", "--runs", str(root), "--dry-run", *words)
    whole = sum(each.nbytes for each in demo_model.build_policy(1, CPU).state_dict().values())
    # So much is asked of the node, too: others may hold memory there.
    assert re.search(r"--host-memory=(\d+)", call(*at).output)[1] == str(whole)  # type: ignore[index]
    with pytest.raises(BeamSlurmError, match="not enough memory for the conversion") as caught:
        call(*at, "--set=hardware.host_memory_gb=0.0001")
    assert "a node has 0.0001 GB" in (caught.value.why or "")
