"""Parameters against published counts."""

from __future__ import annotations

import pytest

import capacity as cap


# Parameter totals counted on the meta device by transformers 5.24.0; Llama-2-7B also equals the checkpoint index.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llama_2_7b", 6_738_415_616),
        ("llama_3_8b", 8_030_261_248),
        ("llama_3_70b", 70_553_706_496),
        ("mixtral_8x7b", 46_702_792_704),
        ("deepseek_v3", 671_026_404_352),
    ],
)
def test_parameters_equal_the_published_count(name, total, request):
    assert cap.parameter_count(request.getfixturevalue(name)).total == total


# Mixtral README: 12.9 B active. DeepSeek-V3, counted with the input embedding: 37,552,282,624.
def test_active_parameters_scale_only_the_routed_experts(mixtral_8x7b, deepseek_v3):
    assert round(cap.parameter_count(mixtral_8x7b).active / 1e9, 1) == 12.9
    assert cap.parameter_count(deepseek_v3).active == 37_552_282_624


def test_read_per_token_leaves_out_the_input_table(llama_3_8b):
    count = cap.parameter_count(llama_3_8b)
    assert count.read_per_token == count.total - 128256 * 4096
