"""Checkpoints to Hugging Face folders and back, with real weights and the real transformers."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bridge_signatures
import fakebridge
import pytest

from beam_slurm.after import (
    architecture,
    checkpoints,
    convert,
    dcp,
    demo,
    folder,
    fsdp,
    megatron,
    output,
    shards,
)
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "grpo_digits"))

import checkpoint as demo_checkpoint  # noqa: E402
import model as demo_model  # noqa: E402
import task  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

CPU = torch.device("cpu")
PROMPTS = torch.tensor([task.prompt(problem) for problem in task.TRAINING])

Model = Any
Run = Callable[..., None]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Beam as a Hugging Face folder: the model that a run has trained."""
    folder = tmp_path_factory.mktemp("models") / "Beam-tiny"
    folder.mkdir()
    demo_model.build_policy(1, CPU).save_pretrained(folder)
    demo.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained() -> Model:
    """The same Beam with other weights, as if it had been trained."""
    return demo_model.build_policy(2, CPU).eval()


def logits(model: Model) -> Any:
    with torch.no_grad():
        return model(input_ids=PROMPTS).logits


def difference(folder: Path, model: Model, attention: str = "eager") -> float:
    """Largest difference between a folder's logits, as transformers loads it, and a model's."""
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, attn_implementation=attention
    )
    return float((logits(loaded.eval()) - logits(model)).abs().max())


def run(framework: str, checkpoint: Path, into: Path, *more: str, to: str = "hf") -> None:
    words = ["--framework", framework, "--checkpoint", str(checkpoint), "--to", to]
    assert convert.main([*words, "-o", str(into), *more]) == 0


def refused(framework: str, checkpoint: Path, into: Path, *more: str, to: str = "hf") -> Problem:
    """The problem; and nothing was written."""
    with pytest.raises(Problem) as caught:
        run(framework, checkpoint, into, *more, to=to)
    assert not into.exists()
    assert not output.part_of(into).exists()
    return caught.value


def in_files(model: Model, at: Path) -> dict[str, Any]:
    """The model's tensors by the names that they have in files: each expert by itself."""
    from safetensors.torch import load_file

    model.save_pretrained(at)
    return load_file(at / "model.safetensors")


def nemo_rl(run_folder: Path, inner: str = "") -> tuple[Path, Path]:
    """(a checkpoint of NeMo RL, the folder in it for the weights)."""
    step = run_folder / "step_20"
    weights = step / "policy" / "weights" / inner
    weights.mkdir(parents=True)
    (step / "training_info.json").write_text("{}")
    return step, weights


def save_distributed(tensors: dict[str, Any], folder: Path) -> None:
    from torch.distributed.checkpoint import save

    save(tensors, checkpoint_id=folder, no_dist=True)


def save_ranks(tensors: dict[str, Any], folder: Path, ranks: int = 2) -> None:
    """As each of two ranks saves its half of every tensor; torch's own writer names the same."""
    from safetensors.torch import save_file

    for rank in range(ranks):
        halves, notes = {}, {}
        for name, tensor in tensors.items():
            parts = tensor.chunk(ranks, dim=0)
            if rank < len(parts):
                halves[name] = parts[rank].clone()
                begin = sum(part.shape[0] for part in parts[:rank])
                notes[name] = {"saved_offsets": [begin, *[0] * (tensor.ndim - 1)]}
        save_file(
            halves,
            folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors",
            metadata={"DCP_SHARDING_INFO": json.dumps(notes), "DCP_VERSION": "1.0"},
        )


# ---------------------------------------------------------------- the demo


def test_the_demo_goes_to_hugging_face_with_the_same_logits_and_back(
    tmp_path: Path, trained: Model
) -> None:
    saved = demo_checkpoint.save(tmp_path / "checkpoints", 80, trained.state_dict(), {}, {})
    run("demo", saved, tmp_path / "hf")
    assert difference(tmp_path / "hf", trained) == 0.0
    assert difference(tmp_path / "hf", trained, attention="sdpa") < 1e-5
    assert not output.part_of(tmp_path / "hf").exists()

    run("demo", tmp_path / "hf", tmp_path / "checkpoints" / "step_000081", to="megatron")
    back = torch.load(tmp_path / "checkpoints" / "step_000081" / "model.pt", weights_only=True)
    there = trained.state_dict()
    assert back.keys() == there.keys()
    assert all(torch.equal(back[name], there[name]) for name in there)


