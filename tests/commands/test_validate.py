"""`capacity validate`: estimates judged against published tables."""

from __future__ import annotations

from capacity.cli import run
from capacity.validation.speed_rows import COLUMNS


def test_validate_judges_bounds_against_published_rates(printed_json):
    found = printed_json("validate", "--published", "speed")

    assert found["bounds_hold"]
    assert all(pair["bound"] <= pair["measured"] for pair in found["pairs"])


def test_validate_finds_a_measurement_below_the_bound(tmp_path):
    """Llama-2-7B reads 13.2 GB a token: an A100 with 2.039 TB/s cannot make 300 tokens a second at batch 1."""
    file = tmp_path / "wrong.csv"
    row = {"id": "X1", "kind": "decode_tps_per_seq", "model": "meta-llama/Llama-2-7b-hf", "gpu": "A100 SXM 80GB"}
    row |= {"weights_dtype_quant": "bf16", "kv_dtype": "bf16", "n_gpus": "1", "tp": "1", "batch_or_concurrency": "1"}
    row |= {"context_len": "105", "observed_value": "300", "observed_unit": "tok/s"}
    file.write_text(",".join(COLUMNS) + "\n" + ",".join(row.get(name, "") for name in COLUMNS) + "\n")

    assert run(["validate", "--published", "speed", "--file", str(file)]) == 1


def test_validate_refuses_a_table_without_the_columns(capsys, tmp_path):
    file = tmp_path / "wrong.csv"
    file.write_text("a,b\n1,2\n")

    for kind in ("speed", "world"):
        assert run(["validate", "--published", kind, "--file", str(file)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
