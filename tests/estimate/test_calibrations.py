"""Where a calibration holds and where it is silent; the law with its constants against sums made here."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.estimate.calibrated import calibration_for
from capacity.specs.calibration import Calibration
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import Attention, Dense, LayerGroup, ModelSpec

BF16 = cap.Deployment(weights="bf16")
SHARE, LAYER_S, LAUNCH_S = 0.5, 1e-3, 1e-4
RANGE = {"largest_batch": 16, "largest_context_tokens": 1024}


@pytest.fixture
def fitted(monkeypatch):
    """Put one decode calibration of the part of these tests in the place of the shipped ones."""

    def put(scope=RANGE, **constants):
        where = {"model_kind": "language", "engine": "reference", "device_class": "round-part", "weights": "bf16"}
        item = Calibration(
            name="made here",
            scope={**where, **scope},
            **{"memory_efficiency": {"default": SHARE}, "band_low": 0.9, "band_high": 1.1, "points": ("a", "b")}
            | constants,
        )
        monkeypatch.setattr("capacity.estimate.calibrated.calibrations", lambda: (item,))
        calibration_for.cache_clear()

    yield put
    calibration_for.cache_clear()


@pytest.fixture
def part(make_part):
    return HardwareSpec.model_validate(make_part(bytes_per_s=2e12).model_dump() | {"id": "round-part"})


def mixed(make_decoder, **changes):
    """Six layers in two kinds, four with a window; ``changes`` are those of the second kind."""
    dense, heads = Dense(intermediate_size=512), {"query_heads": 8, "kv_heads": 2, "head_size": 64}
    sliding = Attention(**heads, span="sliding", window=100)
    second = {"mixer": Attention(**heads), "feed_forward": dense} | changes
    groups = [
        LayerGroup(indices=(0, 1, 3, 4), mixer=sliding, feed_forward=dense),
        LayerGroup(indices=(2, 5), **second),
    ]
    return make_decoder("mixed", 512, 1000, groups)


def test_a_step_bound_by_memory_takes_its_bytes_over_the_share_of_the_bandwidth(fitted, part, llama_2_7b):
    """All parameters but the table, and 524,288 bytes for each of the 999 tokens before the one that is computed."""
    fitted()
    found = cap.tpot(llama_2_7b, part, BF16, batch=1, context_tokens=1000)

    moved = 2 * (6_738_415_616 - 32000 * 4096) + 999 * 524_288
    assert found.value == pytest.approx(moved / (SHARE * 2e12), rel=1e-9)
    assert (found.low, found.high) == pytest.approx((0.9 * found.value, 1.1 * found.value))
    assert found.evidence == "calibrated"


def test_the_time_of_a_layer_counts_every_layer_once_whatever_the_kinds(fitted, part, make_decoder):
    model = mixed(make_decoder)
    fitted()
    without = cap.tpot(model, part, BF16, batch=1, context_tokens=50).value
    fitted(layer_s=LAYER_S)

    assert cap.tpot(model, part, BF16, batch=1, context_tokens=50).value - without == pytest.approx(6 * LAYER_S)


def test_the_band_never_reaches_below_the_bound(fitted, part, llama_2_7b):
    fitted(memory_efficiency={"default": 0.95}, band_low=0.5)
    found = cap.tpot(llama_2_7b, part, BF16, batch=np.array([1, 16]), context_tokens=1000)

    assert found.low.tolist() == found.bound.tolist()
    assert np.all(found.high > found.value)


OTHER_KINDS = {
    "an ungated feed-forward": {"feed_forward": Dense(intermediate_size=512, gated=False)},
    "chunked attention": {
        "mixer": Attention(query_heads=8, kv_heads=2, head_size=64, span="chunked", window=64),
    },
    "a layer without a mixer": {"mixer": {"kind": "none"}},
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_layer_of_another_kind_has_no_estimate(fitted, part, make_decoder, kind):
    fitted()
    found = cap.tpot(mixed(make_decoder, **OTHER_KINDS[kind]), part, BF16, batch=1, context_tokens=50)

    assert (found.value, found.low, found.high, found.evidence) == (None, None, None, "computed")
    assert any(note.startswith("no estimate: calibration made here") for note in found.notes)
    assert cap.tpot(mixed(make_decoder), part, BF16, batch=1, context_tokens=50).value


def test_a_model_of_several_stages_has_no_estimate(fitted, part, make_decoder):
    fitted()
    model = mixed(make_decoder)
    second = model.decoder.model_copy(update={"name": "second"})
    both = ModelSpec(name="policy", stages=(model.decoder, second), vocabulary=1000)

    assert cap.tpot(both, part, BF16, batch=1, context_tokens=50).value is None


@pytest.mark.parametrize("name", ["mixtral_8x7b", "deepseek_v3"])
def test_experts_and_latents_have_no_estimate(fitted, part, name, request):
    fitted()
    found = cap.tpot(request.getfixturevalue(name), part, BF16, batch=1, context_tokens=50)

    assert found.value is None
    assert any("dense gated" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kv_cache": "int4_g128"}, "cache"),
        ({"kv_cache": "fp8_e4m3"}, "cache"),
        ({"overrides": [{"part": "mlp", "format": "int4_g128"}]}, "override"),
        ({"overrides": [{"part": "kv_cache", "format": "int8", "layers": "0:3"}]}, "override"),
    ],
)
def test_formats_that_were_not_measured_have_no_estimate(fitted, part, llama_2_7b, changes, word):
    fitted()
    found = cap.tpot(llama_2_7b, part, cap.Deployment(weights="bf16", **changes), batch=1, context_tokens=50)

    assert found.value is None
    assert any(word in note for note in found.notes if note.startswith("no estimate"))


def test_a_cache_format_that_is_said_and_is_the_measured_one_keeps_the_estimate(fitted, part, llama_2_7b):
    fitted()
    given = cap.Deployment(weights="bf16", kv_cache="bf16")

    assert cap.tpot(llama_2_7b, part, given, batch=1, context_tokens=50).value


def test_a_part_with_a_replaced_figure_has_no_estimate(fitted, part, llama_2_7b):
    fitted()
    faster = part.replace(**{"memory.bytes_per_s": 2e13})
    found = cap.tpot(llama_2_7b, faster, BF16, batch=1, context_tokens=50)

    assert found.value is None
    assert any("memory.bytes_per_s" in note for note in found.notes if note.startswith("no estimate"))


@pytest.mark.parametrize(("batch", "context"), [(17, 1), (1, 1025), (4096, 100_000)])
def test_beyond_the_measured_range_there_is_no_estimate_and_a_note_says_why(fitted, part, llama_2_7b, batch, context):
    fitted()
    found = cap.tpot(llama_2_7b, part, BF16, batch=batch, context_tokens=context)

    assert (found.value, found.low, found.high, found.evidence) == (None, None, None, "computed")
    (note,) = [note for note in found.notes if note.startswith("no estimate")]
    assert "batch 16" in note
    assert "context 1,024" in note
    assert cap.tpot(llama_2_7b, part, BF16, batch=16, context_tokens=1024).value


def test_an_array_has_an_estimate_where_it_was_measured_and_none_elsewhere(fitted, part, llama_2_7b):
    fitted()
    batches, contexts = np.array([[1], [16], [17]]), np.array([1, 1024, 1025])
    found = cap.tpot(llama_2_7b, part, BF16, batch=batches, context_tokens=contexts)

    inside = [[True, True, False], [True, True, False], [False, False, False]]
    for side in (found.value, found.low, found.high):
        assert np.isfinite(side).tolist() == inside
    assert found.value[1, 1] == cap.tpot(llama_2_7b, part, BF16, batch=16, context_tokens=1024).value
    assert any("5 of 9 points" in note for note in found.notes)


def test_a_calibration_without_a_range_holds_for_any_batch(fitted, part, llama_2_7b):
    fitted(scope={})
    assert cap.tpot(llama_2_7b, part, BF16, batch=4096, context_tokens=100_000).value


def test_another_part_or_several_devices_have_no_estimate_and_no_note(fitted, make_part, part, llama_2_7b):
    fitted()
    several = cap.Deployment(weights="bf16", tensor_parallel=2)
    for chosen, deploy in ((make_part(), BF16), (part, several)):
        found = cap.tpot(llama_2_7b, chosen, deploy, batch=1, context_tokens=50)
        assert found.value is None
        assert not any("no estimate" in note for note in found.notes)
