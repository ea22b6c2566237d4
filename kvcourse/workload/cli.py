"""What `kvcourse trace …` prints. Mistakes of the user raise UserError, one sentence each."""

from __future__ import annotations

import math
from pathlib import Path

from kvcourse.workload.download import SOURCES, download_trace
from kvcourse.workload.readers import TraceFile, open_trace
from kvcourse.workload.stats import Lengths, Reuse, TraceStats, trace_statistics


def trace_stats(path: Path) -> int:
    """Print the statistics of a trace file (Mooncake, Azure, agentic; plain, .gz or .xz); 0."""
    file = open_trace(path)
    stats = trace_statistics(file, file.format.block_size)
    print("\n".join(_report(file, stats)))
    return 0


def trace_fetch(name: str, folder: Path | None = None) -> int:
    """Download the published trace called `name` and print where it is; 0."""
    print(download_trace(name, folder))
    return 0


def trace_list() -> int:
    """Print the traces that can be downloaded; 0."""
    for name, source in SOURCES.items():
        print(f"{name:<24}{source.size / 1e6:6.1f} MB  {source.licence:<11} {source.about}")
    return 0


def _report(file: TraceFile, stats: TraceStats) -> list[str]:
    form = file.format
    what = form.name
    if form.block_size:
        last = "the last block has an id even when it is not full" if form.partial_last else "full blocks only"
        what += f", blocks of {form.block_size} tokens, {last}"
    pace = f"{stats.seconds:,.1f} s"
    if not math.isnan(stats.rate):
        pace += f", {stats.rate:,.2f} a second"
    if not math.isnan(stats.gap_cv):
        pace += f", CV of the gaps {stats.gap_cv:.2f}"
    lines = [
        f"{file.path.name}: {what}",
        f"requests         {stats.requests:,}" + (f" in {stats.sessions:,} conversations" if stats.sessions else ""),
        f"arrivals         {pace}",
        f"prompt tokens    {_lengths(stats.input)}",
        f"answer tokens    {_lengths(stats.output)}",
    ]
    if stats.reuse is None:
        return [*lines, "reuse            unknown: lengths only, no block ids"]
    return lines + _reuse(stats.reuse, stats.requests)


def _lengths(lengths: Lengths) -> str:
    return (
        f"mean {lengths.mean:,.0f}, p50 {lengths.p50:,}, p99 {lengths.p99:,}, max {lengths.most:,}; "
        f"{lengths.total:,} in all"
    )


def _reuse(reuse: Reuse, requests: int) -> list[str]:
    lines = [
        f"blocks           {reuse.blocks:,}, {reuse.distinct:,} different; longest prompt {reuse.longest:,}",
        f"reuse ceiling    {reuse.ceiling:.1%} of the prompt tokens, {reuse.hit_blocks:,} blocks (cache without limit)",
        f"first block      the most common one opens {reuse.first_block_share:.1%} of the prompts",
        f"whole prompts    {reuse.whole_prompts:,} of {requests:,} were there to the last block",
    ]
    if not math.isnan(reuse.session_mean):
        per = f"mean {reuse.session_mean:.1%}, median {reuse.session_median:.1%}"
        lines.append(f"by conversation  ceiling {per}")
    return lines
