"""The plan: the published figures come out, all profiles pass, and each broken one says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_slurm import plan, profiles, slurm
from beam_slurm.plan import Plan, Room
from beam_slurm.plan.architecture import BEAM
from beam_slurm.plan.storage import checkpoint_bytes
from beam_slurm.schema import Profile


def load(name: str, *changes: str) -> Profile:
    changed = profiles.parse_settings(changes)
    return profiles.resolve(name, settings=changed, use_site=False).profile


def make(name: str, *changes: str, room: Room | None = None) -> Plan:
    profile = load(name, *changes)
    return plan.make(profile, limit_minutes=slurm.minutes(profile.job.time), room=room)


def need(made: Plan, name: str) -> float:
    return next(figure.need for figure in made.figures if figure.name == name)


def rules(made: Plan, severity: str) -> set[str]:
    return {finding.rule for finding in made.findings if finding.severity == severity}


# --- the model ------------------------------------------------------------------------------


def test_the_parameters_are_those_of_the_model_itself() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5.24")
    config = transformers.BeamConfig()
    with torch.device("meta"):
        model = transformers.BeamForCausalLM(config)
    tensors = dict(model.named_parameters())
    experts = sum(t.numel() for name, t in tensors.items() if ".experts." in name)
    assert BEAM.parameters.experts == experts
    assert BEAM.parameters.total == sum(t.numel() for t in tensors.values())

    linear = [m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    linear = [m for m in linear if m is not model.lm_head]
    assert BEAM.linear == sum(m.weight.numel() for m in linear) + experts
    sides = sum(m.in_features + m.out_features for m in linear)
    assert BEAM.adapters(64).others == 64 * sides
    one = 3 * (config.hidden_size + config.moe_intermediate_size)
    sparse = config.mlp_layer_types.count("sparse")
    assert BEAM.adapters(64).experts == 64 * one * config.num_experts * sparse
    assert BEAM.full_layers == config.layer_types.count("full_attention")


def test_its_name_is_true() -> None:
    assert BEAM.parameters.total == pytest.approx(501e9, rel=1e-3)
    assert BEAM.active == pytest.approx(23e9, rel=0.03)


def test_pipeline_stages_are_counted_by_their_fullest() -> None:
    assert BEAM.stage(1) == BEAM.parameters
    assert BEAM.stage(2).experts == 26 * 256 * BEAM.expert  # the dense layers lie in the first
    assert BEAM.stage(3).experts == 18 * 256 * BEAM.expert
    assert BEAM.adapters(64, 2).total < BEAM.adapters(64).total


def test_windowed_layers_cache_no_more_than_their_window() -> None:
    token = 2 * 8 * 128 * 2  # keys and values of 8 groups of 128 in BF16
    assert BEAM.kv_bytes(512) == 52 * 512 * token
    assert BEAM.kv_bytes(10240) == (9 * 10240 + 43 * 512) * token
    assert BEAM.kv_bytes(10240, 1) == BEAM.kv_bytes(10240) / 2


# --- the published figures -------------------------------------------------------------------


def test_optimizer_state_on_nvme_is_what_the_recipe_says() -> None:
    """0.6 to 0.7 TB a node: 12 bytes × 501e9 / 8 nodes is 0.68 TiB."""
    assert need(make("b200-bf16"), "NVMe, one node") * 1e9 / 2**40 == pytest.approx(0.68, abs=0.01)


def test_a_full_checkpoint_is_about_7_tb_and_09_a_node() -> None:
    assert need(make("b200-bf16"), "one checkpoint") == pytest.approx(7.0, abs=0.05)
    assert checkpoint_bytes(load("b200-bf16")) / 8 / 1e12 == pytest.approx(0.9, abs=0.05)
    assert checkpoint_bytes(load("b200-lora")) < 0.3e12


def test_the_weights_are_about_1_tb() -> None:
    assert need(make("b200-bf16"), "model folder") == pytest.approx(1.0, abs=0.01)
    assert need(make("h200-async"), "model folder") == pytest.approx(2.0, abs=0.01)  # converted


def test_the_cpu_optimizer_wants_about_17_tb_of_host_ram() -> None:
    """Stated by SkyRL's recipe; our factor for pinned memory is fitted to it."""
    host = "recipe.optimizer.state=host"
    made = make("b200-bf16", host)
    assert need(made, "host RAM, one node") == pytest.approx(1700, rel=0.02)
    # Counted without that factor it is less: then the statement itself is the need.
    made = make("b200-bf16", host, "recipe.learner.backend=automodel-fsdp2")
    assert need(made, "host RAM, one node") == 1700
    made = make("b200-bf16", host)
    assert all("NVMe" not in figure.name for figure in made.figures)


