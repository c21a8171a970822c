"""What a node hears of a training: its steps and phases, and whether it is stuck."""

from __future__ import annotations

import random

import pytest

from beam_slurm.node.progress import KEPT, LONGEST, Progress
from beam_slurm.node.watchdog import LATE, Limits, Watchdog

BAR = "=" * 25


def nemo(step: int, total: int, save: int | None = None) -> str:
    """One step as the driver of NeMo RL prints it; ``save`` is the step in all."""
    text = f"\n{BAR} Step {step}/{total} {BAR}\n▶ Preparing batch...\n"
    if save:
        text += f"Saving checkpoint for step {save}...\n"
    return text + "\n📊 Training Results:\n  • Loss: 0.0100\n  • Total step time: 61.20s\n"


def loguru(message: str) -> str:
    """A line of SkyRL: coloured although it is no terminal, behind Ray's prefix."""
    return (
        "\x1b[36m(skyrl_entrypoint pid=812, ip=10.0.0.1)\x1b[0m "
        "\x1b[32m2026-08-21 10:00:00.123\x1b[0m | \x1b[1mINFO    \x1b[0m | "
        f"\x1b[36mskyrl.train.trainer\x1b[0m:\x1b[36mtrain\x1b[0m:\x1b[36m342\x1b[0m - "
        f"\x1b[1m{message}\x1b[0m\n"
    )


def skyrl(*messages: str) -> str:
    return "".join(map(loguru, messages))


DRAWN = ("Started: 'step'", "Finished: 'step', time cost: 12.34s")
TRAINED = ("Started: 'step'", "Finished: 'train_critic_and_policy', time cost: 9.10s", DRAWN[1])


def miles(actor: str, message: str) -> str:
    head = "[2026-08-21 10:00:00.123 rank0] log_utils.py:123 - "
    return f"({actor} pid=7, ip=10.0.0.2) {head}{message}\n"


def rollout(number: int) -> str:
    """One rollout of Miles: generated, trained on in two updates."""
    trainer, manager = "MegatronTrainRayActor", "RolloutManager"
    return "".join(
        [
            miles(
                manager,
                f"perf {number}: {{'rollout/truncated_ratio': 0.1, 'perf/rollout_time': 9}}",
            ),
            miles(
                trainer, f"rollout {number}: {{'rollout/raw_reward': 0.5, 'rollout/rewards': nan}}"
            ),
            *(
                2 * [miles(trainer, f"step {2 * number + k}: {{'train/loss': 0.1}}")][0]
                for k in (0, 1)
            ),
            miles(trainer, f"perf {number}: {{'perf/train_wait_time': 3, 'perf/train_time': 5.0}}"),
        ]
    )


def demo(step: int, total: int) -> str:
    return f"step {step}/{total} reward 0.50 length 2.0 loss 0.010 entropy 1.20 0.31 s\n"


