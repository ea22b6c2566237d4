"""Cases of real engines' test suites (C2.1 to C2.10 of the course notes) as data, through the reference cache.

Block numbers are an engine's own affair, so a case says how many tokens are found, how many blocks are new and how
many are free afterwards, and which contents are still found. Not here: C2.5 (no lookups at all: the engine's
PlainAllocator), C2.6 (several kinds of attention layers, each with a table of its own), C2.8 (an image at a place
inside a block: extras here belong to the whole prompt), C2.11 (a hit rate over the last requests only; `stats` counts
from the start). Of C2.10, a radix tree, the two rules that a cache of blocks shares are here.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autograde.sources import solution_namespace
from kvcourse.engine.reference import PrefixCache as EngineCache
from kvcourse.tasks.course import find_lesson

solved = SimpleNamespace(**solution_namespace(find_lesson("prefix")))


def text(start: int, length: int) -> list[int]:
    return list(range(start, start + length))


SHARED = text(0, 48)
SALT_A, SALT_B = (("salt", "a"),), (("salt", "b"),)

# A step is (call, arguments, what must come out): for allocate (hit tokens, new blocks) or None, for match the number
# of tokens found, for append whether a new block was taken; after any step `free` blocks, if a number is given.
CASES: dict[str, tuple[int, int, list[tuple]]] = {
    "C2.1 a shared prefix of three blocks": (10, 16, [
        ("allocate", (1, text(0, 48) + text(100, 7)), (0, 4), 6),
        ("allocate", (2, text(0, 48) + text(200, 5)), (48, 1), 5),
        ("free", (1,), None, 6),
        ("free", (2,), None, 10),
        ("allocate", (3, text(900, 7 * 16)), (0, 7), 3),  # the seven empty blocks
        ("match", ([*text(0, 48), 1],), 48, 3),
        ("allocate", (4, text(800, 16)), (0, 1), 2),  # the tail of the shared prefix
        ("match", ([*text(0, 48), 1],), 32, 2),
    ]),
    "C2.2 two prompts, then part of the first": (10, 16, [
        ("allocate", (1, text(0, 87)), (0, 6), 4),
        ("allocate", (2, text(300, 48)), (0, 3), 1),
        ("free", (1,), None, 7),
        ("free", (2,), None, 10),
        ("allocate", (3, text(0, 32) + text(700, 3)), (32, 1), 7),
        ("allocate", (4, text(800, 5 * 16)), (0, 5), 2),  # one empty block, and the tail of the first: 3 blocks + 1
        ("match", ([*text(300, 48), 1],), 32, 2),
    ]),
    "C2.3 hit one cached block, evict the other": (2, 16, [
        ("allocate", (1, text(0, 16)), (0, 1), 1),
        ("allocate", (2, text(100, 16)), (0, 1), 0),
        ("free", (1,), None, 1),
        ("free", (2,), None, 2),
        ("allocate", (3, text(0, 16) + text(100, 16)), (16, 1), 0),
        ("match", ([*text(100, 16), 1],), 0, 0),
        ("match", (text(0, 16) + text(100, 16) + [1],), 32, 0),
    ]),
    "C2.4 a block given away has lost its content": (1, 16, [
        ("allocate", (1, text(0, 16)), (0, 1), 0),
        ("free", (1,), None, 1),
        ("match", (text(0, 17),), 16, 1),
        ("allocate", (2, text(500, 15)), (0, 1), 0),
        ("match", (text(0, 17),), 0, 0),
    ]),
    "C2.7 salts": (10, 4, [
        ("allocate", (1, text(0, 9), SALT_A), (0, 3), 7),
        ("allocate", (2, text(0, 9), SALT_A), (8, 1), 6),
        ("allocate", (3, text(0, 9), SALT_B), (0, 3), 3),
        ("allocate", (4, text(0, 9)), (0, 3), 0),
        ("match", (text(0, 9), SALT_B), 8, 0),
    ]),
    "C2.9 two equal requests write the same answer": (8, 4, [
        ("allocate", (1, text(0, 6)), (0, 2), 6),
        ("allocate", (2, text(0, 6)), (4, 1), 5),
        ("append", (1, 6), False, 5),
        ("append", (2, 6), False, 5),
        ("append", (1, 7), False, 5),
        ("append", (2, 7), False, 5),
        ("append", (1, 8), True, 4),
        ("append", (2, 8), True, 3),
        ("match", (text(0, 9),), 8, 3),
        ("free", (1,), None, 5),
        ("match", (text(0, 9),), 8, 5),
        ("free", (2,), None, 8),
        ("allocate", (3, text(500, 24)), (0, 6), 2),  # five empty blocks and the first copy of [4 .. 7]
        ("match", (text(0, 9),), 8, 2),  # the other copy is still there
        ("allocate", (4, text(600, 4)), (0, 1), 1),
        ("match", (text(0, 9),), 4, 1),
    ]),
    "C2.10 single tokens": (8, 1, [
        ("allocate", (1, [1, 2, 3]), (0, 3), 5),
        ("match", ([1, 2, 9],), 2, 5),
        ("match", ([1, 2],), 1, 5),
        ("allocate", (2, [4, 5]), (0, 2), 3),
        ("match", ([4, 5, 1],), 2, 3),
    ]),
    "C2.10 pages of 4: a lookup of 7 tokens finds 4": (8, 4, [
        ("allocate", (1, text(0, 8)), (0, 2), 6),
        ("match", (text(0, 7),), 4, 6),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("cache_class", [solved.PrefixCache, EngineCache], ids=["lesson", "engine"])
@pytest.mark.parametrize("name", CASES)
def test_case(name, cache_class):
    num_blocks, block_size, steps = CASES[name]
    cache, tables = cache_class(num_blocks, block_size), {}
    for number, (call, arguments, want, free) in enumerate(steps, start=1):
        got = getattr(cache, call)(*arguments)
        if call == "match":
            got = len(got) * block_size
        elif call == "append":
            table = tables[arguments[0]]
            got, block = got != table[-1], got
            table += [block] if got else []
        elif call == "allocate" and got is not None:
            tables[arguments[0]] = list(got.block_table)
            got = got.hit_tokens, len(got.block_table) - got.hit_tokens // block_size
        assert got == want, f"step {number}, {call}{arguments}"
        counts = cache.stats()
        assert counts["free"] == free and counts["referenced"] == num_blocks - free, f"step {number}"


def test_same_number_twice():
    """Double frees and second allocations are refused, and change nothing."""
    cache = solved.PrefixCache(4, 2)
    cache.allocate(7, [1, 2, 3])
    before = cache.stats()
    for call in (lambda: cache.allocate(7, [5]), lambda: cache.free(8), lambda: cache.append(8, 1)):
        with pytest.raises(ValueError, match=r"request [78]"):
            call()
    assert cache.stats() == before
    cache.free(7)
    with pytest.raises(ValueError, match="request 7"):
        cache.free(7)
    assert cache.stats()["free"] == 4


def test_the_answer_is_the_callers_own():
    """P2.9: the caller may grow the table it was given; the cache's own stays as it is."""
    cache = solved.PrefixCache(4, 2)
    table = cache.allocate(1, [1, 2, 3]).block_table
    table.append(99)
    found = cache.match([1, 2, 9])
    found.append(99)
    assert cache.match([1, 2, 9]) == found[:1]
    cache.free(1)
    assert cache.stats()["free"] == 4
