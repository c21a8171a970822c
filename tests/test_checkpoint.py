"""Checkpoint folders of each layout: whole, unfinished, without tracker, inconsistent."""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes import preflight

from beam_slurm.node import checkpoint
from beam_slurm.node.checkpoint import NOTHING, Found, latest


def mend(layout: str, folder: str) -> tuple[Found, list[str]]:
    """What was written just now is what there is."""
    return checkpoint.mend(layout, folder, patience=0)


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def torch_file(path: Path) -> None:
    """A zip file like those of torch.save, without torch: other tests write many of these."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 1000)
        file.writestr("archive/version", b"3\n")


def nemo_rl(folder: Path, step: int, name: str = "step_{}") -> Path:
    at = folder / name.format(step)
    write(at / "training_info.json", f'{{"total_steps": {step}}}')
    write(at / "policy" / "weights" / "model.distcp")
    torch_file(at / "train_dataloader.pt")
    return at


def skyrl(folder: Path, step: int) -> Path:
    at = folder / f"global_step_{step}"
    torch_file(at / "trainer_state.pt")
    torch_file(at / "data.pt")
    write(at / "policy" / "metadata.json")
    write(folder / "latest_ckpt_global_step.txt", f"{step}")
    return at


def miles(folder: Path, step: int) -> Path:
    at = folder / f"iter_{step - 1:07d}"
    write(at / "metadata.json")
    torch_file(at / "common.pt")
    torch_file(folder / "rollout" / f"global_dataset_state_dict_{step - 1}.pt")
    write(folder / "latest_checkpointed_iteration.txt", f"{step - 1}\n")
    return at


def demo(folder: Path, step: int) -> Path:
    at = folder / f"step_{step:06d}"
    torch_file(at / "model.pt")
    torch_file(at / "optimizer.pt")
    write(at / "state.json", f'{{"step": {step}}}')
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
        f"the highest is what it goes on from: move {at} away to go on from step 20",
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
    assert found.problems == [f"{at} is damaged: rollout/{state.name} is not there"]
    (at / "metadata.json").unlink()
    (at / "common.pt").unlink()
    assert latest("miles", str(tmp_path)).problems == [f"{at} is damaged: it is empty in ."]


def test_miles_adapters_go_by_their_folders_and_get_no_tracker(tmp_path: Path) -> None:
    """Megatron's tracker has no part in saving them: what is damaged is found without it."""
    for step in (20, 40):
        at = miles(tmp_path, step)
        for name in ("adapter_megatron_rank0.pt", "training_state_rank0.pt"):
            torch_file(at / "adapter" / name)
    tracker = tmp_path / TRACKERS["miles"]
    tracker.unlink()
    assert latest("miles", str(tmp_path))[:2] == (40, str(at))
    (tmp_path / "rollout" / "global_dataset_state_dict_39.pt").unlink()  # written last
    assert latest("miles", str(tmp_path)).step is None
    assert checkpoint.saved("miles", str(tmp_path), {20, 40}) == [20]
    found, _ = checkpoint.mend("miles", str(tmp_path), patience=0)
    assert (found.step, found.problems) == (20, [])
    assert (tmp_path / f"damaged-{at.name}").is_dir()
    assert not tracker.exists()


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
def test_the_job_itself_asks_for_the_proof(layout: str, tmp_path: Path) -> None:
    """On the login node the folder may not be seen; the first attempt begins with it in the job."""
    folder = tmp_path / "checkpoints"
    first = preflight(tmp_path / "first", "--resume", layout=layout, checkpoints=folder)
    assert first.returncode == 2
    assert "to resume from: it holds none" in first.stderr
    assert not (tmp_path / "first" / "attempt-0" / "address.json").exists()
    WRITERS[layout](folder, 20)
    second = preflight(tmp_path / "second", "--resume", layout=layout, checkpoints=folder)
    assert second.returncode == 0, second.stderr
    assert "goes on after step 20" in second.stderr


# Files that are there and too short


def files(at: Path) -> list[Path]:
    return sorted(path for path in at.rglob("*") if path.is_file())


def torch_files(layout: str, at: Path) -> list[Path]:
    """The files of torch.save that belong to one checkpoint."""
    found = [path for path in files(at) if path.suffix == ".pt"]
    if layout == "miles":
        number = int(at.name.rsplit("_", 1)[1])
        found.append(at.parent / "rollout" / f"global_dataset_state_dict_{number}.pt")
    return found


