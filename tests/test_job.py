"""The rendered script: golden files, shellcheck, and values that arrive byte for byte."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_slurm import job, profiles, runs
from beam_slurm.errors import BeamSlurmError

pytestmark = pytest.mark.usefixtures("no_site")

GOLDEN = Path(__file__).parent / "golden"

SITE = {
    "site.partition": "gpu",
    "site.account": "rl",
    "site.paths.runs": "/shared/runs",
    "site.paths.models": "/shared/models",
    "site.paths.outputs": "/shared/outputs",
    "site.paths.nemo_rl": "/shared/nemo-rl",
    "site.paths.venv": "/shared/venv",
    "site.images.nemo-rl-colocated": "/shared/images/nemo-rl.sqsh",
}


def request(
    profile: str, *words: str, overrides: tuple[str, ...] = (), local: bool = False
) -> job.JobRequest:
    given_words = [f"{key}={value}" for key, value in SITE.items()] + list(words)
    resolved = profiles.resolve(profile, settings=profiles.parse_settings(given_words))
    return job.make_request(resolved, overrides=overrides, local=local, run_id="golden-0123ab")


def shellcheck(script: str) -> str:
    """What shellcheck has to say, nothing if all is well."""
    done = subprocess.run(
        ["shellcheck", "-"], input=script, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("b300-colocated", lambda: request("b300-colocated")),
        ("demo", lambda: request("demo")),
        (
            "demo-notified",
            lambda: request(
                "demo",
                "site.notify.webhook=TEAM_WEBHOOK",
                "site.notify.form=slack",
                "site.notify.on=[failure, restart]",
                "job.mail_type=end,FAIL",
                "job.mail_user=me@example.org",
            ),
        ),
        ("demo-local", lambda: request("demo", "hardware.nodes=1", local=True)),
        (
            "b300-colocated-other-site",
            lambda: request(
                "b300-colocated",
                "site.gpu_request=gres",
                "site.gpu_names.b300=nvidia_b300",
                "site.network.interface=ib0",
                'site.environment={NCCL_SOCKET_IFNAME: ib0, NOTE: it\'s "mine"}',
                "site.mounts=[/scratch:/scratch]",
                "ray.auth=off",
                "ray.dashboard=false",
                "ray.object_store_gb=100",
                "hardware.exclusive=false",
                "hardware.cpus_per_node=64",
                "recipe.steps=50",
                "recipe.checkpoint.enabled=true",
            ),
        ),
    ],
)
def test_golden_scripts(name: str, script: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change of a job script is a reviewable diff: UPDATE_GOLDEN=1 writes them anew."""
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    examples = str(Path(job.__file__).parent.parent / "examples")
    text = str(script()).replace(examples, "/beam-slurm/examples")  # type: ignore[operator]
    path = GOLDEN / f"{name}.sbatch"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    assert shellcheck(text) == ""


def test_dry_run_without_a_site_shows_placeholders_and_passes_shellcheck() -> None:
    made = job.make_request(profiles.resolve("b300-colocated"), overrides=["a='$HOME' `id`"])
    keys = [key for key, _ in made.missing]
    assert keys == [
        "site.paths.nemo_rl",
        "site.paths.models",
        "site.paths.outputs",
        "site.images.nemo-rl-colocated",
    ]
    for key in keys:
        assert f"<{key}>" in str(made)
    assert shellcheck(str(made)) == ""


def driver_words(script: str) -> list[bytes]:
    """What bash makes of the script's driver array: the entry's words, behind ``--``."""
    block = script[script.index("driver=(") :]
    block = block[: block.index("\n)\n") + 3]
    program = (
        "set -eu; on_head=() container=() node=(node) NODES=n HEAD=n ATTEMPT=a\n"
        + block
        + "printf '%s\\0' \"${driver[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", "-c", os.fsencode(program)], capture_output=True, check=True, env={}
    )
    words = done.stdout.split(b"\0")[:-1]
    return words[words.index(b"--") + 1 :]


