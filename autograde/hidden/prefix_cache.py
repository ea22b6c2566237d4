"""Hidden tests of prefix.3 to prefix.5: random calls, each property with a little more going on than the one before."""

from __future__ import annotations

from random import Random
from typing import Any

from kvcourse.tasks.api import task
from kvcourse.tasks.prefix_draw import Profile
from kvcourse.tasks.prefix_judge import Judge, Step
from kvcourse.tasks.prefix_story import Calls, follow, must_follow

DRAWS = 3
HASH_MODULUS = 2**61 - 1
SIZES = (3, 5)  # tokens of a block


def size_of(rng: Random) -> int:
    return rng.choice(SIZES)


def fresh(rng: Random, count: int) -> list[int]:
    """Random tokens, none of them twice."""
    return rng.sample(range(max(1000, 4 * count)), count)


def cache_for(student: Any, rng: Random, num_blocks: int = 40) -> Calls:
    """A cache in which nothing is found yet."""
    cache = Calls(student, num_blocks, size_of(rng))
    cache.match(fresh(rng, 11)).equals([], because="nothing was published")
    return cache


# --- prefix.3


@task("prefix.3")
def test_chains_are_found(student, rng):
    """The blocks of a prompt are found in order, also block 0."""
    for _ in range(DRAWS):
        cache = cache_for(student, rng)
        blocks = [*rng.sample(range(1, 40), 4), 0]
        tokens = fresh(rng, 5 * cache.size + 2)
        cache.hold(blocks, tokens)
        cache.match(tokens).equals(blocks, because="all five blocks are published")
        cache.match(tokens[: 3 * cache.size + 1]).equals(blocks[:3], because="three full blocks and a token")
        cache.match(tokens[cache.size :]).equals([], because="the first block is missing")


@task("prefix.3", after="test_chains_are_found")
def test_holes(student, rng):
    """A block that is missing in the middle ends the lookup."""
    for _ in range(DRAWS):
        cache = cache_for(student, rng)
        blocks, hole = rng.sample(range(1, 40), 6), rng.randint(1, 4)
        tokens = fresh(rng, 6 * cache.size + 1)
        for number, block in enumerate(blocks):
            if number != hole:
                cache.hold([block], tokens[: (number + 1) * cache.size], last=1)
        cache.match(tokens).equals(blocks[:hole], because=f"block number {hole} of the prompt was never published")


@task("prefix.3", after="test_chains_are_found")
def test_prompts_that_are_all_there(student, rng):
    """Of a prompt that is cached to the end the last block is not found."""
    for _ in range(DRAWS):
        cache, number = cache_for(student, rng), rng.randint(2, 5)
        blocks, tokens = rng.sample(range(1, 40), number), fresh(rng, number * cache.size)
        cache.hold(blocks, tokens)
        cache.match(tokens).equals(blocks[:-1], because="one token at least is computed")
        cache.match(tokens[: -cache.size + 1]).equals(blocks[: number - 1], because="that one is in the last block")


@task("prefix.3", after="test_chains_are_found")
def test_salted_chains(student, rng):
    """Blocks that were published with extras are found with the same extras only."""
    for _ in range(DRAWS):
        cache, (a, b) = cache_for(student, rng), rng.sample(range(100), 2)
        tokens = fresh(rng, 3 * cache.size + 1)
        first, second = rng.sample(range(1, 20), 3), rng.sample(range(20, 40), 2)
        cache.hold(first, tokens, (("salt", f"t{a}"),))
        cache.hold(second, tokens)
        cache.match(tokens, (("salt", f"t{a}"),)).equals(first, because="the same salt")
        cache.match(tokens, (("salt", f"t{b}"),)).equals([], because="another salt")
        cache.match(tokens).equals(second, because="no salt")


@task("prefix.3", after="test_chains_are_found")
def test_forgotten_blocks(student, rng):
    """A forgotten block is not found, and no other block is lost."""
    for _ in range(DRAWS):
        cache = cache_for(student, rng)
        blocks, tokens = rng.sample(range(1, 30), 5), fresh(rng, 5 * cache.size + 1)
        others, prompt = rng.sample(range(30, 40), 2), fresh(rng, 2 * cache.size + 1)
        cache.hold(blocks, tokens)
        cache.hold(others, prompt)
        cache.forget(blocks[-1])
        cache.match(tokens).equals(blocks[:-1], because=f"block {blocks[-1]} is forgotten")
        cache.match(prompt).equals(others, because="the other prompt has lost nothing")
        cache.forget(blocks[-1])
        cache.hold(blocks[-1:], tokens, last=1)
        cache.match(tokens).equals(blocks, because="it was published again")


