"""What each framework prints and writes, in the formats of their main branches: made up here.

Every value of a step follows from the step's number, so that a test can say what must be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beam_slurm import metrics
from beam_slurm.metrics import Checkpoint, Evaluation, History, Reader, Step
from beam_slurm.runs import Run

STEPS = 200
GPUS = 128
BAR = "=" * 25


# --- NeMo RL ------------------------------------------------------------------------------------


def nemo_header(step: int, of: int = STEPS) -> str:
    return f"\n{BAR} Step {step}/{of} {BAR}\n▶ Preparing batch...\n"


def nemo_results(step: int, asynchronous: bool = False) -> str:
    about = (
        "  • Buffer Size: 64\n  • Avg Trajectory Age: 1.25 steps\n"
        if asynchronous
        else f"  • Mean Generation Length: {3000 - step:.4f}\n"
    )
    waited = "exposed_generation" if asynchronous else "generation"
    sync = "weight_sync" if asynchronous else "prepare_for_generation/total"
    return (
        "\n📊 Training Results:\n"
        f"  • Loss: {-step / 1000:.4f}\n"
        f"  • Generation KL Error: {step / 1e4:.4f}\n"
        f"  • Avg Reward: {step / 400:.4f}\n"
        f"{about}"
        "\n⏱️  Timing:\n"
        f"  • Total step time: {100 + step:.2f}s\n"
        f"  • {waited}: {50 + step:.2f}s (50.0%)\n"
        f"  • policy_training: {30:.2f}s (30.0%)\n"
        f"  • policy_and_reference_logprobs: {10:.2f}s (10.0%)\n"
        f"  • {sync}: {5:.2f}s (5.0%)\n"
        "\n🔍 Performance Metrics:\n"
        "  • Mean Total Tokens per Sample: 3412.50\n"
        "  • Throughputs (per GPU):\n"
        "    - E2E (Samples/sec/gpu): 0.01\n"
        f"    - E2E (Tokens/sec/gpu): {200 + step:.2f}\n"
        "    - Policy Training (Tokens/sec/gpu): 900.00\n"
        f"    - Generation Worker Group (Tokens/sec/gpu): {400 + step:.2f}\n"
        "  • Throughputs (per Group):\n"
        "    - E2E (Tokens/sec): 40000.00\n"
    )


def nemo_validation(step: int, accuracy: float, length: float, responses: int = 240) -> str:
    return (
        f"▶ Starting validation at step {step}...\n"
        "\n📊 Validation Results:\n"
        f"    • Accuracy: {accuracy:.4f}\n"
        f"    • Average response length: {length:.1f} tokens\n"
        f"    • Samples processed: {responses}\n"
        "\n  ⏱️  Validation Timing:\n    • Total validation time: 312.40s\n"
    )


def nemo(step: int, save: bool = False) -> str:
    """One step of 200, scored every 5."""
    scored = nemo_validation(step, step / 400, 3000 - step) if step % 5 == 0 else ""
    saving = f"Saving checkpoint for step {step}...\n" if save else ""
    return nemo_header(step) + scored + saving + nemo_results(step)


def nemo_step(step: int) -> Step:
    """What must be read of it."""
    return Step(
        step,
        STEPS,
        reward=round(step / 400, 4),
        response_length=3000.0 - step,
        loss=-step / 1000,
        rollout_kl=step / 1e4,
        step_time=100.0 + step,
        generation_time=50.0 + step,
        logprob_time=10.0,
        training_time=30.0,
        transfer_time=5.0,
        tokens_per_second_per_gpu=200.0 + step,
        generation_throughput=400.0 + step,
    )


def nemo_scores(step: int) -> Evaluation:
    return Evaluation(
        step,
        "aime2025",
        accuracy=round(step / 400, 4),
        problems=30,
        responses=240,
        response_length=3000.0 - step,
    )


# --- SkyRL --------------------------------------------------------------------------------------


def loguru(message: str, at: int = 0, where: str = "skyrl.train.trainer:train:342") -> str:
    """A line of SkyRL: coloured although it is no terminal, behind Ray's prefix."""
    seconds = f"{at // 3600000 % 24:02}:{at // 60000 % 60:02}:{at // 1000 % 60:02}.{at % 1000:03}"
    head = f"\x1b[32m2026-08-21 {seconds}\x1b[0m | \x1b[1mINFO    \x1b[0m | \x1b[36m{where}\x1b[0m"
    lines = message.split("\n")
    ray = "\x1b[36m(skyrl_entrypoint pid=812, ip=10.0.0.1)\x1b[0m "
    text = [f"{head} - \x1b[1m{lines[0]}", *lines[1:]]
    return "".join(f"{ray}{line}\n" for line in text[:-1]) + f"{ray}{text[-1]}\x1b[0m\n"


