"""The demo training entry: its parts alone, then whole runs on a Ray cluster of their own."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("transformers.models.beam")

ENTRY = Path(__file__).parents[1] / "examples" / "grpo_digits"
sys.path.insert(0, str(ENTRY))

import checkpoint  # noqa: E402
import grpo  # noqa: E402
import metrics  # noqa: E402
import task  # noqa: E402
import train  # noqa: E402
from learner import Learner, Recipe  # noqa: E402
from model import build_policy  # noqa: E402
from rollout import Rollouts, RolloutWorker  # noqa: E402

from beam_slurm.node.progress import Progress  # noqa: E402

CPU = torch.device("cpu")


# The parts


def test_reward_is_for_the_sum_and_then_the_end() -> None:
    problem = task.HELD_OUT[0]
    answer = sum(problem)
    assert task.reward(problem, [answer, task.END]) == 1
    for wrong in ([answer], [answer + 1, task.END], [answer, answer, task.END], [task.END], []):
        assert task.reward(problem, wrong) == 0


def test_held_out_problems_are_never_sampled() -> None:
    sampled = {
        problem
        for step in range(1, 200)
        for problem in task.sample_problems(seed=3, step=step, count=32)
    }
    assert sampled == set(task.TRAINING)
    assert not sampled & set(task.HELD_OUT)


def test_each_held_out_problem_is_trained_on_in_another_order() -> None:
    trained = {tuple(sorted(problem)) for problem in task.TRAINING}
    assert len(task.HELD_OUT) == 12
    assert {tuple(sorted(problem)) for problem in task.HELD_OUT} <= trained


def test_every_sum_is_sampled_equally_often() -> None:
    problems = task.sample_problems(seed=0, step=1, count=9000)
    counts = [sum(sum(problem) == total for problem in problems) for total in range(9)]
    assert all(850 < count < 1150 for count in counts)


def test_sampling_depends_on_seed_and_step_only() -> None:
    assert task.sample_problems(0, 1, 8) == task.sample_problems(0, 1, 8)
    assert task.sample_problems(0, 1, 8) != task.sample_problems(0, 2, 8)
    assert task.sample_problems(0, 1, 8) != task.sample_problems(1, 1, 8)


def test_advantages_are_normalised_within_each_group() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1])
    advantages = grpo.group_advantages(rewards, 4)
    # Mean 1/4 and standard deviation 1/2 of the first group; the second has nothing to tell apart.
    expected = torch.tensor([1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0])
    torch.testing.assert_close(advantages, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.1, 1.0, -1.1),  # within bounds
        (1.5, 1.0, -1.28),  # raised enough already
        (1.5, -1.0, 1.5),  # raised though bad: all of it counts
        (0.5, -1.0, 0.8),  # lowered enough already
        (0.5, 1.0, -0.5),  # lowered though good: all of it counts
    ],
)
def test_loss_clips_low_and_higher(ratio: float, advantage: float, loss: float) -> None:
    # The second token is beyond the end of the response and must not count.
    log_probs = torch.tensor([[math.log(ratio), 7.0]])
    mask = torch.tensor([[True, False]])
    advantages = torch.tensor([advantage])
    value = grpo.clipped_loss(log_probs, torch.zeros(1, 2), advantages, mask, (0.2, 0.28))
    assert value.item() == pytest.approx(loss)


def test_loss_weighs_tokens_not_responses() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    zeros = torch.zeros(2, 3)
    value = grpo.clipped_loss(zeros, zeros, torch.tensor([1.0, -1.0]), mask, (0.2, 0.28))
    assert value.item() == pytest.approx((-3 + 1) / 4)


def test_policy_is_the_real_architecture_and_seeded() -> None:
    from transformers.models.beam.modeling_beam import BeamForCausalLM, BeamMoE

    policy = build_policy(0, CPU)
    assert isinstance(policy, BeamForCausalLM)
    assert sum(isinstance(module, BeamMoE) for module in policy.modules()) == 3
    assert 200_000 < sum(weight.numel() for weight in policy.parameters()) < 300_000
    same, other = build_policy(0, CPU).lm_head.weight, build_policy(1, CPU).lm_head.weight
    assert torch.equal(policy.lm_head.weight, same)
    assert not torch.equal(policy.lm_head.weight, other)


# Actors without Ray: they are plain classes.


def recipe(steps: int) -> Recipe:
    return Recipe(
        seed=0,
        steps=steps,
        responses_per_prompt=8,
        learning_rate=5e-4,
        clip_low=0.2,
        clip_high=0.28,
    )


def one_step(learner: Learner, workers: list[RolloutWorker], step: int) -> dict[str, float]:
    problems = task.sample_problems(0, step, 8)
    shards = [
        worker.generate(learner.weights(), step, problems[worker.rank :: len(workers)], 8)
        for worker in workers
    ]
    values = learner.update(step, *shards)
    return {name: value for name, value in values.items() if not name.endswith("_time")}


def test_generation_and_training_agree_on_log_probs() -> None:
    learner, worker = Learner(recipe(1), None), RolloutWorker(seed=0, rank=0)
    values = one_step(learner, [worker], 1)
    assert values["logprob_diff"] < 1e-5
    assert values["kl"] < 1e-5


def test_responses_end_once_and_count_to_their_end() -> None:
    worker = RolloutWorker(seed=0, rank=0)
    rollouts: Rollouts = worker.generate(worker.policy.state_dict(), 1, task.TRAINING[:16], 8)
    for response, kept in zip(
        rollouts.sequences[:, task.PROMPT_LENGTH :].tolist(), rollouts.mask.tolist(), strict=True
    ):
        first_end = response.index(task.END) + 1 if task.END in response else len(response)
        assert kept == [index < first_end for index in range(len(response))]


def test_a_resumed_learner_goes_on_exactly_as_an_uninterrupted_one(tmp_path: Path) -> None:
    workers = [RolloutWorker(seed=0, rank=rank) for rank in range(2)]
    learner = Learner(recipe(4), None)
    one_step(learner, workers, 1)
    path = learner.save(tmp_path, 1)
    uninterrupted = [one_step(learner, workers, step) for step in (2, 3)]
    resumed_learner = Learner(recipe(4), path)
    assert [one_step(resumed_learner, workers, step) for step in (2, 3)] == uninterrupted


def test_an_unfinished_checkpoint_is_named_and_not_used(tmp_path: Path) -> None:
    state = {"seed": 0}
    whole = checkpoint.save(tmp_path, 20, {"w": torch.ones(1)}, {}, state)
    killed = tmp_path / "tmp_step_000040"
    shutil.copytree(whole, killed)
    incomplete = tmp_path / "step_000060"
    incomplete.mkdir()
    (tmp_path / "damaged-step_000080").mkdir()  # set aside, and so of no interest
    found = checkpoint.find(tmp_path)
    assert found.newest == whole
    assert found.unusable == {killed: "unfinished", incomplete: "damaged (no model.pt)"}
    assert checkpoint.read_state(whole) == {"step": 20, "seed": 0}
    # The step is reached again: both leftovers make way.
    assert checkpoint.save(tmp_path, 60, {}, {}, state) == incomplete
    checkpoint.save(tmp_path, 40, {}, {}, state)
    assert checkpoint.find(tmp_path).unusable == {}


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE])
def test_a_truncated_checkpoint_is_named_and_not_used(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoints"
    state = {"w": torch.ones(1000)}
    whole = checkpoint.save(folder, 20, state, state, {"seed": 0})
    damaged = checkpoint.save(folder, 40, state, state, {"seed": 0})
    options = train.parse_arguments([f"--output-dir={tmp_path}", "--resume"])
    assert train.find_start(options) == (41, damaged)
    data = (damaged / name).read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 3):
        (damaged / name).write_bytes(data[:size])
        capsys.readouterr()
        assert train.find_start(options) == (21, whole)
        assert f"{damaged} is damaged ({name} is truncated) and ignored" in capsys.readouterr().out


def test_what_is_measured_again_is_forgotten(tmp_path: Path) -> None:
    kept = [
        *({"type": "train", "step": step} for step in (1, 2)),
        {"type": "checkpoint", "step": 2},
    ]
    again = [
        {"type": "eval", "step": 2},
        {"type": "train", "step": 3},
        {"type": "eval", "step": 3},
    ]
    path = tmp_path / metrics.FILE
    metrics.forget(tmp_path, 3)
    assert not path.exists()
    lines = [json.dumps(record) + "\n" for record in (*kept, *again)]
    path.write_text("".join(lines) + '{"type": "train", "st')
    metrics.forget(tmp_path, 3)
    assert path.read_text() == "".join(lines[: len(kept)])
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_that_is_cut_short_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    checkpoint.save(tmp_path, 1, {}, {}, {})
    monkeypatch.setattr(checkpoint, "_flush_to_disk", full_disk)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, {}, {}, {})
    assert checkpoint.find(tmp_path).newest == tmp_path / "step_000001"


# The command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "--steps"),
        (["--mode", "sync"], "--mode"),
        (["--responses-per-prompt", "1"], "at least 2"),
        (["--learning-rate", "-1"], "--learning-rate"),
        (["--clip-low", "1.5"], "--clip-low"),
        (["--rollout-workers", "9", "--prompts-per-step", "8"], "--rollout-workers"),
    ],
)
def test_bad_arguments_exit_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        train.main(["--output-dir", str(tmp_path), *words])
    assert ending.value.code == 2
    assert message in capsys.readouterr().err


def test_a_used_output_folder_is_refused_without_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.save(tmp_path / "checkpoints", 20, {}, {}, {"seed": 0})
    assert train.main(["--output-dir", str(tmp_path)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert train.main(["--output-dir", str(tmp_path), "--resume", "--seed", "1"]) == 2
    assert "--seed 0" in capsys.readouterr().err


def test_without_a_cluster_it_says_so_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    with socket.socket() as closed:  # Bound but not listening: nobody else can take the port.
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert train.main(["--output-dir", str(tmp_path)]) == 1
    assert address in capsys.readouterr().err
    assert not ray.is_initialized()


# Whole runs. Ray listens on every interface, so its cluster gets a network with none but loopback,
# and a process namespace: nothing outlives the fixture, and no other cluster on this host is seen.

NAMESPACE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
NAMESPACE += ["--mount-proc", "--"]

RUNS = """
set -eu
ip link set lo up
ray start --head --num-cpus=4 --include-dashboard=false --disable-usage-stats \
    --object-store-memory=100000000 --temp-dir="$RAY_TEMP" > ray.log 2>&1
