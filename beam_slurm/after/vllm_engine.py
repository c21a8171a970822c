"""vLLM, tensor x pipeline parallel, on this machine or over the nodes of a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from beam_slurm.after.engines import CUT, Generated, Placement, Request, Sampling
from beam_slurm.after.errors import Problem


class VllmEngine:
    """See ``engines.Engine``.

    All requests are handed over at once, and vLLM decides how many of them run together. Its loop
    is taken step by step, since ``LLM.generate`` returns nothing before the last response is done:
    hours of work, lost if the job is interrupted.
    """

    def __init__(self, model: Path, placement: Placement, longest: int) -> None:
        from vllm import LLM

        _check_architecture(model)
        over_ray = placement.ray and placement.tensor * placement.pipeline > 1
        self._llm = LLM(
            model=str(model),
            tensor_parallel_size=placement.tensor,
            pipeline_parallel_size=placement.pipeline,
            distributed_executor_backend="ray" if over_ray else None,
            max_model_len=longest,
            # Sampling is ours alone: a checkpoint's generation_config.json may hold a temperature
            # or a penalty, and the scores of two checkpoints could not be compared.
            generation_config="vllm",
        )

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generated]:
        """The responses, in the order in which they are done."""
        from vllm import SamplingParams

        params = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                stop_token_ids=list(sampling.stop),
                seed=request.seed,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        # vLLM numbers requests on; what else it puts into a name is not in the output's.
        first = int(self._llm.enqueue(prompts, params, use_tqdm=False)[0].split("-")[0])
        engine = self._llm.llm_engine
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    response = output.outputs[0]
                    if response.finish_reason not in {"stop", CUT}:
                        # Kept, it would count as a wrong answer of the model.
                        raise RuntimeError(f"vLLM gave a request up: {response.finish_reason}")
                    yield Generated(
                        int(output.request_id) - first,
                        tuple(response.token_ids),
                        response.finish_reason,
                    )


def _check_architecture(model: Path) -> None:
    """Whether this vLLM has an implementation of the model of its own.

    Asked before it starts workers, which fail less clearly; and for a model that it does not know
    it may take transformers' implementation, far too slow to be worth the GPUs.
    """
    from vllm import ModelRegistry

    architectures = json.loads((model / "config.json").read_text()).get("architectures") or []
    known = set(ModelRegistry.get_supported_archs())
    if not known.intersection(architectures):
        raise Problem(
            f"this vLLM does not know the model: {', '.join(architectures) or 'no architecture'}",
            where=str(model / "config.json"),
            do="evaluate in an image whose vLLM does",
        )