# framework, output, (first, last, total, phase, stopped early, finished)
ROWS = {
    "nothing yet": ("nemo-rl", "loading\n", (None, None, None, "", False, False)),
    "nemo-rl begins": ("nemo-rl", f"{BAR} Step 1/50 {BAR}\n", (None, None, 50, "", False, False)),
    "nemo-rl": ("nemo-rl", nemo(1, 50) + nemo(2, 50), (1, 2, 50, "", False, False)),
    "nemo-rl begun is not done": (
        "nemo-rl",
        nemo(1, 50) + f"{BAR} Step 2/50 {BAR}\n",
        (1, 1, 50, "", False, False),
    ),
    "nemo-rl results lost": (
        "nemo-rl",
        f"{BAR} Step 7/50 {BAR}\n{BAR} Step 8/50 {BAR}\n",
        (7, 7, 50, "", False, False),
    ),
    "nemo-rl epochs": (
        "nemo-rl",
        f"{BAR} Epoch 1/3 {BAR}\n{nemo(1, 2)}{nemo(2, 2)}{BAR} Epoch 2/3 {BAR}\n{nemo(1, 2)}",
        (1, 3, None, "", False, False),
    ),
    "nemo-rl epochs of one step": (
        "nemo-rl",
        f"{BAR} Epoch 1/3 {BAR}\n{nemo(1, 1)}{BAR} Epoch 2/3 {BAR}\n{nemo(1, 1)}",
        (1, 2, None, "", False, False),
    ),
    "nemo-rl resumed in its third epoch": (
        "nemo-rl",
        f"{BAR} Epoch 3/3 {BAR}\n{nemo(2, 10)}",
        (22, 22, None, "", False, False),
    ),
    "nemo-rl epoch line lost": (
        "nemo-rl",
        nemo(9, 10) + nemo(10, 10) + nemo(1, 10),
        (9, 11, None, "", False, False),
    ),
    "nemo-rl a checkpoint tells the step in all": (
        "nemo-rl",
        f"{BAR} Epoch 3/9 {BAR}\n{nemo(2, 10, 24)}{nemo(3, 10)}",
        (24, 25, None, "", False, False),
    ),
    "nemo-rl saves": (
        "nemo-rl",
        f"{BAR} Step 20/50 {BAR}\nSaving checkpoint for step 20...\nSaving checkpoint to /c\n",
        (20, 20, 50, "saving", False, False),
    ),
    "nemo-rl evaluates": (
        "nemo-rl",
        nemo(1, 50) + "▶ Starting validation at step 1...\n▶ Generating\n",
        (1, 1, 50, "evaluating", False, False),
    ),
    "nemo-rl has evaluated": (
        "nemo-rl",
        "▶ Starting validation at step 0...\n\n📊 Validation Results:\n    • Accuracy: 0.1\n",
        (None, None, None, "", False, False),
    ),
    "nemo-rl in time": (
        "nemo-rl",
        nemo(7, 50, 7) + "Timeout has been reached, stopping training early\n",
        (7, 7, 50, "", True, False),
    ),
    "nemo-rl ends": (
        "nemo-rl",
        nemo(50, 50) + "Max number of steps has been reached, stopping training early\n",
        (50, 50, 50, "", False, True),
    ),
    "nemo-rl's single controller": (
        "nemo-rl",
        "train step 3/50  trainer_v=3  lag=1  \n",
        (3, 3, 50, "", False, False),
    ),
    "skyrl": ("skyrl", skyrl(*TRAINED, *TRAINED), (1, 2, None, "", False, False)),
    "skyrl in a step": ("skyrl", skyrl(*TRAINED, *TRAINED[:2]), (1, 1, None, "", False, False)),
    "skyrl draws more samples": (
        "skyrl",
        skyrl(*DRAWN, *DRAWN, *TRAINED),
        (1, 1, None, "", False, False),
    ),
    "skyrl resumed": (
        "skyrl",
        skyrl("Resuming from global_step: 20")
        + "Training Batches Processed:  40%|███▌  | 20/50 [00:00<?, ?it/s]\r"
        + skyrl(*TRAINED),
        (21, 21, 50, "", False, False),
    ),
    "skyrl resumed, no step yet": (
        "skyrl",
        skyrl("Resuming from global_step: 20", "Started: 'eval'"),
        (None, None, None, "evaluating", False, False),
    ),
    "skyrl's checkpoint sets the count right": (
        "skyrl",
        skyrl(*TRAINED, *TRAINED[:2])
        + skyrl("Started: 'save_checkpoints'")
        + skyrl("Successfully saved checkpoint for global_step_5 to: /c/global_step_5")
        + skyrl("Finished: 'save_checkpoints', time cost: 2.00s", DRAWN[1], *TRAINED),
        (1, 6, None, "", False, False),
    ),
    "skyrl saves, and removes what is old": (
        "skyrl",
        skyrl(
            "Started: 'save_checkpoints'", "Successfully saved checkpoint for global_step_5 to: /c"
        ),
        (5, 5, None, "saving", False, False),
    ),
    "skyrl ends": (
        "skyrl",
        skyrl(*TRAINED, "Reached max_training_steps=1, stopping early.")
        + skyrl("Successfully saved checkpoint for global_step_2 to: /c", "Training done!"),
        (1, 1, 1, "", False, True),
    ),
    "miles": ("miles", rollout(0) + rollout(1), (1, 2, None, "", False, False)),
    "miles generates ahead": (
        "miles",
        rollout(0) + "".join(rollout(1).splitlines(keepends=True)[:1]),
        (1, 1, None, "", False, False),
    ),
    "miles trains on its third": (
        "miles",
        rollout(0) + rollout(1) + "".join(rollout(2).splitlines(keepends=True)[:4]),
        (1, 2, None, "", False, False),
    ),
    "miles resumed": (
        "miles",
        "".join(rollout(20).splitlines(keepends=True)[:3]),
        (None, None, None, "", False, False),
    ),
    "miles resumed and on": ("miles", rollout(20), (21, 21, None, "", False, False)),
    "miles an old line once more": (
        "miles",
        rollout(0) + rollout(1) + rollout(0) + rollout(2),
        (1, 3, None, "", False, False),
    ),
    "miles perf lost": (
        "miles",
        "".join(rollout(20).splitlines(keepends=True)[:4]) + rollout(21),
        (21, 22, None, "", False, False),
    ),
    "miles saves": (
        "miles",
        rollout(0) + miles("MegatronTrainRayActor", "Timer save_model start"),
        (1, 1, None, "saving", False, False),
    ),
    "miles has saved": (
        "miles",
        miles("A", "Timer save_model start") + miles("A", "Timer save_model end (elapsed: 9.0s)"),
        (None, None, None, "", False, False),
    ),
    "miles evaluates": (
        "miles",
        "(RolloutManager pid=7) Eval aime25:   3%|▎         | 1/30 [00:10<04:00,  8.00s/it]\r",
        (None, None, None, "evaluating", False, False),
    ),
    "miles has evaluated": (
        "miles",
        "Eval aime25: 100%|██| 30/30 [01:00<00:00]\n" + miles("R", "eval 0: {'eval/aime25': 0.1}"),
        (None, None, None, "", False, False),
    ),
    "miles ends": (
        "miles",
        rollout(0) + "\x1b[32mJob 'raysubmit_aB3' succeeded\x1b[39m\n",
        (1, 1, None, "", False, True),
    ),
    "demo": ("demo", demo(1, 80) + demo(2, 80), (1, 2, 80, "", False, False)),
    "demo resumed": (
        "demo",
        "resuming from /c/step_000020 at step 21\n" + demo(21, 80),
        (21, 21, 80, "", False, False),
    ),
    "demo asked to stop": (
        "demo",
        demo(21, 80) + "checkpoint /c/step_000021\nstopping early after step 21 of 80: asked to\n",
        (21, 21, 80, "", True, False),
    ),
    "demo ends": (
        "demo",
        demo(80, 80) + "final held-out accuracy 0.97\n",
        (80, 80, 80, "", False, True),
    ),
    "words of a model": (
        "skyrl",
        "the answer: Training done! Finished: 'step'\n",
        (None, None, None, "", False, False),
    ),
    "a framework that nobody knows": (
        "mine",
        demo(1, 80) + nemo(1, 50),
        (None, None, None, "", False, False),
    ),
}


