"""What each framework says in its own way, and what its reader makes of it."""

from __future__ import annotations

import math
from pathlib import Path

import folders
import frameworklogs as logs
import pytest
from frameworklogs import goes_on, numbers, read, reader_of, said

from beam_slurm.metrics import Checkpoint, Evaluation, Step
from beam_slurm.metrics.known import Known
from beam_slurm.runs import Run


@pytest.fixture
def nemo(tmp_path: Path) -> Run:
    return folders.of_framework(tmp_path, "nemo-rl")


@pytest.fixture
def skyrl(tmp_path: Path) -> Run:
    return folders.of_framework(tmp_path, "skyrl")


@pytest.fixture
def miles(tmp_path: Path) -> Run:
    return folders.of_framework(tmp_path, "miles")


# --- NeMo RL ------------------------------------------------------------------------------------


def test_nemo_evaluations_and_checkpoints(nemo: Run) -> None:
    folders.say(nemo, logs.nemo_validation(0, 0.25, 3300.5, responses=120))
    folders.say(nemo, "".join(logs.nemo(step, save=step == 10) for step in range(1, 12)))
    history = read(nemo)
    assert history.evaluations == [
        Evaluation(
            0, "aime2025", accuracy=0.25, problems=30, responses=120, response_length=3300.5
        ),
        logs.nemo_scores(5),
        logs.nemo_scores(10),
    ]
    assert history.evaluations[1].interval() is not None
    path = f"{nemo.output}/checkpoints/step_10"
    assert history.checkpoints == [Checkpoint(10, path=path)]


def test_nemo_scores_nothing(nemo: Run) -> None:
    """It calls that an accuracy of 0."""
    folders.say(nemo, logs.nemo_validation(5, 0.0, 0.0, responses=0))
    (scores,) = read(nemo).evaluations
    assert scores.accuracy is not None
    assert math.isnan(scores.accuracy)
    assert scores.interval() is None


def test_nemo_is_still_saving(nemo: Run) -> None:
    folders.say(nemo, logs.nemo_header(7) + "Saving checkpoint for step 7...\n")
    assert read(nemo).checkpoints == []


def test_nemo_async(nemo: Run) -> None:
    text = logs.nemo_header(3) + logs.nemo_results(3, asynchronous=True)
    folders.say(nemo, text + logs.nemo_validation(3, 0.5, 3000))
    history = read(nemo)
    (step,) = history.steps
    assert (step.step, step.generation_time, step.transfer_time) == (3, 53.0, 5.0)
    assert step.response_length is None
    assert history.evaluations[0].step == 3


def test_nemo_dynamic_sampling(nemo: Run) -> None:
    text = logs.nemo(1).replace(
        "Avg Reward: 0.0025", "Avg Filtered Reward: 0.5000\n  • Avg Total Reward: 0.2500"
    )
    folders.say(nemo, text)
    assert read(nemo).steps[0].reward == 0.25


def test_nemo_nan_and_inf(nemo: Run) -> None:
    folders.say(nemo, logs.nemo(1).replace("Loss: -0.0010", "Loss: nan").replace("101.00s", "infs"))
    (step,) = read(nemo).steps
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert step.step_time == math.inf


def test_nemo_epochs(nemo: Run) -> None:
    def epoch(n: int) -> str:
        return f"\n{logs.BAR} Epoch {n}/3 {logs.BAR}\n"

    def step(n: int, save: int | None = None) -> str:
        saving = f"Saving checkpoint for step {save}...\n" if save else ""
        return logs.nemo_header(n, 4) + saving + "  • Loss: 0.5000\n"

    text = (
        epoch(1) + "".join(step(n) for n in range(1, 5)) + epoch(2) + step(1) + step(2, 6) + step(3)
    )
    folders.say(nemo, text)
    history = read(nemo)
    assert numbers(history) == [1, 2, 3, 4, 5, 6, 7]
    assert {step.steps for step in history.steps} == {None}
    assert [it.step for it in history.checkpoints] == [6]
    folders.say(nemo, goes_on(6) + epoch(2) + step(3) + step(4) + epoch(3) + step(1))
    assert numbers(read(nemo)) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_nemo_begins_elsewhere_than_was_proved(nemo: Run) -> None:
    """Its own word on where it begins holds."""
    folders.say(nemo, "".join(logs.nemo(step) for step in range(1, 10)) + goes_on(8) + logs.nemo(3))
    assert numbers(read(nemo)) == [1, 2, 3]


# --- SkyRL --------------------------------------------------------------------------------------


