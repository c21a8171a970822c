"""What follows a run by itself, on the embedded Slurm: converted, scored, or removed with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launching import Launch

from beam_slurm.runs import Run

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.models.beam")

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "grpo_digits"))

import model as demo_model  # noqa: E402
import task  # noqa: E402

pytestmark = pytest.mark.slurm

STEPS = 4


def followers(run: Run) -> list[Run]:
    return [Run(run.path.parent / name) for name in run.manifest["then"]]


def test_train_convert_evaluate_by_one_command(launch: Launch) -> None:
    """The folder that comes out holds the very weights that were trained."""
    small = (f"--steps={STEPS}", f"--save-every={STEPS}", "--nodes=2", "--max-restarts=0")
    done = launch.call(
        *("submit", "--json", "--wait", "--profile=demo", *small),
        *("--set", f"recipe.evaluation.every={STEPS}", "--then=convert,evaluate"),
    )
    assert done.returncode == 0, done.stderr
    run = Run(Path(json.loads(done.stdout)["folder"]))
    converted, evaluated = followers(run)
    assert converted.outcome["state"] == "succeeded", launch.log(converted)
    assert evaluated.outcome["state"] == "succeeded", launch.log(evaluated)

    from transformers import AutoModelForCausalLM

    folder = run.output / "hf" / f"step_{STEPS}"
    assert converted.manifest["task"]["output"] == str(folder)
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, attn_implementation="eager"
    ).eval()
    policy = demo_model.build_policy(0, torch.device("cpu")).eval()
    weights = run.checkpoints / f"step_{STEPS:06d}" / "model.pt"  # type: ignore[operator]
    policy.load_state_dict(torch.load(weights, weights_only=True))
    prompts = torch.tensor([task.prompt(problem) for problem in task.TRAINING])
    with torch.no_grad():
        difference = (loaded(input_ids=prompts).logits - policy(input_ids=prompts).logits).abs()
    assert float(difference.max()) == 0

    summary = json.loads((evaluated.output / "summary.json").read_text())
    responses = (evaluated.output / "responses.jsonl").read_text().splitlines()
    assert len(responses) == 1 + len(task.HELD_OUT)
    measured = [
        json.loads(line) for line in (run.output / "metrics.jsonl").read_text().splitlines()
    ]
    own = [it["accuracy"] for it in measured if it["type"] == "eval"]
    assert summary["scores"]["avg@1"]["value"] == pytest.approx(own[-1])

    detail = launch.call("status", run.id).stdout
    assert f"{converted.id}  succeeded" in detail
    assert "avg@1" in launch.call("status", evaluated.id).stdout


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_what_waits_for_a_run_goes_with_it(launch: Launch, end: str) -> None:
    run = launch.submit(
        "--nodes=1",
        "--save-every=2",
        "--then=convert,evaluate",
        MODE="sleep" if end == "cancelled" else "3",
    )
    jobs = [follower.manifest["job"] for follower in followers(run)]
    if end == "cancelled":
        launch.started(run)
        assert launch.call("cancel", run.id).returncode == 0
    launch.over(run)

    def gone() -> bool:
        told = launch.cluster.run(["squeue", "--noheader", "--format=%i"]).stdout.split()
        return not {*jobs} & {*told}

    launch.until("what waited is gone", gone)
    detail = launch.call("status", run.id).stdout
    assert detail.count("cancelled") >= 2
    assert [it.attempts for it in followers(run)] == [[], []]