def test_where_the_authors_ask_for_more_than_we_count_theirs_is_the_need() -> None:
    figure = next(f for f in make("miles-h200-async").figures if f.name == "NVMe, one node")
    assert figure.need == 2000
    assert figure.how == "stated by the recipe's authors; we count optimizer 752 GB"
    assert need(make("miles-colocated"), "NVMe, one node") > 1100  # the offloaded trainer too


def test_gpu_hours_and_price() -> None:
    made = make("b300-colocated", "job.time=12:00:00", "site.price_per_gpu_hour=4")
    assert need(made, "GPU-hours") == 64 * 12
    assert need(made, "price") == 64 * 12 * 4
    assert {figure.unit for figure in made.figures} >= {"h", "USD"}


# --- yes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_passes(name: str) -> None:
    made = make(name)
    assert [finding.text for finding in made.findings if finding.severity != "note"] == []
    assert made.ok
    assert need(made, "GPU-hours") > 0


@pytest.mark.parametrize("name", [n for n in profiles.names() if n != "demo"])
def test_every_need_is_compared_with_something(name: str) -> None:
    figures = {figure.name: figure for figure in make(name).figures}
    for one in ("training, one GPU", "generation, one GPU"):
        have = figures[one].have
        assert have is not None
        assert have > figures[one].need > 20


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("h200-async", ["hardware.cpus_per_node=16"]),
        ("b200-bf16", ["recipe.learner.pipeline=4", "recipe.learner.expert=16"]),
        ("b200-bf16", ["recipe.checkpoint.every=5", "recipe.checkpoint.keep=2"]),
        ("miles-h200-async", ["recipe.schedule=turns"]),
        ("miles-h200-async", ["recipe.rollout.tensor=8", "recipe.rollout.pipeline=2"]),
        ("h200-colocated", ["recipe.checkpoint.enabled=true", "site.outputs_gb=80000"]),
        ("b200-bf16", ["hardware.gpu=b300", "hardware.gpu_memory_gb=288"]),
    ],
)
def test_other_legal_choices_pass(name: str, changes: list[str]) -> None:
    assert make(name, *changes).errors == ()


# --- no, and why -------------------------------------------------------------------------------

