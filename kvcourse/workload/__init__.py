"""Work for a cache: recorded and synthetic traces, arrivals, prompts, and the oracles that say what a cache should hit.

`trace` and `readers` hold requests and their files, `synthetic` makes them, `arrivals` times them; `lru`,
`engine_lru`, `belady` and `replay` count hits, `truth` has the exact figures; `prompts` and `breakers` write text for
a real model, `download` fetches the published traces. Importing it takes milliseconds and needs neither torch nor
transformers nor NumPy.
"""

from kvcourse.workload.arrivals import gamma_arrivals, gap_cv, poisson_arrivals, replayed_arrivals, with_arrivals
from kvcourse.workload.belady import optimal
from kvcourse.workload.download import download_trace, find_trace, load_trace
from kvcourse.workload.engine_lru import as_engine
from kvcourse.workload.lru import FIFO, LRU
from kvcourse.workload.readers import open_trace, read_trace, write_trace
from kvcourse.workload.replay import (
    HitCurve,
    Replay,
    hit_curve,
    replay_cache,
    replay_trace,
    reuse_ceiling,
    session_ratios,
)
from kvcourse.workload.stats import TraceStats, trace_statistics
from kvcourse.workload.synthetic import TINY, Workload, generate
from kvcourse.workload.trace import Request, Trace

__all__ = [
    "FIFO",
    "LRU",
    "TINY",
    "HitCurve",
    "Replay",
    "Request",
    "Trace",
    "TraceStats",
    "Workload",
    "as_engine",
    "download_trace",
    "find_trace",
    "gamma_arrivals",
    "gap_cv",
    "generate",
    "hit_curve",
    "load_trace",
    "open_trace",
    "optimal",
    "poisson_arrivals",
    "read_trace",
    "replay_cache",
    "replay_trace",
    "replayed_arrivals",
    "reuse_ceiling",
    "session_ratios",
    "trace_statistics",
    "with_arrivals",
    "write_trace",
]