def told(progress: Progress) -> tuple[int | None, int | None, int | None, str, bool, bool]:
    return (
        progress.first,
        progress.last,
        progress.total,
        progress.phase,
        progress.stopped_early,
        progress.finished,
    )


@pytest.mark.parametrize("row", ROWS)
def test_what_the_lines_say(row: str) -> None:
    """However the output is cut into pieces, and also where every line comes twice."""
    framework, output, expected = ROWS[row]
    data = output.encode()
    whole = Progress(framework)
    whole.feed(data)
    assert told(whole) == expected
    for seed in range(3):
        pieces, start, draw = Progress(framework), 0, random.Random(seed)  # noqa: S311
        while start < len(data):
            end = start + draw.randint(1, 40)
            pieces.feed(data[start:end])
            start = end
        assert told(pieces) == expected
        assert list(pieces.lines) == list(whole.lines)
    twice = Progress(framework)
    twice.feed("".join(2 * line for line in output.splitlines(keepends=True)).encode())
    assert told(twice) == expected
    assert twice.heard == 2 * whole.heard


@pytest.mark.parametrize("row", ROWS)
def test_lines_that_are_cut_off_are_no_steps_too_many(row: str) -> None:
    framework, output, (_, last, *_) = ROWS[row]
    for line in output.splitlines():
        progress = Progress(framework)
        progress.feed(line[: len(line) // 2].encode() + b"\n")
        assert (progress.last or 0) <= (last or 0)
        assert not progress.finished


def test_memory_is_bounded() -> None:
    progress = Progress("demo")
    for _ in range(100):
        progress.feed(b"x" * 100_000)
    progress.feed(b"\n" + b"y" * 100_000 + b"\n" + demo(1, 9).encode())
    assert (progress.heard, progress.last) == (3, 1)
    assert [len(line) for line in progress.lines][:2] == [LONGEST, LONGEST]
    for _ in range(3 * KEPT):
        progress.feed(b"\xff\xfe words\r\n")
    assert (progress.heard, len(progress.lines)) == (3 + 3 * KEPT, KEPT)
    assert progress.lines[-1] == "\ufffd\ufffd words"


# The watchdog

LIMITS = Limits(startup=1000, silence=100, step=400, pause=50)


def watch(*events: tuple[float, str, object]) -> Watchdog:
    """A watchdog that began at 0 and was told of (time, method, argument)."""
    dog = Watchdog(LIMITS, 0)
    for at, name, argument in events:
        getattr(dog, name)(at, *([] if argument is None else [argument]))
    return dog


# what happened, when it is stuck, what it says then
STUCK = {
    "no first step": ([], 1000, "no first step for 16 min; none was done"),
    "lines are no step": ([(900, "line", None)], 1000, "no first step for 16 min; none was done"),
    "scores itself before": (
        [(10, "phase", "evaluating"), (40, "phase", "")],
        1030,
        "no first step for 17 min; none was done",
    ),
    "silent": (
        [(500, "step", 57)],
        600,
        "no line of the log, step or checkpoint for 100 s; the last step was 57",
    ),
    "silent after a line": (
        [(500, "step", 57), (560, "line", None)],
        660,
        "no line of the log, step or checkpoint for 100 s; the last step was 57",
    ),
    "silent after a checkpoint": (
        [(500, "step", 57), (560, "checkpoint", None)],
        660,
        "no line of the log, step or checkpoint for 100 s; the last step was 57",
    ),
    "silent while it evaluates": (
        [(500, "step", 57), (510, "phase", "evaluating")],
        660,
        "no line of the log, step or checkpoint for 2 min; "
        "the last step was 57, and it is evaluating",
    ),
    "talks only": (
        [(500, "step", 57), *((500 + 50 * n, "line", None) for n in range(1, 8))],
        900,
        "no step for 6 min; the last step was 57",
    ),
    "talks only, after it has saved": (
        [
            (500, "step", 57),
            (510, "phase", "saving"),
            (540, "phase", ""),
            *((550 + 50 * n, "line", None) for n in range(8)),
        ],
        930,
        "no step for 7 min; the last step was 57",
    ),
    "saved before the last step": (
        [
            (460, "phase", "saving"),
            (490, "phase", ""),
            (500, "step", 57),
            *((550 + 50 * n, "line", None) for n in range(7)),
        ],
        900,
        "no step for 6 min; the last step was 57",
    ),
    "no pause lasts for ever": (
        [
            (500, "step", 57),
            (510, "phase", "saving"),
            *((550 + 50 * n, "line", None) for n in range(7)),
            (870, "phase", ""),
        ],
        950,
        "no step for 7 min; the last step was 57",
    ),
}


@pytest.mark.parametrize("row", STUCK)
def test_when_it_is_stuck(row: str) -> None:
    events, at, why = STUCK[row]
    dog = watch(*events)  # type: ignore[arg-type]
    last = events[-1][0] if events else 0.0
    assert dog.due(last) == at - last
    assert dog.stuck(at - 0.1) == ""
    assert dog.stuck(at) == why
    assert dog.due(at) == 0
    dog.step(at, 58)
    assert dog.stuck(at) == ""


def test_whoever_was_stopped_itself_looks_again() -> None:
    """A watcher that slept through hours has not seen what the run did in them."""
    dog = watch((500, "step", 57))
    wait = dog.due(500)
    assert dog.stuck(500 + wait + 7200) == ""
    assert dog.due(7700 + wait) == wait
    assert dog.stuck(7700 + 2 * wait)
    # A look that is a little late is no such jump.
    assert watch((500, "step", 57)).stuck(500 + wait + LATE)