BROKEN = [
    # divisibility
    ("b200-bf16", ["recipe.learner.tensor=6"], "tensor-parallel", ["is 6", "8 groups"]),
    ("b200-bf16", ["recipe.learner.tensor=6"], "world", ["TP6 · PP2 · CP1 = 12", "64 GPUs"]),
    ("h200-async", ["recipe.learner.pipeline=5"], "world", ["TP2 · PP5 · CP1 = 10", "96 GPUs"]),
    ("b200-bf16", ["recipe.learner.pipeline=53"], "pipeline-parallel", ["is 53", "52 layers"]),
    ("b200-bf16", ["recipe.learner.expert=48"], "expert-parallel", ["is 48", "256 experts"]),
    (
        "b200-bf16",
        ["recipe.learner.expert=64"],
        "expert-world",
        ["PP2 · EP64 · ETP1 = 128", "64 GPUs"],
    ),
    (
        "b200-bf16",
        ["recipe.learner.expert_tensor=3"],
        "expert-tensor-parallel",
        ["is 3", "width, 2560"],
    ),
    ("h200-colocated", ["hardware.nodes=8"], "expert-world", ["EP128", "64 GPUs"]),
    (
        "h200-colocated",
        ["recipe.prompts_per_step=30"],
        "batch",
        ["30 prompts × 8 responses / 1 update = 240", "DP 128"],
    ),
    (
        "miles-h200-async",
        ["recipe.prompts_per_step=1", "recipe.responses_per_prompt=4"],
        "batch",
        ["= 4 do not divide", "DP 8 (64 GPUs / 8)"],
    ),
    ("b200-lora", ["recipe.updates_per_step=3"], "updates", ["64 prompts", "updates_per_step, 3"]),
    ("h200-async", ["recipe.updates_per_step=3"], "updates", ["256 responses", "step, 3"]),
    # pools and engines
    ("h200-async", ["recipe.rollout.nodes=3"], "pools", ["12 nodes", "+ 3 ", "= 15", "is 16"]),
    ("h200-async", ["recipe.rollout.nodes=null"], "pools", ["learner.nodes is 12", "not set"]),
    ("miles-lora", ["hardware.exclusive=false"], "shared-cpus", ["one CPU for 8 GPUs"]),
    ("h200-async", ["recipe.rollout=null"], "pools", ["recipe.rollout is not set"]),
    ("b300-colocated", ["recipe.learner.nodes=4"], "pools", ["all 8 nodes", "nodes is 4"]),
    ("h200-colocated", ["recipe.rollout.engines=7"], "engines", ["7 engines × 16 GPUs = 112"]),
    ("h200-colocated", ["hardware.nodes=8"], "engines", ["8 engines × 16 GPUs = 128", "64 GPUs"]),
    ("b200-bf16", ["recipe.rollout.tensor=4"], "engine-cut", ["TP4 · PP2 = 8", "is 16"]),
    (
        "h200-colocated",
        ["recipe.rollout.gpus_per_engine=32", "recipe.rollout.engines=4"],
        "engine-tensor",
        ["is 32", "48 heads", "1, 2, 4, 8, 16, 24, 48"],
    ),
    (
        "h200-async",
        ["recipe.rollout.tensor=2", "recipe.rollout.pipeline=8", "recipe.rollout.engines=1"],
        "engines",
        ["1 engine × 16 GPUs = 16", "32 GPUs"],
    ),
    # what frameworks refuse
    ("h200-async", ["recipe.rollout.backend=sglang"], "async-backend", ["sglang", "async"]),
    ("h200-async", ["recipe.overlong_penalty=true"], "async-penalty", ["reward shaping"]),
    ("h200-async", ["hardware.cpus_per_node=8"], "cpus", ["is 8", "8 GPUs: 16"]),
    ("h200-async", ["recipe.schedule=turns"], "schedule", ["only Miles"]),
    ("b200-bf16", ["recipe.schedule=async"], "schedule", ["async", "colocated only"]),
    ("b200-bf16", ["recipe.rollout.backend=sglang"], "backend", ["sglang", "vLLM only"]),
    (
        "b200-lora",
        ["recipe.learner.backend=automodel-fsdp2"],
        "routing-replay",
        ["automodel-fsdp2", "only Megatron"],
    ),
    ("miles-colocated", ["framework.command=execute"], "command", ["that is execute-colocate"]),
    ("miles-h200-async", ["framework.command=execute-colocate"], "command", ["that is execute"]),
    ("miles-h200-async", ["ray.dashboard=false"], "dashboard", ["dashboard's port"]),
    ("miles-h200-async", ["hardware.exclusive=false"], "exclusive", ["kills every sglang"]),
    ("miles-lora", ["recipe.optimizer.state=nvme"], "lora-streamed", ["streamed optimizer"]),
    ("miles-lora", ["recipe.lora=null"], "lora", ["rank and alpha"]),
    ("b200-bf16", ["recipe.lora={rank: 32, alpha: 32}"], "lora", ["rank 32"]),
    ("b200-bf16", ["recipe.optimizer.name=muon"], "optimizer", ["muon", "only Adam"]),
    ("b200-mxfp8", ["hardware.gpu=h200"], "precision", ["mxfp8", "is h200"]),
    ("b200-bf16", ["hardware.gpu=h200"], "gpu-type", ["is 180", "is h200", "has 141"]),
    # memory
    (
        "h200-colocated",
        ["hardware.nodes=8", "recipe.learner.expert=64", "recipe.rollout.engines=4"],
        "training-memory",
        ["153 GB", "has 141", "gradients 31.3 GB"],
    ),
    ("b300-colocated", ["hardware.gpu_memory_gb=141"], "training-memory", ["153 GB", "has 141"]),
    (
        "b200-lora-16",
        ["recipe.learner.expert=4"],
        "training-memory",
        ["has 180", "weights 13"],
    ),
    (
        "h200-colocated",
        ["recipe.rollout.gpus_per_engine=4", "recipe.rollout.engines=32"],
        "generation-memory",
        ["has 141", "weights 251 GB"],
    ),
    # nodes
    (
        "b200-bf16",
        ["hardware.nvme_gb=500"],
        "nvme",
        ["752 GB are needed", "hardware.nvme_gb is 500"],
    ),
    ("miles-h200-async", ["hardware.nvme_gb=1900"], "nvme", ["2000 GB", "is 1900", "stated"]),
    ("miles-colocated", ["hardware.nvme_gb=1000"], "nvme", ["1170 GB", "gradients while"]),
    (
        "b200-bf16",
        ["recipe.optimizer.state=host", "hardware.host_memory_gb=1500"],
        "host-memory",
        ["1713 GB", "is 1500"],
    ),
    ("b200-lora-16", ["hardware.host_memory_gb=1000"], "host-memory", ["1433 GB", "engines'"]),
    (
        "h200-async",
        ["hardware.host_memory_gb=512", "recipe.optimizer.offloaded=1"],
        "host-memory",
        ["1003 GB", "is 512"],
    ),
    # storage
    (
        "h200-colocated",
        ["recipe.checkpoint.enabled=true", "recipe.checkpoint.keep=5", "site.outputs_gb=20000"],
        "outputs",
        ["6 checkpoints × 7.02 TB (keep 5", "= 42.1 TB", "room for 20 TB"],
    ),
    (
        "miles-h200-async",
        ["site.outputs_gb=30000", "recipe.checkpoint.keep=1"],  # Miles removes none
        "outputs",
        ["5 checkpoints", "35.1 TB"],
    ),
    ("b200-bf16", ["site.outputs_gb=5000"], "outputs", ["room for 5 TB"]),
]