@task("prefix.3", after="test_chains_are_found")
def test_copies_in_turn(student, rng):
    """Of several blocks with one content the first one that is left is found."""
    for _ in range(DRAWS):
        cache, left = cache_for(student, rng), rng.sample(range(1, 40), 4)
        tokens = fresh(rng, cache.size + 1)
        for block in left:
            cache.hold([block], tokens)
        while left:
            cache.match(tokens).equals(left[:1], because=f"of {left} the first one was published first")
            cache.forget(left.pop(rng.randrange(len(left))))
        cache.match(tokens).equals([], because="all copies are forgotten")


@task("prefix.3", after="test_chains_are_found")
def test_blocks_with_new_content(student, rng):
    """A block that is published again holds the new content only."""
    for _ in range(DRAWS):
        cache, blocks = cache_for(student, rng), rng.sample(range(1, 40), 3)
        old, new = fresh(rng, 3 * cache.size + 1), fresh(rng, cache.size + 1)
        cache.hold(blocks, old)
        cache.hold(blocks[2:], new)
        cache.match(new).equals(blocks[2:], because="its new content")
        cache.match(old).equals(blocks[:2], because=f"block {blocks[2]} holds something else now")


@task("prefix.3", after="test_chains_are_found")
def test_looking_changes_nothing(student, rng):
    """The same lookup gives the same answer again."""
    cache, blocks = cache_for(student, rng), rng.sample(range(1, 40), 4)
    tokens = fresh(rng, 4 * cache.size + 1)
    cache.hold(blocks, tokens)
    for _ in range(4):
        cache.match(tokens[: rng.randint(1, len(tokens) - 1)]).satisfies(lambda got: True, want="a list")
        cache.match(tokens).equals(blocks, because="nothing was published or forgotten in between")


@task("prefix.3", after="test_chains_are_found")
def test_nothing_is_found_by_chance(student, rng):
    """Among thousands of contents no other one is found, however alike its key or its numbers are."""
    cache = Calls(student, 5000, 3)
    tokens = fresh(rng, 15_000)
    cache.hold(list(range(5000)), tokens)
    for _ in range(60):
        cache.match(fresh(rng, 4)).equals([], because="nobody published this prompt")
    alike = [token + HASH_MODULUS for token in tokens[:3]]
    cache.match([*alike, 1]).equals([], because="these are other numbers, though Python's hash() is the same")
    cache.match(tokens[:10]).equals([0, 1, 2], because="these blocks are published")


# --- prefix.4: a pool so large that nothing need be evicted

ALONE = Profile((70, 70), SIZES, depth=3, at_once=30, looks=0.0, shared=0.0)
SHARING = Profile((70, 70), SIZES, depth=4, at_once=30, looks=0.15, shared=0.75)
LEAVING = Profile((40, 40), SIZES, depth=3, at_once=4, frees=0.35, looks=0.15, shared=0.7)
GROWING = Profile((40, 40), (3,), depth=2, at_once=3, frees=0.15, grows=0.55, looks=0.1, shared=0.6)
SALTED = Profile((70, 70), SIZES, depth=2, at_once=30, looks=0.3, shared=0.85, salted=True)


@task("prefix.4")
def test_blocks_of_their_own(student, rng):
    """Prompts that share nothing get different blocks, as many as they need."""
    follow(student.PrefixCache, rng, ALONE, sequences=8, shortest=6)


@task("prefix.4", after="test_blocks_of_their_own")
def test_shared_prompts(student, rng):
    """Prompts that begin alike share their full blocks, and the others are new."""
    follow(student.PrefixCache, rng, SHARING, sequences=8, shortest=6)
    for size in SIZES:
        tokens = tuple(fresh(rng, 2 * size))
        for prompt in (tokens, (*tokens, 0)):
            steps = [*(Step("allocate", request, prompt) for request in (1, 2)), Step("match", tokens=(*prompt, 0))]
            must_follow(student.PrefixCache, 20, size, steps, evicts=False)


