"""The picture of predicted against measured: the numbers of the pairs, and a file that is whole or not there."""

from __future__ import annotations

import pytest

from capacity.errors import CapacityError
from capacity.validation.targets import RunPair

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
comparison = pytest.importorskip("capacity.presentation.comparison")


def pair(group, predicted, measured, **more):
    about = {"run_id": "r", "source": "cpu", "model": "m", "batch": 1, "tokens": 1}
    return RunPair("m", "s", predicted, measured, group=group, **about, **more)


# 8 ms predicted and 10 ms measured: 0.8 of it; 33 ms beside 30 ms: 1.1, and outside a band that ends at 29 ms.
PAIRS = [pair("TPOT bound", 0.008, 0.010, bound=0.008), pair("TPOT estimate", 0.033, 0.030, low=0.020, high=0.029)]


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_times_are_drawn_in_milliseconds_and_a_series_for_each_quantity(ax):
    assert comparison.plot_comparison(PAIRS, ax=ax) is ax
    bound, estimate, outside, equal = ax.lines

    assert (bound.get_xdata()[0], bound.get_ydata()[0]) == (pytest.approx(10), pytest.approx(8))
    assert (estimate.get_xdata()[0], estimate.get_ydata()[0]) == (pytest.approx(30), pytest.approx(33))
    assert list(outside.get_ydata()) == [pytest.approx(33)]
    assert list(equal.get_xdata()) == list(equal.get_ydata())
    assert [text.get_text() for text in ax.get_legend().texts][:2] == ["TPOT bound, CPU", "TPOT estimate, CPU"]


def test_ratios_are_predicted_over_measured(ax):
    comparison.plot_ratios(PAIRS, ax=ax)

    assert [line.get_ydata()[0] for line in ax.lines[:3]] == pytest.approx([0.8, 1.1, 1.1])


def test_a_picture_is_whole_or_not_there(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    target = tmp_path / "plot.png"
    assert comparison.save_comparison(PAIRS, str(target)).read_bytes().startswith(b"\x89PNG")

    def full(self, where, **options):
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(CapacityError, match="cannot be written"):
        comparison.save_comparison(PAIRS, str(tmp_path / "other.png"))
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


@pytest.mark.parametrize(("name", "pairs"), [("plot.pdf", PAIRS), ("no/plot.png", PAIRS), ("plot.png", [])])
def test_a_bad_name_or_nothing_to_draw_is_refused(tmp_path, name, pairs):
    with pytest.raises(CapacityError, match="--plot"):
        comparison.save_comparison(pairs, str(tmp_path / name))
