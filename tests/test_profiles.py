"""Profiles: composition, origins, and errors that name file, line, key and the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_slurm import profiles
from beam_slurm.errors import BeamSlurmError
from beam_slurm.yamlfile import Document, load, scalar

pytestmark = pytest.mark.usefixtures("no_site")


def resolve(profile: str, *settings: str, site: Path | None = None) -> profiles.Resolved:
    return profiles.resolve(profile, site=site, settings=profiles.parse_settings(settings))


def test_every_profile_is_complete_and_its_assumptions_name_real_keys() -> None:
    assert len(profiles.names()) == 11
    for name in profiles.names():
        resolved = resolve(name)
        keys = {key for key, _, _ in resolved.values()}
        assert set(resolved.profile.assumed) <= keys
        assert all(resolved.origin(("recipe", key)) for key in ("steps", "schedule"))


def test_b300_colocated_carries_the_published_recipe() -> None:
    profile = resolve("b300-colocated").profile
    assert (profile.hardware.nodes, profile.hardware.gpus, profile.hardware.gpu) == (8, 64, "b300")
    recipe = profile.recipe
    assert (recipe.steps, recipe.prompts_per_step, recipe.responses_per_prompt) == (200, 32, 8)
    assert (recipe.prompt_tokens, recipe.response_tokens) == (1024, 4096)
    assert recipe.learning_rate == 1e-6
    assert recipe.rollout
    assert recipe.rollout.engines * recipe.rollout.gpus_per_engine == 64


def test_later_wins_and_every_value_knows_its_place(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: b300-colocated\ndescription: mine\nrecipe:\n  steps: 50\n")
    site = tmp_path / "cluster.yaml"
    site.write_text("partition: gpu\npaths:\n  models: /shared/models\n")
    resolved = resolve(str(mine), "site.partition=big", "hardware.nodes=4", site=site)
    assert resolved.profile.name == "mine"
    assert resolved.profile.recipe.steps == 50
    assert resolved.shipped.recipe.steps == 200
    assert resolved.profile.site.partition == "big"
    origins = {key: origin for key, _, origin in resolved.values()}
    assert origins["recipe.steps"] == f"{mine}:4"
    assert origins["recipe.prompts_per_step"] == "profiles/h200-colocated.yaml:13"
    assert origins["hardware.gpu"] == "profiles/hardware/b300x64.yaml:2"
    assert origins["hardware.nodes"] == "--set hardware.nodes"
    assert origins["site.paths.models"] == f"{site}:3"
    assert origins["site.partition"] == "--set site.partition"


def test_the_site_file_is_found_where_people_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profiles.site_file() is None
    personal = tmp_path / "config" / "beam-slurm" / "site.yaml"
    personal.parent.mkdir(parents=True)
    personal.write_text("partition: personal\n")
    assert resolve("demo").profile.site.partition == "personal"
    Path("site.yaml").write_text("partition: here\n")
    assert resolve("demo").profile.site.partition == "here"
    named = tmp_path / "named.yaml"
    named.write_text("partition: named\n")
    monkeypatch.setenv(profiles.SITE_VARIABLE, str(named))
    assert resolve("demo").profile.site.partition == "named"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("recipe:\n  stpes: 3\n", 4, ["recipe.stpes is unknown", "did you mean steps?"]),
        ("hardwear: b300x64\n", 3, ["hardwear is unknown", "did you mean hardware?"]),
        ("recipe:\n  steps: many\n", 4, ["recipe.steps is 'many'", "valid integer"]),
        ("recipe:\n  steps: true\n", 4, ["recipe.steps is True", "valid integer"]),
        ("recipe:\n  steps: 0\n", 4, ["recipe.steps is 0", "greater than 0"]),
        ("hardware: b300x6\n", 3, ["'b300x6' is unknown", "did you mean b300x64?"]),
        ("job:\n  time: 1:30:00\n", 4, ["number 5400", 'quotes: "1:30:00"']),
        ("job:\n  time: 90\n", 4, ["job.time is 90", 'quotes ("90")']),
        ('job:\n  time: "1 day"\n', 4, ["job.time is '1 day'", "no Slurm time"]),
        ("job:\n  name: a/b\n", 4, ["job.name is 'a/b'", "a name is 1 to 64"]),
        ('job:\n  name: "a\\nb"\n', 4, ["job.name is 'a\\nb'", "a name is 1 to 64"]),
        ("recipe:\n  steps: 1\n  steps: 2\n", 5, ["recipe.steps is given twice", ":4"]),
        ("site:\n  container: dockr\n", 4, ["'dockr'", "did you mean docker?"]),
        ("site:\n  partition: a b\n", 4, ["site.partition is 'a b'", "white space"]),
        ("site:\n  environment:\n    A-B: x\n", 4, ["'A-B' is no name"]),
        ("site:\n  mounts: [/a]\n", 4, ["'/a' is no mount"]),
        ("site:\n  paths:\n    runs: here\n", 5, ["absolute path"]),
        ("site:\n  network:\n    prefix: 10.1.0.0\n", 5, ["no network", "10.1.0.0/16"]),
        ("site:\n  account: 1234\n", 4, ["must be text", 'in quotes: "1234"']),
        ("site:\n  environment:\n    NCCL_IB_DISABLE: 1\n", 5, ['in quotes: "1"']),
        ("hardware:\n  exclusive: yes\n", 4, ["is 'yes'", "true or false"]),
        ("partition: gpu\n", 3, ["unknown", "did you mean site.partition?"]),
        ("steps: 5\n", 3, ["did you mean recipe.steps?", "extends"]),
        ("site:\n  paths:\n    tmp: /local/scratch/tmp\n", 5, ["18 bytes", "room for 15"]),
        ("recipe: [1\n", 4, ["not valid YAML"]),
        ("site: &a\n  mounts: [*a]\n", 1, ["refers to itself"]),
        ("recipe: 3\n", 3, ["recipe is 3"]),
    ],
)
def test_an_error_names_file_line_key_and_remedy(
    tmp_path: Path, text: str, line: int, said: list[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: b300-colocated\ndescription: mine\n" + text)
    with pytest.raises(BeamSlurmError) as caught:
        resolve(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    for words in said:
        assert words in message
    assert caught.value.exit_code == 2


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: demo\nrecipe:\n  stepz: 1\n  seed: x\n")
    with pytest.raises(BeamSlurmError) as caught:
        resolve(str(path))
    assert "recipe.stepz is unknown" in str(caught.value)
    assert f"{path}:4: recipe.seed" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("recipe.steps", "is not key=value"),
        ("recipe..steps=1", "is no key"),
        ("recipe.steps.deep=1", "recipe.steps is a single value"),
        ("nonsense=1", "nonsense is unknown"),
        ("framework.name=trl", "trl"),
    ],
)
def test_a_wrong_setting_is_refused(words: str, said: str) -> None:
    with pytest.raises(BeamSlurmError, match=r"--set") as caught:
        resolve("demo", words)
    assert said in str(caught.value)


def test_settings_are_read_as_the_key_wants_them() -> None:
    profile = resolve(
        "demo", "site.account=00123", "job.time=1:30:00", "recipe.learning_rate=1e-3"
    ).profile
    assert profile.site.account == "00123"
    assert profile.job.time == "1:30:00"
    assert profile.recipe.learning_rate == 0.001
    assert resolve("demo", "ray.auth=off").profile.ray.auth == "off"


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(BeamSlurmError, match=r"did you mean b300-colocated\?"):
        resolve("b300-colocate")
    with pytest.raises(BeamSlurmError, match="no profile file"):
        resolve("./absent.yaml")


def test_a_named_hardware_replaces_that_of_the_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: b300-colocated\nhardware: embedded\n")
    hardware = resolve(str(path)).profile.hardware
    assert (hardware.gpu, hardware.nodes, hardware.gpu_memory_gb) == ("h200", 4, None)


def test_an_assumption_ends_where_the_user_sets_the_value(tmp_path: Path) -> None:
    assert resolve("b300-colocated").assumption("job.time")
    assert resolve("b300-colocated").assumption("hardware.gpu_memory_gb")
    assert resolve("b300-colocated").assumption("recipe.steps") is None
    assert resolve("b300-colocated", "job.time=2:00:00").assumption("job.time") is None
    path = tmp_path / "mine.yaml"
    path.write_text("extends: b300-colocated\njob:\n  time: '2:00:00'\n")
    assert resolve(str(path)).assumption("job.time") is None


def test_keys_that_mean_nothing_here_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: demo\nname: other\n")
    with pytest.raises(BeamSlurmError, match="name of its file"):
        resolve(str(path))
    site = tmp_path / "s.yaml"
    site.write_text("site:\n  partition: gpu\n")
    with pytest.raises(BeamSlurmError, match="leave out the line site:"):
        resolve("demo", site=site)


def test_a_profile_cannot_extend_itself(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: ./b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: ./a.yaml\n")
    with pytest.raises(BeamSlurmError, match="extends itself"):
        resolve("./a.yaml")


@pytest.mark.parametrize("text", ["- a\n", "word\n"])
def test_the_top_of_a_file_is_a_mapping(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(BeamSlurmError, match="keys and values"):
        load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BeamSlurmError, match="not a text file"):
        load(path)
    with pytest.raises(BeamSlurmError, match="cannot read"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("1e-6", 1e-6),
        ("off", "off"),
        ("true", True),
        ("[1, a]", [1, "a"]),
        ("1:30:00", "1:30:00"),
        ("a: b: c", "a: b: c"),
        ("a\nb", "a\nb"),
        (" a #b ", " a #b "),
        ('"a b"', "a b"),
        ("", ""),
        ("null", None),
        ("2026-11-29", "2026-11-29"),
    ],
)
def test_a_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    assert scalar(text, "--set x") == value


def test_merging_forgets_the_places_of_what_it_replaces() -> None:
    base = Document({"a": {"b": [1, 2]}}, {("a", "b"): "x:1", ("a", "b", 1): "x:2"})
    base.merge(Document({"a": {"b": [3]}}, {("a", "b"): "y:1", ("a", "b", 0): "y:1"}))
    assert base.data == {"a": {"b": [3]}}
    assert base.place(("a", "b", 1)) == "y:1"


def test_a_gpu_is_the_same_in_capitals() -> None:
    assert resolve("demo", "hardware.gpu=H200").profile.hardware.gpu == "h200"


def test_a_profile_that_starts_from_nothing_is_told_of_extends(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("recipe: {steps: 3}\n")
    with pytest.raises(BeamSlurmError, match="is missing") as caught:
        resolve(str(tmp_path / "mine.yaml"))
    assert "extends: NAME" in (caught.value.remedy or "")


def test_a_mode_without_quotes_is_the_mode_that_was_meant(no_site: None) -> None:
    """YAML reads 0750 as a number."""
    for text in ("0750", "'0750'"):
        made = profiles.resolve("demo", settings=profiles.parse_settings([f"site.run_mode={text}"]))
        assert made.profile.site.run_mode == "0750"