def skyrl(step: int, save: bool = False, console: bool = False) -> str:
    """One step of 50, scored every 5; ``console``: with ``trainer.logger=console``."""
    now = [step * 100_000]

    def say(message: str) -> str:
        now[0] += 7
        return loguru(message, now[0])

    def timer(name: str, seconds: float) -> str:
        return say(f"Started: '{name}'") + say(f"Finished: '{name}', time cost: {seconds:.2f}s")

    status = {
        "final_loss": 9.0,
        "policy_loss": -step / 1000,
        "policy_entropy": 0.25,
        "policy_kl": 1e-05,
        "policy_lr": 1e-05,
        "grad_norm": 0.5 + step / 100,
        "minibatch_rollout_logprobs_abs_diff_mean": 0.01 + step / 1e4,
    }
    text = say("Started: 'step'") + timer("generate", 40.0)
    text += say(
        f"reward/avg_pass_at_8: 0.75, reward/avg_raw_reward: {step / 100}, "
        "reward/mean_positive_reward: 0.5"
    )
    text += timer("convert_to_training_input", 0.5) + timer("fwd_logprobs_values_reward", 12.0)
    text += say(f"avg_final_rewards: {step / 200}, avg_response_length: {1000.0 + step}")
    text += say("Started: 'train_critic_and_policy'") + timer("policy_train", 29.0)
    text += say("Finished: 'train_critic_and_policy', time cost: 30.00s")
    if save:
        text += say("Started: 'save_checkpoints'")
        text += say(
            f"Successfully saved checkpoint for global_step_{step} to: /c/global_step_{step}"
        )
        text += say("Finished: 'save_checkpoints', time cost: 60.00s")
    text += timer("sync_weights", 8.0) + say("Finished: 'step', time cost: 100.00s")
    text += say(str(status))
    if step % 5 == 0:
        text += say("Started: 'eval'") + skyrl_dumped(step, now[0] + 1)
        text += say("Finished: 'eval', time cost: 300.00s")
    if console:
        text += say(
            f"Step {step}: \n{{'generate/avg_num_tokens': '{1000 + step:.4f}',\n"
            f" 'policy/rollout_train_logprobs_abs_diff_mean': '{0.02 + step / 1e4:.4f}',\n"
            " 'trainer/epoch': 0}"
        )
    return f"Training Batches Processed:   3%|▎   | {step - 1}/50 [10:00<01:00, 100s/it]\r" + text


def skyrl_dumped(step: int, at: int = 0) -> str:
    folder = f"/root/shared_data/run/exports/dumped_evals/global_step_{step}_evals"
    return loguru(f"Dumped aggregated eval metrics to {folder}/aggregated_results.jsonl", at)


def skyrl_dump(output: Path, step: int, **scores: float) -> None:
    """The file of one evaluation; scores by set."""
    folder = output / "exports" / "dumped_evals" / f"global_step_{step}_evals"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, float] = {}
    for name, score in scores.items():
        found[f"eval/{name}/avg_score"] = 2 * score - 1
        found[f"eval/{name}/pass_at_8"] = 0.9
        found[f"eval/{name}/mean_positive_reward"] = score
    found |= {"eval/all/avg_score": 0.0, "eval/all/mean_positive_reward": 0.5}
    found["eval/all/generate/avg_num_tokens"] = 1200.0 - step
    (folder / "aggregated_results.jsonl").write_text(json.dumps(found) + "\n")


