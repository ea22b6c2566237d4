"""One style for every figure: readable by colour-blind people and on a grey print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import cycle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, in an order whose grey levels differ from neighbour to neighbour.
COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")

STYLE = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorator: draw in the course's style, and close the figure so that a cell shows it once, as its result."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Figure:
        from matplotlib import pyplot

        with pyplot.rc_context(STYLE):
            figure = draw(*args, **kwargs)
        pyplot.close(figure)
        return figure

    return drawn


def new_figure(width: float, height: float, columns: int = 1, **subplots: Any) -> tuple[Figure, list[Axes]]:
    """A figure of that size in inches, and its axes from left to right."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, columns, figsize=(width, height), squeeze=False, **subplots)
    return figure, list(axes[0])


def label_line_ends(axes: Axes, x: float, ends: Mapping[str, tuple[float, str]]) -> None:
    """Write each line's name beside its right end at (x, y), on a log axis; names that would collide are pushed apart.

    ends: {name: (y, colour of the line)}
    """
    low, high = axes.get_ylim()
    gap = (high / low) ** 0.055
    y = 0.0
    for name, (end, colour) in sorted(ends.items(), key=lambda item: item[1][0]):
        y = max(end, y * gap)
        line = {"arrowstyle": "-", "color": colour, "linewidth": 1.2, "shrinkA": 1, "shrinkB": 4, "relpos": (0, 0.5)}
        place = {"xytext": (22, y), "textcoords": ("offset points", "data"), "va": "center", "fontsize": 8.5}
        axes.annotate(name, (x, end), arrowprops=line, annotation_clip=False, **place)


def line_looks() -> Iterator[dict[str, Any]]:
    """Colour, marker and dashes of one line after the other."""
    for colour, marker, dash in zip(cycle(COLOURS), cycle(MARKERS), cycle(DASHES), strict=False):
        yield {"color": colour, "marker": marker, "linestyle": dash, "markersize": 4.5, "linewidth": 1.6}


def bar_looks() -> Iterator[dict[str, Any]]:
    """Colour and hatch of one set of bars after the other."""
    for colour, hatch in zip(cycle(COLOURS), cycle(HATCHES), strict=False):
        yield {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