@pytest.mark.parametrize(("name", "changes", "rule", "words"), BROKEN)
def test_a_broken_profile_is_told_why(
    name: str, changes: list[str], rule: str, words: list[str]
) -> None:
    made = make(name, *changes)
    assert not made.ok
    found = [finding for finding in made.errors if finding.rule == rule]
    assert found, [finding.rule for finding in made.errors]
    for word in words:
        assert word in found[0].text
    assert found[0].remedy


FULL = ["recipe.checkpoint.enabled=true", "site.outputs_gb=20000"]


@pytest.mark.parametrize(
    ("name", "changes", "rule", "remedy"),
    [
        ("h200-colocated", ["hardware.nodes=8"], "engines", "recipe.rollout.engines=4"),
        (
            "h200-async",
            ["recipe.overlong_penalty=true"],
            "async-penalty",
            "recipe.overlong_penalty=false",
        ),
        ("h200-async", ["hardware.cpus_per_node=8"], "cpus", "hardware.cpus_per_node=16"),
        ("h200-async", ["hardware.nodes=15"], "pools", "--nodes 16"),
        (
            "miles-h200-async",
            ["framework.command=execute-colocate"],
            "command",
            "framework.command=execute",
        ),
        ("b200-bf16", ["site.outputs_gb=8000"], "outputs", "recipe.checkpoint.every=50"),
        ("h200-colocated", FULL, "outputs", "recipe.checkpoint.keep=1"),
        ("h200-colocated", FULL, "outputs", "recipe.checkpoint.every=100"),
        (
            "b200-lora",
            ["recipe.optimizer.state=nvme"],
            "lora-streamed",
            "recipe.optimizer.state=gpu",
        ),
    ],
)
def test_the_remedy_helps(name: str, changes: list[str], rule: str, remedy: str) -> None:
    broken = next(f for f in make(name, *changes).errors if f.rule == rule)
    assert remedy in broken.remedy
    obeyed = remedy.replace("--nodes ", "hardware.nodes=")
    assert rule not in rules(make(name, *changes, obeyed), "error")


