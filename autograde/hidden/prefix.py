"""Hidden tests of lesson 2, the prefix cache: fresh prompts from `rng`."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

from autograde.hidden.prefix_cache import *  # noqa: F403 - the tests of prefix.3 to prefix.5
from autograde.hidden.prefix_reuse import *  # noqa: F403 - the tests of prefix.7
from kvcourse.tasks.api import expect, task

DRAWS = 3
HASH_MODULUS = 2**61 - 1  # Python's hash() of a whole number is the number modulo this

# --- prefix.1


def fork(rng: Random, shared: int, rest: int) -> tuple[list[int], list[int]]:
    """Two prompts with `shared` tokens in common; no token behind them stands in both."""
    pool = rng.sample(range(50_000), shared + 2 * rest)
    head = pool[:shared]
    return head + pool[shared : shared + rest], head + pool[shared + rest :]


@task("prefix.1")
def test_fresh_prefixes(student, rng):
    """The common tokens at the start are counted."""
    for _ in range(DRAWS):
        shared = rng.randint(2, 60)
        expect(student.shared_prefix_length, *fork(rng, shared, rng.randint(2, 30))).equals(shared)


@task("prefix.1", after="test_fresh_prefixes")
def test_later_agreement(student, rng):
    """What agrees behind the first difference does not count, in the same place or in another one."""
    for _ in range(DRAWS):
        shared, tail = rng.randint(2, 9), rng.sample(range(60_000, 70_000), 30)
        a, b = fork(rng, shared, 5)
        expect(student.shared_prefix_length, a + tail, b + tail).equals(shared, because="the ends agree")
        expect(student.shared_prefix_length, a + tail + [1], [*b, 2, *tail]).equals(shared, because="the ends agree")


@task("prefix.1", after="test_fresh_prefixes")
def test_prompts_of_different_length(student, rng):
    """A prompt that ends first ends the prefix."""
    for _ in range(DRAWS):
        long = rng.choices(range(50_000), k=rng.randint(20, 60))
        shared = rng.randint(2, 19)
        expect(student.shared_prefix_length, long[:shared], long).equals(shared, because="the first one ends")
        expect(student.shared_prefix_length, long, long[:shared]).equals(shared, because="the second one ends")


@task("prefix.1", after="test_fresh_prefixes")
def test_equal_prompts(student, rng):
    """Equal prompts share all their tokens."""
    for _ in range(DRAWS):
        tokens = rng.choices(range(50_000), k=rng.randint(2, 60))
        expect(student.shared_prefix_length, tokens, list(tokens)).equals(len(tokens), because="nothing differs")


@task("prefix.1", after="test_fresh_prefixes")
def test_words(student, rng):
    """Words are counted as well as numbers, in tuples as well as in lists."""
    words = rng.sample(
        ["the", "a", "one", "two", "for", "rain", "sun", "snow", "wind", "cloud", "fog", "hail", "dew"], 9
    )
    shared = rng.randint(2, 7)
    other = words[:shared] + [word.upper() for word in words[shared:]]
    expect(student.shared_prefix_length, words, other).equals(shared)
    expect(student.shared_prefix_length, tuple(words), tuple(other)).equals(shared)


@task("prefix.1", after="test_fresh_prefixes")
def test_nothing_shared(student, rng):
    """Prompts that differ in the first token share nothing."""
    for _ in range(DRAWS):
        expect(student.shared_prefix_length, *fork(rng, 0, rng.randint(1, 30))).equals(0)


@task("prefix.1", after="test_fresh_prefixes")
def test_long_prompts(student, rng):
    """Prompts of many thousand tokens are no problem."""
    shared = rng.randint(10_000, 15_000)
    head = [rng.randrange(50_000) for _ in range(shared)]
    expect(student.shared_prefix_length, [*head, 1, 2], [*head, 3, 4]).equals(shared)


# --- prefix.2


def prompt(rng: Random, blocks: int, size: int, rest: int = 0) -> list[int]:
    """Random tokens, none of them twice."""
    return rng.sample(range(14_000), blocks * size + rest)


def keys_of(student: Any, tokens: Any, size: int, extra: Any = ()) -> list[bytes]:
    """The keys, of which there is at least one and all are bytes."""
    return expect(student.block_keys, tokens, size, *((extra,) if extra else ())).satisfies(
        lambda got: len(got) > 0 and all(type(key) is bytes for key in got), want="a list of keys"
    )


def differ(student: Any, size: int, first: tuple, second: tuple, because: str, every: bool = True) -> None:
    """Two inputs (tokens, extra) whose keys all differ; without `every` only the last ones must."""
    known = keys_of(student, first[0], size, *first[1:])
    expect(student.block_keys, second[0], size, *second[1:]).satisfies(
        lambda got: (
            len(got) == len(known)
            and got[-1] != known[-1]
            and (not every or all(a != b for a, b in zip(got, known, strict=True)))
        ),
        want=f"other keys than {first} has",
        because=because,
    )


@task("prefix.2")
def test_a_key_for_every_full_block(student, rng):
    """There is a key of 32 bytes for every full block and for no other."""
    for rest in (0, 1, 2):
        size, blocks = rng.randint(3, 9), rng.randint(1, 6)
        expect(student.block_keys, prompt(rng, blocks, size, rest), size).satisfies(
            lambda got, blocks=blocks: len(got) == blocks and all(type(k) is bytes and len(k) == 32 for k in got),
            want=f"{blocks} keys of 32 bytes",
            because=f"{blocks} full blocks of {size}, and {rest} tokens",
        )


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_keys_are_repeatable(student, rng):
    """The same tokens have the same keys, whatever stands behind them."""
    for _ in range(DRAWS):
        size = rng.randint(3, 9)
        tokens = prompt(rng, 6, size, 2)
        known, some = keys_of(student, tokens, size), rng.randint(2, 5)
        expect(student.block_keys, tokens, size).equals(known, because="asked again")
        expect(student.block_keys, tokens[: some * size + 1], size).equals(known[:some], because="a shorter prompt")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_the_whole_past_counts(student, rng):
    """A key depends on all tokens before its block, not on those of the block alone."""
    for _ in range(DRAWS):
        size = rng.randint(3, 9)
        tokens = prompt(rng, 4, size)
        differ(student, size, (tokens,), ([120_001, *tokens[1:]],), because="the first token of all differs")
        block = tokens[:size]
        expect(student.block_keys, block * 4, size).satisfies(
            lambda got: len(set(got)) == 4, want="4 different keys", because="the same block four times in a row"
        )


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_every_place_counts(student, rng):
    """The order of the tokens in a block counts."""
    for _ in range(DRAWS):
        size = rng.randint(3, 9)
        tokens, i = prompt(rng, 1, size), rng.randrange(size - 1)
        swapped = [*tokens[:i], tokens[i + 1], tokens[i], *tokens[i + 2 :]]
        differ(student, size, (tokens,), (swapped,), because="two neighbours have changed places")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_borders_between_tokens(student, rng):
    """Digits that move from one token to the next make other tokens."""
    for _ in range(DRAWS):
        a, b, c = rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9)
        differ(student, 2, ([10 * a + b, c],), ([a, 10 * b + c],), because="other numbers, the same digits in a row")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_large_tokens(student, rng):
    """No part of a large number is cut off."""
    for bits in (8, 16, 24, 32, 48):
        tokens = prompt(rng, 2, 3)
        larger = [*tokens[:-1], tokens[-1] + 2**bits]
        differ(student, 3, (tokens,), (larger,), because=f"the last token is larger by 2**{bits}", every=False)


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_what_python_cannot_tell_apart(student, rng):
    """Tokens for which Python's `hash` is the same have different keys."""
    for _ in range(DRAWS):
        tokens = prompt(rng, 2, 3)
        i = rng.randrange(3)
        alike = [token + HASH_MODULUS * (number == i) for number, token in enumerate(tokens)]
        differ(student, 3, (tokens,), (alike,), because="hash() is random in parts, short, and easy to fool")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_no_two_of_many_keys_agree(student, rng):
    """Of 4,000 contents no two have the same key."""
    tokens = [rng.randrange(14_000) for _ in range(4_000)]
    expect(student.block_keys, tokens, 1).satisfies(
        lambda got: len(set(got)) == 4_000, want="4,000 different keys", because="a short key meets its like soon"
    )


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_arrays_are_as_good(student, rng):
    """Tokens in a tuple or an array have the keys that they have in a list."""
    import numpy

    tokens = prompt(rng, 3, 4)
    known = keys_of(student, tokens, 4)
    expect(student.block_keys, tuple(tokens), 4).equals(known, because="a tuple")
    for dtype in (numpy.int32, numpy.int64):
        expect(student.block_keys, numpy.array(tokens, dtype=dtype), 4).equals(known, because="an array")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_salts_of_tenants(student, rng):
    """Another salt, or none, gives other keys for every block."""
    tokens = prompt(rng, 4, 3)
    a, b = (f"tenant-{number}" for number in rng.sample(range(1000), 2))
    differ(student, 3, (tokens,), (tokens, (("salt", a),)), because="no salt is not a salt")
    differ(student, 3, (tokens, (("salt", a),)), (tokens, (("salt", b),)), because="two tenants")
    known = keys_of(student, tokens, 3, (("salt", a),))
    expect(student.block_keys, tokens, 3, (("salt", a),)).equals(known, because="the same tenant again")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_kinds_of_extras(student, rng):
    """The same value of another kind gives other keys."""
    tokens, value = prompt(rng, 3, 3), f"v{rng.randrange(1000)}"
    for kinds in (("salt", "lora"), ("lora", "image")):
        first, second = ((tokens, ((kind, value),)) for kind in kinds)
        differ(student, 3, first, second, because="the kind is part of the key")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_borders_between_extras(student, rng):
    """Extras that look alike when they are written in a row have different keys."""
    tokens, because = prompt(rng, 1, 3), "other kinds and values, the same letters in a row"
    differ(student, 3, (tokens, (("ab", "c"),)), (tokens, (("a", "bc"),)), because)
    differ(student, 3, (tokens, (("a", "b"), ("c", "d"))), (tokens, (("a", "bcd"),)), because)
    for inner, outer in product("=:, \0", ";,&\n\0"):
        two = (("a", "b"), ("c", "d"))
        differ(student, 3, (tokens, two), (tokens, (("a", f"b{outer}c{inner}d"),)), because)


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_order_of_extras(student, rng):
    """The order of the extras counts, and so does their number."""
    tokens = prompt(rng, 3, 3)
    a, b = ("lora", f"sql-v{rng.randrange(100)}"), ("image", f"{rng.getrandbits(60):x}")
    differ(student, 3, (tokens, (a, b)), (tokens, (b, a)), because="the order counts")
    differ(student, 3, (tokens, (a,)), (tokens, (a, a)), because="once is not twice")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_empty_extras(student, rng):
    """An empty value is not the same as no value."""
    tokens = prompt(rng, 3, 3)
    differ(student, 3, (tokens,), (tokens, (("salt", ""),)), because="a salt that is empty")
    differ(student, 3, (tokens, (("salt", ""),)), (tokens, (("salt", ""), ("lora", ""))), because="two of them")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_extras_in_lists(student, rng):
    """Extras in lists have the keys that they have in tuples."""
    tokens, value = prompt(rng, 2, 3), f"tenant-{rng.randrange(100)}"
    known = keys_of(student, tokens, 3, (("salt", value), ("lora", "x")))
    expect(student.block_keys, tokens, 3, [["salt", value], ["lora", "x"]]).equals(known, because="the same pairs")


