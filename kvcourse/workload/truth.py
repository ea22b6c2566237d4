"""Exact hit counts, for comparison by equality.

Rule of all of them: the longest prefix present at arrival is hit, requests take no time, the prompt's blocks are not
evicted while room is made for it, and afterwards they are the most recent, head newest (a tail goes before its head).
Token hits are min(hit blocks * block size, prompt). Conventions "A" and "F": see `trace`. The figures of the
published traces come from an independent program; those of `last_half_*` (only the later half of the requests counts)
from kvcache-simulator 0.1.3; those of `engine_*` (see `engine_lru`) from this package. GENERATED is our own
generator's default, so its figures were computed with this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Truth:
    """Figures of one trace; hits in blocks, by capacity in blocks (None: no limit)."""

    blocks_a: int
    blocks_f: int
    lru_a: dict[int | None, int]
    lru_f: dict[int | None, int]
    ratio_a: dict[int | None, float]  # share of tokens, six digits
    capped: tuple[int, int]  # no limit, last token always computed: blocks, tokens
    whole_prompts: int  # requests found to the last block
    head_first_a: dict[int, int] = field(default_factory=dict)
    fifo_a: dict[int, int] = field(default_factory=dict)
    optimal_a: dict[int, int] = field(default_factory=dict)
    engine_first_a: dict[int, int] = field(default_factory=dict)  # `as_engine(trace, "first")`
    engine_both_a: dict[int, int] = field(default_factory=dict)
    engine_f: dict[int, int] = field(default_factory=dict)  # the same for "first" and "both"
    last_half_tokens: int = 0
    last_half_lru: dict[int, int] = field(default_factory=dict)  # token hits, A
    last_half_fifo: dict[int, int] = field(default_factory=dict)
    last_half_optimal: dict[int, int] = field(default_factory=dict)


CAPACITIES = (500, 1_000, 2_000, 5_000, 5_859, 10_000, 20_000, 30_000, 50_000)


def _row(*numbers: float) -> dict:
    return dict(zip((*CAPACITIES, None), numbers, strict=True))


CONVERSATION = Truth(
    blocks_a=288_500,
    blocks_f=276_491,
    lru_a=_row(12_168, 12_847, 15_665, 32_260, 39_258, 61_046, 83_035, 93_978, 102_290, 105_710),
    lru_f=_row(12_165, 12_990, 15_944, 34_193, 40_644, 62_005, 84_692, 95_337, 102_724, 105_592),
    ratio_a=_row(0.043022, 0.045413, 0.055366, 0.113995, 0.138730, 0.215748, 0.293475, 0.332153, 0.361530, 0.373624),
    capped=(105_592, 54_063_104),
    whole_prompts=118,
    head_first_a={5_000: 31_840},
    fifo_a={10_000: 52_351},
    engine_first_a={1_000: 12_837, 10_000: 60_974},
    engine_both_a={1_000: 12_837, 10_000: 60_971},
    engine_f={1_000: 12_988, 10_000: 62_001},
    last_half_tokens=67_915_607,
    last_half_lru={5_000: 7_676_186, 10_000: 14_910_149, 20_000: 20_586_572},
    last_half_fifo={5_000: 7_328_030},
    last_half_optimal={5_000: 24_669_143},
)

SYNTHETIC_MOONCAKE = Truth(
    blocks_a=121_877,
    blocks_f=117_888,
    lru_a=_row(5_501, 10_252, 17_839, 34_043, 37_703, 51_669, 69_686, 76_077, 77_953, 77_953),
    lru_f=_row(5_656, 10_370, 18_256, 34_604, 38_368, 52_952, 70_849, 76_350, 77_740, 77_740),
    ratio_a=_row(0.046016, 0.085718, 0.149151, 0.284520, 0.315091, 0.431764, 0.582238, 0.635597, 0.651244, 0.651244),
    capped=(77_740, 39_802_880),
    whole_prompts=213,
    head_first_a={5_000: 34_018},
    fifo_a={10_000: 48_622},
    engine_first_a={1_000: 10_239, 10_000: 51_552},
    engine_both_a={1_000: 10_239, 10_000: 51_548},
    engine_f={1_000: 10_366, 10_000: 52_950},
    last_half_tokens=36_552_394,
    last_half_lru={5_000: 15_246_152, 10_000: 22_061_940, 20_000: 28_338_548},
    last_half_fifo={5_000: 14_586_762},
    last_half_optimal={5_000: 25_271_227},
)

# `generate()`: the default workload, seed 0. Blocks of 16 tokens.
GENERATED = Truth(
    blocks_a=289_281,
    blocks_f=287_410,
    lru_a={250: 39_898, 500: 68_607, 1_000: 111_502, 2_000: 166_895, 5_000: 217_171, 10_000: 238_320, None: 243_494},
    lru_f={250: 40_103, 500: 68_905, 1_000: 112_095, 2_000: 167_690, 5_000: 217_850, 10_000: 238_618, None: 243_455},
    ratio_a={
        250: 0.138374, 500: 0.237931, 1_000: 0.386691, 2_000: 0.578798, 5_000: 0.753142, 10_000: 0.826482,
        None: 0.844427,
    },
    capped=(243_455, 3_895_280),
    whole_prompts=39,
    head_first_a={250: 19_646, 1_000: 101_763, 5_000: 215_649},
    fifo_a={250: 19_044, 1_000: 88_856, 5_000: 187_648},
    optimal_a={250: 91_425, 1_000: 178_964, 5_000: 241_739},
)  # fmt: skip

# `generate(TINY)`, seed 0, blocks of 4 tokens: LRU, convention A.
GENERATED_TINY_LRU_A = {16: 92, 32: 193, 64: 222, 128: 317, None: 317}

# The agentic sample, in the order of the file; merged: sorted by the times as written, nested ones too.
AGENTIC_BLOCKS = 6_488_851
AGENTIC_HIT_BLOCKS = 6_211_955
AGENTIC_TOKENS = 415_390_447
AGENTIC_HIT_TOKENS = 397_565_120
AGENTIC_SESSION_MEAN = 0.9274
AGENTIC_SESSION_MEDIAN = 0.9521  # the upper of the two in the middle; their mean is 0.9517
AGENTIC_MERGED_LRU = {20_000: 4_138_595, 50_000: 5_707_433, 100_000: 6_150_749, 200_000: 6_207_142}
AGENTIC_MERGED_LAST_HALF = {50_000: 212_217_024, 100_000: 214_550_976}  # token hits
AGENTIC_MERGED_LAST_HALF_TOKENS = 222_568_704