@pytest.mark.parametrize("layout", WRITERS)
def test_a_truncated_file_of_torch_is_found_and_mended(layout: str, tmp_path: Path) -> None:
    """Cut off anywhere: nothing left, half a header, no directory, all but the last byte."""
    torch = pytest.importorskip("torch")
    older = WRITERS[layout](tmp_path, 20)
    at = WRITERS[layout](tmp_path, 40)
    for path in torch_files(layout, at):
        torch.save({"weights": torch.arange(1000.0)}, path)
        whole = path.read_bytes()
        assert latest(layout, str(tmp_path))[0] == 40
        for size in (0, 2, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            path.write_bytes(whole[:size])
            found = latest(layout, str(tmp_path))
            assert found.step == (20 if layout == "demo" else None)
            state = "is empty" if size == 0 else f"is truncated: {size} bytes"
            assert [line for line in found.problems if f"{path.name} {state}" in line]
        path.write_bytes(whole)
        assert latest(layout, str(tmp_path))[0] == 40
    path.write_bytes(whole[: len(whole) // 2])
    before = {file: file.read_bytes() for file in files(at)}
    mended, done = mend(layout, str(tmp_path))
    assert (mended.step, mended.path, mended.newest, mended.problems) == (20, str(older), 20, [])
    aside = tmp_path / f"damaged-{at.name}"
    assert done[-1] == f"{at} is set aside as {aside.name}"
    assert not at.exists()
    assert {at / file.relative_to(aside): file.read_bytes() for file in files(aside)} == before
    assert mend(layout, str(tmp_path)) == (mended, [])


def test_shards_that_are_too_short(tmp_path: Path) -> None:
    at = nemo_rl(tmp_path, 40)
    weights = at / "policy" / "weights"
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    tensors = struct.pack("<Q", len(header)) + header + bytes(16)
    (weights / "a.safetensors").write_bytes(tensors)
    assert latest("nemo-rl", str(tmp_path)).step == 40
    for size in (0, 20, len(tensors) - 1):
        (weights / "a.safetensors").write_bytes(tensors[:size])
        found = latest("nemo-rl", str(tmp_path))
        assert found.step is None
        assert "policy/weights/a.safetensors is damaged" in found.problems[0]
    (weights / "a.safetensors").write_bytes(tensors)
    (weights / "__1_0.distcp").touch()
    assert "__1_0.distcp is empty" in latest("nemo-rl", str(tmp_path)).problems[0]
    # A rank with nothing to save leaves an empty one, and no word of it.
    (weights / ".metadata").write_bytes(b"...__0_0.distcp...")
    assert latest("nemo-rl", str(tmp_path)).step == 40
    (weights / ".metadata").write_bytes(b"...__0_0.distcp...__1_0.distcp...")
    assert latest("nemo-rl", str(tmp_path)).step is None


# Mending: what the folder is like, (steps that have a checkpoint, damaged ones, tracker's step);
# and then (goes on from, set aside)
BROKEN = {
    "nothing": (((), (), None), (None, ())),
    "all whole": (((20, 40), (), 40), (40, ())),
    "newest damaged": (((20, 40, 60), (60,), 60), (40, (60,))),
    "two newest damaged": (((20, 40, 60), (40, 60), 60), (20, (40, 60))),
    "an older one damaged": (((20, 40), (20,), 40), (40, ())),
    "nothing whole": (((20, 40), (20, 40), 40), (None, ())),
}
TRACKED = {
    "whole, but beyond the tracker": (((20, 40), (), 20), (20, (40,))),
    "far beyond the tracker": (((20, 40, 100), (100,), 20), (20, (40, 100))),
    "tracker of a folder that is gone": (((20,), (), 30), (20, ())),
    "no tracker": (((20, 40), (40,), None), (20, (40,))),
    "tracker below all": (((40,), (), 20), (None, ())),
}
MENDED = [
    (layout, row)
    for layout in WRITERS
    for row in (BROKEN if layout in ("nemo-rl", "demo") else {**BROKEN, **TRACKED})
]
TRACKERS = {"skyrl": "latest_ckpt_global_step.txt", "miles": "latest_checkpointed_iteration.txt"}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files(folder)}


@pytest.mark.parametrize(("layout", "row"), MENDED)
def test_mending(layout: str, row: str, tmp_path: Path) -> None:
    (steps, damaged, tracked), (expected, aside) = {**BROKEN, **TRACKED}[row]
    at = {step: WRITERS[layout](tmp_path, step) for step in steps}
    for step in damaged:
        torch_files(layout, at[step])[0].write_bytes(b"PK\x03\x04")
    tracker = tmp_path / TRACKERS.get(layout, "none")
    if tracked is not None and layout in TRACKERS:
        write(tracker, str(tracked - 1 if layout == "miles" else tracked))
    elif tracker.exists():
        tracker.unlink()
    before = snapshot(tmp_path)
    found, done = mend(layout, str(tmp_path))
    assert found.step == expected
    assert found == latest(layout, str(tmp_path))
    gone = {f"damaged-{at[step].name}" for step in aside}
    assert {path.name for path in tmp_path.glob("damaged-*")} == gone
    if expected is None:
        assert snapshot(tmp_path) == before
        assert done == []
    else:
        # Nothing is lost but the tracker's old word.
        after = {name.replace("damaged-", ""): data for name, data in snapshot(tmp_path).items()}
        for contents in (before, after):
            contents.pop(tracker.name, None)
        assert after == before
        assert found.problems == []
        moved = layout in TRACKERS and tracked != expected
        assert len(done) == len(aside) + moved
        if moved:
            assert done[0].startswith(f"{tracker.name} says ")


def test_mending_twice_the_same_step(tmp_path: Path) -> None:
    nemo_rl(tmp_path, 20)
    for again in ("", "-2", "-3"):
        at = nemo_rl(tmp_path, 40)
        (at / "training_info.json").unlink()
        assert mend("nemo-rl", str(tmp_path))[1] == [f"{at} is set aside as damaged-step_40{again}"]


@pytest.mark.parametrize("layout", ["nemo-rl", "demo"])
def test_unfinished_ones_stay_and_are_named(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path, 20)
    unfinished = tmp_path / "tmp_step_40"
    unfinished.mkdir()
    found, done = mend(layout, str(tmp_path))
    assert (found.step, done) == (20, [])
    assert found.problems == [f"{unfinished} is unfinished: its saving was broken off"]


def test_a_folder_that_cannot_be_put_in_order(tmp_path: Path) -> None:
    at = skyrl(tmp_path, 20)
    tracker = tmp_path / "latest_ckpt_global_step.txt"
    tracker.unlink()
    tracker.mkdir()
    found, done = mend("skyrl", str(tmp_path))
    assert (found.step, found.newest, done) == (None, 20, [])
    assert "cannot be put in order: " in found.problems[-1]
    assert at.exists()


# A folder that is seen as it was a moment ago
PART = {
    "nemo-rl": "step_40/policy",
    "skyrl": "global_step_40/policy",
    "miles": "rollout",
    "demo": "step_000040/model.pt",
}


@pytest.mark.parametrize(
    ("layout", "whole"),
    [*((layout, False) for layout in WRITERS), ("skyrl", True), ("miles", True)],
)
def test_what_shows_up_while_it_waits_is_not_set_aside(
    layout: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the newest checkpoint, or all of it where a tracker names it."""
    WRITERS[layout](tmp_path, 20)
    at = WRITERS[layout](tmp_path, 40)
    late = at if whole else tmp_path / PART[layout]
    unseen = late.rename(tmp_path / "unseen")
    assert latest(layout, str(tmp_path)).step != 40
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            unseen.rename(late)

    monkeypatch.setattr(time, "sleep", wait)
    found, done = checkpoint.mend(layout, str(tmp_path), patience=30)
    assert (found.step, found.path, found.problems, done) == (40, str(at), [], [])
    assert len(waits) == 3


def age(folder: Path, seconds: float) -> None:
    """All of it was written so long ago."""
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("old", "patience", "waits"),
    [(0, 0.2, True), (100, 0.2, True), (130, 60, False), (0, 0, False)],
)
@pytest.mark.parametrize("layout", WRITERS)
def test_what_stays_wrong_is_mended_then(
    layout: str, old: float, patience: float, waits: bool, tmp_path: Path
) -> None:
    WRITERS[layout](tmp_path, 20)
    torch_files(layout, WRITERS[layout](tmp_path, 40))[0].write_bytes(b"PK")
    age(tmp_path, old)
    began = time.monotonic()
    found, done = checkpoint.mend(layout, str(tmp_path), patience=patience)
    took = time.monotonic() - began
    assert (found.step, bool(done)) == (20, True)
    assert (0.2 <= took < 10) if waits else took < 10


@pytest.mark.parametrize("layout", WRITERS)
def test_where_all_is_well_nobody_waits(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "sleep")
    assert checkpoint.mend(layout, str(tmp_path / "absent")) == (NOTHING, [])
    assert checkpoint.mend(layout, str(tmp_path)) == (NOTHING, [])
    WRITERS[layout](tmp_path, 20)
    WRITERS[layout](tmp_path, 40)
    assert checkpoint.mend(layout, str(tmp_path))[0].step == 40


def test_what_an_evaluation_has_kept_counts_as_its_checkpoint(tmp_path: Path) -> None:
    """Each whole line behind the first is a response."""
    assert checkpoint.latest("evaluate", str(tmp_path)).step is None
    path = tmp_path / "responses.jsonl"
    path.write_bytes(b"")
    assert checkpoint.latest("evaluate", str(tmp_path)).step == 0
    path.write_bytes(b'{"settings": {}}\n{"id": "1"}\n{"id": "2"}\n{"id": "3", "te')
    found, done = checkpoint.mend("evaluate", str(tmp_path))
    assert (found.step, found.path, done) == (2, str(path), [])
    assert path.read_bytes().endswith(b'"te')  # the evaluation itself puts it in order
