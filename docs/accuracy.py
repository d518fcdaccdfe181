"""How far the closed forms agree with outside truth: the table of README.md, from the tables under tests/data.

``python docs/accuracy.py`` prints it, ``python docs/accuracy.py --write`` puts it into README.md; a test fails when
README.md holds another one.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import capacity as cap
from capacity.demand.memory import cache_rows

ROOT = Path(__file__).resolve().parent.parent
DATA, README = ROOT / "tests" / "data", ROOT / "README.md"
START, END = "<!-- accuracy: written by docs/accuracy.py -->\n", "<!-- /accuracy -->\n"
BF16 = cap.Deployment(weights="bf16")


def table() -> str:
    """The accuracy table in Markdown."""
    counts = oracle_counts()
    rooflines, bounds = golden_errors()
    rows = [
        ("quantity", "judged on", "result"),
        ("---", "---", "---"),
        (
            "parameters and cache per token",
            "counts of `transformers` on the meta device, tests/data/model_oracle.csv and model_oracle_2.csv",
            f"{counts['exact']} models equal to the integer and the byte, {counts['wrong']} wrong, "
            f"{counts['refused']} of a type refused by name",
        ),
        (
            "roofline of TPOT and TTFT",
            "cases that two independent programs agree on, tests/data/golden_bounds.csv",
            _agreement(rooflines),
        ),
        (
            "bound on TPOT and TTFT",
            "the same cases, counted again in tests/test_least_work.py",
            _agreement(bounds),
        ),
    ]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def _agreement(errors: list[float]) -> str:
    return f"{len(errors)} cases, mean absolute difference {sum(errors) / len(errors):.2%}, worst {max(errors):.2%}"


def oracle_counts() -> dict[str, int]:
    """Rows of both tables of the oracle with a configuration: exact, wrong, or of a type that is refused by name."""
    counts = {"exact": 0, "wrong": 0, "refused": 0}
    for row in (*_rows("model_oracle.csv"), *_rows("model_oracle_2.csv")):
        name = row["model"].replace("/", "__").replace(" (", "_").replace(")", "").replace(" ", "_")
        file = DATA / "model_configs" / f"{name}.json"
        if file.exists() and row["total_params"]:
            counts[_judge(row, json.loads(file.read_text(encoding="utf-8")))] += 1
    return counts


def _judge(row: dict[str, str], config: dict[str, Any]) -> str:
    try:
        model = cap.load_model({key: value for key, value in config.items() if key != "_oracle"})
    except cap.CapacityError:
        return "refused"
    rows = cache_rows(model, BF16)
    found = (
        cap.parameter_count(model).total,
        sum(r.layers * r.layer.token_bytes for r in rows),
        sum(r.layers * r.layer.token_bytes for r in rows if not r.layer.window),
    )
    columns = ("total_params", "kv_bytes_per_token_below_window", "kv_bytes_per_token_beyond_window")
    return "exact" if found == tuple(int(float(row[name] or 0)) for name in columns) else "wrong"


def golden_errors() -> tuple[list[float], list[float]]:
    """Absolute relative difference of each golden roofline, and of each golden bound."""
    rows = [(row, _times_s(row)) for row in _rows("golden_bounds.csv")]
    rooflines = [abs(times[0] * 1e3 / float(row["milliseconds"]) - 1) for row, times in rows]
    return rooflines, [abs(times[1] * 1e3 / float(row["bound_milliseconds"]) - 1) for row, times in rows]


def _times_s(row: dict[str, str]) -> tuple[float, float]:
    """Roofline and bound of a case. [s]"""
    degrees = ("tensor_parallel", "data_parallel", "expert_parallel")
    chosen = {name: int(row[name]) for name in degrees if row[name]}
    deploy = cap.Deployment(weights=row["weights"], activations=row["activations"], **chosen)
    model, part, batch, tokens = (
        cap.load_model(row["model"]), cap.load_hardware(row["part"]), int(row["batch"]), int(row["tokens"]),
    )  # fmt: skip
    if row["phase"] == "decode":
        found = cap.tpot(model, part, deploy, batch=batch, context_tokens=tokens)
    else:
        found = cap.ttft(model, part, deploy, batch=batch, prompt_tokens=tokens)
    return float(found.roofline), float(found.bound)


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def written(readme: str) -> str:
    """The table that a README holds between the markers."""
    return readme.split(START, 1)[1].split(END, 1)[0]


def main() -> None:
    """Print the table, or write it."""
    fresh = table()
    if "--write" not in sys.argv[1:]:
        print(fresh, end="")
        return
    text = README.read_text(encoding="utf-8")
    README.write_text(text.replace(START + written(text) + END, START + fresh + END), encoding="utf-8")


if __name__ == "__main__":
    main()