@task("prefix.4", after="test_shared_prompts")
def test_requests_that_end(student, rng):
    """Blocks come back when their last user ends, full ones are still found, and a number may be used again."""
    follow(student.PrefixCache, rng, LEAVING, sequences=10, shortest=9)
    for _ in range(DRAWS):  # parts of blocks only, so that all come back empty
        size, num_blocks = size_of(rng), rng.randint(2, 4)
        steps: list[Step] = []
        for request in range(num_blocks * 3):
            steps += [Step("free", request - num_blocks), Step("allocate", request, tuple(fresh(rng, size - 1)))]
        must_follow(student.PrefixCache, num_blocks, size, steps, evicts=False)


@task("prefix.4", after="test_requests_that_end")
def test_requests_that_grow(student, rng):
    """Appended tokens fill the last block, then a new one, and full blocks can be found."""
    follow(student.PrefixCache, rng, GROWING, sequences=12, shortest=14)


@task("prefix.4", after="test_shared_prompts")
def test_salted_requests(student, rng):
    """Requests share blocks only if their extras agree."""
    follow(student.PrefixCache, rng, SALTED, sequences=8, shortest=10)


@task("prefix.4", after="test_salted_requests")
def test_salted_answers(student, rng):
    """The blocks that an answer fills belong to the extras of its prompt."""
    size, salt = 3, (("salt", "a"),)
    tokens = tuple(fresh(rng, 5))
    steps = [Step("allocate", 1, tokens, salt), Step("append", 1, (7,)), Step("match", tokens=(*tokens, 7, 0))]
    must_follow(
        student.PrefixCache, 20, size, [*steps, Step("match", tokens=(*tokens, 7, 0), extra=salt)], evicts=False
    )


@task("prefix.4", after="test_requests_that_end")
def test_refused_prompts(student, rng):
    """A prompt for which there are too few blocks gets None, takes nothing and leaves its number free."""
    for _ in range(4):
        size, num_blocks = size_of(rng), rng.randint(5, 9)
        first, big = rng.randint(1, 3), num_blocks + rng.randint(1, 3)
        tokens = fresh(rng, size * (big + 1))
        room = num_blocks - first
        steps = [
            Step("allocate", 1, tuple(tokens[: size * first])),
            Step("allocate", 2, tuple(tokens[size : size * big])),
            Step("allocate", 2, tuple(tokens[: size * big])),
            Step("allocate", 2, tuple(tokens[size : size * (room + 1)])),
        ]
        must_follow(student.PrefixCache, num_blocks, size, steps, evicts=False)


@task("prefix.4", after="test_requests_that_grow")
def test_refused_tokens(student, rng):
    """A token for which there is no block gets None and is not remembered."""
    for _ in range(DRAWS):
        size, num_blocks = 3, rng.randint(3, 6)
        tokens, other = tuple(fresh(rng, size * (num_blocks - 1))), tuple(fresh(rng, size - 1))
        steps = [Step("allocate", 1, tokens), Step("allocate", 2, other)]
        steps += [Step("append", 1, (number,)) for number in (1, 2)]
        steps += [Step("free", 2)] + [Step("append", 1, (number,)) for number in (3, 4, 5)]
        steps += [Step("match", tokens=(*tokens, 3, 4, 5, 6)), Step("append", 1, (6,))]
        must_follow(student.PrefixCache, num_blocks, size, steps, evicts=False)


@task("prefix.4", after="test_requests_that_end")
def test_idle_hits_are_needed_too(student, rng):
    """Found blocks that are idle are no room for new blocks; found blocks that are in use cost nothing."""
    for ended in (True, False, True):
        size, hits, room = size_of(rng), rng.randint(2, 4), rng.randint(2, 4)
        tokens = fresh(rng, size * (hits + room + 2))
        more = room + rng.randint(1, min(hits, 2))
        steps = [
            Step("allocate", 1, tuple(tokens[: size * hits])),
            *([Step("free", 1)] if ended else []),
            Step("allocate", 2, tuple(tokens[: size * (hits + more)])),
            Step("allocate", 3, tuple(tokens[: size * (hits + room)])),
        ]
        must_follow(student.PrefixCache, hits + room, size, steps, evicts=False)


