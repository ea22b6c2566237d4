"""Figures of lesson 05: steps on a clock, chunks in the pool, tiles of a causal mask, and what kernels move.

Every function draws numbers that the learner computed and returns the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvcourse.plots.style import COLOURS, bar_looks, line_looks, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Step = tuple[float, float, Mapping[str, int]]  # start and end in seconds, tokens of each request that took part
DECODE, PROMPT, WAIT = COLOURS[0], COLOURS[1], "#d9d9d9"
PASSES = ("#cfe5f5", COLOURS[1], COLOURS[0], "#000000")  # one pass over a prompt after the other, by grey level


@styled
def step_bytes(lengths: Sequence[int], caches: Mapping[str, Sequence[float]], weights: float, model: str) -> Figure:
    """Bytes that one decode step reads against the length of the contexts: the caches, and the weights beside them.

    caches: {name: GB at each length}; weights: GB
    """
    figure, (axes,) = new_figure(7.2, 3.9)
    for (name, values), look in zip(caches.items(), line_looks(), strict=False):
        axes.plot(lengths, values, label=name, **look)
    axes.axhline(weights, color="#555555", linewidth=1.4, linestyle=":", label=f"the weights, {weights:.0f} GB")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{n // 1024}K" for n in lengths])
    axes.set_xlabel("tokens of each context (K = 1,024, log scale)")
    axes.set_ylabel("read by one decode step, GB (log scale)")
    axes.set_title(f"{model}: with long contexts a step reads more cache than weights")
    axes.legend(loc="upper left")
    return figure


@styled
def pool_of_chunks(block_table: Sequence[int], passes: Sequence[Sequence[int]], block_size: int, blocks: int) -> Figure:
    """The slots of a pool: the number in a slot is the position that stands there, its colour the pass that wrote it.

    passes: the slots of each pass, in order of positions
    """
    from matplotlib.patches import Patch, Rectangle

    figure, (axes,) = new_figure(min(11, 1.6 + 0.36 * blocks * (block_size + 0.6)), 1.9)
    position = 0
    written = {}
    for number, slots in enumerate(passes):
        for slot in slots:
            written[slot] = (position, number)
            position += 1
    for slot in range(blocks * block_size):
        x = slot // block_size * (block_size + 0.6) + slot % block_size
        held = written.get(slot)
        fill = "#ffffff" if held is None else PASSES[held[1] % len(PASSES)]
        axes.add_patch(Rectangle((x, 0), 1, 1, facecolor=fill, edgecolor="#777777", linewidth=0.8))
        if held is not None:
            ink = "#000000" if held[1] % len(PASSES) < 2 else "#ffffff"
            axes.text(x + 0.5, 0.5, str(held[0]), ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_xlim(-0.3, blocks * (block_size + 0.6))
    axes.set_ylim(-0.1, 1.1)
    middles = [block * (block_size + 0.6) + block_size / 2 for block in range(blocks)]
    axes.set_xticks(middles, [f"block {block}" for block in range(blocks)])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(f"slots of the pool, {block_size} a block; block table {list(block_table)}")
    axes.set_title("A chunk goes on where the one before it stopped, in the middle of a block")
    handles = [
        Patch(facecolor=PASSES[number % len(PASSES)], edgecolor="#777777", label=f"pass {number + 1}")
        for number in range(len(passes))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


@styled
def step_timeline(panels: Mapping[str, Sequence[Step]], title: str) -> Figure:
    """Steps on a clock, a row for each request, a panel for each way to serve them; grey: the request waits.

    A box is a step that computed tokens of the request; the number in a wide one says how many.
    """
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    rows = list(dict.fromkeys(name for steps in panels.values() for _, _, given in steps for name in given))
    end = max(step[1] for steps in panels.values() for step in steps)
    height = (0.34 * len(rows) + 0.42) * len(panels) + 1.0
    figure, grid = pyplot.subplots(len(panels), 1, figsize=(9.4, height), sharex=True, squeeze=False)
    for axes, (name, steps) in zip(grid[:, 0], panels.items(), strict=True):
        for row, request in enumerate(rows):
            mine = [(start, stop, given[request]) for start, stop, given in steps if request in given]
            if not mine:
                continue
            axes.barh(row, mine[-1][1] - mine[0][0], left=mine[0][0], height=0.62, color=WAIT, linewidth=0)
            for start, stop, tokens in mine:
                one = tokens == 1
                look = {"facecolor": DECODE if one else PROMPT, "hatch": "" if one else "///"}
                axes.barh(row, stop - start, left=start, height=0.62, edgecolor="white", linewidth=0.6, **look)
                if not one and stop - start > end / 28:
                    back = {"facecolor": PROMPT, "edgecolor": "none", "pad": 0.8}
                    axes.text((start + stop) / 2, row, tokens, ha="center", va="center", fontsize=7.5, bbox=back)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, end * 1.01)
        axes.grid(axis="y", visible=False)
        axes.set_title(name, fontsize=9.5, fontweight="normal")
    grid[-1, 0].set_xlabel("time, s")
    figure.suptitle(title, x=0.01, ha="left")
    handles = [
        Patch(facecolor=DECODE, label="one token"),
        Patch(facecolor=PROMPT, hatch="///", edgecolor="white", label="tokens of a prompt (how many)"),
        Patch(facecolor=WAIT, label="waits for a step of others"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


@styled
def latency_by_budget(
    budgets: Sequence[str], between: Mapping[str, Sequence[float]], first: Mapping[str, Sequence[float]]
) -> Figure:
    """Time between tokens and time to first token, in seconds, against the budget of a step, from small to large."""
    figure, axes = new_figure(9.4, 3.6, columns=2)
    panels = zip(axes, (between, first), ("time between tokens, s", "time to first token, s"), strict=True)
    for panel, curves, label in panels:
        for (name, values), look in zip(curves.items(), line_looks(), strict=False):
            panel.plot(range(len(budgets)), values, label=name, **look)
        panel.set_xticks(range(len(budgets)), budgets)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("budget of a step, tokens")
        panel.set_ylabel(label)
        panel.legend()
    axes[0].set_title("Small chunks: no long gap between tokens")
    axes[1].set_title("Small chunks: a longer wait for the first")
    return figure


@styled
def sectors_moved(moved: Mapping[str, int], title: str) -> Figure:
    """Sectors of 32 bytes that some kernels move for the same answer."""
    figure, (axes,) = new_figure(7.6, 0.5 * len(moved) + 1.2)
    most = max(moved.values())
    for row, ((name, sectors), look) in enumerate(zip(moved.items(), bar_looks(), strict=False)):
        axes.barh(row, sectors, height=0.6, label=name, **look)
        axes.text(sectors + most / 80, row, f"{sectors:,}", va="center", fontsize=8.5)
    axes.set_yticks(range(len(moved)), list(moved))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * most)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("sectors of 32 bytes moved to and from global memory")
    axes.grid(axis="y", visible=False)
    axes.set_title(title)
    return figure


@styled
def causal_tiles(count: int, cached: int, rows: int = 8, columns: int = 32) -> Figure:
    """Which keys the queries of a chunk see, cut into tiles of rows x columns; what nobody sees is not loaded."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    context = cached + count
    table = [
        [2 if key < cached else 1 if key <= cached + query else 0 for key in range(context)] for query in range(count)
    ]
    figure, (axes,) = new_figure(min(10, 1.8 + 0.075 * context), 0.075 * count + 1.8)
    axes.imshow(table, cmap=ListedColormap(["#ffffff", COLOURS[0], "#cfe5f5"]), vmin=0, vmax=2, aspect="auto")
    loaded = 0
    for top in range(0, count, rows):
        bottom = min(top + rows, count)
        for left in range(0, context, columns):
            seen = left < cached + bottom
            loaded += seen
            text = {"ha": "center", "va": "center", "fontsize": 8.5, "color": "#000000" if seen else "#777777"}
            x = (left + min(left + columns, context)) / 2 - 0.5
            box = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.0}
            axes.text(x, (top + bottom) / 2 - 0.5, "loaded" if seen else "skipped", bbox=box, **text)
    for y in range(rows, count, rows):
        axes.axhline(y - 0.5, color="#000000", linewidth=1.2)
    for x in range(columns, context, columns):
        axes.axvline(x - 0.5, color="#000000", linewidth=1.2)
    axes.set_yticks(range(0, count, rows))
    axes.grid(visible=False)
    axes.set_xlabel(f"position of the key (the first {cached} are cached)")
    axes.set_ylabel("query of the chunk")
    total = -(-count // rows) * -(-context // columns)
    axes.set_title(f"{loaded} of {total} tiles are loaded: the causal edge ends in the lower right corner")
    handles = [
        Patch(facecolor="#cfe5f5", edgecolor="#777777", label="seen, cached before"),
        Patch(facecolor=COLOURS[0], label="seen, of this chunk"),
        Patch(facecolor="#ffffff", edgecolor="#777777", label="later: not seen"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


@styled
def blocks_for_processors(splits: Sequence[int], blocks: Sequence[int], processors: Mapping[str, int]) -> Figure:
    """Thread blocks of a launch against the number of splits, and how many multiprocessors some GPUs have."""
    figure, (axes,) = new_figure(7.2, 3.5)
    axes.bar(range(len(splits)), blocks, width=0.6, facecolor=COLOURS[0])
    for x, count in enumerate(blocks):
        back = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axes.text(x, 1.12 * count, f"{count:,}", ha="center", va="bottom", fontsize=8.5, bbox=back)
    looks = zip(processors.items(), line_looks(), strict=False)
    for (name, count), look in looks:
        line = {"color": "#000000", "linestyle": look["linestyle"], "linewidth": 1.4}
        axes.axhline(count, label=f"multiprocessors of {name}: {count}", **line)
    axes.set_xticks(range(len(splits)), [f"{n:,}" for n in splits])
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(top=2.2 * max(*blocks, *processors.values()))
    axes.set_xlabel("parts into which the sequence is split")
    axes.set_ylabel("thread blocks (log scale)")
    axes.grid(axis="x", visible=False)
    axes.set_title("One sequence alone leaves a GPU idle until it is split")
    axes.legend(loc="upper left")
    return figure