def skyrl_step(step: int, responses: int = 512, gpus: int = 32) -> Step:
    """What must be read of it, with ``logger=wandb``."""
    tokens = responses * (1000.0 + step) / gpus
    return Step(
        step,
        50,
        reward=step / 100,
        response_length=1000.0 + step,
        loss=-step / 1000,
        kl=1e-05,
        grad_norm=0.5 + step / 100,
        entropy=0.25,
        logprob_diff=0.01 + step / 1e4,
        step_time=100.0,
        generation_time=40.0,
        logprob_time=12.0,
        training_time=30.0,
        transfer_time=8.0,
        tokens_per_second_per_gpu=tokens / 100,
        generation_throughput=tokens / 40,
    )


# --- Miles --------------------------------------------------------------------------------------


def miles_line(actor: str, message: str) -> str:
    head = "[2026-08-21 10:00:00.123 rank0] log_utils.py:123 - "
    return f"({actor} pid=7, ip=10.0.0.2) {head}{message}\n"


def miles_generated(id_: int) -> dict[str, Any]:
    return {
        "rollout/response_len/mean": 3148.0 - id_,
        "rollout/response_len/max": 4096,
        "rollout/truncated_ratio": 0.125,
        "perf/rollout_time": 61.5,
        "perf/tokens_per_gpu_per_sec": 300.0 + id_,
    }


def miles_rollout(id_: int) -> dict[str, Any]:
    return {
        "rollout/response_lengths": 3000.0,
        "rollout/rewards": float("nan"),
        "rollout/raw_reward": id_ / 100,
        "rollout/log_probs": -0.31,
    }


def miles_update(n: int) -> dict[str, Any]:
    return {
        "train/loss": n / 1000,
        "train/pg_loss": 1e-06,
        "train/entropy_loss": 0.4,
        "train/kl_loss": float("inf") if n == 3 else 0.002,
        "train/train_rollout_logprob_abs_diff": 0.02 + n / 1e4,
        "train/train_rollout_kl": 0.001,
        "train/grad_norm": 0.75,
        "train/lr-pg_0": 1e-06,
        "train/step": n,
    }


def miles_trained(id_: int) -> dict[str, Any]:
    return {
        "perf/train_wait_time": 70.0 + id_,
        "perf/update_weights_time": 6.0,
        "perf/save_model_time": 4.0,
        "perf/log_probs_time": 9.0,
        "perf/ref_log_probs_time": 1.0,
        "perf/actor_train_time": 50.0,
        "perf/train_time": 62.0,
        "perf/actor_train_tok_per_s": 19200.0,
        "perf/step_time": 132.0 + id_,
        "perf/wait_time_ratio": 0.53,
    }


def miles_scores(id_: int, name: str = "aime-2025") -> dict[str, Any]:
    return {
        f"eval/{name}-none_reward_ratio": 0.0,
        f"eval/{name}": 0.4625 + id_ / 1000,
        f"eval/{name}/response_len/mean": 3000.0 - id_,
        f"eval/{name}/response_len/max": 4096,
        f"eval/{name}-truncated_ratio": 0.1,
    }


TRAINER, MANAGER = "MegatronTrainRayActor", "RolloutManager"


def miles(id_: int, updates: int = 1, save: bool = False) -> str:
    """One rollout of 100, scored every 5: generated, trained on; the updates are printed twice."""
    said = [miles_line(MANAGER, f"perf {id_}: {miles_generated(id_)}")]
    said.append(miles_line(TRAINER, f"rollout {id_}: {miles_rollout(id_)}"))
    for n in range(id_ * updates, (id_ + 1) * updates):
        said += 2 * [miles_line(TRAINER, f"step {n}: {miles_update(n)}")]
    said.append(miles_line(TRAINER, f"perf {id_}: {miles_trained(id_)}"))
    if save:
        said.append(
            f"({TRAINER} pid=7)   successfully saved checkpoint from iteration {id_:7d} to /c\n"
        )
    if (id_ + 1) % 5 == 0:
        said.append("(RolloutManager pid=7) Eval aime-2025:   3%|▎         | 1/30 [00:10<04:00]\r")
        said.append(miles_line(MANAGER, f"eval {id_}: {miles_scores(id_)}"))
    return "".join(said)


