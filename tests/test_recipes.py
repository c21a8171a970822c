"""The ten recipes against the published texts: what is launched, what is shown, what is handed on.

tests/recipe_table.py holds the texts' commands and numbers.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recipe_table import CHECKOUTS, COMMON_ASSUMED, INSIDE, NAMES, TABLE, Recipe

from beam_slurm import job, profiles
from beam_slurm.cli import cli
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Launch

pytestmark = pytest.mark.usefixtures("no_site")

RUN = "run-0123ab"

HOST = {
    "models": "/shared/models",
    "datasets": "/shared/datasets",
    "outputs": "/shared/outputs",
    "scratch": "/nvme",
}
HOST_CHECKOUTS = {"NeMo RL": "/shared/nemo-rl", "SkyRL": "/shared/skyrl", "Miles": "/shared/miles"}
PATHS = {
    "nemo_rl": "/shared/nemo-rl",
    "skyrl": "/shared/skyrl",
    "miles": "/shared/miles",
    "runs": "/shared/runs",
    "venv": "/shared/venv",
    **HOST,
}
IMAGES = {
    name: f"/shared/images/{name}.sqsh"
    for name in ("nemo-rl-colocated", "nemo-rl-async", "skyrl", "miles")
}
SITE = [f"site.paths.{name}={path}" for name, path in PATHS.items()] + [
    f"site.images.{name}={path}" for name, path in IMAGES.items()
]


def launch(profile: str, *words: str, overrides: tuple[str, ...] = ()) -> Launch:
    """The launch on a site that has said everything."""
    resolved = profiles.resolve(profile, settings=profiles.parse_settings([*SITE, *words]))
    request = job.make_request(resolved, overrides=overrides, run_id=RUN)
    assert request.missing == ()
    return request.launch


def places(recipe: Recipe, bare: bool) -> dict[str, str]:
    """What the table's words in braces stand for."""
    checkouts = HOST_CHECKOUTS if bare else CHECKOUTS
    return {
        **(HOST if bare else INSIDE),
        "checkout": checkouts[recipe.framework],
        "shared": "/shared/outputs",
        "run": RUN,
    }


def flat(tree: dict[str, Any], at: str = "") -> dict[str, Any]:
    """Dotted keys."""
    found: dict[str, Any] = {}
    for word, value in tree.items():
        found.update(flat(value, f"{at}{word}.") if isinstance(value, dict) else {at + word: value})
    return found


def test_the_table_has_every_profile_of_beam() -> None:
    assert {*NAMES, "demo"} == set(profiles.names())


