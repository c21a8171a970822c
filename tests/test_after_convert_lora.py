"""LoRA adapters, taken along as they are or merged into the base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conversions import difference, nemo_rl, refused, run, torch

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


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


def test_merging_without_an_adapter_is_refused(tmp_path: Path, base: Path, whole: Path) -> None:
    words = ("--base", str(base), "--merge-lora")
    assert "no adapter" in refused("nemo-rl", whole, tmp_path / "hf", *words).what
