"""Figures of lesson 02: blocks of a pool, the tree of cached prefixes, hit rates, and what reuse saves.

Every function draws numbers that the learner computed and returns the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvcourse.plots.style import COLOURS, bar_looks, line_looks, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a block may be, and how it is drawn: colour, hatch, colour of the text.
STATES = {
    "empty": ("#ffffff", "", "#555555"),
    "idle, can be found": ("#cfe5f5", "...", "#000000"),
    "in use": (COLOURS[0], "", "#ffffff"),
    "in use by several": (COLOURS[1], "///", "#000000"),
}


@styled
def pool_strips(moments: Mapping[str, Sequence[tuple[str, str]]], title: str = "The blocks of the pool") -> Figure:
    """One strip of blocks for each moment; a block is (one of STATES, text)."""
    most = max(len(blocks) for blocks in moments.values())
    figure, (axes,) = new_figure(min(11, max(6.2, 3.2 + 0.62 * most)), 0.52 * len(moments) + 1.2)
    for row, blocks in enumerate(moments.values()):
        for column, (state, text) in enumerate(blocks):
            _block(axes, column, row, state, text)
    axes.set_xlim(-0.6, most - 0.4)
    axes.set_ylim(len(moments) - 0.4, -0.6)
    axes.set_xticks(range(most), [str(number) for number in range(most)])
    axes.set_yticks(range(len(moments)), list(moments))
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("block number")
    axes.set_title(title)
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="#777777", label=state)
        for state, (colour, hatch, _) in STATES.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _block(axes: Axes, x: float, y: float, state: str, text: str) -> None:
    from matplotlib.patches import Rectangle

    colour, hatch, ink = STATES[state]
    axes.add_patch(
        Rectangle((x - 0.45, y - 0.4), 0.9, 0.8, facecolor=colour, hatch=hatch, edgecolor="#777777", linewidth=0.8)
    )
    back = {"facecolor": colour, "edgecolor": "none", "pad": 1.2} if hatch else None
    axes.text(x, y, text, ha="center", va="center", fontsize=8.5, color=ink, bbox=back)


@styled
def prefix_tree(prompts: Mapping[str, Sequence[str]]) -> Figure:
    """The blocks of some prompts as a tree: what two prompts share from the first block on is drawn once.

    prompts: {name: texts of its blocks}
    """
    places: dict[tuple[str, ...], float] = {}
    users: dict[tuple[str, ...], int] = {}
    for row, blocks in enumerate(sorted(prompts.values(), key=list)):
        for end in range(1, len(blocks) + 1):
            path = tuple(blocks[:end])
            places.setdefault(path, row)
            users[path] = users.get(path, 0) + 1
    depth = max(len(path) for path in places)
    width = max(len(path[-1]) for path in places) * 0.085 + 0.5
    figure, (axes,) = new_figure(min(11, depth * width + 1.6), 0.5 * len(prompts) + 1.0)
    for path, row in places.items():
        if len(path) > 1:
            parent = places[path[:-1]]
            axes.plot([len(path) - 1.55, len(path) - 1.45], [parent, row], color="#555555", linewidth=1.2)
        _block(axes, len(path) - 1, row, "in use by several" if users[path] > 1 else "in use", path[-1])
    for name, blocks in prompts.items():
        axes.text(len(blocks) - 0.45, places[tuple(blocks)], f" {name}", va="center", fontsize=8.5)
    axes.set_xlim(-0.6, depth + 0.2)
    axes.set_ylim(len(prompts) - 0.4, -0.6)
    axes.axis("off")
    total, kept = sum(len(blocks) for blocks in prompts.values()), len(places)
    axes.set_title(f"{total} blocks of prompts, {kept} blocks in the cache (striped: shared)")
    return figure


@styled
def hit_rates(capacity_tokens: Sequence[int], ratios: Mapping[str, Sequence[float]], ceiling: float) -> Figure:
    """Share of prompt tokens that are found against the size of the cache, by rule of eviction."""
    figure, (axes,) = new_figure(7.2, 3.9)
    for (name, values), look in zip(ratios.items(), line_looks(), strict=False):
        axes.plot(capacity_tokens, [100 * value for value in values], label=name, **look)
    axes.axhline(100 * ceiling, color="#555555", linewidth=1.2, linestyle=":", label="a cache without limit")
    axes.set_xscale("log")
    axes.set_ylim(0, min(100, 125 * ceiling))
    axes.set_xlabel("size of the cache, tokens (log scale)")
    axes.set_ylabel("prompt tokens found, %")
    axes.set_title(f"LRU needs far more room than the optimal rule to come near {100 * ceiling:.0f} %")
    axes.legend(loc="best")
    return figure


@styled
def before_after(
    computed: Mapping[str, tuple[float, float]],
    seconds: Mapping[str, tuple[float, float]],
    title: str = "Tokens that are found need not be computed",
) -> Figure:
    """Tokens computed and mean TTFT, without and with a prefix cache, by shape of the prompts."""
    figure, axes = new_figure(9.4, 0.62 * len(computed) + 1.5, columns=2, sharey=True)
    for panel, values, label in zip(
        axes, (computed, seconds), ("prompt tokens computed", "time to first token, mean, s"), strict=True
    ):
        _pairs(panel, values, label)
    axes[0].set_yticks(range(len(computed)), list(computed))
    axes[0].invert_yaxis()
    axes[0].set_title(title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _pairs(axes: Axes, values: Mapping[str, tuple[float, float]], label: str) -> None:
    for which, (shift, name, look) in enumerate(
        zip((-0.19, 0.19), ("without prefix cache", "with prefix cache"), bar_looks(), strict=False)
    ):
        for row, pair in enumerate(values.values()):
            axes.barh(row + shift, pair[which], height=0.36, label=name if row == 0 else None, **look)
            text = f" {pair[which]:,}" if isinstance(pair[which], int) else f" {pair[which]:.2f}"
            axes.text(pair[which], row + shift, text, va="center", fontsize=8.5)
    axes.set_xlim(right=1.18 * max(max(pair) for pair in values.values()))
    axes.set_xlabel(label)
    axes.grid(axis="y", visible=False)


@styled
def error_by_share(shares: Sequence[float], curves: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Error of the next-token distribution against the share of tokens computed again, by way of choosing them."""
    figure, (axes,) = new_figure(7.2, 3.7)
    for (name, values), look in zip(curves.items(), line_looks(), strict=False):
        axes.plot([100 * share for share in shares], values, label=name, **look)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens of the document computed again, %")
    axes.set_ylabel("KL to the exact model, nats")
    axes.set_title(title)
    axes.legend()
    return figure


def block_states(users: Sequence[int], held: Mapping[int, Any], texts: Mapping[int, str]) -> list[tuple[str, str]]:
    """(state, text) of every block, for `pool_strips`; users: tables that name it; held: blocks that can be found."""
    states = []
    for block, count in enumerate(users):
        if count:
            state = "in use by several" if count > 1 else "in use"
        else:
            state = "idle, can be found" if block in held else "empty"
        states.append((state, "" if state == "empty" else texts.get(block, "")))
    return states


@styled
def story_strips(story: Any) -> Figure:
    """The blocks before each call of a story of `find_difference`, with their tokens; the last call goes wrong."""
    moments = {}
    for number, told in enumerate(story.told, start=1):
        blocks = []
        for block in told.before:
            state = "in use by several" if len(block.users) > 1 else "in use" if block.users else "empty"
            if block.full and not block.users:
                state = "idle, can be found"
            blocks.append((state, " ".join(map(str, block.tokens))))
        moments[f"before {number}. {told.step.kind}"] = blocks
    return pool_strips.__wrapped__(moments, "How it came about: the blocks before each call")