@pytest.mark.parametrize("container", ["pyxis", "bare"])
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_launched_as_published(name: str, container: str) -> None:
    recipe = TABLE[name]
    bare = container == "bare"
    where = places(recipe, bare)
    made = launch(name, f"site.container={container}")
    assert made.title == recipe.framework
    assert made.entry == tuple(word.format(**where) for word in recipe.entry)
    assert made.workdir == where["checkout"]
    wanted = {key: value.format(**where) for key, value in recipe.environment.items()}
    assert made.environment == wanted
    assert made.secrets == ("WANDB_API_KEY", "HF_TOKEN")
    assert made.resources == recipe.resources
    assert made.output == f"/shared/outputs/{RUN}"
    assert made.checkpoints == (recipe.checkpoints and recipe.checkpoints.format(**where))
    scratch = (made.scratch.path, made.scratch.need) if made.scratch else None
    assert scratch == (recipe.scratch and (recipe.scratch[0].format(**where), recipe.scratch[1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_the_published_mounts_and_image(name: str) -> None:
    recipe = TABLE[name]
    made = launch(name)
    wanted = {
        HOST_CHECKOUTS[recipe.framework]: CHECKOUTS[recipe.framework],
        "/shared/models": "/root/models",
        "/shared/outputs": "/root/shared_data",
    }
    if recipe.framework != "NeMo RL":
        wanted["/shared/datasets"] = "/root/datasets"
    if recipe.scratch:
        wanted["/nvme"] = "/scratch"
    assert {mount.source: mount.target for mount in made.mounts} == wanted
    image = {
        "h200-colocated": "nemo-rl-colocated",
        "b300-colocated": "nemo-rl-colocated",
        "h200-async": "nemo-rl-async",  # two builds: the text says that they differ
    }.get(name, recipe.framework.lower())
    assert made.container == IMAGES[image]
    bare = launch(name, "site.container=bare")
    assert (bare.container, bare.mounts) == (None, ())


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_carries_the_published_numbers(name: str) -> None:
    recipe = TABLE[name]
    profile = profiles.resolve(name).profile
    hardware = profile.hardware
    assert (hardware.nodes, hardware.gpus_per_node, hardware.gpu) == (recipe.nodes, 8, recipe.gpu)
    assert hardware.gpus == recipe.gpus
    assert hardware.exclusive
    values = flat(profile.recipe.model_dump())
    values.setdefault("lora", None)
    assert {key: values[key] for key in recipe.values} == dict(recipe.values)
    found = [(each.metric, each.first, each.last) for each in profile.recipe.reference]
    assert found == list(recipe.reference)


@pytest.mark.parametrize("name", NAMES)
def test_the_layout_uses_every_gpu_once(name: str) -> None:
    """Engines fill their pool, and pools fill the cluster: what the texts' numbers add up to."""
    recipe = TABLE[name]
    values = recipe.values
    generate = (values.get("rollout.nodes") or recipe.nodes) * 8
    assert values["rollout.engines"] * values["rollout.gpus_per_engine"] == generate
    if values.get("learner.nodes"):
        assert values["learner.nodes"] + values["rollout.nodes"] == recipe.nodes
    train = (values.get("learner.nodes") or recipe.nodes) * 8
    assert train % (values.get("learner.tensor", 1) * values.get("learner.pipeline", 1)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_no_text_states_is_shown_as_assumed_and_nothing_else(name: str) -> None:
    done = CliRunner().invoke(cli, ["profiles", "show", name, "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.output)
    assumed = {key for key, row in shown.items() if row["assumed"]}
    assert assumed == TABLE[name].assumed | COMMON_ASSUMED
    # To be overridden by the key that the words name.
    assert all(
        "hardware" in row["assumed"] or "set " in row["assumed"]
        for row in shown.values()
        if row["assumed"]
    )
    text = CliRunner().invoke(cli, ["profiles", "show", name]).output
    assert text.count(" (assumed)") == len(assumed)


# What people change most, in each framework's own spelling.
SPELLING: dict[str, dict[str, tuple[str, ...]]] = {
    "b300-colocated": {
        "recipe.steps=7": ("grpo.max_num_steps=7",),
        "recipe.prompts_per_step=64": ("grpo.num_prompts_per_step=64",),
        "recipe.responses_per_prompt=16": ("grpo.num_generations_per_prompt=16",),
        "recipe.evaluation.every=10": ("grpo.val_period=10",),
        "recipe.learning_rate=2e-6": ("policy.optimizer.kwargs.lr=2e-06",),
        "recipe.checkpoint.every=10": ("checkpointing.save_period=10",),
        # The whole block that the text says to write into the YAML.
        "recipe.checkpoint.enabled=true": (
            "checkpointing.enabled=true",
            "checkpointing.checkpoint_dir=${oc.env:BEAM_LOG_DIR}/checkpoints",
            "checkpointing.save_period=20",
            "++checkpointing.save_optimizer=true",
        ),
        "recipe.checkpoint.resume=true": (),  # by itself, from the newest step in its folder
        "recipe.seed=3": ("grpo.seed=3",),
    },
    "h200-async": {"recipe.learning_rate=2e-6": ("policy.megatron_cfg.optimizer.lr=2e-06",)},
    "b200-bf16": {
        "recipe.prompts_per_step=32": (
            "trainer.train_batch_size=32",
            "trainer.policy_mini_batch_size=16",
        ),
        "recipe.updates_per_step=1": ("trainer.policy_mini_batch_size=64",),
        "hardware.nodes=4": ("trainer.placement.policy_num_nodes=4",),
    },
    "b200-lora": {
        "recipe.evaluation.every=10": ("trainer.eval_interval=10",),
        "recipe.learning_rate=2e-6": ("trainer.policy.optimizer_config.lr=2e-06",),
        "recipe.lora.rank=32": ("trainer.policy.model.lora.rank=32",),
        "recipe.seed=3": ("trainer.seed=3",),
        "recipe.steps=7": (),  # a variable: see below
        "recipe.checkpoint.every=20": (),
        "recipe.checkpoint.resume=true": (),
    },
}


@pytest.mark.parametrize(
    ("name", "setting"), [(name, setting) for name, row in SPELLING.items() for setting in row]
)
def test_a_change_reaches_the_framework_in_its_own_spelling(name: str, setting: str) -> None:
    plain = launch(name).entry
    changed = launch(name, setting).entry
    assert changed[: len(plain)] == plain
    assert changed[len(plain) :] == SPELLING[name][setting]


@pytest.mark.parametrize(
    ("name", "setting", "variable", "value"),
    [
        ("b200-lora", "recipe.steps=7", "MAX_TRAINING_STEPS", "7"),
        ("b200-lora", "recipe.checkpoint.every=20", "CKPT_INTERVAL", "20"),
        ("b200-lora", "framework.model_variable=MODEL_NAME", "MODEL_NAME", "/root/models/Beam"),
        ("b200-bf16", "recipe.optimizer.state=host", "OPTIMIZER_STATE_DISK_DIR", ""),
        ("b200-bf16", "recipe.rollout.kv_cache=fp8_e4m3", "KV_CACHE_DTYPE", "fp8_e4m3"),
    ],
)
def test_a_change_reaches_skyrl_s_variables(
    name: str, setting: str, variable: str, value: str
) -> None:
    assert launch(name).environment.get(variable) != value
    assert launch(name, setting).environment[variable] == value


def test_the_cpu_optimizer_needs_no_scratch() -> None:
    made = launch("b200-bf16", "recipe.optimizer.state=host")
    assert made.scratch is None
    assert "/nvme" not in {mount.source for mount in made.mounts}


def trainer(entry: tuple[str, ...]) -> list[str]:
    """The words that Miles' launcher hands to its trainer: one --extra-args, split as a shell."""
    (extra,) = [word for word in entry if word.startswith("--extra-args")]
    return shlex.split(extra.removeprefix("--extra-args="))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("recipe.prompts_per_step=64", ["--rollout-batch-size=64", "--global-batch-size=512"]),
        ("recipe.updates_per_step=2", ["--global-batch-size=128"]),
        ("recipe.evaluation.every=10", ["--eval-interval=10"]),
        ("recipe.checkpoint.every=10", ["--save-interval=10"]),
        ("recipe.learning_rate=2e-6", ["--lr=2e-06"]),
        ("recipe.seed=3", ["--seed=3"]),
    ],
)
def test_a_change_reaches_miles_trainer(setting: str, words: list[str]) -> None:
    plain, changed = (
        trainer(launch("miles-lora").entry),
        trainer(launch("miles-lora", setting).entry),
    )
    assert sorted(changed) == sorted([*plain, *words])


@pytest.mark.parametrize(
    ("setting", "flag"),
    [
        ("recipe.steps=200", "--num-rollout=200"),
        ("recipe.checkpoint.resume=true", "--resume"),
        ("recipe.schedule=turns", "--no-async-training"),
        ("job.output_dir=mine", "--output-dir=/root/shared_data/mine"),
    ],
)
def test_a_change_reaches_miles_launcher(setting: str, flag: str) -> None:
    assert flag not in launch("miles-h200-async").entry
    assert flag in launch("miles-h200-async", setting).entry


def test_other_pools_are_told_as_a_whole() -> None:
    other = ("recipe.learner.nodes=10", "recipe.rollout.nodes=6")
    assert "policy.generation.colocated.resources.num_nodes=6" in launch("h200-async", *other).entry
    other = ("recipe.learner.nodes=9", "recipe.rollout.nodes=3")
    assert {"--actor-num-nodes=9", "--rollout-num-gpus=24"} <= set(
        trainer(launch("miles-h200-async", *other).entry)
    )


@pytest.mark.parametrize("given", ["mine", "/shared/outputs/mine"])
def test_an_output_folder_reaches_each_framework(given: str) -> None:
    setting = f"job.output_dir={given}"
    assert launch("h200-async", setting).environment["BEAM_LOG_DIR"] == "/root/shared_data/mine"
    skyrl = launch("b200-bf16", setting)
    assert skyrl.environment["CKPT_PATH"] == "/root/shared_data/mine/checkpoints"
    assert skyrl.environment["EXPORT_PATH"] == "/root/shared_data/mine/exports"
    miles = launch("miles-lora", setting)
    assert "--output-dir=/root/shared_data/mine" in miles.entry
    assert miles.sentinel == "/shared/outputs/mine/save-now"
    assert trainer(miles.entry)[-1].endswith("=/root/shared_data/mine/save-now")
    for made in (skyrl, miles):
        assert made.output == "/shared/outputs/mine"
        assert made.checkpoints == "/shared/outputs/mine/checkpoints"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("b300-colocated", "recipe.response_tokens=8192"),
        ("b300-colocated", "recipe.updates_per_step=2"),
        ("b300-colocated", "recipe.schedule=async"),
        ("b300-colocated", "recipe.learner.expert=32"),
        ("b300-colocated", "recipe.optimizer.state=nvme"),
        ("h200-async", "recipe.rollout.in_flight_weight_updates=true"),
        ("b200-bf16", "recipe.prompt_tokens=1024"),
        ("b200-bf16", "recipe.checkpoint.enabled=false"),
        ("b200-bf16", "recipe.training=lora"),
        ("b200-bf16", "recipe.optimizer.state=gpu"),
        ("b200-lora", "recipe.optimizer.state=nvme"),
        ("b200-lora", "recipe.rollout.routing_replay=false"),
        ("miles-lora", "recipe.overlong_penalty=false"),
        ("miles-lora", "recipe.checkpoint.enabled=false"),
        ("miles-lora", "recipe.lora.rank=32"),
        ("miles-h200-async", "recipe.optimizer.state=host"),
    ],
)
def test_what_a_framework_cannot_be_told_is_refused(name: str, setting: str) -> None:
    key = setting.partition("=")[0]
    with pytest.raises(BeamSlurmError, match="cannot be changed for") as caught:
        launch(name, setting)
    assert str(caught.value).startswith(f"--set {key}: {key} cannot be changed for")
    assert " -- " in str(caught.value.remedy)  # how to give the framework its own key


def test_miles_launcher_waits_for_the_dashboard() -> None:
    assert {name for name in NAMES if launch(name).dashboard} == {
        "miles-h200-async",
        "miles-colocated",
        "miles-lora",
    }


@pytest.mark.parametrize(
    "given", [("--extra-args=--lr 3e-6 --x 'a b'",), ("--extra-args", "--lr 3e-6 --x 'a b'")]
)
def test_extra_args_of_the_user_join_ours_and_win(given: tuple[str, ...]) -> None:
    plain = trainer(launch("miles-h200-async").entry)
    made = launch("miles-h200-async", overrides=(*given, "--cuda-core-dump"))
    assert trainer(made.entry) == [*plain, "--lr", "3e-6", "--x", "a b"]
    assert made.entry[-1] == "--cuda-core-dump"


@pytest.mark.parametrize("name", ["h200-async", "b200-bf16"])
def test_words_of_the_user_are_the_last(name: str) -> None:
    words = ("policy.some.key=[1, 2]", "+x=it's")
    assert launch(name, overrides=words).entry == (*launch(name).entry, *words)


def test_every_entry_has_its_stand_in_at_the_published_place() -> None:
    """tests/test_full_shape.py starts these."""
    checkouts = Path(__file__).with_name("checkouts")
    for name in NAMES:
        made = launch(name)
        folder = checkouts / {"NeMo RL": "nemo-rl"}.get(made.title, made.title.lower())
        files = [word for word in made.entry if word.endswith((".py", ".sh", ".yaml"))]
        assert files
        for file in files:
            head = (folder / file).read_text()[:200]
            assert "stand-in" in head
            assert "GPU cluster" in head


def test_a_layout_of_nemo_rl_s_is_taken_with_the_words_that_say_it() -> None:
    setting = "recipe.learner.expert=64"
    with pytest.raises(BeamSlurmError, match="cannot be changed for nemo-rl"):
        launch("h200-colocated", setting)
    words = [*SITE, setting]
    resolved = profiles.resolve("h200-colocated", settings=profiles.parse_settings(words))
    said = "policy.dtensor_cfg.expert_parallel_size=64"
    assert job.make_request(resolved, overrides=[said]).launch.entry[-1] == said
    assert launch("h200-colocated", "recipe.rollout.engines=4")  # which follows from the GPUs