def test_the_demos_tokenizer_reads_and_writes_its_digits(tmp_path: Path, trained: Model) -> None:
    from transformers import AutoTokenizer

    saved = demo_checkpoint.save(tmp_path / "checkpoints", 1, trained.state_dict(), {}, {})
    run("demo", saved, tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True)
    assert tokenizer("2012=")["input_ids"] == task.prompt((2, 0, 1, 2))
    assert tokenizer.decode([5, task.END], skip_special_tokens=True) == "Answer: 5"
    assert tokenizer.decode([1, 2]) == "Answer: 12"
    assert (tokenizer.eos_token_id, len(tokenizer)) == (task.END, task.VOCABULARY_SIZE)


def test_the_demos_model_is_the_one_that_it_trains() -> None:
    built = demo_model.build_policy(0, CPU).config
    assert {name: getattr(built, name) for name in demo.CONFIG} == demo.CONFIG


def test_a_demo_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    other = {"weight": torch.zeros(2)}
    saved = demo_checkpoint.save(tmp_path / "checkpoints", 1, other, {}, {})
    assert "another architecture" in refused("demo", saved, tmp_path / "hf").what


def test_another_model_does_not_become_a_demo_checkpoint(tmp_path: Path, base: Path) -> None:
    from transformers.models.beam.configuration_beam import BeamConfig
    from transformers.models.beam.modeling_beam import BeamForCausalLM

    for number, change in enumerate(({"hidden_size": 32}, {"intermediate_size": 32})):
        other = tmp_path / str(number)
        shutil.copytree(base, other)
        BeamForCausalLM(BeamConfig(**{**demo.CONFIG, **change})).save_pretrained(other)
        problem = refused("demo", other, tmp_path / "step_000001", to="megatron")
        assert "another architecture" in problem.what


# ---------------------------------------------------------------- FSDP2


@pytest.mark.parametrize("form", ["in memory, wrapped", "as files", "as files, of two ranks"])
def test_fsdp_checkpoints_become_a_hugging_face_folder_with_the_same_logits(
    tmp_path: Path, base: Path, trained: Model, form: str
) -> None:
    if form == "in memory, wrapped":
        step, weights = nemo_rl(tmp_path)
        save_distributed({"model": trained.state_dict()}, weights)
    else:
        step, weights = nemo_rl(tmp_path, "model")
        save = save_ranks if "ranks" in form else save_distributed
        save(in_files(trained, tmp_path / "files"), weights)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert difference(tmp_path / "hf", trained) == 0.0
    assert (tmp_path / "hf" / "tokenizer.json").is_file()
    index = json.loads((tmp_path / "hf" / shards.INDEX).read_text())
    assert set(index["weight_map"].values()) == {"model-00001-of-00001.safetensors"}


