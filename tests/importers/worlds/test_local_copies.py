"""A policy that names its language model by a path: read by the last part of it, or refused with the way out."""

from __future__ import annotations

import pytest

import capacity as cap

SMOLVLA = {"type": "smolvla", "chunk_size": 50, "n_action_steps": 50}


# LeRobot passes vlm_model_name to from_pretrained, which takes a Hub id or the folder of a copy.
@pytest.mark.parametrize("path", ["/models/SmolVLM2-500M-Video-Instruct", "copies/SmolVLM2-500M-Video-Instruct/"])
def test_a_local_copy_is_known_by_the_last_part_of_its_path(path):
    local = cap.load_world_model(SMOLVLA | {"vlm_model_name": path})
    hub = cap.load_world_model(SMOLVLA | {"vlm_model_name": "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"})

    assert local.model == hub.model
    assert any("vlm_model_name is read as HuggingFaceTB/SmolVLM2-500M" in note for note in local.notes)


def test_another_language_model_is_refused_with_the_way_out():
    with pytest.raises(cap.CapacityError, match=r"or a local copy whose folder has that name, got '/models/other'"):
        cap.load_world_model(SMOLVLA | {"vlm_model_name": "/models/other"})


def test_the_actions_that_a_policy_plays_are_part_of_its_head():
    assert cap.load_world_model(SMOLVLA | {"n_action_steps": 10}).head.executed_actions == 10
    assert cap.load_world_model("smolvla").head.executed_actions is None