@task("prefix.4", after="test_blocks_of_their_own")
def test_requests_that_cannot_be(student, rng):
    """Requests that are there already, that never were, or that were freed before are refused by name."""
    cache, numbers = Calls(student, 20, 3), rng.sample(range(1000, 9999), 3)
    there, never, freed = numbers
    for number in (there, freed):
        cache.allocate(number, fresh(rng, 7)).satisfies(lambda got: len(got.block_table) == 3, want="3 blocks")
    cache.free(freed)
    cache.allocate(there, fresh(rng, 4)).refused(naming=str(there), because=f"request {there} has blocks")
    cache.append(never, 1).refused(naming=str(never), because=f"there is no request {never}")
    cache.free_again(never).refused(naming=str(never), because=f"there is no request {never}")
    cache.append(freed, 1).refused(naming=str(freed), because=f"request {freed} was freed")
    cache.free_again(freed).refused(naming=str(freed), because=f"request {freed} was freed before")


# --- prefix.5: a pool so small that something must go

SINGLE = Profile((3, 5), SIZES, depth=1, at_once=1, looks=0.1, shared=0.55, evicts=True)
CHAINS = Profile((5, 8), SIZES, depth=4, at_once=1, looks=0.1, shared=0.6, evicts=True)
TOGETHER = Profile((6, 10), SIZES, depth=3, at_once=3, frees=0.3, looks=0.1, shared=0.6, evicts=True)
CROWDED = Profile((4, 8), (3,), depth=2, at_once=3, frees=0.15, grows=0.5, looks=0.1, shared=0.5, evicts=True)
ALL_KINDS = Profile(
    (3, 8), (3,), depth=2, at_once=3, frees=0.25, grows=0.3, looks=0.1, evicts=True, copies=True, salted=True
)


def counted(cache: Calls, judge: Judge, step: Step, *names: str) -> None:
    """One call, and these counts after it."""
    cache.make(step, judge)
    cache.stats(judge, *names, because="counted by hand")


def alone(prompts: list[tuple[int, ...]]) -> list[Step]:
    """One request after the other."""
    return [step for tokens in prompts for step in (Step("allocate", 1, tokens), Step("free", 1))]


@task("prefix.5")
def test_blocks_are_counted(student, rng):
    """`stats` counts the blocks that are free, in use and cached."""
    names = ("free", "referenced", "cached")
    for _ in range(DRAWS):
        num_blocks, size = rng.randint(20, 30), size_of(rng)
        cache, judge = Calls(student, num_blocks, size), Judge(num_blocks, size)
        cache.stats(judge, *names, because="all blocks are free")
        tokens = tuple(fresh(rng, 4 * size))
        counted(cache, judge, Step("allocate", 1, tokens[: 2 * size + 1]), *names)
        counted(cache, judge, Step("free", 1), *names)
        counted(cache, judge, Step("allocate", 2, tokens[: 3 * size + 2]), *names)
        counted(cache, judge, Step("allocate", 3, tokens[: 2 * size + 2]), *names)
        for token in range(size):
            counted(cache, judge, Step("append", 2, (token,)), *names)


@task("prefix.5", after="test_blocks_are_counted")
def test_tokens_are_counted(student, rng):
    """`stats` counts the tokens of the prompts that got blocks, and how many of them were found."""
    names = ("hit_tokens", "asked_tokens")
    for _ in range(DRAWS):
        num_blocks, size = rng.randint(20, 30), size_of(rng)
        cache, judge = Calls(student, num_blocks, size), Judge(num_blocks, size)
        tokens = tuple(fresh(rng, 40 * size))
        counted(cache, judge, Step("allocate", 1, tokens[: 3 * size + 1]), *names)
        counted(cache, judge, Step("match", tokens=tokens), *names)
        counted(cache, judge, Step("allocate", 2, tokens[: 5 * size]), *names)
        counted(cache, judge, Step("allocate", 3, tokens), *names)
        counted(cache, judge, Step("append", 1, (5,)), *names)
        counted(cache, judge, Step("allocate", 4, tokens[: 4 * size + 1]), *names)


@task("prefix.5", after="test_blocks_are_counted")
def test_evictions_are_counted(student, rng):
    """`stats` counts the blocks whose content was given up, and those only."""
    names = ("evictions", "cached")
    for _ in range(DRAWS):
        num_blocks, size = rng.randint(9, 14), size_of(rng)
        cache, judge = Calls(student, num_blocks, size), Judge(num_blocks, size)
        first = rng.randint(3, num_blocks - 4)
        counted(cache, judge, Step("allocate", 1, tuple(fresh(rng, first * size + 1))), *names)
        counted(cache, judge, Step("free", 1), *names)
        counted(cache, judge, Step("allocate", 2, tuple(fresh(rng, (num_blocks - first) * size))), *names)
        counted(cache, judge, Step("free", 2), *names)
        counted(cache, judge, Step("allocate", 3, tuple(fresh(rng, num_blocks * size - 1))), *names)


