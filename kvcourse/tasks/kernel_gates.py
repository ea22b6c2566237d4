"""What the kernels of lesson 5 may ask of memory: counted numbers against what the work needs.

All gates are ratios with slack, of numbers that are the same on every machine. They hold from below as well: who reads
less than every key and value once has not done the work.
"""

from __future__ import annotations

from torch import Tensor

from kvcourse.cuda.cpu.report import Report
from kvcourse.tasks.kernel_kit import Problem, at_least, at_most, plain, worst_line
from kvcourse.tasks.kernel_problems import ROWS, THREADS

SLACK = 1.25
SECTOR, WARP = 32, 32  # bytes, threads
TOKENS_A_BARRIER = 16  # a tile of so many tokens may end with a barrier
QUARTER = 0.4  # of the float sectors: a quarter for the codes, and the rest for scales and block tables


# --- chunked.3 and chunked.4


def axpy_moves_little(problem: Problem, report: Report) -> None:
    """x and y are read once, out is written once, all of them in whole sectors."""
    needed = sum(problem.arguments[name].nbytes / SECTOR for name in ("x", "y", "out"))
    _moves(problem, report, needed, needed, "each number of x and y is read once, each of out is written once")


def write_kv_moves_little(problem: Problem, report: Report) -> None:
    """New keys and values are read once and written once, all of them in whole sectors."""
    tokens = int((problem.arguments["slot_mapping"] >= 0).sum())
    rows = 4 * tokens * row_sectors(problem, "key") * problem.arguments["key"].shape[1]
    _moves(problem, report, rows + tokens, rows, "each new number is read once and written once")


def decode_moves_little(problem: Problem, report: Report) -> None:
    """Each head reads each key and each value of its sequence once, all of them in whole sectors."""
    heads, tokens = problem.arguments["heads"], int(problem.arguments["context_lens"].sum())
    keys_and_values = heads * tokens * 2 * row_sectors(problem, "k_pool")
    queries = 2 * heads * len(problem.arguments["context_lens"]) * row_sectors(problem, "query")
    because = f"{tokens:,} keys and as many values for each of {heads} heads, each read once"
    _moves(problem, report, keys_and_values + queries, keys_and_values, because)


def decode_meets_no_bank_twice(problem: Problem, report: Report) -> None:
    """Shared memory answers a warp in one wave: its lanes meet different banks."""
    counters = report.counters
    because = "shared memory has 32 banks; lanes that want different words of one bank wait for each other"
    tip = worst_line(report, shared=True) or "let neighbours in the warp touch neighbours in shared memory"
    at_most(problem, report, "waves of shared memory", counters.waves, SLACK * counters.least_waves, because, tip)


def decode_merges_once(problem: Problem, report: Report) -> None:
    """The four warps work on different tokens, and bring their results together in shared memory, at the end."""
    counters = report.counters
    blocks = problem.arguments["heads"] * len(problem.arguments["context_lens"])
    four_sums = 4 * blocks * row_sectors(problem, "k_pool") * SECTOR
    at_least(
        problem, report, "bytes written and read in shared memory", counters.shared_bytes, four_sums,
        "the four warps of a block share the tokens, and bring four sums together in shared memory",
    )  # fmt: skip
    tokens = problem.arguments["heads"] * int(problem.arguments["context_lens"].sum())
    at_most(
        problem, report, "barriers", counters.barriers, tokens / TOKENS_A_BARRIER + 4 * blocks,
        "at a barrier all warps wait for the slowest one",
        "let each warp take tokens of its own, and keep its sums in registers until it is done with all of them",
    )  # fmt: skip


def _moves(problem: Problem, report: Report, needed: float, least: float, because: str) -> None:
    tip = worst_line(report, shared=False) or "let neighbours in the warp touch neighbours in memory, each of them once"
    got = report.counters.sectors
    at_most(problem, report, "sectors of global memory", got, SLACK * needed, because, tip)
    at_least(problem, report, "sectors of global memory", got, least, because)


# --- chunked.5 and chunked.6


def coalesced(problem: Problem, report: Report) -> None:
    """Global memory is asked for whole sectors: neighbours in the warp ask for neighbours in memory."""
    at_most(
        problem,
        report,
        "sectors of global memory",
        report.counters.sectors,
        SLACK * report.counters.least_sectors,
        "a sector is 32 bytes and moves as a whole, also when a warp wants 4 of them",
        worst_line(report, shared=False) or "let lane d take number d of a key",
    )