def test_skyrl_evaluations_are_files(skyrl: Run) -> None:
    logs.skyrl_dump(skyrl.output, 0, aime_2024=0.5, **{"math-ai_AIME25": 0.61})
    folders.say(skyrl, logs.skyrl_dumped(0))
    assert read(skyrl).evaluations == [
        Evaluation(0, "aime2024", accuracy=0.5, problems=30, responses=240),
        Evaluation(0, "aime2025", accuracy=0.61, problems=30, responses=240),
    ]


def test_skyrl_length_of_a_single_set(skyrl: Run) -> None:
    logs.skyrl_dump(skyrl.output, 5, AIME2025=0.75)
    folders.say(skyrl, logs.skyrl_dumped(5))
    assert read(skyrl).evaluations == [
        Evaluation(5, "aime2025", accuracy=0.75, problems=30, responses=240, response_length=1195.0)
    ]


def test_skyrl_file_that_comes_late(skyrl: Run) -> None:
    reader = reader_of(skyrl)
    folders.say(skyrl, logs.skyrl_dumped(5))
    reader.read()
    assert reader.history.evaluations == []
    logs.skyrl_dump(skyrl.output, 5, aime2025=0.5)
    assert reader.read()
    assert not reader.read()
    assert [it.step for it in reader.history.evaluations] == [5]


def test_skyrl_evaluation_of_an_earlier_life(skyrl: Run) -> None:
    """Its file lies there until it is redone."""
    for step in (5, 10):
        logs.skyrl_dump(skyrl.output, step, aime2025=0.5)
    text = "".join(logs.skyrl(step) for step in range(1, 12)) + goes_on(7)
    folders.say(skyrl, text)
    assert [it.step for it in read(skyrl).evaluations] == [5]
    logs.skyrl_dump(skyrl.output, 10, aime2025=0.75)
    folders.say(skyrl, "".join(logs.skyrl(step) for step in range(8, 11)))
    assert [it.accuracy for it in read(skyrl).evaluations] == [0.5, 0.75]


def test_skyrl_half_a_file_of_scores(skyrl: Run) -> None:
    logs.skyrl_dump(skyrl.output, 5, aime2025=0.5)
    path = next(skyrl.output.rglob("aggregated_results.jsonl"))
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    reader = reader_of(skyrl)
    folders.say(skyrl, logs.skyrl_dumped(5))
    reader.read()
    assert not reader.history
    path.write_text(whole)
    reader.read()
    assert [it.accuracy for it in reader.history.evaluations] == [0.5]


def test_skyrl_console_logger(skyrl: Run) -> None:
    """The difference over the whole step, which the published results are of."""
    folders.say(skyrl, "".join(logs.skyrl(step, console=True) for step in (1, 2)))
    assert [step.logprob_diff for step in read(skyrl).steps] == [0.0201, 0.0202]


def test_skyrl_counts_from_where_it_resumed(skyrl: Run) -> None:
    text = "".join(logs.skyrl(step) for step in range(1, 25))
    folders.say(skyrl, text + logs.loguru("Resuming from global_step: 20", 999) + logs.skyrl(21))
    assert numbers(read(skyrl)) == list(range(1, 22))


def test_skyrl_checkpoint_sets_the_count_right(skyrl: Run) -> None:
    folders.say(skyrl, logs.skyrl(1) + logs.skyrl(10, save=True) + logs.skyrl(11))
    history = read(skyrl)
    assert numbers(history) == [1, 10, 11]
    assert history.checkpoints == [
        Checkpoint(10, path=f"{skyrl.output}/checkpoints/global_step_10")
    ]


def test_skyrl_draws_more_samples(skyrl: Run) -> None:
    """A step without an update is no step, but its time counts."""
    drawn = logs.skyrl(0).split("\n")
    trained = [at for at, line in enumerate(drawn) if "'train_critic_and_policy'" in line]
    only_drawn = "\n".join(
        [*drawn[: trained[0]], *[it for it in drawn if "Finished: 'step'" in it]]
    )
    folders.say(skyrl, only_drawn + "\n" + logs.skyrl(1))
    (step,) = read(skyrl).steps
    assert (step.step_time, step.generation_time, step.training_time) == (200.0, 80.0, 30.0)
    assert step.reward == 0.01


def test_skyrl_first_weights_belong_to_no_step(skyrl: Run) -> None:
    first = logs.loguru("Finished: 'sync_weights', time cost: 900.00s", 5)
    folders.say(skyrl, first + logs.skyrl(1))
    assert read(skyrl).steps == [logs.skyrl_step(1)]