@task("prefix.5", after="test_blocks_are_counted")
def test_refused_prompts_leave_no_trace(student, rng):
    """A refused prompt holds no block, neither a found one nor a new one."""
    for ended in (True, False):
        num_blocks, size = rng.randint(6, 9), size_of(rng)
        cache, judge = Calls(student, num_blocks, size), Judge(num_blocks, size)
        tokens = tuple(fresh(rng, (num_blocks + 3) * size))
        counted(cache, judge, Step("allocate", 1, tokens[: 2 * size + 1]), "referenced")
        if ended:
            counted(cache, judge, Step("free", 1), "referenced")
        counted(cache, judge, Step("allocate", 2, tokens), "referenced")
        if not ended:
            counted(cache, judge, Step("free", 1), "referenced")
        counted(cache, judge, Step("allocate", 3, tokens[-num_blocks * size :]), "referenced")


@task("prefix.5", after="test_blocks_are_counted")
def test_nothing_old_is_found(student, rng):
    """When all blocks have new content nothing old is found."""
    for _ in range(DRAWS):
        num_blocks, size = rng.randint(2, 6), size_of(rng)
        old, new = (tuple(fresh(rng, num_blocks * size)) for _ in range(2))
        steps = [
            Step("allocate", 1, old),
            Step("match", tokens=(*old, 0)),
            Step("free", 1),
            Step("allocate", 2, new[:-1]),
            Step("match", tokens=(*old, 0)),
            Step("match", tokens=(*new, 0)),
        ]
        must_follow(student.PrefixCache, num_blocks, size, steps)


@task("prefix.5", after="test_nothing_old_is_found")
def test_longest_idle_first(student, rng):
    """What has been idle for longest goes first, and use makes a block recent again."""
    for _ in range(DRAWS):
        size, number = size_of(rng), rng.randint(3, 5)
        texts = [tuple(fresh(rng, size)) for _ in range(number)]
        steps = alone(texts)
        steps += alone([(*text, 0) for text in rng.sample(texts[1:-1], number - 2)])
        steps += [Step("match", tokens=(*texts[0], 0))]  # no use, so this one is still the first to go
        steps += alone([tuple(fresh(rng, size)) for _ in range(number)])
        must_follow(student.PrefixCache, number + 1, size, steps)
    follow(student.PrefixCache, rng, SINGLE, sequences=8, shortest=14)


@task("prefix.5", after="test_longest_idle_first")
def test_tails_before_heads(student, rng):
    """Of the blocks of one prompt the tail goes before the head."""
    follow(student.PrefixCache, rng, CHAINS, sequences=12, shortest=12)


@task("prefix.5", after="test_tails_before_heads")
def test_used_blocks_stay(student, rng):
    """While several requests run, no block that one of them uses is handed out."""
    follow(student.PrefixCache, rng, TOGETHER, sequences=14, shortest=14)


@task("prefix.5", after="test_used_blocks_stay")
def test_growth_under_pressure(student, rng):
    """Tokens that need a new block evict as prompts do, and blocks that they fill are evicted as others are."""
    for _ in range(DRAWS):
        size, number = 3, rng.randint(2, 4)
        old, new = tuple(fresh(rng, size * number)), tuple(fresh(rng, size))
        steps = [*alone([old]), Step("allocate", 1, new)]
        for token in rng.sample(range(1000), size * (number - 1) + 1):
            steps += [Step("append", 1, (token,)), Step("match", tokens=(*old, 0))]
        must_follow(student.PrefixCache, number, size, steps)
    follow(student.PrefixCache, rng, CROWDED, sequences=8, shortest=16)


@task("prefix.5", after="test_growth_under_pressure")
def test_copies_and_salts_under_pressure(student, rng):
    """With copies and salts as well, every answer follows the rules."""
    size, tokens = 3, tuple(fresh(rng, 6))
    steps = alone([tuple(fresh(rng, size)), tokens, tokens, tokens])
    steps += [Step("allocate", request, tuple(fresh(rng, size))) for request in range(2, 7)]
    looks = [Step("match", tokens=(*tokens, 0))] * len(steps)
    must_follow(student.PrefixCache, 7, size, [step for pair in zip(steps, looks, strict=True) for step in pair])
    follow(student.PrefixCache, rng, ALL_KINDS, sequences=14, shortest=14)
