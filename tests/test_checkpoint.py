"""Checkpoint folders of each layout: whole, unfinished, without tracker, inconsistent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_slurm.node.checkpoint import NOTHING, latest, main


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def nemo_rl(folder: Path, step: int, name: str = "step_{}") -> Path:
    at = folder / name.format(step)
    write(at / "training_info.json", f'{{"total_steps": {step}}}')
    write(at / "policy" / "weights" / "model.distcp")
    return at


def skyrl(folder: Path, step: int) -> Path:
    at = folder / f"global_step_{step}"
    write(at / "trainer_state.pt")
    write(at / "policy" / "metadata.json")
    write(folder / "latest_ckpt_global_step.txt", f"{step}")
    return at


def miles(folder: Path, step: int) -> Path:
    at = folder / f"iter_{step - 1:07d}"
    write(at / "metadata.json")
    write(folder / "rollout" / f"global_dataset_state_dict_{step - 1}.pt")
    write(folder / "latest_checkpointed_iteration.txt", f"{step - 1}\n")
    return at


def demo(folder: Path, step: int) -> Path:
    at = folder / f"step_{step:06d}"
    for name in ("model.pt", "optimizer.pt", "state.json"):
        write(at / name)
    return at


WRITERS: dict[str, Callable[[Path, int], Path]] = {
    "nemo-rl": nemo_rl,
    "skyrl": skyrl,
    "miles": miles,
    "demo": demo,
}


@pytest.mark.parametrize("layout", WRITERS)
def test_the_newest_whole_checkpoint(layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert latest(layout, str(folder)) == NOTHING
    folder.mkdir()
    assert latest(layout, str(folder)) == NOTHING
    WRITERS[layout](folder, 20)
    at = WRITERS[layout](folder, 100)
    assert latest(layout, str(folder)) == (100, str(at), [], 100)


def test_nemo_rl_counts_folders_not_its_status_file(tmp_path: Path) -> None:
    """The status file is written before the folder is renamed: it may be ahead."""
    at = nemo_rl(tmp_path, 20)
    unfinished = nemo_rl(tmp_path, 40, "tmp_step_{}")
    write(tmp_path / "latest_checkpoint_status.json", '{"last_checkpoint_step": 40}')
    nemo_rl(tmp_path, 60, "old_step_{}")
    found = latest("nemo-rl", str(tmp_path))
    assert (found.step, found.path, found.newest) == (20, str(at), 20)
    assert found.problems == [f"{unfinished} is unfinished: its saving was broken off"]


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("training_info.json", "it has no training_info.json"),
        ("policy/weights/model.distcp", "it is empty in policy/weights"),
    ],
)
def test_nemo_rl_would_take_a_damaged_one(tmp_path: Path, lost: str, why: str) -> None:
    nemo_rl(tmp_path, 20)
    at = nemo_rl(tmp_path, 40)
    (at / lost).unlink()
    found = latest("nemo-rl", str(tmp_path))
    assert (found.step, found.newest) == (None, 40)
    assert found.problems == [
        f"{at} is damaged: {why}",
        f"NeMo RL takes the highest: move {at} away to go on from step 20",
    ]


def test_nemo_rl_half_a_training_info(tmp_path: Path) -> None:
    at = nemo_rl(tmp_path, 40)
    write(at / "training_info.json", '{"total_')
    found = latest("nemo-rl", str(tmp_path))
    assert found.step is None
    assert found.problems == [f"{at} is damaged: its training_info.json is no JSON"]


@pytest.mark.parametrize(
    ("layout", "tracker"),
    [
        ("skyrl", "latest_ckpt_global_step.txt"),
        ("miles", "latest_checkpointed_iteration.txt"),
    ],
)
def test_without_a_tracker_they_start_from_scratch(
    layout: str, tracker: str, tmp_path: Path
) -> None:
    WRITERS[layout](tmp_path, 20)
    (tmp_path / tracker).unlink()
    found = latest(layout, str(tmp_path))
    assert (found.step, found.newest) == (None, 20)
    assert found.problems == [f"{tmp_path / tracker} is not there"]
    write(tmp_path / tracker, "")
    assert latest(layout, str(tmp_path)).problems == [
        f"{tmp_path / tracker} holds '', not a number"
    ]


@pytest.mark.parametrize("layout", ["skyrl", "miles"])
def test_a_folder_beyond_the_tracker_is_named(layout: str, tmp_path: Path) -> None:
    at = WRITERS[layout](tmp_path, 40)
    whole = WRITERS[layout](tmp_path, 20)  # and so says the tracker now
    found = latest(layout, str(tmp_path))
    assert (found.step, found.path, found.newest) == (20, str(whole), 40)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{at} is further than")


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("trainer_state.pt", "it has no trainer_state.pt"),
        ("policy/metadata.json", "it is empty in policy"),
    ],
)
def test_skyrl_damaged(tmp_path: Path, lost: str, why: str) -> None:
    at = skyrl(tmp_path, 20)
    (at / lost).unlink()
    found = latest("skyrl", str(tmp_path))
    assert found.step is None
    assert found.problems == [f"{at} is damaged: {why}"]


def test_skyrl_s_tracker_names_a_folder_that_is_gone(tmp_path: Path) -> None:
    skyrl(tmp_path, 20)
    write(tmp_path / "latest_ckpt_global_step.txt", "30")
    found = latest("skyrl", str(tmp_path))
    assert (found.step, found.newest) == (None, 20)
    assert found.problems == [f"{tmp_path}/global_step_30 is damaged: it is not there"]


def test_miles_needs_the_data_state_of_the_same_id(tmp_path: Path) -> None:
    at = miles(tmp_path, 20)
    state = tmp_path / "rollout" / "global_dataset_state_dict_19.pt"
    state.rename(state.with_name("global_dataset_state_dict_18.pt"))
    found = latest("miles", str(tmp_path))
    assert found.step is None
    assert found.problems == [f"{state} is not there, or empty"]
    (at / "metadata.json").unlink()
    assert latest("miles", str(tmp_path)).problems == [f"{at} is damaged: it is empty in ."]


def test_the_demo_passes_over_what_is_not_whole(tmp_path: Path) -> None:
    at = demo(tmp_path, 20)
    damaged = demo(tmp_path, 40)
    (damaged / "optimizer.pt").unlink()
    (tmp_path / "tmp_step_000060").mkdir()
    found = latest("demo", str(tmp_path))
    assert (found.step, found.path, found.newest) == (20, str(at), 40)
    assert found.problems == [
        f"{tmp_path / 'tmp_step_000060'} is unfinished: its saving was broken off",
        f"{damaged} is damaged: it has no optimizer.pt",
    ]


@pytest.mark.parametrize("layout", WRITERS)
def test_the_job_itself_asks_for_the_proof(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--framework={layout}", str(tmp_path / "checkpoints")]
    assert main(words) == 2
    assert "to resume from: it holds none" in capsys.readouterr().err
    WRITERS[layout](tmp_path / "checkpoints", 20)
    assert main(words) == 0
    assert "goes on after step 20" in capsys.readouterr().out