@task("prefix.2", after="test_a_key_for_every_full_block")
def test_sizes_that_cannot_be(student, rng):
    """Block sizes below 1 are refused by name."""
    for size in (0, -rng.randint(1, 16)):
        expect(student.block_keys, prompt(rng, 2, 3), size).refused(naming="block_size")


# --- prefix.6


def parts_of(rng: Random, *rates: float) -> list[tuple[str, float]]:
    names = ["rules", "tools", "date", "user", "file", "notes", "memory", "plan"]
    return list(zip(rng.sample(names, len(rates)), rates, strict=True))


@task("prefix.6")
def test_rates_in_rising_order(student, rng, solution):
    """Parts that change less come first."""
    for _ in range(DRAWS):
        parts = parts_of(rng, *rng.sample((0.0, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0), 5))
        expect(student.order_prompt, parts).equals(solution.order_prompt(parts), because="what changes less is first")


@task("prefix.6", after="test_rates_in_rising_order")
def test_equal_rates_keep_their_order(student, rng, solution):
    """Parts that change equally often stay in their order."""
    for _ in range(DRAWS):
        parts = parts_of(rng, 0.5, 0.0, 0.5, 0.0, 0.5, 0.0)
        expect(student.order_prompt, parts).equals(solution.order_prompt(parts), because="equal parts stay in order")


