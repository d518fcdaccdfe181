"""The encoders of shipped models, built again in torch and counted operator by operator on the meta device."""

from __future__ import annotations

from itertools import pairwise

import pytest

from capacity.catalog.worlds import load_world_model
from capacity.demand.encoders import encoder_work
from capacity.specs.deployment import Deployment
from capacity.specs.world import WorldModelSpec

torch = pytest.importorskip("torch")
nn = torch.nn
BF16 = Deployment(weights="bf16")


def counted(make, *shape: int) -> int:
    """Arithmetic that torch's operator-level counter sees in one pass. [FLOP]"""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.device("meta"), counter, torch.no_grad():
        make()(torch.empty(*shape))
    return counter.get_total_flops()


def encoded(name: str, index: int = 0) -> float:
    """Arithmetic of one image through an encoder of a shipped model. [FLOP]"""
    world = load_world_model(name)
    return float(encoder_work(world, BF16, world.encoders[index], images=1).flop)


def projections(*widths: int) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(before, after) for before, after in pairwise(widths)])


class Layer(nn.Module):
    """A layer of a vision transformer, every head on its own."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = torch.matmul(torch.matmul(q, k.transpose(-1, -2)).softmax(-1), v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(self.up(x).relu())


class Vision(nn.Module):
    """Patches, class and register tokens, layers; then ``join`` x ``join`` neighbours through ``after``."""

    def __init__(self, width, layers, heads, inner, kernel, *, extra=0, join=1, after=()):
        super().__init__()
        convolve = nn.Conv3d if len(kernel) == 3 else nn.Conv2d
        self.patches = convolve(3, width, kernel, kernel)
        self.extra = nn.Parameter(torch.empty(1, extra, width))
        self.layers = nn.Sequential(*[Layer(width, heads, inner) for _ in range(layers)])
        self.join, self.after = join, nn.ModuleList(after)

    def forward(self, pixels):
        tokens = self.patches(pixels).flatten(2).transpose(1, 2)
        tokens = self.layers(torch.cat([self.extra, tokens], 1))[:, self.extra.shape[1] :]
        joined = tokens.reshape(1, tokens.shape[1] // self.join**2, -1)
        return [head(joined) for head in self.after]


# Qwen3-VL: temporal patches of 2 (a still picture stands twice), 2 x 2 merged, one merger and three deep ones.
def test_a_merger_runs_over_merged_tokens():
    def gr00t():
        mergers = [projections(4096, 4096, 2048) for _ in range(4)]
        return Vision(1024, 24, 16, 4096, (2, 16, 16), join=2, after=mergers)

    assert encoded("gr00t-n1.7-3b") == counted(gr00t, 1, 3, 2, 256, 256)


# SmolVLM2: 1,024 patches of 512 x 512 px, 4 x 4 shuffled into 64 tokens of 12,288.
def test_a_pixel_shuffle_runs_over_merged_tokens():
    def smolvla():
        connector = nn.Linear(12_288, 960, bias=False)
        return Vision(768, 12, 12, 3072, (16, 16), join=4, after=[connector])

    assert encoded("smolvla") == counted(smolvla, 1, 3, 512, 512)


# OpenVLA: both encoders see the picture, the projector sees their patches side by side.
def test_fused_encoders_and_their_projector():
    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.siglip = Vision(1152, 27, 16, 4304, (14, 14), after=[nn.Identity()])
            self.dinov2 = Vision(1024, 24, 16, 4096, (14, 14), extra=5, after=[nn.Identity()])
            self.projector = projections(2176, 8704, 4096, 4096)

        def forward(self, pixels):
            return self.projector(torch.cat([self.siglip(pixels)[0], self.dinov2(pixels)[0]], -1))

    assert encoded("openvla-7b", 0) + encoded("openvla-7b", 1) == counted(Fused, 1, 3, 224, 224)


def test_pi0_sees_its_picture_through_one_projection():
    def pi0():
        return Vision(1152, 27, 16, 4304, (14, 14), after=[nn.Linear(1152, 2048)])

    assert encoded("pi0") == counted(pi0, 1, 3, 224, 224)


# Octo's SmallStem: four convolutions of stride 2 over picture and goal, then one by one to the width of the core.
@pytest.mark.parametrize(("index", "px"), [(0, 256), (1, 128)])
def test_a_convolutional_stem(index, px):
    def stem():
        channels = [6, 32, 96, 192, 384]
        convolutions = [nn.Conv2d(before, after, 3, 2, 1) for before, after in pairwise(channels)]
        return nn.Sequential(*convolutions, nn.Conv2d(384, 512, 1), nn.Conv2d(512, 384, 1))

    assert encoded("octo-small", index) == counted(stem, 1, 6, px, px)


def test_a_state_encoder_of_two_matrices():
    assert encoded("tdmpc2-5m") == counted(lambda: projections(24, 256, 512), 1, 24)


def test_the_video_transformer_of_v_jepa_2_on_a_whole_clip():
    def vit_l():
        return Vision(1024, 24, 16, 4096, (2, 16, 16))

    assert encoded("v-jepa-2-vit-l") == counted(vit_l, 1, 3, 64, 256, 256)


def tokenizer() -> WorldModelSpec:
    """A causal video tokenizer: 17 frames of 64 x 64 px become 1 + 16 / 4 layers of 16 x 16 latents."""
    shapes = {"first": [32, 3, 3, 3, 3], "halve": [64, 32, 3, 3, 3], "shrink": [96, 64, 3, 3, 3], "latent": [6, 96, 1]}
    positions = {"first": 17 * 64 * 64, "halve": 9 * 32 * 32, "shrink": 5 * 16 * 16, "latent": 5 * 16 * 16}
    tensors = [{"name": key, "shape": shape, "part": "vision"} for key, shape in shapes.items()]
    rule = {"height_px": 64, "width_px": 64, "patch_px": 4, "temporal_patch": 4, "frames_together": 5}
    table = {
        "name": "tokenizer",
        "model": {
            "name": "tokenizer",
            "stages": [{"name": "video", "role": "encoder", "hidden_size": 96, "before": tensors}],
        },
        "frames": 17,
        "encoders": [
            {"stage": "video", "tokens": {**rule, "first_frame_alone": True}, "positions": positions},
        ],
        "head": {"kind": "none"},
    }
    return load_world_model(table)


def test_a_causal_video_tokenizer():
    class Causal(nn.Module):
        """Past frames only: the first frame stands in for those before it."""

        def __init__(self, before, after, stride):
            super().__init__()
            self.kernel = nn.Conv3d(before, after, 3, stride, (0, 1, 1))

        def forward(self, x):
            return self.kernel(torch.cat([x[:, :, :1], x[:, :, :1], x], 2))

    def network():
        shrinking = [Causal(3, 32, 1), Causal(32, 64, 2), Causal(64, 96, 2)]
        return nn.Sequential(*shrinking, nn.Conv3d(96, 6, 1))

    world = tokenizer()
    made = encoder_work(world, BF16, world.encoders[0], images=1).flop

    assert world.image_tokens == 5 * 16 * 16
    assert made == counted(network, 1, 3, 17, 64, 64)


def resampled(heads: int, width: int, source: int, queries: int) -> WorldModelSpec:
    """Two layers in which ``queries`` latents look at ``source`` patches of 768."""
    look = {"query_heads": heads, "kv_heads": heads, "head_size": width // heads, "causal": False}
    layer = {
        "indices": [0, 1],
        "mixer": {"kind": "attention", **look, "span": "cross", "source_tokens": source, "source_size": 768},
        "feed_forward": {"kind": "dense", "intermediate_size": 4 * width, "gated": False},
    }
    stage = {"name": "resampler", "role": "encoder", "hidden_size": width, "layers": [layer]}
    rule = {"height_px": 1, "width_px": queries, "patch_px": 1}
    table = {
        "name": "resampler",
        "model": {"name": "resampler", "stages": [stage]},
        "encoders": [{"stage": "resampler", "tokens": rule}],
        "head": {"kind": "none"},
    }
    return load_world_model(table)


# The arithmetic of a perceiver resampler: keys and values of the patches, then cross attention of its latents.
@pytest.mark.parametrize("images", [1, 3])
def test_a_resampler_projects_the_patches_of_every_image(images):
    width, heads, source, queries = 256, 4, 196, 64

    class Look(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
            self.key, self.value = (nn.Linear(768, width, bias=False) for _ in range(2))
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, latents, patches):
            parts = self.query(latents), self.key(patches), self.value(patches)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            mixed = torch.matmul(torch.matmul(q, k.transpose(-1, -2)).softmax(-1), v)
            return self.down(self.up(self.out(mixed.transpose(1, 2).flatten(2))))

    class Resampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.latents = nn.Parameter(torch.empty(images, queries, width))
            self.layers = nn.ModuleList([Look(), Look()])

        def forward(self, patches):
            latents = self.latents
            for layer in self.layers:
                latents = layer(latents, patches)
            return latents

    world = resampled(heads, width, source, queries)
    made = encoder_work(world, BF16, world.encoders[0], images=images)

    assert made.flop == counted(Resampler, images, source, 768)
    # Every weight is read once, whatever the images: two of 768 x 256, two of 256 x 256, eight of the feed-forward.
    weights = 2 * (2 * 768 * width + 2 * width**2 + 8 * width**2)
    norms = 2 * 2 * width
    keys, _ = made.of_operator("attention")
    assert made.moved_bytes - keys == 2 * (weights + norms)
