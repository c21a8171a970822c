"""A conversion's output folder: whole or not there, whatever it is interrupted by."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from conversions import Model, difference, listed, refused, run

from beam_slurm.after import output, shards
from beam_slurm.after.errors import Problem

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_an_interrupted_conversion_leaves_a_part_and_goes_on_from_it(
    tmp_path: Path, base: Path, trained: Model, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "LARGEST", 300_000)
    write, written = shards.write_file, []

    def broken_off(path: Path, tensors: dict[str, Any]) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write(path, tensors)

    into = tmp_path / "hf"
    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_file", broken_off)
        with pytest.raises(KeyboardInterrupt):
            run("nemo-rl", whole, into, "--base", str(base))
    assert not into.exists()
    kept = {path.name: path.stat().st_ino for path in written}
    (output.part_of(into) / "model-00003-of-00004.safetensors.tmp").write_bytes(b"a half")

    run("nemo-rl", whole, into, "--base", str(base))
    assert {name: (into / name).stat().st_ino for name in kept} == kept
    assert len(list(into.glob("*.safetensors"))) > 2
    assert difference(into, trained) == 0.0
    assert sorted(path.name for path in tmp_path.iterdir() if "hf" in path.name) == ["hf"]
    assert {path.suffix for path in into.iterdir()} == {".json", ".safetensors", ""}
    assert "config.json" in listed(into)


def test_what_is_left_of_another_conversion_is_cleared(
    tmp_path: Path, base: Path, whole: Path
) -> None:
    into = tmp_path / "hf"
    with output.begin(into, {"source": "another"}) as part:
        (part / "left").write_text("over")
        (part / "folder").mkdir()
    run("nemo-rl", whole, into, "--base", str(base))
    assert not (into / "left").exists()
    assert not (into / "folder").exists()


def test_a_part_that_the_login_node_has_marked(tmp_path: Path, base: Path, whole: Path) -> None:
    """It becomes the folder, or goes if nothing can be converted."""
    into = tmp_path / "hf"
    mark = output.part_of(into) / output.MARK
    mark.parent.mkdir()
    mark.touch()
    with pytest.raises(Problem):
        run("nemo-rl", tmp_path / "absent", into, "--base", str(base))
    assert not mark.parent.exists()
    mark.parent.mkdir()
    mark.touch()
    run("nemo-rl", whole, into, "--base", str(base))
    assert [path.name for path in tmp_path.iterdir() if "hf" in path.name] == ["hf"]
    assert not (into / output.MARK).exists()


def test_an_output_folder_that_holds_something_is_refused(
    tmp_path: Path, base: Path, whole: Path
) -> None:
    into = tmp_path / "hf"
    into.mkdir()
    (into / "mine").write_text("")
    with pytest.raises(Problem, match="not empty"):
        run("nemo-rl", whole, into, "--base", str(base))
    assert [path.name for path in into.iterdir()] == ["mine"]
    (into / "mine").rename(tmp_path / "mine")
    run("nemo-rl", whole, into, "--base", str(base))  # an empty one may be there


def test_an_output_folder_that_is_a_link_is_refused(
    tmp_path: Path, base: Path, whole: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    into = tmp_path / "hf"
    into.symlink_to("elsewhere")
    with pytest.raises(Problem, match="no folder"):
        run("nemo-rl", whole, into, "--base", str(base))
    assert not output.part_of(into).exists()


def test_an_output_folder_in_use_is_refused(tmp_path: Path, base: Path, whole: Path) -> None:
    into = tmp_path / "hf"
    with (
        output.begin(into, {"source": "another"}),
        pytest.raises(Problem, match="in use"),
    ):
        run("nemo-rl", whole, into, "--base", str(base))


def test_a_part_that_is_of_no_conversion_is_refused(
    tmp_path: Path, base: Path, whole: Path
) -> None:
    into = tmp_path / "hf"
    output.part_of(into).mkdir()
    (output.part_of(into) / "mine").write_text("")
    with pytest.raises(Problem, match="cannot be made"):
        run("nemo-rl", whole, into, "--base", str(base))
    assert (output.part_of(into) / "mine").exists()


def test_a_disk_that_fills_up_is_told_and_the_conversion_goes_on(
    tmp_path: Path, base: Path, trained: Model, whole: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(Problem, match="broken off") as caught:
            run("nemo-rl", whole, tmp_path / "hf", "--base", str(base))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in caught.value.why
    assert not (tmp_path / "hf").exists()
    run("nemo-rl", whole, tmp_path / "hf", "--base", str(base))
    assert difference(tmp_path / "hf", trained) == 0.0


def test_too_little_space_is_refused_with_both_numbers(
    tmp_path: Path, base: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(base))
    assert "0.0 GB are free" in problem.why


@pytest.mark.parametrize(
    ("place", "why"), [("/proc/x", "/proc is on no disk"), ("/proc/version/x", "is no folder")]
)
def test_where_nothing_can_be_written(base: Path, whole: Path, place: str, why: str) -> None:
    problem = refused("nemo-rl", whole, Path(place), "--base", str(base))
    assert problem.what == "the output cannot be written"
    assert why in problem.why
    assert "-o" in problem.do


def test_an_export_of_the_framework_is_proved_and_linked(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    export = tmp_path / "exports" / "global_step_10" / "policy"
    export.parent.mkdir(parents=True)
    shutil.copytree(base, export)
    (export / "model.safetensors").rename(tmp_path / "blob")
    (export / "model.safetensors").symlink_to("../../../blob")  # as in a download's cache
    run("skyrl", export.parent, tmp_path / "hf")
    made = tmp_path / "hf" / "model.safetensors"
    assert made.samefile(tmp_path / "blob")
    assert not made.is_symlink()
    assert (tmp_path / "hf" / "tokenizer.json").is_file()


def test_hidden_files_of_the_model_are_not_taken_along(tmp_path: Path, base: Path) -> None:
    """Above all not the note of how that one was made: it would stand for this conversion's."""
    other = shutil.copytree(base, tmp_path / "base")
    for name in (output.MARK, ".gitattributes"):
        (other / name).write_text("another's")
    (other / "chat_template.jinja").write_text("{{ messages }}")
    (other / "generation_config.json").write_text("{}")
    with output.begin(tmp_path / "hf", {}) as part:
        output.copy_companions(other, part)
        made = {path.name: path.read_text() for path in part.iterdir()}
    assert made.pop(output.MARK) == "{}\n"
    assert not [name for name in made if name.startswith(".")]
    assert {"chat_template.jinja", "generation_config.json", "tokenizer.json"} <= made.keys()
    assert "model.safetensors" not in made


def test_what_was_written_is_kept_if_it_cannot_be_hashed(tmp_path: Path) -> None:
    """A read error of shared storage goes by, and a terabyte would have to be written again."""
    into = tmp_path / "hf"
    with output.begin(into, {}) as part:
        (part / "weights").write_text("")
        (part / "gone").symlink_to("nowhere")
    with pytest.raises(Problem, match="cannot be read") as caught, output.begin(into, {}):
        output.finish(into, lambda at: [])
    assert "it goes on" in caught.value.do
    assert (part / "weights").is_file()
    assert not into.exists()
    (part / "gone").unlink()
    with output.begin(into, {}):
        output.finish(into, lambda at: [])
    assert listed(into) == {"weights"}


def test_whoever_may_read_the_folder_may_read_its_weights(
    tmp_path: Path, base: Path, whole: Path
) -> None:
    """safetensors gives its files to their owner alone, whatever the umask says."""
    into = tmp_path / "hf"
    before = os.umask(0o027)
    try:
        run("nemo-rl", whole, into, "--base", str(base))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in into.iterdir()} == {0o640}