@task("prefix.6", after="test_rates_in_rising_order")
def test_a_question_anywhere(student, rng, solution):
    """The question comes last, wherever it stood and however seldom it changes."""
    for rate in (0.0, 0.3, 1.0):
        parts = parts_of(rng, *rng.sample((0.1, 0.4, 0.9, 1.0), 4))
        parts.insert(rng.randint(0, 3), ("question", rate))
        expect(student.order_prompt, parts).equals(solution.order_prompt(parts), because="the question is last")


@task("prefix.6", after="test_rates_in_rising_order")
def test_parts_are_left_alone(student, rng):
    """The list that is given stays as it was."""
    parts = parts_of(rng, 0.9, 0.1, 0.5)
    before = list(parts)
    student.order_prompt(parts)
    assert parts == before, "order_prompt changed the list it was given"


def same_cost(student: Any, solution: Any, because: str, *args: Any) -> None:
    want = solution.prompt_cost(*args)
    expect(student.prompt_cost, *args).close(want, because=because)


def prices(rng: Random) -> tuple[float, float]:
    return rng.choice((0.25, 0.3, 0.5)), rng.choice((2.5, 3.0, 5.0))


@task("prefix.6")
def test_a_prompt_like_the_one_before(student, rng, solution):
    """Full blocks that the prompt before had cost the hit price, other tokens the miss price."""
    for _ in range(DRAWS):
        size = rng.randint(3, 9)
        head = prompt(rng, rng.randint(1, 5), size)
        requests = [head + prompt(rng, 1, size, 1), head + prompt(rng, 0, size, rng.randint(1, size - 1))]
        same_cost(student, solution, "whole blocks are shared", requests, *prices(rng), size)