def miles_step(step: int, gpus: int = 96) -> Step:
    """What must be read of it."""
    id_ = step - 1
    return Step(
        step,
        None,
        reward=id_ / 100,
        response_length=3148.0 - id_,
        loss=id_ / 1000,
        kl=float("inf") if id_ == 3 else 0.002,
        grad_norm=0.75,
        entropy=0.4,
        logprob_diff=0.02 + id_ / 1e4,
        rollout_kl=0.001,
        step_time=132.0 + id_,
        generation_time=60.0 + id_,
        logprob_time=10.0,
        training_time=50.0,
        transfer_time=6.0,
        tokens_per_second_per_gpu=19200.0 * 50 / (132.0 + id_) / gpus,
        generation_throughput=300.0 + id_,
    )


def miles_event(metrics: dict[str, Any], second: int = 0, **fields: Any) -> str:
    """One line of a file of events; ``second`` of the hour that it is of."""
    when = f"2026-08-21T10:{second // 60:02}:{second % 60:02}.250000Z"
    event = {
        "timestamp": when,
        "source": {"component": "actor", "cell_index": 0, "rank_within_cell": 3},
        "type": "metric",
        "rollout_id": None,
        "attempt": None,
        **fields,
        "metrics": metrics,
    }
    return json.dumps(event, separators=(",", ":")) + "\n"


# --- around them --------------------------------------------------------------------------------

NOISE = (
    "(VllmWorker pid=4711, ip=10.0.0.7) INFO 08-21 10:00:00 [loggers.py:123] Engine 0: Avg prompt "
    "throughput: 1843.2 tokens/s, Avg generation throughput: 9120.5 tokens/s, Running: 256 reqs\n"
    "[2026-08-21 10:00:00 TP0] Decode batch. #running-req: 32, #token: 98304, token usage: 0.41\n"
    "\x1b[36m(AutoModelWorker pid=99, ip=10.0.0.9)\x1b[0m step through the layers: 52 - loaded\n"
    "Let x be the number of steps. Then • x + 3 = 7, and the perf 3: {x: 4}.\n"
    "Loading safetensors checkpoint shards:  40% Completed | 20/50 [00:10<00:15,  2.00it/s]\r"
)

ATTEMPT = "beam-slurm: preflight: 16 of 16 nodes are fit, 16 are needed (2.0 s)\n"


def goes_on(after: int) -> str:
    """What the log says where a later attempt begins."""
    what = (
        f"goes on after step {after}: /out/checkpoints/step_{after}"
        if after
        else "nothing was saved yet: it begins at the first step"
    )
    return f"{ATTEMPT}beam-slurm: {what}\nbeam-slurm: Ray is up: 16 nodes, 128 GPUs, 9.1 s after\n"


PER_STEP: dict[str, Callable[[int], str]] = {
    "nemo-rl": nemo,
    "skyrl": skyrl,
    "miles": lambda step: miles(step - 1),
}
"""One step (from 1) as each framework prints it."""


# --- reading them -------------------------------------------------------------------------------


def reader_of(run: Run) -> Reader:
    found = metrics.reader(run)
    assert found is not None
    return found


def read(run: Run) -> History:
    """All that a new reader finds."""
    reader = reader_of(run)
    reader.read()
    return reader.history


def said(history: History) -> tuple[list[Step], list[Evaluation], list[Checkpoint]]:
    return history.steps, history.evaluations, history.checkpoints


def numbers(history: History) -> list[int]:
    return [step.step for step in history.steps]
