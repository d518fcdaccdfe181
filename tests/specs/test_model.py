"""Networks built by hand: parts that do not go together are refused."""

from __future__ import annotations

import re

import pytest

from capacity.catalog.models import load_model
from capacity.catalog.worlds import load_world_model
from capacity.errors import SpecError
from capacity.specs.model import ModelSpec


def hidden_8192(table):
    table["stages"][0]["hidden_size"] = 8192


def vocabulary_of_1(table):
    table["vocabulary"] = 1


def head_of_7_by_9(table):
    table["stages"][0]["after"][1]["shape"] = (7, 9)


def flat_head(table):
    table["stages"][0]["after"][1]["shape"] = (128_256 * 4_096,)


def tied_without_table(table):
    table["stages"][0]["before"] = []
    table["stages"][0]["after"][1]["tied"] = True


def tied_both(table):
    table["stages"][0]["before"][0]["tied"] = True
    table["stages"][0]["after"][1]["tied"] = True


def names_twice(table):
    table["stages"] *= 2


# Llama 3 8B, config.json: hidden_size 4096, vocab_size 128256, tie_word_embeddings false.
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (hidden_8192, "embedding has width 4,096, but hidden_size is 8,192"),
        (vocabulary_of_1, "embedding of 128,256 x 4,096 does not have one row for each of 1 tokens"),
        (head_of_7_by_9, "lm_head of 7 x 9 does not have one row for each of 128,256 tokens"),
        (flat_head, "lm_head of 525,336,576 does not have one row for each of 128,256 tokens"),
        (tied_without_table, "lm_head of 128,256 x 4,096 is tied, but there is no embedding of that size"),
        (tied_both, "lm_head of 128,256 x 4,096 is tied, but there is no embedding of that size"),
        (names_twice, "stage names repeat: decoder, decoder"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(change, sentence):
    table = load_model("llama-3-8b").model_dump(mode="json")
    change(table)
    with pytest.raises(SpecError, match=re.escape(sentence)):
        ModelSpec.parse(table, "by hand")


def test_a_mixer_reads_the_width_of_its_stage():
    table = load_world_model("dreamerv3-12m").model.model_dump(mode="json")
    core = next(stage for stage in table["stages"] if stage["role"] == "decoder")
    for matrix in core["layers"][0]["mixer"]["matrices"]:
        matrix["columns"] = 77
    with pytest.raises(SpecError, match="has no matrix whose input width is hidden_size, 2,048"):
        ModelSpec.parse(table, "by hand")


# OPT-350M, config.json: word_embed_proj_dim 512, hidden_size 1024; tables are narrower than layers.
def test_a_table_that_is_projected_has_a_width_of_its_own():
    table = load_model("llama-3-8b").model_dump(mode="json")
    stage = table["stages"][0]
    stage["before"][0]["shape"], stage["after"][1]["shape"] = (128_256, 512), (128_256, 512)
    stage["before"].append({"name": "project_in", "shape": (4_096, 512), "part": "mlp"})
    assert ModelSpec.parse(table, "by hand").decoder.hidden_size == 4_096