def test_one_mistake_is_not_told_as_many() -> None:
    assert rules(make("b200-bf16", "recipe.learner.expert=48"), "error") == {
        "expert-parallel",
        "expert-world",
    }
    assert rules(make("h200-async", "recipe.rollout.engines=3"), "error") == {"engines"}


# --- warnings and notes ------------------------------------------------------------------------


def test_an_engine_without_room_for_its_batch_is_slow_and_not_broken() -> None:
    made = make("b200-bf16", "recipe.response_tokens=131072", "recipe.prompts_per_step=512")
    assert "kv-cache" in rules(made, "warning")
    assert rules(made, "error") <= {"training-memory"}
    text = next(finding.text for finding in made.findings if finding.rule == "kv-cache")
    assert "of its 1024 responses of 133120 tokens" in text


def test_a_smaller_cache_is_counted_smaller() -> None:
    full = need(make("b200-bf16"), "generation, one GPU")
    assert need(make("b200-bf16", "recipe.rollout.kv_cache=fp8_e4m3"), "generation, one GPU") < full
    assert need(make("b200-mxfp8"), "generation, one GPU") < full - 25


def test_nothing_saved_is_a_warning_and_never_asked_a_note() -> None:
    made = make("miles-h200-async", "recipe.steps=10", "recipe.evaluation.every=11")
    assert rules(made, "warning") == {"checkpoint"}
    assert "evaluation" in rules(made, "note")
    assert "checkpoint" in rules(make("h200-async"), "note")  # off, as published
    # SkyRL saves the last step whatever the interval.
    assert rules(make("b200-bf16", "recipe.steps=10"), "warning") == set()


def test_what_the_time_limit_may_cost_is_said() -> None:
    """SkyRL alone cannot be asked to save before it."""
    found = next(f for f in make("b200-bf16").findings if f.rule == "time-limit")
    assert "1-00:00:00" in found.text
    assert "interval only" in found.text
    for name in ("miles-h200-async", "b300-colocated"):
        assert "time-limit" not in {f.rule for f in make(name).findings}


def test_unknown_hardware_is_a_note() -> None:
    unknown = ["hardware.gpu_memory_gb=null", "hardware.host_memory_gb=null"]
    made = make("b200-bf16", *unknown, "hardware.nvme_gb=null")
    assert made.ok
    assert {"gpu-memory", "host-memory", "nvme", "outputs"} <= rules(made, "note")
    assert next(f for f in made.figures if f.name == "training, one GPU").have is None


def test_the_site_file_wins_over_what_was_measured() -> None:
    little, much = Room(outputs_gb=100), Room(outputs_gb=90_000)
    assert rules(make("b200-bf16", room=little), "error") == {"outputs"}
    assert make("b200-bf16", room=much).ok
    assert make("b200-bf16", "site.outputs_gb=90000", room=little).ok


def test_context_parallelism_and_uneven_stages_are_notes() -> None:
    made = make("b200-bf16", "recipe.learner.context=2")
    assert "a2a" in next(f.text for f in made.findings if f.rule == "context-parallel")
    made = make("h200-async")
    assert "fullest has 18" in next(f.text for f in made.findings if f.rule == "pipeline-parallel")