train() {
    name=$1; shift
    python "$ENTRY/train.py" --output-dir "$name" --rollout-workers=2 --steps=24 --save-every=8 \
        --learning-rate=1e-3 "$@" >> "$name.log" 2>&1
}
driver() { pgrep -f "[o]utput-dir $1 "; }
train whole

train cut &
until grep -qs "^step 3/" cut.log; do sleep 0.1; done
kill -USR1 $(driver cut)
wait $!  # and 0 is its exit code
train cut --resume &
until test -d cut/checkpoints/step_000016; do sleep 0.1; done
kill -KILL $(driver cut)
wait $! || true
cp -r cut/checkpoints/step_000016 cut/checkpoints/tmp_step_000090
train cut --resume

train overlapped --mode=async
"""


@dataclass(frozen=True)
class Run:
    log: str
    metrics: list[dict[str, Any]]

    @property
    def training(self) -> list[dict[str, Any]]:
        """The record of each step, without what the clock decides."""
        timed = ("time", "step_time", "generation_time", "training_time", "tokens_per_second")
        return [
            {key: value for key, value in record.items() if key not in timed}
            for record in self.metrics
            if record["type"] == "train"
        ]

    @property
    def accuracies(self) -> list[float]:
        return [record["accuracy"] for record in self.metrics if record["type"] == "eval"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs leave to make a network namespace")
    folder = tmp_path_factory.mktemp("runs")
    ray_temp = Path("/tmp") / f"ray-{os.getpid()}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),  # Ray writes a token there.
        "ENTRY": str(ENTRY),
        "RAY_TEMP": str(ray_temp),
    }
    session = subprocess.Popen(
        [*NAMESPACE, "bash", "-c", RUNS],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = session.communicate(timeout=600)
        logs = {path.stem: path.read_text() for path in folder.glob("*.log")}
        assert session.returncode == 0, (errors, logs)
        yield {
            name: Run(
                logs[name],
                [json.loads(line) for line in (folder / name / "metrics.jsonl").open()],
            )
            for name in ("whole", "cut", "overlapped")
        }
    finally:
        if session.poll() is None:
            os.killpg(session.pid, signal.SIGKILL)
        shutil.rmtree(ray_temp, ignore_errors=True)


@pytest.mark.parametrize("name", ["whole", "overlapped"])
def test_both_modes_learn(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert [record["step"] for record in run.training] == list(range(1, 25))
    rewards = [record["reward"] for record in run.training]
    assert fmean(rewards[-8:]) > 3 * fmean(rewards[:8])
    assert run.accuracies[-1] > run.accuracies[0]
    assert run.log.splitlines()[-1] == f"final held-out accuracy {run.accuracies[-1]:.2f}"


def test_colocated_is_on_policy_and_async_one_update_behind(runs: dict[str, Run]) -> None:
    assert all(record["logprob_diff"] < 1e-5 for record in runs["whole"].training)
    lagging = runs["overlapped"].training
    assert lagging[0]["logprob_diff"] < 1e-5
    assert all(record["logprob_diff"] > 1e-5 for record in lagging[1:])


def test_metrics_have_the_agreed_fields(runs: dict[str, Run]) -> None:
    fields = {
        "train": "steps reward response_length loss kl grad_norm entropy logprob_diff step_time"
        " generation_time training_time tokens_per_second",
        "eval": "set accuracy problems responses response_length",
        "checkpoint": "path",
    }
    for record in runs["whole"].metrics:
        expected = {"type", "time", "step", *fields[record["type"]].split()}
        assert set(record) == expected


def test_a_run_that_is_stopped_or_killed_ends_like_one_never_touched(runs: dict[str, Run]) -> None:
    """SIGUSR1 comes while it waits for Ray; each step is in the metrics once."""
    cut = runs["cut"]
    assert "tmp_step_000090 is unfinished and ignored" in cut.log
    assert cut.training == runs["whole"].training
    assert cut.accuracies[-1] == runs["whole"].accuracies[-1]
    evaluated = [record["step"] for record in cut.metrics if record["type"] == "eval"]
    assert evaluated == sorted(set(evaluated))


def test_a_run_that_is_asked_to_stop_saves_and_says_so(runs: dict[str, Run]) -> None:
    lines = runs["cut"].log.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("stopping early"))
    step = int(lines[at].split()[4])
    assert lines[at] == f"stopping early after step {step} of 24: asked to"
    assert lines[at - 1].endswith(f"checkpoints/step_{step:06d}")
    assert any(line.endswith(f"at step {step + 1}") for line in lines[at:])
    heard = Progress("demo")
    heard.feed("\n".join(lines[: at + 1]).encode() + b"\n")
    assert (heard.first, heard.last, heard.total) == (1, step, 24)
    assert heard.stopped_early
    assert not heard.finished
    heard.feed("\n".join(lines[at + 1 :]).encode() + b"\n")
    assert heard.finished
