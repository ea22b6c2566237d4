"""The figures of lesson 05: what they say in words, drawn from small data."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from kvcourse.plots import chunked as plots

STEPS = [(0.0, 0.1, {"answer": 1}), (0.1, 0.5, {"prompt": 40}), (0.5, 0.6, {"answer": 1, "prompt": 1})]
CHUNKS = [(0.0, 0.1, {"answer": 1}), (0.1, 0.4, {"answer": 1, "prompt": 20}), (0.4, 0.7, {"answer": 1, "prompt": 20})]


def figures() -> dict[str, Figure]:
    return {
        "bytes": plots.step_bytes([1024, 2048, 4096], {"8 sequences": [1.0, 2.0, 4.0]}, 3.0, "A model"),
        "pool": plots.pool_of_chunks([2, 0], [[8, 9, 10], [11, 0]], block_size=4, blocks=3),
        "timeline": plots.step_timeline({"whole": STEPS, "chunks": CHUNKS}, "A prompt in chunks"),
        "latency": plots.latency_by_budget(["16", "whole"], {"p99": [0.1, 0.9]}, {"p99": [2.0, 1.0]}),
        "sectors": plots.sectors_moved({"first": 4000, "yours": 1000}, "4 times fewer"),
        "tiles": plots.causal_tiles(count=20, cached=50),
        "blocks": plots.blocks_for_processors([1, 8], [8, 64], {"a T4": 40}),
    }


@pytest.fixture(scope="module")
def drawn() -> dict[str, Figure]:
    return figures()


def words(figure: Figure) -> str:
    """Everything that is written in a figure."""
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    ticks = [label.get_text() for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return " | ".join([*texts, *ticks, *(text.get_text() for legend in legends for text in legend.get_texts())])


@pytest.mark.parametrize("name", ["bytes", "pool", "timeline", "latency", "sectors", "tiles", "blocks"])
def test_every_figure_has_a_title_and_labels_with_units(drawn, name):
    figure = drawn[name]
    figure.canvas.draw()  # what cannot be drawn fails here
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert figure.get_suptitle() or all(titles)
    assert figure.axes[-1].get_xlabel()


def test_every_position_stands_in_its_slot(drawn):
    places = {text.get_text(): text.get_position()[0] for text in drawn["pool"].axes[0].texts}
    assert sorted(places, key=int) == ["0", "1", "2", "3", "4"]
    assert places["4"] < places["0"] < places["3"], "position 4 is in block 0, the others in block 2"
    assert "pass 1 | pass 2" in words(drawn["pool"])


def test_a_wait_is_drawn_between_two_tokens(drawn):
    whole, chunks = drawn["timeline"].axes

    def boxes(axes, colour):
        from matplotlib.colors import to_rgba

        return [box for box in axes.patches if box.get_facecolor() == to_rgba(colour)]

    waits = [box for box in boxes(whole, plots.WAIT) if box.get_y() < 0.5]
    assert [(box.get_x(), box.get_width()) for box in waits] == [(0.0, pytest.approx(0.6))]
    assert len(boxes(whole, plots.DECODE)) == 3 and len(boxes(chunks, plots.DECODE)) == 3
    assert len(boxes(whole, plots.PROMPT)) == 1 and len(boxes(chunks, plots.PROMPT)) == 2
    assert "40" in words(drawn["timeline"]) and "answer | prompt" in words(drawn["timeline"])


def test_tiles_behind_the_last_query_are_skipped(drawn):
    texts = [text.get_text() for text in drawn["tiles"].axes[0].texts]
    assert texts.count("loaded") == 8 and texts.count("skipped") == 1
    assert drawn["tiles"].axes[0].get_title(loc="left").startswith("8 of 9 tiles are loaded")


def test_bars_carry_their_numbers(drawn):
    assert "4,000" in words(drawn["sectors"]) and "1,000" in words(drawn["sectors"])
    assert "multiprocessors of a T4: 40" in words(drawn["blocks"]) and "64" in words(drawn["blocks"])


def test_the_weights_are_a_line_of_their_own(drawn):
    assert "the weights, 3 GB" in words(drawn["bytes"])
    assert "1K | 2K | 4K" in words(drawn["bytes"])
