"""Whatever stands in a configuration, it gives a model or one sentence, never another error."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capacity.errors import SpecError
from capacity.importers.huggingface.model import import_model
from capacity.specs.model import ModelSpec

SMALL = [
    case["config"]
    for case in json.loads((Path(__file__).parent.parent / "data" / "model_counts_small.json").read_text())
]
LISTS = ["layer_types", "mlp_only_layers", "moe_layers", "no_rope_layers", "quantization_config", "torch_dtype"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 40)
    | st.sampled_from([2**31, 10**400])
    | st.floats()
    | st.sampled_from(["", "full_attention", "fp8", "gptq"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["bits", "quant_method"]), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_configuration_is_a_model_or_one_sentence(data):
    config = dict(data.draw(st.sampled_from(SMALL)))
    for key in data.draw(st.lists(st.sampled_from([*config, *LISTS]), min_size=1, max_size=3)):
        config[key] = data.draw(VALUES)

    try:
        outcome = import_model(config)
    except SpecError as error:
        outcome = str(error)

    assert isinstance(outcome, ModelSpec) or ("\n" not in outcome and len(outcome) < 1500)