def test_skyrl_nan(skyrl: Run) -> None:
    text = logs.skyrl(1).replace("'grad_norm': 0.51", "'grad_norm': nan")
    folders.say(skyrl, text.replace("avg_raw_reward: 0.01", "avg_raw_reward: -inf"))
    (step,) = read(skyrl).steps
    assert step.grad_norm is not None
    assert math.isnan(step.grad_norm)
    assert step.reward == -math.inf


# --- Miles --------------------------------------------------------------------------------------


def test_miles_evaluations_and_checkpoints(miles: Run) -> None:
    """One at the start is of the model as it was, the others are made after their rollout."""
    scored = logs.miles_line(logs.MANAGER, f"eval 0: {logs.miles_scores(0)}")
    folders.say(miles, scored + "".join(logs.miles(id_, save=id_ == 4) for id_ in range(5)))
    history = read(miles)
    assert history.evaluations == [
        Evaluation(
            0, "aime2025", accuracy=0.4625, problems=30, responses=240, response_length=3000.0
        ),
        Evaluation(
            5, "aime2025", accuracy=0.4665, problems=30, responses=240, response_length=2996.0
        ),
    ]
    path = f"{miles.output}/checkpoints/iter_0000004"
    assert history.checkpoints == [Checkpoint(5, path=path)]


def test_miles_last_rollout_is_scored_though_none_is_due(miles: Run) -> None:
    miles.record(steps=98)
    folders.say(miles, logs.miles_line(logs.MANAGER, f"eval 97: {logs.miles_scores(97)}"))
    assert [it.step for it in read(miles).evaluations] == [98]


def test_miles_skipped_evaluation(miles: Run) -> None:
    folders.say(miles, logs.miles_line(logs.MANAGER, "eval 4 skipped: inflight"))
    assert not read(miles)


def test_miles_generates_ahead(miles: Run) -> None:
    ahead = logs.miles_line(logs.MANAGER, f"perf 1: {logs.miles_generated(1)}")
    folders.say(miles, logs.miles(0) + ahead)
    assert read(miles).steps == [logs.miles_step(1)]
    rest = logs.miles(1).splitlines(keepends=True)[1:]
    folders.say(miles, "".join(rest))
    assert read(miles).steps == [logs.miles_step(1), logs.miles_step(2)]


def test_miles_last_line_of_a_rollout_is_lost(miles: Run) -> None:
    kept = logs.miles(0).splitlines(keepends=True)[:-1]
    folders.say(miles, "".join(kept) + logs.miles(1))
    first, second = read(miles).steps
    assert (first.step, first.reward, first.step_time) == (1, 0.0, None)
    assert second == logs.miles_step(2)


def test_miles_several_updates_a_rollout(miles: Run) -> None:
    profile = miles.path / "profile.yaml"
    text = profile.read_text().replace("updates_per_step: 1", "updates_per_step: 2")
    profile.write_text(text)
    folders.say(miles, logs.miles(0, updates=2) + logs.miles(1, updates=2))
    assert [(step.step, step.loss) for step in read(miles).steps] == [(1, 0.001), (2, 0.003)]


def test_miles_nan_is_no_value_of_others(miles: Run) -> None:
    folders.say(
        miles, logs.miles(3).replace("'rollout/raw_reward': 0.03", "'rollout/raw_reward': nan")
    )
    (step,) = read(miles).steps
    assert step.reward is not None
    assert math.isnan(step.reward)
    assert step.kl == math.inf


# --- Miles' events ------------------------------------------------------------------------------


def events(run: Run, process: str, *told: str) -> Path:
    path = run.output / "dumps" / "events" / f"{process}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(told)
    return path


def trained(id_: int, second: int = 0) -> list[str]:
    return [
        logs.miles_event({**logs.miles_rollout(id_), "rollout/step": id_}, second),
        logs.miles_event(logs.miles_update(id_), second + 1),
        logs.miles_event({**logs.miles_trained(id_), "rollout/step": id_}, second + 2),
    ]


def bare(id_: int) -> str:
    """What the log still says of a rollout if most of its lines are lost."""
    return logs.miles_line(logs.TRAINER, f"perf {id_}: {{'perf/train_time': 62.0}}")