@task("prefix.6", after="test_a_prompt_like_the_one_before")
def test_a_part_of_a_block(student, rng, solution):
    """Tokens that are shared beyond the last full block are computed again."""
    for _ in range(DRAWS):
        size = rng.randint(4, 9)
        head = prompt(rng, rng.randint(1, 5), size, rng.randint(1, size - 2))
        requests = [[*head, 120_001, 1, 2], [*head, 120_002, 3, 4, 5]]
        same_cost(student, solution, "the shared part ends inside a block", requests, *prices(rng), size)


@task("prefix.6", after="test_a_prompt_like_the_one_before")
def test_any_earlier_prompt(student, rng, solution):
    """A block that any earlier prompt had is a hit."""
    size = rng.randint(3, 9)
    first, second = prompt(rng, 3, size), prompt(rng, 2, size)
    requests = [[*head, number] for number, head in enumerate((first, second, first, second, first))]
    same_cost(student, solution, "two prompts take turns", requests, *prices(rng), size)


@task("prefix.6", after="test_a_prompt_like_the_one_before")
def test_the_same_prompt_again(student, rng, solution):
    """Of a prompt that is cached to the end the last block is computed again."""
    for _ in range(DRAWS):
        size = rng.randint(3, 9)
        head = prompt(rng, rng.randint(2, 5), size)
        same_cost(student, solution, "one token is always computed", [head, head], *prices(rng), size)


@task("prefix.6", after="test_a_prompt_like_the_one_before")
def test_blocks_in_the_middle(student, rng, solution):
    """Blocks behind the first difference are computed again, even if they agree."""
    size = rng.randint(3, 9)
    head, middle, tail = (prompt(rng, 2, size) for _ in range(3))
    requests = [[*head, *middle, *tail, 1], [*head, *reversed(middle), *tail, 2], [*tail, *middle, 3]]
    same_cost(student, solution, "a prefix ends at the first difference", requests, *prices(rng), size)


@task("prefix.6", after="test_a_prompt_like_the_one_before")
def test_prices_that_cannot_be(student, rng):
    """Prices below 0 and blocks of no tokens are refused by name."""
    requests = [prompt(rng, 2, 3)]
    expect(student.prompt_cost, requests, -rng.random() - 0.1, 1.0, 3).refused(naming="hit_price")
    expect(student.prompt_cost, requests, 1.0, -rng.random() - 0.1, 3).refused(naming="miss_price")
    expect(student.prompt_cost, requests, 1.0, 1.0, -rng.randint(0, 16)).refused(naming="block_size")