NASTY = [
    "a.b='x y'",
    "+l=[1,2]",
    's="it\'s $HOME"',
    "p=a|b",
    "d={k:v,w:1}",
    "line\nbreak",
    "cr\r\nlf",
    ";rm -rf /",
    "$(id)`id`",
    "\\",
    "'",
    '"',
    "",
    "-",
    "--",
    "*",
    "~",
    "!x",
    "#SBATCH --nodes=99",
    "\n#SBATCH --nodes=99",
    "\t\x01\x7f",
    "é ☃ \u2028",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "${#array[@]}",
    "\udcff",  # a byte that is not UTF-8, as Python keeps it
]


def test_nasty_overrides_arrive_byte_for_byte() -> None:
    words = driver_words(str(request("demo", overrides=tuple(NASTY))))
    assert words[-len(NASTY) :] == [os.fsencode(word) for word in NASTY]
    # shellcheck takes '\' alone for a slip in quoting, which it is not.
    plain = tuple(word for word in NASTY if word not in ("\\", "\udcff"))
    assert shellcheck(str(request("demo", overrides=plain))) == ""


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20),
        max_size=6,
    )
)
def test_any_overrides_arrive_byte_for_byte(overrides: list[str]) -> None:
    words = driver_words(str(request("demo", overrides=tuple(overrides))))
    assert words[len(words) - len(overrides) :] == [word.encode() for word in overrides]


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(BeamSlurmError, match="zero byte"):
        request("demo", overrides=("a\0b",))


def test_dry_run_is_the_submitted_text() -> None:
    first, again = request("demo"), request("demo")
    assert first == again
    assert str(first) == str(again)
    assert first.token == "beam-slurm:golden-0123ab"
    assert runs.new_id("x") != runs.new_id("x")


def test_what_differs_from_the_published_recipe_is_handed_on() -> None:
    plain = request("b300-colocated").launch.entry
    assert plain == (
        "python",
        "examples/run_grpo.py",
        "--config",
        "examples/configs/recipes/llm/grpo-beam-501b-8n8g-b300-fsdp2ep64-automodel-sglang.yaml",
    )
    changed = request(
        "b300-colocated", "recipe.steps=50", "recipe.evaluation.every=10"
    ).launch.entry
    assert changed[4:] == ("grpo.val_period=10", "grpo.max_num_steps=50")
    assert request("h200-async", "recipe.learning_rate=2e-6").launch.entry[-1] == (
        "policy.megatron_cfg.optimizer.lr=2e-06"
    )
    for profile, key in (
        ("b300-colocated", "recipe.response_tokens=8192"),
        ("demo", "recipe.evaluation.problems=3"),
    ):
        with pytest.raises(BeamSlurmError, match="cannot be changed for") as caught:
            request(profile, key)
        assert str(caught.value).startswith(f"--set {key.partition('=')[0]}: ")


def test_bare_nodes_use_the_site_s_own_paths() -> None:
    launch = request("b300-colocated", "site.container=bare").launch
    assert launch.container is None
    assert launch.workdir == "/shared/nemo-rl"
    assert launch.environment["BEAM_CHECKPOINT"] == "/shared/models/Beam"
    assert launch.environment["BEAM_LOG_DIR"] == "/shared/outputs/golden-0123ab"


def test_gpus_without_a_type_and_odd_profile_names(tmp_path: Path) -> None:
    assert "\n#SBATCH --gpus-per-node=8\n" in str(request("demo", "site.gpu_names={h200: ''}"))
    (tmp_path / "my prof.yaml").write_text("extends: demo\n")
    with pytest.raises(BeamSlurmError, match="'my prof' cannot name a job"):
        request(str(tmp_path / "my prof.yaml"))