def test_miles_events_say_more(miles: Run) -> None:
    events(
        miles, "rollout_manager", logs.miles_event({**logs.miles_generated(0), "rollout/step": 0})
    )
    events(
        miles, "rollout_manager", logs.miles_event({**logs.miles_generated(1), "rollout/step": 1})
    )
    scored = {**logs.miles_scores(4, "aime25"), "eval/step": 4}
    events(miles, "rollout_manager", logs.miles_event(scored, 9))
    events(miles, "actor_cell0_rank3", *trained(0))
    folders.say(miles, bare(0) + logs.miles_line(logs.MANAGER, "eval 4: {'eval/aime25': 0.1}"))
    history = read(miles)
    (step,) = history.steps
    when = 1787306402.25  # 2026-08-21T10:00:02.25Z
    assert step.time == when
    assert {**as_fields(step), "time": None} == as_fields(logs.miles_step(1))
    (scores,) = history.evaluations
    assert (scores.step, scores.accuracy, scores.response_length) == (5, 0.4665, 2996.0)
    assert scores.time == when + 7


def as_fields(step: Step) -> dict[str, object]:
    return {name: getattr(step, name) for name in Step.__dataclass_fields__}


def test_miles_events_of_other_kinds_and_half_lines(miles: Run) -> None:
    folders.say(miles, bare(0))
    path = events(
        miles, "actor_cell0_rank3", '{"type":"train_group_step_end","x":"' + "y" * 200_000
    )
    events(miles, "actor_cell0_rank3", '"}\n', "\n", "[1]\n", '{"type":"metric","metrics":7}\n')
    events(miles, "actor_cell0_rank3", *trained(0))
    line = logs.miles_event({"train/step": 0, "train/loss": math.nan})
    with path.open("a") as file:
        file.write(line[: len(line) // 2])
    reader = reader_of(miles)
    reader.read()
    assert reader.history.steps[0].loss == 0.0
    with path.open("a") as file:
        file.write(line[len(line) // 2 :])
    reader.read()
    loss = reader.history.steps[0].loss
    assert loss is not None
    assert math.isnan(loss)


def test_miles_puts_its_events_back(miles: Run) -> None:
    """It moves the folder away and copies the checkpoint's, as it resumes."""
    folders.say(miles, "".join(bare(id_) for id_ in range(6)))
    events(miles, "actor_cell0_rank3", *(line for id_ in range(6) for line in trained(id_)))
    reader = reader_of(miles)
    reader.read()
    assert numbers(reader.history) == [1, 2, 3, 4, 5, 6]
    folder = miles.output / "dumps" / "events"
    folder.rename(folder.with_name(".trash"))
    events(miles, "actor_cell0_rank3", *(line for id_ in range(3) for line in trained(id_)))
    folders.say(miles, goes_on(3) + bare(3))
    reader.read()
    *_, last = reader.history.steps
    assert (last.step, last.loss) == (4, None)
    assert said(reader.history) == said(read(miles))


def test_miles_does_not_put_its_events_back(miles: Run) -> None:
    folders.say(miles, "".join(bare(id_) for id_ in range(6)))
    events(miles, "actor_cell0_rank3", *(line for id_ in range(6) for line in trained(id_)))
    events(miles, "actor_cell0_rank3", *trained(3))
    folders.say(miles, goes_on(3) + bare(3) + bare(4))
    history = read(miles)
    assert [step.loss for step in history.steps] == [0.0, 0.001, 0.002, 0.003, None]


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "told", "name"),
    [
        (("aime2025",), "aime2025", "aime2025"),
        (("aime2025",), "AIME-2025", "aime2025"),
        (("aime2025",), "opencompass_AIME2025", "aime2025"),
        (("aime2025",), "aime25", "aime2025"),
        (("aime2025",), "aime", "aime2025"),
        (("aime2025",), "gpqa", "gpqa"),
        (("aime2025",), "aime2024", "aime2024"),
        (("aime2024", "aime2025"), "math-ai/aime24", "aime2024"),
        (("aime2024", "aime2025"), "aime", "aime"),
        (("aime2024", "aime2025"), "", ""),
        (("math", "math500"), "MATH-500", "math500"),
        (("math", "math500"), "math", "math"),
        (("数学", "代数"), "x/数学", "数学"),
        (("+", "aime2025"), "gpqa", "gpqa"),
        ((), "aime", "aime"),
    ],
)
def test_sets_have_the_profile_s_names(sets: tuple[str, ...], told: str, name: str) -> None:
    assert Known(Path(), None, sets=sets).named(told) == name


def test_known_of_a_run(skyrl: Run) -> None:
    assert Known.of(skyrl) == Known(
        output=skyrl.output,
        checkpoints=skyrl.output / "checkpoints",
        gpus=32,
        steps=50,
        responses=512,
        updates=2,
        sets=("aime2024", "aime2025"),
        every=5,
        problems=30,
        scored=240,
    )
