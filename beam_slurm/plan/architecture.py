"""Beam-1.0-501B-A23B in numbers: parameters, adapters, cached keys and values.

Everything follows from the shapes of the model's tensors, as transformers 5.24 has them (BeamConfig
and the modules of models/beam). Experts are counted apart from the rest: they are cut otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

WINDOWED = 6  # every sixth layer sees the whole sequence, and so does the last


@dataclass(frozen=True)
class Count:
    """A number of parameters: those in routed experts, and the others."""

    others: float
    experts: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.others + self.experts


@dataclass(frozen=True)
class Architecture:
    """One Beam model. The defaults are the 501B's."""

    layers: int = 52
    dense_layers: int = 3
    hidden: int = 5120
    heads: int = 48
    kv_heads: int = 8
    head_size: int = 128
    dense_width: int = 20480
    experts: int = 256
    experts_per_token: int = 8
    expert_width: int = 2560
    vocabulary: int = 151936
    window: int = 512

    @property
    def attention(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of one layer's projections: query, output gate, key, value, output."""
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        wide, narrow = (self.hidden, query), (self.hidden, key)
        return [wide, wide, narrow, narrow, (query, self.hidden)]

    @property
    def small(self) -> int:
        """One layer's vectors: four norms, the norms of queries and keys, a gate bias a head."""
        return 4 * self.hidden + 2 * self.head_size + self.heads

    @property
    def router(self) -> int:
        """One sparse layer's router."""
        return self.experts * self.hidden

    @property
    def embedding(self) -> int:
        """The token embedding; the head is another of this size, they are not tied."""
        return self.vocabulary * self.hidden

    @property
    def expert(self) -> int:
        """One expert of one layer: gate, up and down projection."""
        return _weights(self.mlp(self.expert_width))

    @property
    def parameters(self) -> Count:
        """The whole model."""
        return self._count(self.dense_layers, self.layers - self.dense_layers, embeddings=2)

    @property
    def active(self) -> float:
        """Parameters that one token goes through, embedding and head included."""
        sparse = self.layers - self.dense_layers
        return self.parameters.others + sparse * self.experts_per_token * self.expert

    @property
    def linear(self) -> float:
        """Parameters that MXFP8 quantizes: projections of attention and MLPs, dense and sparse."""
        dense = self.dense_layers * _weights(self.mlp(self.dense_width))
        return self.layers * _weights(self.attention) + dense + self.parameters.experts

    def mlp(self, width: int) -> list[tuple[int, int]]:
        """(inputs, outputs) of a gated MLP's three projections; there is no shared expert."""
        return [(self.hidden, width), (self.hidden, width), (width, self.hidden)]

    def stage(self, stages: int) -> Count:
        """The fullest of ``stages`` pipeline stages: the last, all sparse layers, and the head.

        Layers are cut at layer boundaries; if they do not divide, this one has one more.
        """
        if stages == 1:
            return self.parameters
        dense, sparse = self._last(stages)
        return self._count(dense, sparse, embeddings=1)

    def adapters(self, rank: int, stages: int = 1) -> Count:
        """Low-rank adapters on every projection of attention, MLPs and each single expert.

        A projection from i to o values has rank × (i + o) of them; router, embedding and head have
        none. Of several pipeline stages, those of the fullest.
        """
        dense, sparse = self._last(stages)
        attention = _sides(self.attention) * (dense + sparse)
        mlp = _sides(self.mlp(self.dense_width)) * dense
        experts = _sides(self.mlp(self.expert_width)) * self.experts * sparse
        return Count(rank * (attention + mlp), rank * experts)

    @property
    def full_layers(self) -> int:
        """Layers that keep keys and values of the whole sequence."""
        return self.layers // WINDOWED + (self.layers % WINDOWED > 0)

    def kv_bytes(self, tokens: int, bytes_each: int = 2) -> float:
        """Bytes of the keys and values of one sequence of ``tokens``, in all layers together."""
        layer = 2 * self.kv_heads * self.head_size * bytes_each  # of one token
        windowed = (self.layers - self.full_layers) * min(tokens, self.window)
        return float(layer * (self.full_layers * tokens + windowed))

    def _last(self, stages: int) -> tuple[int, int]:
        """(dense, sparse) layers of the last of ``stages``."""
        count = ceil(self.layers / stages)
        sparse = min(self.layers - self.dense_layers, count)
        return count - sparse, sparse

    def _count(self, dense: int, sparse: int, embeddings: int) -> Count:
        others = (dense + sparse) * (_weights(self.attention) + self.small)
        others += dense * _weights(self.mlp(self.dense_width)) + sparse * self.router
        others += embeddings * self.embedding + self.hidden  # the norm before the head
        return Count(others, sparse * self.experts * self.expert)


BEAM = Architecture()


def _weights(shapes: list[tuple[int, int]]) -> int:
    return sum(inputs * outputs for inputs, outputs in shapes)


def _sides(shapes: list[tuple[int, int]]) -> int:
    return sum(inputs + outputs for inputs, outputs in shapes)