@pytest.mark.parametrize(
    "words",
    [
        ("logger.wandb.api_key=0123",),
        ("--wandb-key", "0123"),
        ("--env=WANDB_API_KEY=0123",),
        ("--extra-args=--wandb-key 0123",),
        ('--extra-env-vars={"WANDB_API_KEY": "0123"}',),
        ("+x={hf_token:0123}",),
        ("GITHUB_TOKEN=0123",),
        ("x=hf_0123456789012345678901234567890123",),
        ("note=the-value-of-the-variable",),
    ],
)
def test_a_literal_secret_is_refused_and_not_repeated(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "the-value-of-the-variable")
    with pytest.raises(BeamSlurmError, match="is a secret") as caught:
        request("demo", overrides=words)
    assert "0123" not in str(caught.value)
    assert "the-value" not in str(caught.value)
    with pytest.raises(BeamSlurmError, match=r"HF_TOKEN in site.environment is a secret"):
        request("demo", "site.environment={HF_TOKEN: x}")


def test_what_only_sounds_like_a_secret_is_taken() -> None:
    words = (
        "max_new_tokens=8",
        "eos_token=x",
        "--extra-args=--a-b=1 --c 2",
        "the secret of it",
        "a.api_key=${oc.env:WANDB_API_KEY}",
        "key=v",
    )
    assert request("demo", overrides=words).launch.entry[-len(words) :] == words


def test_a_path_that_sbatch_would_cut_is_refused() -> None:
    with pytest.raises(BeamSlurmError, match="cannot stand in an #SBATCH line"):
        str(request("demo", "site.paths.runs=/shared/my runs"))


def test_local_runs_have_one_node() -> None:
    with pytest.raises(BeamSlurmError, match="--nodes 1"):
        request("demo", local=True)


def test_the_job_proves_that_it_can_resume_before_it_starts_anything() -> None:
    script = str(request("b300-colocated", "recipe.checkpoint.enabled=true"))
    assert "--resume" not in script
    script = str(
        request(
            "b300-colocated",
            "recipe.checkpoint.enabled=true",
            "recipe.checkpoint.resume=true",
            "job.output_dir=first",
        )
    )
    assert "--checkpoints=/shared/outputs/first/checkpoints\n" in script
    line = (
        '"${node[@]}" preflight "${course[@]}" --output=/shared/outputs/first --token --resume '
        '-- "${inspect[@]}"'
    )
    assert script.index("--framework=nemo-rl") < script.index(line) < script.index("ray=(")
    assert shellcheck(script) == ""


def test_what_the_submitting_shell_had_does_not_reach_a_framework() -> None:
    paths = [f"site.paths.{name}=/shared/{name}" for name in ("skyrl", "datasets", "scratch")]
    script = str(request("b200-lora", *paths, "site.images.skyrl=me/skyrl:1"))
    line = "unset KV_CACHE_DTYPE OPTIMIZER_STATE_DISK_DIR PYTHONHOME PYTHONPATH "
    assert f"\n{line}" in script


@pytest.mark.parametrize(("mode", "umask"), [("0700", "077"), ("0750", "027"), ("0755", "022")])
def test_what_the_job_writes_is_as_open_as_its_folder(mode: str, umask: str) -> None:
    assert f"\numask {umask}\n" in str(request("demo", f"site.run_mode='{mode}'"))


def test_all_attempts_are_one_run_of_wandb_unless_the_site_says_otherwise() -> None:
    script = str(request("demo"))
    assert "\nexport WANDB_RESUME=allow\nexport WANDB_RUN_ID=golden-0123ab\n" in script
    assert "\nexport WANDB_RUN_ID=mine\n" in str(
        request("demo", "site.environment={WANDB_RUN_ID: mine}")
    )


def test_without_slurm_there_is_no_container() -> None:
    with pytest.raises(BeamSlurmError, match="without Slurm there is none"):
        request("b300-colocated", "hardware.nodes=1", local=True)
    assert request("b300-colocated", "hardware.nodes=1", "site.container=bare", local=True)


def test_a_run_folder_that_cannot_be_mounted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path / "a,b")
    with pytest.raises(BeamSlurmError, match="cannot be mounted"):
        job.make_request(profiles.resolve("demo"))
