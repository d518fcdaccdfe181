"""`capacity servers`, and the prices that go with a part and a server."""

import json

import pytest

from capacity.catalog.prices import load_prices
from capacity.catalog.servers import server_ids
from capacity.cli import run

SERVER, PART = "nvidia-hgx-h100-8x80gb", "nvidia-h100-sxm5-80gb"


def test_the_list_names_every_server(capsys):
    assert run(["servers", "list"]) == 0
    shown = capsys.readouterr().out

    assert all(name in shown for name in server_ids())


def test_a_word_narrows_the_list(capsys):
    assert run(["servers", "list", "h100", "--json"]) == 0

    assert {row["device"] for row in json.loads(capsys.readouterr().out)} == {PART}


def test_a_server_is_shown_with_power_prices_and_sources(capsys):
    assert run(["servers", "show", SERVER]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    for words in ("8 devices nvidia-h100-sxm5-80gb", "full_w", "USD per hour", "Sources"):
        assert words in shown


def test_prices_of_a_part_are_reachable_with_their_dates(capsys):
    assert run(["hardware", "show", PART, "--json"]) == 0
    prices = json.loads(capsys.readouterr().out)["prices"]

    assert [price["date"] for price in prices] == [price.date for price in load_prices(PART)]
    assert prices


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "nvidia-hgx-h100"], "unknown server 'nvidia-hgx-h100'; nearest: nvidia-hgx-h100-8x80gb"),
        (["list", "cray"], "unknown server 'cray'"),
    ],
)
def test_a_server_that_is_not_there_is_one_sentence(arguments, sentence, capsys):
    assert run(["servers", *arguments]) == 2
    assert sentence in capsys.readouterr().err
