"""Encoders against an operator-level count by torch on the meta device, and against published arithmetic."""

from __future__ import annotations

from itertools import pairwise

import pytest

from capacity.catalog.worlds import load_world_model
from capacity.demand.encoders import encoder_work
from capacity.demand.parameters import parameter_count
from capacity.importers.worlds.model import import_world_model
from capacity.specs.deployment import Deployment
from capacity.specs.world import WorldModelSpec

BF16 = Deployment(weights="bf16")
SO400M = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
    "vision_use_head": False,
}
DINO_L = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14, "library": "timm"}
VIT_B = {"model_type": "clip_vision_model", "patch_size": 16}


def encode_flop(world: WorldModelSpec, images: int = 1) -> float:
    return float(encoder_work(world, BF16, world.encoders[0], images=images).flop)


def imported(config: dict) -> WorldModelSpec:
    return import_world_model(config, "test", "test")


# timm models, counted by torch FlopCounterMode on the meta device (torch 2.13): GFLOP to three digits.
@pytest.mark.parametrize(
    ("config", "gflop"),
    [
        (SO400M, 218.969),
        ({**SO400M, "image_size": 384}, 666.448),
        ({"model_type": "dinov2_with_registers", **DINO_L}, 164.644),
        (VIT_B, 35.126),
        (
            {
                **VIT_B,
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
            },
            123.107,
        ),
    ],
)
def test_transformer_encoders_have_their_published_arithmetic(config, gflop):
    assert round(encode_flop(imported(config)) / 1e9, 3) == gflop


# timm prints these parameters: SigLIP So400m 412,442,352 at 224 px; 413.0 M at 384; DINOv2-L with registers 303.2 M.
def test_transformer_encoders_have_their_published_parameters():
    assert parameter_count(imported(SO400M).model).total == 412_442_352
    assert round(parameter_count(imported({**SO400M, "image_size": 384}).model).total / 1e6, 1) == 413.0
    dino = imported({"model_type": "dinov2_with_registers", **DINO_L})
    assert round(parameter_count(dino.model).total / 1e6, 1) == 303.2


# OpenVLA: 218.97 + 164.64 GF an image for the two encoders, and the projector's three matrices at 256 tokens.
def test_openvla_encodes_an_image_with_both_encoders():
    world = load_world_model("openvla-7b")
    both = sum(encoder_work(world, BF16, encoder, images=1).flop for encoder in world.encoders)
    projector = 2 * 256 * (8704 * 2176 + 4096 * 8704 + 4096 * 4096)

    assert round((both - projector) / 1e9, 1) == 383.6


def test_arithmetic_grows_with_images_and_weights_do_not():
    world = imported(SO400M)
    one, eight = (encoder_work(world, BF16, world.encoders[0], images=count) for count in (1, 8))

    assert eight.flop == 8 * one.flop
    assert eight.moved_bytes == one.moved_bytes


def test_an_encoder_of_tabulated_arithmetic_is_charged_that():
    table = load_world_model("dreamerv3-1m").model_dump()
    encoder = {**table["encoders"][0], "image_flop": 8.18e9}
    world = load_world_model({**table, "encoders": [encoder]})

    assert encode_flop(world, images=2) == pytest.approx(2 * 8.18e9)


def counted(module, *inputs) -> int:
    """What torch's operator-level counter sees on the meta device."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.device("meta"), counter, torch.no_grad():
        module()(*[torch.empty(*shape, device="meta") for shape in inputs])
    return counter.get_total_flops()


def test_dreamer_convolutions_equal_the_operator_count():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def network():
        layers, channels = [], [3, 128, 192, 256, 256]
        for before, after in pairwise(channels):
            layers += [nn.Conv2d(before, after, 5, padding=2), nn.MaxPool2d(2), nn.SiLU()]
        return nn.Sequential(*layers)

    assert encode_flop(load_world_model("dreamerv3-200m")) == counted(network, (1, 3, 64, 64))


@pytest.mark.parametrize("frames", [2, 8])
def test_video_transformer_equals_the_operator_count(frames):
    torch = pytest.importorskip("torch")
    nn, width, heads, inner, side = torch.nn, 192, 3, 768, 64

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

        def forward(self, x):
            q, k, v = self.qkv(x).reshape(x.shape[0], x.shape[1], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            scores = torch.matmul(q, k.transpose(-1, -2)).softmax(-1)
            x = x + self.out(torch.matmul(scores, v).transpose(1, 2).flatten(2))
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv3d(3, width, (2, 16, 16), (2, 16, 16))
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])

        def forward(self, x):
            return self.blocks(self.patches(x).flatten(2).transpose(1, 2))

    world = imported(
        {
            "model_type": "vjepa2",
            "hidden_size": width,
            "num_hidden_layers": 4,
            "num_attention_heads": heads,
            "crop_size": side,
            "frames_per_clip": frames,
        }
    )
    assert encode_flop(world) == counted(Network, (1, 3, frames, side, side))


def test_gated_vision_transformer_equals_the_operator_count():
    torch = pytest.importorskip("torch")
    nn, width, inner = torch.nn, 96, 256  # DINOv2's SwiGLU: 4 x 96 x 2 / 3 = 256

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 14, 14)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
            self.extra = nn.Parameter(torch.empty(1, 5, width))

        def forward(self, x):
            x = torch.cat([self.extra, self.patches(x).flatten(2).transpose(1, 2)], 1)
            q, k, v = self.qkv(x).chunk(3, -1)
            x = self.out(torch.matmul(torch.matmul(q, k.transpose(-1, -2)).softmax(-1), v))
            gate, up = self.up(x).chunk(2, -1)
            return self.down(torch.nn.functional.silu(gate) * up)

    world = imported(
        {
            "model_type": "dinov2_with_registers",
            "hidden_size": width,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 56,
            "patch_size": 14,
            "use_swiglu_ffn": True,
        }
    )
    assert encode_flop(world) == counted(Network, (1, 3, 56, 56))
