"""transformers on one device: for models that fit it, and where vLLM does not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from beam_slurm.after.engines import CUT, Generated, Request, Sampling
from beam_slurm.after.errors import Problem


class TransformersEngine:
    """See ``engines.Engine``.

    One response after the other: torch draws all rows of a batch from one random state. In a batch
    a response would depend on what it happens to be generated with, and an evaluation that was
    interrupted would end with other responses than one that was not.
    """

    def __init__(self, model: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        try:
            loaded = AutoModelForCausalLM.from_pretrained(
                model, dtype="auto", local_files_only=True
            )
        except Exception as error:  # safetensors' own is of no narrower class
            raise Problem(
                "transformers cannot load the model", where=str(model), why=str(error)
            ) from None
        self._model = loaded.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generated]:
        """The responses, in the order of the requests."""
        import torch
        from transformers import GenerationConfig

        drawn: dict[str, object] = {"do_sample": False}
        if sampling.temperature > 0:
            drawn = {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": 0,  # transformers would take the 50 likeliest, vLLM all
            }
        # In place of the checkpoint's own, which may hold a temperature or a penalty.
        self._model.generation_config = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(sampling.stop) or None,
            pad_token_id=sampling.stop[0] if sampling.stop else None,
            **drawn,
        )
        for index, request in enumerate(requests):
            prompt = torch.tensor([request.prompt], device=self._model.device)
            torch.manual_seed(request.seed)
            with torch.inference_mode():
                whole = self._model.generate(
                    input_ids=prompt, attention_mask=torch.ones_like(prompt)
                )
            tokens = tuple(whole[0, len(request.prompt) :].tolist())
            yield Generated(index, tokens, "stop" if tokens[-1] in sampling.stop else CUT)