def test_what_torchs_own_sharded_writer_saves_is_read(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    step, weights = nemo_rl(tmp_path, "model")
    writer = HuggingFaceStorageWriter(str(weights), save_distributed=True)
    save(in_files(trained, tmp_path / "files"), storage_writer=writer, no_dist=True)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert difference(tmp_path / "hf", trained) == 0.0


@pytest.mark.exhaustive
def test_what_three_processes_of_fsdp2_save_is_read(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    saver = str(ROOT / "tests" / "fsdpsaver.py")
    subprocess.run([sys.executable, *words, saver, str(tmp_path)], check=True, timeout=300)
    for form, inner in (("one", ""), ("two", "model")):
        step, weights = nemo_rl(tmp_path / f"run-{form}", inner)
        weights.rmdir()
        (tmp_path / form).rename(weights)
        assert len(list(weights.glob("*[ps]"))) == 3
        run("nemo-rl", step, tmp_path / f"hf-{form}", "--base", str(base))
        assert difference(tmp_path / f"hf-{form}", trained) == 0.0


def test_a_trainers_fp32_weights_become_what_the_base_has(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    half = tmp_path / "base"
    as_trained = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    as_trained.save_pretrained(half)  # its router stays FP32
    demo.tokenizer().save_pretrained(half)
    step, weights = nemo_rl(tmp_path, "model")
    files = in_files(trained, tmp_path / "files")
    save_distributed(files, weights)
    run("nemo-rl", step, tmp_path / "hf", "--base", str(half))
    made = load_file(tmp_path / "hf" / "model-00001-of-00001.safetensors")
    wanted = load_file(half / "model.safetensors")
    assert made.keys() == wanted.keys()
    for name, tensor in made.items():
        assert tensor.dtype == wanted[name].dtype, name
        assert torch.equal(tensor, files[name].to(tensor.dtype)), name


def test_an_interrupted_conversion_leaves_a_part_and_goes_on_from_it(
    tmp_path: Path, base: Path, trained: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "LARGEST", 300_000)
    step, weights = nemo_rl(tmp_path, "model")
    save_distributed(in_files(trained, tmp_path / "files"), weights)
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
            run("nemo-rl", step, into, "--base", str(base))
    assert not into.exists()
    kept = {path.name: path.stat().st_ino for path in written}
    (output.part_of(into) / "model-00003-of-00004.safetensors.tmp").write_bytes(b"a half")

    run("nemo-rl", step, into, "--base", str(base))
    assert {name: (into / name).stat().st_ino for name in kept} == kept
    assert len(list(into.glob("*.safetensors"))) > 2
    assert difference(into, trained) == 0.0
    assert sorted(path.name for path in tmp_path.iterdir() if "hf" in path.name) == ["hf"]
    assert {path.suffix for path in into.iterdir()} == {".json", ".safetensors", ""}
    assert folder.check_hashes(into) == []


def test_what_is_left_of_another_conversion_is_cleared(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    step, weights = nemo_rl(tmp_path, "model")
    save_distributed(in_files(trained, tmp_path / "files"), weights)
    into = tmp_path / "hf"
    with output.begin(into, {"source": "another"}) as part:
        (part / "left").write_text("over")
        (part / "folder").mkdir()
    run("nemo-rl", step, into, "--base", str(base))
    assert not (into / "left").exists()
    assert not (into / "folder").exists()


# ---------------------------------------------------------------- LoRA


def adapter(folder: Path, prefix: str = "base_model.model.") -> dict[str, tuple[Any, Any]]:
    """An adapter of rank 4 and alpha 8: modules to their A and B."""
    shape = torch.Generator().manual_seed(5)
    pairs = {
        name: (torch.randn(4, 64, generator=shape), torch.randn(out, 4, generator=shape))
        for name, out in {
            "model.layers.0.self_attn.q_proj": 64,
            "model.layers.2.mlp.experts.3.gate_proj": 32,
        }.items()
    }
    tensors = {}
    for name, (a, b) in pairs.items():
        tensors[f"{prefix}{name}.lora_A.weight"] = a
        tensors[f"{prefix}{name}.lora_B.weight"] = b
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if prefix:
        from safetensors.torch import save_file

        save_file(tensors, folder / "adapter_model.safetensors")
    else:
        torch.save(tensors, folder / "adapter_model.bin")
    return pairs


@pytest.mark.parametrize("framework", ["nemo-rl", "miles"])
def test_adapters_are_merged_on_request(tmp_path: Path, base: Path, framework: str) -> None:
    from safetensors.torch import load_file

    if framework == "miles":
        saved = tmp_path / "iter_0000019"
        pairs = adapter(saved / "adapter", prefix="")
    else:
        saved, weights = nemo_rl(tmp_path)
        pairs = adapter(weights / "model")
    run(framework, saved, tmp_path / "hf", "--base", str(base), "--merge-lora")
    before = load_file(base / "model.safetensors")
    after = load_file(tmp_path / "hf" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        change = pairs.get(name.removesuffix(".weight"))
        wanted = tensor if change is None else tensor + 2.0 * change[1] @ change[0]
        assert torch.equal(after[name], wanted), name
    from transformers import AutoModelForCausalLM

    merged = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    with torch.no_grad():
        a, b = pairs["model.layers.0.self_attn.q_proj"]
        merged.model.layers[0].self_attn.q_proj.weight += 2.0 * b @ a
        a, b = pairs["model.layers.2.mlp.experts.3.gate_proj"]
        merged.model.layers[2].mlp.experts.gate_up_proj[3, :32] += 2.0 * b @ a
    assert difference(tmp_path / "hf", merged.eval()) == 0.0


def test_adapters_stay_adapters(tmp_path: Path, base: Path) -> None:
    from safetensors.torch import load_file

    pairs = adapter(tmp_path / "iter_0000019" / "adapter", prefix="")
    run("miles", tmp_path / "iter_0000019", tmp_path / "out", "--base", str(base))
    made = load_file(tmp_path / "out" / "adapter_model.safetensors")
    for name, (a, b) in pairs.items():
        assert torch.equal(made[f"base_model.model.{name}.lora_A.weight"], a)
        assert torch.equal(made[f"base_model.model.{name}.lora_B.weight"], b)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["lora_alpha"], config["base_model_name_or_path"]) == (8, str(base))
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert not (tmp_path / "out" / "config.json").exists()


def test_an_adapter_of_another_model_is_not_merged(tmp_path: Path, base: Path) -> None:
    folder = tmp_path / "iter_0000019" / "adapter"
    adapter(folder)
    from safetensors.torch import save_file

    module = "base_model.model.model.layers.77.mlp.up_proj"
    save_file(
        {f"{module}.lora_{one}.weight": torch.ones(4, 4) for one in "AB"},
        folder / "adapter_model.safetensors",
    )
    words = ("--base", str(base), "--merge-lora")
    problem = refused("miles", tmp_path / "iter_0000019", tmp_path / "hf", *words)
    assert "does not fit" in problem.what
    assert "model.layers.77.mlp.up_proj.weight" in problem.why


def test_an_adapter_that_is_more_than_two_matrices_is_not_merged_but_taken(
    tmp_path: Path, base: Path
) -> None:
    saved = tmp_path / "iter_0000019"
    adapter(saved / "adapter")
    path = saved / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_dora": True}))
    problem = refused("miles", saved, tmp_path / "hf", "--base", str(base), "--merge-lora")
    assert problem.why == "use_dora is true"
    run("miles", saved, tmp_path / "hf", "--base", str(base))
    assert json.loads((tmp_path / "hf" / "adapter_config.json").read_text())["use_dora"]


def test_skyrls_adapters_of_single_ranks_are_refused_with_the_way_out(tmp_path: Path) -> None:
    policy = tmp_path / "global_step_10" / "policy"
    policy.mkdir(parents=True)
    (policy / "adapter_tp0_pp0_cp0_dp0_ep0_etp0.pt").write_bytes(b"")
    problem = refused("skyrl", tmp_path / "global_step_10", tmp_path / "hf")
    assert "hf_save_interval" in problem.do


# ---------------------------------------------------------------- Megatron


def save_megatron(at: Path, model: Model) -> None:
    """Megatron's names, layers stacked, a padded vocabulary; the numbers are no model's."""
    rest = sum(tensor.numel() for tensor in model.state_dict().values()) - 2 * 11 * 64
    save_distributed(
        {
            "embedding.word_embeddings.weight": torch.zeros(16, 64),
            "output_layer.weight": torch.zeros(16, 64),
            "decoder.layers.mlp.experts.experts.linear_fc1.weight": torch.zeros(rest),
            "optimizer.state.exp_avg": torch.zeros(5, 5),
        },
        at,
    )
    (at / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')


@pytest.fixture
def megatron_checkpoint(tmp_path: Path, trained: Model) -> Path:
    """As SkyRL saves one."""
    step = tmp_path / "ckpt" / "global_step_10"
    save_megatron(step / "policy", trained)
    (step / "trainer_state.pt").write_bytes(b"")
    return step


def test_megatron_without_bridge_is_refused_before_anything_is_written(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(base))
    assert "megatron.bridge cannot be imported" in problem.what
    assert "training image" in problem.do
    back = refused("miles", base, tmp_path / "iter", to="megatron")
    assert "megatron.bridge cannot be imported" in back.what


@pytest.fixture
def bridge(
    tmp_path: Path, base: Path, trained: Model, monkeypatch: pytest.MonkeyPatch
) -> fakebridge.Bridge:
    exports = tmp_path / "exports"
    shutil.copytree(base, exports)
    trained.save_pretrained(exports)
    fake = fakebridge.Bridge(exports, lambda at: save_megatron(at, trained))
    fake.install(monkeypatch)
    return fake


def test_a_megatron_checkpoint_is_exported_by_bridge_and_proved(
    tmp_path: Path,
    base: Path,
    trained: Model,
    megatron_checkpoint: Path,
    bridge: fakebridge.Bridge,
) -> None:
    into = tmp_path / "hf"
    run("skyrl", megatron_checkpoint, into, "--base", str(base))
    assert bridge.done == ["bridge Beam-tiny", "without weights", "load policy"]
    assert difference(into, trained) == 0.0

    (bridge.exports / "model.safetensors").unlink()
    with pytest.raises(Problem, match="not complete"):
        run("skyrl", megatron_checkpoint, tmp_path / "again", "--base", str(base))
    assert not (tmp_path / "again").exists()
    assert output.part_of(tmp_path / "again").is_dir()


def test_a_hugging_face_folder_becomes_a_megatron_checkpoint(
    tmp_path: Path, base: Path, bridge: fakebridge.Bridge
) -> None:
    run("nemo-rl", base, tmp_path / "megatron", to="megatron")
    assert (tmp_path / "megatron" / "iter_0000000" / ".metadata").is_file()
    bridge.save = lambda at: None
    with pytest.raises(Problem, match="not complete"):
        run("nemo-rl", base, tmp_path / "nothing", to="megatron")


def test_megatron_adapters_stay_adapters_or_are_merged(
    tmp_path: Path,
    base: Path,
    trained: Model,
    megatron_checkpoint: Path,
    bridge: fakebridge.Bridge,
) -> None:
    step, weights = nemo_rl(tmp_path)
    (megatron_checkpoint / "policy").rename(weights / "iter_0000000")
    settings = (
        "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 2\n  alpha: 4\nmodel: {}\n"
    )
    (weights / "iter_0000000" / "run_config.yaml").write_text(settings)
    hook = ["hook training False", "load iter_0000000"]
    lora = "lora {'dim': 2, 'alpha': 4}"
    run("nemo-rl", step, tmp_path / "adapter", "--base", str(base))
    assert bridge.done == [lora, "bridge Beam-tiny", "without weights", *hook]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 4, ["up_proj"])
    bridge.done.clear()
    run("nemo-rl", step, tmp_path / "hf", "--base", str(base), "--merge-lora")
    assert bridge.done == [lora, "bridge Beam-tiny", "with weights", *hook]
    assert difference(tmp_path / "hf", trained) == 0.0


def test_a_bridge_that_knows_no_beam_says_so(
    tmp_path: Path, base: Path, bridge: fakebridge.Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(path: str) -> None:
        raise ValueError("Model architecture not supported\nsupported are: …")

    monkeypatch.setattr(bridge, "from_hf_pretrained", unsupported)
    with pytest.raises(Problem, match="cannot convert this model") as caught:
        run("nemo-rl", base, tmp_path / "megatron", to="megatron")
    assert caught.value.why == "Model architecture not supported"


def test_a_machine_with_too_little_memory_is_refused() -> None:
    larger = {"model.embed_tokens.weight": Tensor((10**9, 10**6), "BF16")}
    with pytest.raises(Problem, match="not enough memory"):
        megatron.check_memory(larger)


def test_a_megatron_checkpoint_of_another_size_is_refused(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    larger = tmp_path / "larger"
    shutil.copytree(base, larger)
    config = json.loads((larger / "config.json").read_text())
    (larger / "config.json").write_text(json.dumps({**config, "intermediate_size": 1280}))
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(larger))
    assert "parameters, the base" in problem.why


def test_a_lora_run_of_megatron_is_told_by_its_settings(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    policy = megatron_checkpoint / "policy"
    for text, kind in (
        ("model:\n  a: 1\npeft:\n  dim: 32\ntrain: 1\n", checkpoints.Kind.MEGATRON_ADAPTER),
        ("peft: null\nmodel:\n  a: 1\n", checkpoints.Kind.MEGATRON),
        ("model:\n  peft: 1\n", checkpoints.Kind.MEGATRON),
    ):
        (policy / "run_config.yaml").write_text(text)
        assert checkpoints.find("skyrl", megatron_checkpoint).kind is kind


@pytest.mark.parametrize("wheel", bridge_signatures.published()["wheels"])
def test_every_call_of_bridge_fits_the_published_signatures(wheel: str) -> None:
    calls = bridge_signatures.calls(Path(megatron.__file__).read_text())
    found = bridge_signatures.published()["wheels"][wheel]["signatures"]
    for name, signature in found.items():
        for call in calls.get(name, []):
            assert bridge_signatures.misfits(call, signature) == [], name


def test_the_table_of_calls_of_bridge_is_complete() -> None:
    """What is called of it; a call that the table lacks would not be checked."""
    calls = bridge_signatures.calls(Path(megatron.__file__).read_text())
    known = {name for names in bridge_signatures.DEFINED.values() for name in names}
    assert calls.keys() == known - {"HFWeightTuple"}
    imported = subprocess.run(
        ["grep", "-cE", "^ *from megatron", megatron.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(imported.stdout) == 7
    for found in bridge_signatures.published()["wheels"].values():
        if "HFWeightTuple" in found["signatures"]:
            fields = found["signatures"]["HFWeightTuple"]["positional"]
            assert fields[:2] == ["param_name", "weight"]


def test_a_wrong_call_of_bridge_would_be_found() -> None:
    call = bridge_signatures.calls("bridge.save_hf_pretrained(model, dtype=1)")
    (signature,) = (
        found["signatures"]["save_hf_pretrained"]
        for name, found in bridge_signatures.published()["wheels"].items()
        if "bridge-0.3.1" in name
    )
    wrong = bridge_signatures.misfits(call["save_hf_pretrained"][0], signature)
    assert wrong == ["no argument dtype", "path is missing"]


@pytest.mark.exhaustive
def test_the_signatures_are_those_of_the_wheels_on_pypi(tmp_path: Path) -> None:
    for name, found in bridge_signatures.published()["wheels"].items():
        package = f"{name.split('-')[0]}=={found['version']}"
        words = ["download", "--no-deps", "--only-binary", ":all:", "-q", "-d", str(tmp_path)]
        words += ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"]
        subprocess.run([sys.executable, "-m", "pip", *words, package], check=True, timeout=300)
        assert bridge_signatures.extract(tmp_path / name) == found


# ---------------------------------------------------------------- refused


@pytest.fixture
def whole(tmp_path: Path, trained: Model) -> Path:
    """A checkpoint that would convert."""
    step, weights = nemo_rl(tmp_path, "model")
    save_distributed(in_files(trained, tmp_path / "files"), weights)
    return step


def without(path: str) -> Callable[[Path], object]:
    return lambda step: (step / path).unlink()


def truncated(step: Path) -> None:
    path = step / "policy" / "weights" / "model" / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-1000])


def no_pickle(step: Path) -> None:
    (step / "policy" / "weights" / "model" / ".metadata").write_bytes(b"\x80\x04nothing")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (without("training_info.json"), "no training_info.json"),
        (without("policy/weights/model/__0_0.distcp"), "__0_0.distcp is not there"),
        (truncated, "__0_0.distcp is truncated"),
        (no_pickle, "no metadata of torch"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(
    tmp_path: Path, base: Path, whole: Path, harm: Callable[[Path], object], why: str
) -> None:
    harm(whole)
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(base))
    assert problem.what == "the checkpoint is not whole"
    assert why in problem.why


def test_an_unfinished_checkpoint_is_refused(tmp_path: Path, base: Path, whole: Path) -> None:
    unfinished = whole.rename(tmp_path / "tmp_step_20")
    problem = refused("nemo-rl", unfinished, tmp_path / "hf", "--base", str(base))
    assert "tmp_" in problem.why


def test_a_checkpoint_beyond_the_tracker_is_refused(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    (megatron_checkpoint.parent / "latest_ckpt_global_step.txt").write_text("5")
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(base))
    assert "says 5" in problem.why


def test_a_sharded_checkpoint_with_a_short_file_is_refused(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    step, weights = nemo_rl(tmp_path, "model")
    save_ranks(in_files(trained, tmp_path / "files"), weights)
    path = weights / "shard-00002-model-00001-of-00001.safetensors"
    shutil.copyfile(path, tmp_path / "kept")
    path.write_bytes(path.read_bytes()[:-8])
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert path.name in problem.why
    shutil.copyfile(tmp_path / "kept", path)
    (weights / "shard-00001-model-00001-of-00001.safetensors").unlink()
    problem = refused("nemo-rl", step, tmp_path / "hf", "--base", str(base))
    assert "is in no file" in problem.why  # torch would have loaded noise


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"intermediate_size": 130}, "mlp.gate_proj.weight is [128, 64], not [130, 64]"),
        ({"num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"]}, "none of"),
        ({"num_experts": 16}, "experts.8.gate_proj.weight is missing"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(
    tmp_path: Path, base: Path, whole: Path, change: dict[str, Any], why: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(base, other)
    config = json.loads((other / "config.json").read_text())
    config["layer_types"] = config["layer_types"][: change.get("num_hidden_layers", 4)]
    (other / "config.json").write_text(json.dumps({**config, **change}))
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other))
    assert "another architecture" in problem.what
    assert why in problem.why


def test_a_base_that_is_no_beam_is_refused(tmp_path: Path, whole: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert (
        "no Hugging Face" in refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other)).what
    )
    (other / "config.json").write_text('{"model_type": "llama"}')
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other))
    assert "another architecture than Beam" in problem.what
    assert "--base" in refused("nemo-rl", whole, tmp_path / "hf").do


def test_no_checkpoint_and_none_with_weights_are_refused(tmp_path: Path) -> None:
    assert "no such" in refused("miles", tmp_path / "iter_0000001", tmp_path / "hf").what
    (tmp_path / "iter_0000001").mkdir()
    assert "no weights" in refused("miles", tmp_path / "iter_0000001", tmp_path / "hf").what


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


def test_merging_without_an_adapter_is_refused(tmp_path: Path, base: Path, whole: Path) -> None:
    words = ("--base", str(base), "--merge-lora")
    assert "no adapter" in refused("nemo-rl", whole, tmp_path / "hf", *words).what


# ---------------------------------------------------------------- exports, and what is read


def test_an_export_of_the_framework_is_proved_and_linked(
    tmp_path: Path, base: Path, trained: Model
) -> None:
    export = tmp_path / "exports" / "global_step_10" / "policy"
    export.parent.mkdir(parents=True)
    shutil.copytree(base, export)
    run("skyrl", export.parent, tmp_path / "hf")
    made = tmp_path / "hf" / "model.safetensors"
    assert made.samefile(export / "model.safetensors")
    assert (tmp_path / "hf" / "tokenizer.json").is_file()


def test_metadata_is_read_without_running_what_is_in_it(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.write_text, (tmp_path / "ran", "it did")

    save_distributed({"a": torch.zeros(3, 4, dtype=torch.bfloat16), "n": 1}, tmp_path / "dcp")
    contents = dcp.read(tmp_path / "dcp")
    assert contents.tensors == {"a": Tensor((3, 4), "BF16")}
    assert dcp.damage(tmp_path / "dcp", contents) == []
    import pickle

    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(Problem, match="not whole"):
        dcp.read(tmp_path / "dcp")
    assert not (tmp_path / "ran").exists()


def test_files_are_filled_up_to_the_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "LARGEST", 100)
    sizes = {"a": 10, "b": 20, "c": 30, "large": 200, "d": 25}
    tensors = {name: Tensor((size,), "BF16") for name, size in sizes.items()}
    assert list(shards.plan(tensors).values()) == [["a", "b"], ["c"], ["large"], ["d"]]


def test_the_full_model_is_never_in_memory_as_a_whole() -> None:
    """At worst FP32, all experts of a layer in one tensor: what each file needs of it."""
    config = {"model_type": "beam", "dtype": "bfloat16"}
    wanted = architecture.tensors(config)
    experts = "model.layers.{}.mlp.experts.{}"
    stored = {
        name: Tensor(tensor.shape, "F32")
        for name, tensor in wanted.items()
        if "experts" not in name
    }
    for layer in range(3, 52):
        stored[experts.format(layer, "gate_up_proj")] = Tensor((256, 2 * 2560, 5120), "F32")
        stored[experts.format(layer, "down_proj")] = Tensor((256, 5120, 2560), "F32")
    pieces = fsdp.plan(dcp.Contents(stored, {}), wanted, Path("step_20"))
    files = shards.plan(wanted).values()
    written = [sum(shards.bytes_of(wanted[name]) for name in names) for names in files]
    assert max(written) <= shards.LARGEST
    assert sum(written) / 1e12 == pytest.approx(1.0, abs=0.01)
    read = [{pieces[name].name for name in names} for names in files]
    assert max(sum(shards.bytes_of(stored[name]) for name in names) for names in read) < 90e9
