"""One thing said twice is refused, and both places are named; secrets are refused anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_slurm import job, profiles
from beam_slurm.errors import BeamSlurmError

pytestmark = pytest.mark.usefixtures("no_site")


def refused(site: str, profile: str = "b200-bf16", *words: str) -> BeamSlurmError:
    """The error for a site file with this text."""
    Path("site.yaml").write_text(site)
    with pytest.raises(BeamSlurmError) as caught:
        job.make_request(profiles.resolve(profile, settings=profiles.parse_settings(words)))
    return caught.value


@pytest.mark.parametrize(
    ("site", "said"),
    [
        (
            "directives:\n  gres: gpu:8\n",
            "site.directives.gres and hardware.gpus_per_node (8, profiles/hardware/b200x64.yaml:4)",
        ),
        ("directives: {mem-per-cpu: 4G}\n", "hardware.exclusive (True, the default)"),
        ("directives: {time: 60}\n", "job.time (1-00:00:00, profiles/b200-lora.yaml:"),
        ("account: rl\ndirectives: {account: x}\n", "site.account (rl, site.yaml:1)"),
        ("directives: {qos: x}\n", "site.directives.qos and site.qos say the same thing"),
        ('environment: {MAX_TRAINING_STEPS: "9"}\n', "recipe.steps (50, profiles/b200-lora.yaml"),
        ("environment: {MODEL_PATH: /m}\n", "site.paths.models say the same thing"),
    ],
)
def test_two_spellings_of_one_thing_name_both_places(site: str, said: str) -> None:
    error = refused(site)
    assert (error.where or "").startswith("site.yaml:")
    assert said in error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ("directives: {export: ALL}\n", "takes PATH away"),
        ("directives: {array: 0-3}\n", "one job is one run"),
        ("directives: {signal: B:USR1@60}\n", "set job.lead_s"),
        ("directives: {wait: true}\n", "submit --wait"),
        ("environment: {RUN: x}\n", "is the script's own"),
        ("environment: {SLURM_JOB_ID: x}\n", "is the script's own"),
        ("directives: {container-image: x}\n", "only srun has"),
        ("directives: {nice: false}\n", "left out"),
        ("directives: {--nice: true}\n", "no long option"),
        ('directives: {mail-user: "a\\nb"}\n', "line break"),
    ],
)
def test_directives_that_would_break_the_script_are_refused(site: str, said: str) -> None:
    assert said in str(refused(site))


def test_extra_directives_stand_in_the_script() -> None:
    Path("site.yaml").write_text(
        "exclude: node[3,17]\ndirectives: {mail-type: FAIL, nice: true, nodelist: node1}\n"
    )
    script = str(job.make_request(profiles.resolve("demo")))
    for line in ("exclude=node[3,17]", "mail-type=FAIL", "nice", "nodelist=node1"):
        assert f"\n#SBATCH --{line}\n" in script


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ("mounts: ['/a:/b', '/c:/b']\n", "/b is mounted twice"),
        (
            "mounts: ['/data:/scratch']\n",
            "/n:/scratch is mounted anyway, site.mounts[0] is /data:/scratch",
        ),
        ("mounts: ['/a:/tmp']\n", "is mounted twice"),
        ("mounts: ['/a:/root/models/']\n", "is mounted twice"),
        ("mounts: ['/a,/b:/c']\n", "a comma"),
        ("mounts: ['/a']\n", "no mount"),
        ("mounts: ['a:/b']\n", "source"),
        ("mounts: ['/a:b']\n", "target"),
        ("mounts: ['/a:/b:rx']\n", "neither ro nor rw"),
    ],
)
def test_mounts_that_no_runtime_can_take_are_refused(site: str, said: str) -> None:
    paths = "paths: {skyrl: /s, outputs: /o, models: /m, datasets: /d, scratch: /n}\n"
    error = refused(paths + site)
    assert said in str(error)
    assert (error.where or "").startswith("site.yaml:2")


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ("environment: {WANDB_API_KEY: 0a1b}\n", "WANDB_API_KEY in site.environment"),
        ("setup: ['export HF_TOKEN=abc']\n", "HF_TOKEN in site.setup"),
        ("container_options: ['--env', 'API_KEY=1']\n", "API_KEY in site.container_options"),
        (f"directives: {{mail-user: hf_{'a' * 32}}}\n", "mail-user in site.directives"),
    ],
)
def test_a_literal_secret_anywhere_is_refused_by_its_key(site: str, said: str) -> None:
    error = refused(site)
    assert said in error.what
    assert (error.where or "").startswith("site.yaml:1")
    assert "a" * 32 not in str(error)


def test_output_folders_lie_where_the_container_sees_them() -> None:
    paths = "paths: {outputs: /shared/out}\n"
    for given in ("/elsewhere/x", "../x", "/shared/out/../x", "/shared/out"):
        assert (
            "is not in site.paths.outputs"
            in refused(paths, "b200-bf16", f"job.output_dir={given}").what
        )
    for given in ("first", "/shared/out/first"):
        settings = profiles.parse_settings([f"job.output_dir={given}"])
        launch = job.make_request(profiles.resolve("b200-bf16", settings=settings)).launch
        assert launch.output == "/shared/out/first"
        assert launch.environment["CKPT_PATH"] == "/root/shared_data/first/checkpoints"


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME"])
def test_what_an_image_has_of_its_own_is_not_replaced(name: str) -> None:
    assert "does not belong into a container" in refused(f"environment: {{{name}: /x}}\n").what
    Path("site.yaml").write_text(f"environment: {{{name}: /x}}\ncontainer: bare\n")
    assert f"export {name}=/x\n" in str(job.make_request(profiles.resolve("b200-bf16")))


def test_a_mount_that_the_framework_has_already_is_no_conflict() -> None:
    Path("site.yaml").write_text(
        "mounts: ['/nvme:/scratch']\n"
        "paths: {skyrl: /s, outputs: /o, models: /m, datasets: /d, scratch: /nvme}\n"
    )
    assert str(job.make_request(profiles.resolve("b200-bf16"))).count("/nvme:/scratch\n") == 1


@pytest.mark.parametrize("letter", [",", ":", '"'])
def test_a_path_that_a_list_of_mounts_is_cut_at_is_refused(letter: str) -> None:
    Path("site.yaml").write_text(f"paths: {{models: '/sh{letter}are'}}\n")
    with pytest.raises(BeamSlurmError, match="is not allowed here"):
        profiles.resolve("b200-bf16")
