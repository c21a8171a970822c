"""What follows a run by itself, on the embedded Slurm: converted, scored and drawn, or gone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import COMMAND, PATIENCE, Launch

from beam_slurm import runs
from beam_slurm.runs import Run

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.models.beam")

DEMO = Path(__file__).parents[1] / "examples" / "grpo_digits"
sys.path.insert(0, str(DEMO))

import model as demo_model  # noqa: E402
import task  # noqa: E402

pytestmark = pytest.mark.slurm

STEPS = 4

# The demo's training, which saves step 2 and waits until it is told to go on.
HELD = """
import sys, time
from pathlib import Path
import train
save = train.Trainer.save
def hold(self, step):
    save(self, step)
    while step == 2 and not Path(sys.argv[1]).exists():
        time.sleep(0.05)
train.Trainer.save = hold
sys.exit(train.main(sys.argv[2:]))
"""


def followers(run: Run) -> list[Run]:
    return [Run(run.path.parent / name) for name in run.manifest["then"]]


def difference(folder: Path, weights: Path) -> float:
    """The largest between the logits of a converted model and those of the demo's own weights."""
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, attn_implementation="eager"
    ).eval()
    policy = demo_model.build_policy(0, torch.device("cpu")).eval()
    policy.load_state_dict(torch.load(weights, weights_only=True))
    prompts = torch.tensor([task.prompt(problem) for problem in task.TRAINING])
    with torch.no_grad():
        logits = [model(input_ids=prompts).logits for model in (loaded, policy)]
    return float((logits[0] - logits[1]).abs().max())


def test_train_convert_evaluate_report_by_one_command(launch: Launch) -> None:
    """The first checkpoint is converted while training goes on; the folder that comes out of the
    last one holds the very weights that were trained."""
    shutil.copytree(DEMO, launch.folder / "demo")
    (launch.folder / "demo" / "held.py").write_text(HELD)
    go = launch.folder / "go"
    entry = [
        *("python", str(launch.folder / "demo" / "held.py"), str(go)),
        f"--output-dir={launch.folder}/runs/held",
        *(f"--steps={STEPS}", "--save-every=2", f"--eval-every={STEPS}"),
    ]
    command = subprocess.Popen(
        [
            *(COMMAND, "submit", "--profile=demo", "--nodes=1", "--max-restarts=0", "--wait"),
            *("--set", f"framework.entry=[{','.join(entry)}]", "--output-dir=held"),
            *(f"--steps={STEPS}", "--save-every=2", "--set", f"recipe.evaluation.every={STEPS}"),
            "--then=convert,evaluate:every 2,report",
        ],
        cwd=launch.folder,
        env=launch.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        found: list[Run] = []

        def submitted() -> bool:
            found[:] = [it for it in runs.all_runs(launch.folder / "runs") if "then" in it.manifest]
            return bool(found and len(found[0].manifest["then"]) == 4)

        launch.until("all four are in the queue", submitted)
        run = found[0]
        early, scored, converted, evaluated = followers(run)
        launch.until("the first conversion has begun", lambda: bool(early.attempts))
        assert launch.slurm(run)["JobState"] == "RUNNING"
        assert not run.outcome
        assert launch.slurm(converted)["JobState"] == "PENDING"
        go.touch()
        for each in (run, *followers(run)):
            launch.over(each)
        said, _ = command.communicate(timeout=PATIENCE)
    finally:
        command.kill()
    assert command.returncode == 0, said
    for follower, step in zip(followers(run), (2, 2, STEPS, STEPS), strict=True):
        assert follower.outcome["state"] == "succeeded", launch.log(follower)
        assert follower.manifest["task"]["step"] == step
        assert follower.manifest["task"]["run"] == run.id
    for drawn in ("report.html", "report.png"):
        assert str(run.path / drawn) in said
        assert (run.path / drawn).stat().st_size > 1000

    folder = run.output / "hf" / f"step_{STEPS}"
    assert converted.manifest["task"]["output"] == str(folder)
    weights = run.checkpoints / f"step_{STEPS:06d}" / "model.pt"  # type: ignore[operator]
    assert difference(folder, weights) == 0

    # Its image needs no math-verify: the login node's has judged, from the run folder.
    assert (evaluated.path / "math-verify.zip").is_file()
    summary = json.loads((evaluated.output / "summary.json").read_text())
    responses = (evaluated.output / "responses.jsonl").read_text().splitlines()
    assert len(responses) == 1 + len(task.HELD_OUT)
    measured = [
        json.loads(line) for line in (run.output / "metrics.jsonl").read_text().splitlines()
    ]
    own = [it["accuracy"] for it in measured if it["type"] == "eval"]
    assert summary["scores"]["avg@1"]["value"] == pytest.approx(own[-1])

    detail = launch.call("status", run.id).stdout
    assert f"{early.id}  step 2  succeeded" in detail
    assert f"{scored.id}  step 2  succeeded  avg@1 " in detail
    assert f"{evaluated.id}  step {STEPS}  succeeded  avg@1 " in detail
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