WAYS = st.integers(1, 64)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(profiles.names()),
    ways=st.fixed_dictionaries(
        dict.fromkeys(("tensor", "pipeline", "context", "expert", "expert_tensor"), WAYS)
    ),
    engines=WAYS,
    engine=WAYS,
    nodes=WAYS,
    state=st.sampled_from(["gpu", "host", "nvme"]),
    batch=st.tuples(WAYS, WAYS, WAYS),
)
def test_any_numbers_get_an_answer(
    name: str,
    ways: dict[str, int],
    engines: int,
    engine: int,
    nodes: int,
    state: str,
    batch: tuple[int, int, int],
) -> None:
    """A plan never raises; whatever is legal divides its GPUs."""
    profile = load(name)
    recipe = profile.recipe
    changed = {
        "learner": recipe.learner and recipe.learner.model_copy(update=ways),
        "rollout": recipe.rollout
        and recipe.rollout.model_copy(update={"engines": engines, "gpus_per_engine": engine}),
        "optimizer": recipe.optimizer.model_copy(update={"state": state}),
        "prompts_per_step": batch[0],
        "responses_per_prompt": batch[1],
        "updates_per_step": batch[2],
    }
    hardware = profile.hardware.model_copy(update={"nodes": nodes})
    profile = profile.model_copy(
        update={"recipe": recipe.model_copy(update=changed), "hardware": hardware}
    )
    made = plan.make(profile, limit_minutes=60)
    assert all(figure.need >= 0 for figure in made.figures)
    assert all(finding.text and finding.remedy for finding in made.errors)
    if made.ok and recipe.learner:
        train = (recipe.learner.nodes or nodes) * hardware.gpus_per_node
        assert train % (ways["tensor"] * ways["pipeline"] * ways["context"]) == 0
        assert batch[0] * batch[1] % batch[2] == 0


# --- the command -------------------------------------------------------------------------------


def call(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BEAM_SLURM")}
    return subprocess.run(
        [str(Path(sys.executable).with_name("beam-slurm")), "plan", *words],
        env={**kept, "XDG_CONFIG_HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_command_shows_figures_and_ends_with_0(tmp_path: Path) -> None:
    done = call("--profile", "h200-async", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["what", "need", "have", "headroom", "how"]
    assert any("training, one GPU" in line and "141" in line for line in lines)
    assert lines[-1] == "h200-async: no errors"
    assert any(line.startswith("assumed") and "hardware.nvme_gb" in line for line in lines)


def test_the_command_ends_with_2_and_the_way_out(tmp_path: Path) -> None:
    done = call("--profile", "h200-colocated", "--nodes", "8", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("error    engines: 8 engines"))
    assert lines[at + 1].strip() == "do --set recipe.rollout.engines=4"
    assert lines[-1] == "h200-colocated: 3 errors"


def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "plan.md").read_text()
    shown = page.partition("--profile h200-colocated --nodes 8\n")[2].partition("\n```")[0]
    done = call("--profile", "h200-colocated", "--nodes", "8", folder=tmp_path)
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_json_for_machines(tmp_path: Path) -> None:
    words = ("--profile", "b200-bf16", "--set", "site.outputs_gb=1000", "--json")
    done = call(*words, folder=tmp_path)
    assert done.returncode == 2
    facts = json.loads(done.stdout)
    assert (facts["profile"], facts["ok"]) == ("b200-bf16", False)
    assert [f["rule"] for f in facts["findings"] if f["severity"] == "error"] == ["outputs"]
    assert set(facts["figures"][0]) == {"name", "need", "have", "unit", "how"}
    assert set(facts["findings"][0]) == {"severity", "rule", "text", "remedy"}


def test_free_room_is_measured_where_the_folder_is(tmp_path: Path) -> None:
    outputs = ("--set", f"site.paths.outputs={tmp_path}", "--json")
    figures = json.loads(call("--profile", "b200-bf16", *outputs, folder=tmp_path).stdout)
    have = next(f["have"] for f in figures["figures"] if f["name"] == "checkpoints")
    free = os.statvfs(tmp_path)
    assert have == pytest.approx(free.f_bavail * free.f_frsize / 1e12, rel=0.2)
    away = ("--set", "site.paths.outputs=/not/here", "--json")
    figures = json.loads(call("--profile", "b200-bf16", *away, folder=tmp_path).stdout)
    assert next(f["have"] for f in figures["figures"] if f["name"] == "checkpoints") is None
