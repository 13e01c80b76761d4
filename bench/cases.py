"""The cases that are measured: a table by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import models
from bench.models import Model
from bench.operations import OPERATIONS


@dataclass(frozen=True)
class Case:
    """A module to measure.

    Attributes:
        family: the table of the results that it stands in.
        make: gives the JAX function and its argument shapes.
        native: XLA's CPU backend is timed too.
        donated: numbers of the arguments whose memory the results may take.
    """

    family: str
    make: Callable[[], Model]
    native: bool = True
    donated: tuple[int, ...] = ()


VALUES = frozenset(
    """gemm_256 gemm_1024 gemm_8x4096x4096 attention_8x128 softmax_4096x1024 layer_norm_4096x768 resnet50_1 lstm_64x256
    bert_base_1x128""".split()
)
"""Cases of which runs with values are timed."""

GEMM_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
SKINNY = (1, 8, 32, 64, 128, 256)
RAGGED = (192, 320, 448, 512)
CONV_BATCH = 8
EXTRA_CONVS = {
    "depthwise_14x14_512_k3": models.Conv(CONV_BATCH, 14, 512, 512, 3, groups=512),
    "grouped_28x28_256_k3_g32": models.Conv(CONV_BATCH, 28, 256, 256, 3, groups=32),
}

GRADIENTS = (
    "224x224_3_64_k7s2", "56x56_64_64_k3s1", "56x56_64_256_k1s1", "28x28_128_128_k3s1", "28x28_256_256_k3s2",
    "14x14_256_1024_k1s1", "14x14_1024_2048_k1s2", "7x7_512_512_k3s1",
)  # fmt: skip
"""Layers of ResNet-50 of which the weights' gradients are measured: one of each sort."""

CASES: dict[str, Case] = {
    **{f"gemm_{n}": Case("GEMM", partial(models.gemm, n, n, n), n <= 4096) for n in GEMM_SIZES},
    **{f"gemm_{m}x4096x4096": Case("GEMM", partial(models.gemm, m, 4096, 4096)) for m in SKINNY},
    **{f"gemm_128x128x{n}": Case("GEMM", partial(models.gemm, 128, 128, n)) for n in RAGGED},
    "linear_512x768x768": Case("GEMM", partial(models.linear, 512, 768, 768)),
    **{
        f"conv_{name}": Case("convolution", partial(models.conv, layer), native=False)
        for name, layer in (models.resnet50_layers(CONV_BATCH) | EXTRA_CONVS).items()
    },
    **{
        f"weights_{name}": Case("convolution", partial(models.weight_gradient, layer), native=False)
        for name, layer in models.resnet50_layers(CONV_BATCH).items()
        if name in GRADIENTS
    },
    "attention_512": Case("attention, softmax, layer norm", partial(models.heads, 1, 512)),
    "attention_2048": Case("attention, softmax, layer norm", partial(models.heads, 1, 2048)),
    "attention_8x128": Case("attention, softmax, layer norm", partial(models.heads, 8, 128)),
    "attention_2x512_64_heads": Case("attention, softmax, layer norm", partial(models.heads_of_rows, 2, 512, 64)),
    "softmax_4096x1024": Case("attention, softmax, layer norm", partial(models.softmax, 4096, 1024)),
    "softmax_512x512": Case("attention, softmax, layer norm", partial(models.softmax, 512, 512)),
    "softmax_262144x8": Case("attention, softmax, layer norm", partial(models.softmax, 262144, 8)),
    "softmax_20971x100": Case("attention, softmax, layer norm", partial(models.softmax, 20971, 100)),
    "layer_norm_32768x64": Case("attention, softmax, layer norm", partial(models.norm, 32768, 64)),
    "attention_gradient_8x512": Case("attention, softmax, layer norm", partial(models.heads_gradient, 8, 512)),
    "attention_gradient_joined_8x512": Case(
        "attention, softmax, layer norm", partial(models.joined_heads_gradient, 8, 512)
    ),
    "layer_norm_512x768": Case("attention, softmax, layer norm", partial(models.norm, 512, 768)),
    "layer_norm_4096x768": Case("attention, softmax, layer norm", partial(models.norm, 4096, 768)),
    "group_norm_32x56x56x32x2": Case("attention, softmax, layer norm", partial(models.group_norm, 32, 56, 56, 32, 2)),
    "column_sum_4096x1024": Case("reduction", partial(models.column_sum, 4096, 1024)),
    "channel_sum_8x56x56x64": Case("reduction", partial(models.column_sum, 8, 56, 56, 64)),
    **{f"resnet50_{n}": Case("model", partial(models.resnet50, n), n <= 8) for n in (1, 8, 32)},
    "resnet50_train_8": Case("model", partial(models.resnet_train, 8), native=False),
    **{
        f"bert_base_{batch}x{length}": Case("model", partial(models.bert, batch, length), batch == 1)
        for batch in (1, 8)
        for length in (128, 512)
    },
    "gpt2_prefill_512": Case("model", partial(models.gpt2_prefill, 512)),
    "gpt2_decode_512": Case("model", partial(models.gpt2_decode, 512)),
    "gpt2_decode_512_donated": Case("model", partial(models.gpt2_decode, 512), donated=(1,)),
    "lstm_64x256": Case("model", partial(models.lstm, 8, 64, 256)),
    **{f"bert_layer_1x{n}": Case("long sequences", partial(models.bert, 1, n, 1)) for n in (1024, 2048, 4096)},
    **{f"op_{name}": Case("operation", partial(OPERATIONS.__getitem__, name)) for name in OPERATIONS},
    "dense_adam_4096x768x2304": Case("training", partial(models.dense_adam, 4096, 768, 2304), donated=(0, 1, 2)),
    "loss_train_2048x32000": Case("training", partial(models.loss_train, 2048, 512, 32000)),
    "mlp_train_512x1024": Case("training", partial(models.mlp_train, 512, 1024)),
    "bert_layer_train_8x128": Case("training", partial(models.bert_train, 8, 128, 1)),
    "gpt2_layer_train_8x512": Case("training", partial(models.gpt2_train, 8, 512, 1), native=False, donated=(0, 1, 2)),
}
