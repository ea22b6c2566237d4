"""Figures of lesson 01: how big a cache is, what is reserved, and what fewer bits cost.

Every function draws numbers that the learner computed and returns the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvcourse.plots.style import bar_looks, label_line_ends, line_looks, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor


@styled
def token_bars(early: Mapping[str, int], late: Mapping[str, int], kinds: Mapping[str, str]) -> Figure:
    """Bytes that one token adds, by model: a bar for an early token, a tick for one beyond every window."""
    names = sorted(early, key=lambda name: early[name])
    figure, (axes,) = new_figure(7.6, 0.29 * len(names) + 1.5)
    looks = dict(zip(dict.fromkeys(kinds[name] for name in reversed(names)), bar_looks(), strict=False))
    for row, name in enumerate(names):
        axes.barh(row, early[name], height=0.68, **looks[kinds[name]])
        axes.text(early[name] * 1.07, row, f"{early[name]:,}", va="center", fontsize=8.5)
        if 0 < late[name] < early[name]:
            axes.plot([late[name]] * 2, [row - 0.42, row + 0.42], color="black", linewidth=2.4)
    axes.set_yticks(range(len(names)), names)
    axes.set_xscale("log")
    axes.set_xlim(right=max(early.values()) * 3)
    axes.set_xlabel("bytes that one token adds, 16 bits a number (log scale)")
    axes.grid(axis="y", visible=False)
    axes.set_title(
        f"A token of {names[-1]} takes {early[names[-1]] / early[names[0]]:.0f} times the room of one of {names[0]}"
    )
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [Patch(label=kind, **look) for kind, look in looks.items()]
    handles.append(Line2D([], [], color="black", linewidth=2.4, label="a token beyond every window"))
    axes.legend(handles=handles, loc="lower right", handlelength=1.6, frameon=True, framealpha=0.95, edgecolor="white")
    return figure


@styled
def cache_growth(tokens: Sequence[int], sizes: Mapping[str, Sequence[int]]) -> Figure:
    """Bytes of one sequence's cache against its length, by model, both axes logarithmic."""
    figure, (axes,) = new_figure(7.2, 4.4)
    ends = {}
    for (name, values), look in zip(sizes.items(), line_looks(), strict=False):
        axes.plot(tokens, [size / 1e9 for size in values], label=name, **look)
        ends[name] = (values[-1] / 1e9, look["color"])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(tokens[::2], [_short(n) for n in tokens[::2]])
    axes.set_xlabel("tokens of the sequence (K = 1,024)")
    axes.set_ylabel("cache of one sequence, GB (log scale)")
    axes.set_title("A window bends the line, a constant state lifts its start")
    label_line_ends(axes, tokens[-1], ends)
    return figure


@styled
def needed_and_reserved(needed: Mapping[str, int], reserved: Mapping[str, int], batch: str) -> Figure:
    """GiB that sequences need and GiB that an engine reserves, by model."""
    figure, (axes,) = new_figure(7.2, 0.55 * len(needed) + 1.4)
    names = list(needed)
    for shift, values, label, look in zip(
        (-0.19, 0.19), (needed, reserved), ("needed", "reserved in full blocks"), bar_looks(), strict=False
    ):
        rows = [row + shift for row in range(len(names))]
        axes.barh(rows, [values[name] / 2**30 for name in names], height=0.36, label=label, **look)
        for row, name in zip(rows, names, strict=True):
            axes.text(values[name] / 2**30, row, f" {values[name] / 2**30:.2f}", va="center", fontsize=8.5)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(right=max(reserved.values()) / 2**30 * 1.12)
    axes.set_xlabel(f"GiB for {batch}, 16 bits a number")
    worst = max(names, key=lambda name: reserved[name] / needed[name])
    axes.set_title(
        f"Full blocks for sliding layers cost up to {reserved[worst] / needed[worst]:.1f} times the need ({worst})"
    )
    axes.legend(loc="lower right")
    return figure


