"""What a checked launch did to memory, as pictures: sectors, banks, races."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcourse.cuda.cpu.counters import BANKS, LINE, SECTOR, LineCount, Sample
from kvcourse.cuda.cpu.report import Report
from kvcourse.cuda.errors import LaunchError
from kvcourse.plots.style import COLOURS, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COLUMNS = 136  # sectors side by side before empty ones are left out


@styled
def draw_sectors(report: Report, line: int | None = None) -> Figure:
    """A row for each kept request, a column for each sector: how many of its 32 bytes are used. White: not moved."""
    count = _worst(report, line, shared=False)
    rows = [_bytes_by_sector(sample, count.bytes_each) for sample in count.samples]
    width = max(max(row) for row in rows) + 1
    packed = width > MOST_COLUMNS
    if packed:  # far apart: only the sectors that are moved, side by side
        rows = [Counter(dict(enumerate(row[s] for s in sorted(row)))) for row in rows]
        width = max(len(row) for row in rows)
    table = [[row.get(column, 0) or float("nan") for column in range(width)] for row in rows]
    figure, (axes,) = new_figure(7.6, 0.32 * len(rows) + 1.7)
    picture = axes.imshow(table, aspect="auto", cmap="viridis_r", vmin=0, vmax=SECTOR, interpolation="nearest")
    if width <= 40:
        for y, row in enumerate(rows):
            for x, used in row.items():
                axes.text(
                    x, y, used, ha="center", va="center", fontsize=7.5, color="white" if used > SECTOR // 2 else "black"
                )
    axes.set_yticks(range(len(rows)), [f"block {s.block}, warp {s.warp}" for s in count.samples])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False)
    if not packed:
        axes.set_xticks([x - 0.5 for x in range(0, width + 1, LINE // SECTOR)], minor=True)
        axes.grid(axis="x", which="minor", color="#888888", linewidth=0.6)
    where = "side by side, gaps left out" if packed else "counted from the request's first line of 128 bytes"
    axes.set_xlabel(f"sectors of {count.samples[0].object}, {where}")
    figure.colorbar(picture, ax=axes, label="bytes used of 32", pad=0.01)
    each, least = count.sectors / count.requests, count.least_sectors / count.requests
    verdict = f"{least:.3g} would do" if each > 1.05 * least else "none is wasted"
    axes.set_title(f"Line {count.line or '?'} {count.kind}s {each:.3g} sectors a request: {verdict}")
    return figure


@styled
def draw_banks(report: Report, line: int | None = None) -> Figure:
    """The words that each of the 32 banks of shared memory gives for the worst request that was kept."""
    count = _worst(report, line, shared=True)
    words = max(
        (_words_by_bank(sample, count.bytes_each) for sample in count.samples), key=lambda banks: max(banks.values())
    )
    most = max(words.values())
    figure, (axes,) = new_figure(7.2, 2.6)
    axes.bar(range(BANKS), [words.get(bank, 0) for bank in range(BANKS)], color=COLOURS[0])
    axes.set_xticks(range(0, BANKS, 4))
    axes.set_ylim(0, max(most, 4) * 1.1)
    axes.set_xlabel(f"bank of shared memory ({count.samples[0].object})")
    axes.set_ylabel("words asked for")
    verdict = (
        "no bank has to answer twice"
        if most <= max(1, count.bytes_each // 4)
        else f"the fullest bank takes {most} turns"
    )
    axes.set_title(f"Line {count.line or '?'}, one {count.kind} of a warp: {verdict}")
    return figure


@styled
def draw_race(report: Report, number: int = 0) -> Figure:
    """Two threads and the address that both use, with the lines where they do."""
    races = [f for f in report.faults if f.kind == "race"]
    if number >= len(races):
        raise LaunchError(f"The report of {report.kernel} has {len(races)} races; there is no number {number}.")
    race = races[number]
    figure, (axes,) = new_figure(7.4, 2.7)
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 4)
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "linewidth": 1.4}
    sides = (
        (1.6, race.thread, race.block, race.line, "writes" if race.write else "reads", COLOURS[0]),
        (
            8.4,
            race.other_thread,
            race.other_block,
            race.other_line,
            "writes" if race.other_wrote else "reads",
            COLOURS[4],
        ),
    )
    for x, thread, block, line, verb, colour in sides:
        axes.text(
            x, 2.7, f"thread {thread}\nblock {block}", ha="center", va="center", bbox={**box, "edgecolor": colour}
        )
        axes.text(
            x,
            1.25,
            f"line {line or '?'}: {report.line_text(line)[:38]}",
            ha="center",
            va="center",
            family="monospace",
            fontsize=7.5,
        )
        end = 3.9 if x < 5 else 6.1
        axes.annotate(
            "",
            (end, 2.7),
            (x + (1.1 if x < 5 else -1.1), 2.7),
            arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.6},
        )
        axes.text((x + end) / 2 + (0.55 if x < 5 else -0.55), 2.95, verb, ha="center", fontsize=8.5)
    axes.text(
        5,
        2.7,
        f"{race.object}\nbyte {race.offset}",
        ha="center",
        va="center",
        weight="bold",
        bbox={**box, "edgecolor": "black"},
    )
    axes.text(5, 0.45, "nothing orders the two: which comes first is luck", ha="center", style="italic")
    axes.set_title(f"A race in {report.kernel}: two threads, one address")
    return figure


def _worst(report: Report, line: int | None, *, shared: bool) -> LineCount:
    """The line that wastes most, or the given line; LaunchError when there is nothing to draw."""
    counts = [c for c in report.lines if c.shared == shared and c.samples and line in (None, c.line)]
    if not counts:
        where = f"at line {line}" if line else "at all"
        raise LaunchError(
            f"{report.kernel} uses no {'shared' if shared else 'global'} memory {where}: there is nothing to draw."
        )
    return max(counts, key=lambda c: c.waves - c.least_waves if shared else c.sectors - c.least_sectors)


def _bytes_by_sector(sample: Sample, size: int) -> Counter[int]:
    """Different bytes used of each sector, sectors counted from the line of 128 bytes in which the first one lies."""
    places = {sample.start + offset + i for offset in sample.offsets if offset is not None for i in range(size)}
    first = min(places) // LINE * (LINE // SECTOR)
    return Counter(place // SECTOR - first for place in places)


def _words_by_bank(sample: Sample, size: int) -> Counter[int]:
    """Different 4-byte words that each bank is asked for, over the whole request."""
    words = {
        (sample.start + offset) // 4 + i
        for offset in sample.offsets
        if offset is not None
        for i in range(max(1, size // 4))
    }
    return Counter(word % BANKS for word in words)