def tiled(problem: Problem, report: Report) -> None:
    """Each key and value is read from global memory once for a block of 8 queries and a head, not once a query."""
    row, keys = row_sectors(problem, "k_pool"), keys_of_blocks(problem)
    heads, count = problem.arguments["heads"], problem.arguments["count"]
    pool = heads * keys * 2 * row
    tables = heads * keys * 2  # a look-up for a key, and one for its value
    queries = heads * count * row_sectors(problem, "query")
    got = report.counters.load_sectors
    because = (
        f"each head needs {keys} keys and their values if the {ROWS} queries of a block share what they load, "
        f"and every query once{heaviest_line(report)}"
    )
    tip = "load a tile of keys and values into __shared__ memory together, then let every warp work on it"
    at_most(problem, report, "sectors loaded from global memory", got, SLACK * (pool + tables + queries), because, tip)
    at_least(problem, report, "sectors loaded from global memory", got, pool, because)


def without_conflicts(problem: Problem, report: Report) -> None:
    """Shared memory answers in one wave: the lanes of a warp meet different banks."""
    counters = report.counters
    at_least(problem, report, "requests to shared memory", counters.shared_requests, 1, "the tile lies there")
    at_most(
        problem,
        report,
        "waves of shared memory",
        counters.waves,
        SLACK * counters.least_waves,
        "shared memory has 32 banks; lanes that want different words of one bank wait for each other",
        worst_line(report, shared=True) or "give the rows of the tile one number more than they need",
    )


def eight_bits(problem: Problem, report: Report) -> None:
    """Codes are read as the 8-bit numbers that they are, the scales of the keys once and not for every token."""
    row, tokens = row_sectors(problem, "k_pool"), tokens_of_heads(problem)
    got = report.counters.load_sectors
    in_floats = 2 * 4 * row * tokens
    most = QUARTER * in_floats + setup_sectors(problem)
    because = (
        f"a pool of floats would be {in_floats:,.0f} sectors, and 8 bits are a quarter of 32{heaviest_line(report)}"
    )
    tip = "multiply the query with the keys' scales once, before the loop; let lane d take code d"
    at_most(problem, report, "sectors loaded from global memory", got, most, because, tip)
    at_least(problem, report, "sectors loaded from global memory", got, 2 * row * tokens, because)


def shared_out(problem: Problem, report: Report) -> None:
    """A split reads its own tokens only: together the splits read what one would, and set up once each."""
    row, tokens = row_sectors(problem, "k_pool"), tokens_of_heads(problem)
    got = report.counters.load_sectors
    each = 2 * row + 2  # key and value, their place in the block table, the scale of the value
    at_most(
        problem,
        report,
        "sectors loaded from global memory",
        got,
        SLACK * (each * tokens + setup_sectors(problem)),
        f"{tokens:,} tokens in all, each in one split",
        "begin at blockIdx.z * split_tokens, and end where the next split begins",
    )
    at_least(problem, report, "sectors loaded from global memory", got, 2 * row * tokens, "every token is in one split")


def heaviest_line(report: Report) -> str:
    """The line that loads most, in words."""
    lines = [c for c in report.lines if not c.shared and c.kind == "load"]
    if not lines:
        return ""
    worst = max(lines, key=lambda c: c.sectors)
    return f"; line {worst.line or '?'} ({report.line_text(worst.line)}) alone loads {worst.sectors:,}"


def row_sectors(problem: Problem, name: str) -> float:
    """Sectors of the numbers of one head."""
    tensor = plain(problem.arguments[name])
    return tensor.shape[-1] * tensor.element_size() / SECTOR


def keys_of_blocks(problem: Problem) -> int:
    """The keys that the blocks of 8 queries see, added up, of one head."""
    count, cached = problem.arguments["count"], problem.arguments["cached"]
    return sum(cached + min(first + ROWS, count) for first in range(0, count, ROWS))


def tokens_of_heads(problem: Problem) -> int:
    """The tokens that all heads and sequences read."""
    contexts: Tensor = problem.arguments["context_lens"]
    return problem.arguments["heads"] * int(contexts.sum())


def setup_sectors(problem: Problem) -> float:
    """What every warp of the grid reads before its loop: the query, the keys' scales, the length."""
    assert isinstance(problem.grid, tuple)
    warps = THREADS // WARP
    for blocks in problem.grid:
        warps *= blocks
    return warps * (row_sectors(problem, "query") + row_sectors(problem, "k_scale") + 1)