@styled
def tokens_by_bits(plain: Mapping[str, int], stored: Mapping[str, int], budget: str) -> Figure:
    """Tokens that a budget holds, by way of storing: counting the numbers alone, and with their scales and zeros."""
    figure, (axes,) = new_figure(7.2, 3.3)
    names = list(plain)
    for shift, values, label, look in zip(
        (-0.2, 0.2),
        (plain, stored),
        ("numbers alone", "with a 16-bit scale and zero per group"),
        bar_looks(),
        strict=False,
    ):
        places = [place + shift for place in range(len(names))]
        axes.bar(places, [values[name] / 1000 for name in names], width=0.38, label=label, **look)
        for place, name in zip(places, names, strict=True):
            axes.text(place, values[name] / 1000, f"{values[name] / 1000:,.0f}", ha="center", va="bottom", fontsize=8.5)
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("width of a stored number")
    axes.set_ylabel(f"thousand tokens in {budget}")
    axes.set_title("Fewer bits make room; scales and zeros take part of it back")
    axes.legend(loc="upper left")
    return figure


@styled
def key_value_maps(keys: Tensor, values: Tensor, where: str) -> Figure:
    """Size of every key number beside every value number, one head: tokens down, channels across."""
    figure, pair = new_figure(7.6, 3.9, columns=2, sharey=True)
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.6, 0, float(keys.abs().max()))  # lifts the small numbers out of the dark
    for axes, numbers, name in zip(pair, (keys, values), ("keys", "values"), strict=True):
        image = axes.imshow(numbers.abs(), aspect="auto", cmap="cividis", norm=norm, interpolation="nearest")
        axes.set_title(f"{name}, {where}", weight="normal")
        axes.set_xlabel("channel")
        axes.grid(visible=False)
    pair[0].set_ylabel("token")
    figure.colorbar(image, ax=pair, label="absolute value", shrink=0.9)
    figure.suptitle("In keys a few channels are large for every token; values have no such stripes", x=0.01, ha="left")
    return figure


@styled
def direction_errors(bits: Sequence[int], errors: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Relative errors by number of bits. errors: {panel title: {line label: one error for each of `bits`}}."""
    figure, panels = new_figure(8.8, 3.5, columns=len(errors), sharey=True)
    for axes, (title, lines) in zip(panels, errors.items(), strict=True):
        for (label, values), look in zip(lines.items(), line_looks(), strict=False):
            axes.plot(range(len(bits)), [100 * value for value in values], label=label, **look)
        axes.set_xticks(range(len(bits)), [str(b) for b in bits])
        axes.set_xlabel("bits per number")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_title(title, weight="normal")
        axes.legend(loc="upper left")
    panels[0].set_ylabel("relative error, % (log scale)")
    figure.suptitle("Give keys one scale per channel, and values one per token", x=0.01, ha="left")
    return figure


@styled
def error_by_context(context: Sequence[int], panels: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> Figure:
    """Relative errors against the length of the context. panels: {panel title: {line label: one error per length}}."""
    figure, axes_list = new_figure(8.2, 3.6, columns=len(panels))
    for axes, (name, lines) in zip(axes_list, panels.items(), strict=True):
        for (label, values), look in zip(lines.items(), line_looks(), strict=False):
            axes.plot(context, [100 * value for value in values], label=label, **look)
        axes.set_xlabel("tokens in the cache")
        axes.set_ylabel("relative error, %")
        axes.set_ylim(bottom=0)
        axes.set_title(name, weight="normal")
    handles, labels = axes_list[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8.5)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


@styled
def divergence_by_context(context: Sequence[int], lines: Mapping[str, Sequence[float]], title: str) -> Figure:
    """KL divergence of the next-token distribution to that of the exact model, against the length of the context."""
    figure, (axes,) = new_figure(7.2, 3.6)
    ends = {}
    for (name, values), look in zip(lines.items(), line_looks(), strict=False):
        axes.plot(context, values, **look)
        ends[name] = (values[-1], look["color"])
    axes.set_yscale("log")
    axes.set_xlabel("tokens in the cache")
    axes.set_ylabel("KL to the exact model, nats (log scale)")
    axes.set_title(title)
    label_line_ends(axes, context[-1], ends)
    return figure


def _short(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens >= 1024 else str(tokens)
