"""Public tests of lesson 2, the prefix cache: small cases that teach, the smallest first."""

from __future__ import annotations

from kvcourse.tasks.api import expect, task
from kvcourse.tasks.prefix_cache import *  # noqa: F403 - the tests of prefix.3 to prefix.5
from kvcourse.tasks.prefix_reuse import *  # noqa: F403 - the tests of prefix.7

LONG_PROMPT = list(range(1000, 4000))  # a system prompt of 3,000 tokens
QUESTIONS = (list(range(40)), list(range(100, 140)))  # two questions of 40 tokens

# --- prefix.1


@task("prefix.1")
def test_prefix_ends_at_first_difference(student):
    """The prefix ends at the first token that differs, even if later tokens agree."""
    expect(student.shared_prefix_length, [5], [5]).equals(1, because="one token, and it is the same")
    expect(student.shared_prefix_length, [5, 6], [5, 7]).equals(
        1, because="the second token differs", tip="count from the start, stop at the first difference"
    )
    expect(student.shared_prefix_length, [5, 6, 7, 8], [5, 6, 9, 8]).equals(
        2, because="the 8 agrees, but behind a difference", tip="stop at the first difference"
    )


@task("prefix.1")
def test_one_prompt_inside_the_other(student):
    """A shorter prompt that begins a longer one is shared as a whole."""
    tip = "stop where the shorter prompt ends"
    expect(student.shared_prefix_length, [5, 6], [5, 6, 7]).equals(2, because="all of the first prompt", tip=tip)
    expect(student.shared_prefix_length, [5, 6, 7], [5, 6]).equals(2, because="all of the second prompt", tip=tip)
    expect(student.shared_prefix_length, [5, 6], []).equals(0, because="an empty prompt shares nothing", tip=tip)


@task("prefix.1")
def test_the_weather_prompts(student):
    """Tokens may be words: the weather prompts share 2 of 4 tokens, and none with the city in front."""
    expect(student.shared_prefix_length, ["Weather", "in", "SF", "?"], ["Weather", "in", "NYC", "?"]).equals(
        2, because="the cities differ; the question mark is behind them"
    )
    expect(student.shared_prefix_length, ["SF", "Weather", "in", "?"], ["NYC", "Weather", "in", "?"]).equals(
        0, because="the first token differs already"
    )


@task("prefix.1")
def test_a_long_system_prompt(student):
    """3,000 of 3,040 tokens are shared with the system prompt first, none with the question first."""
    first, second = QUESTIONS
    expect(student.shared_prefix_length, LONG_PROMPT + first, LONG_PROMPT + second).equals(
        3000, because="98.7 % of 3,040 tokens", tip="a loop, not a function that calls itself 3,000 times"
    )
    expect(student.shared_prefix_length, first + LONG_PROMPT, second + LONG_PROMPT).equals(
        0, because="the same tokens in another order"
    )


# --- prefix.2


@task("prefix.2")
def test_full_blocks_have_keys(student):
    """Every full block has a key of 32 bytes; a block that is not full has none."""
    tip = "go through the prompt in steps of block_size and leave out what is too short"
    for tokens, keys in (([1, 2], 1), ([1, 2, 3], 1), ([1, 2, 3, 4], 2), ([1], 0), ([], 0)):
        expect(student.block_keys, tokens, 2).satisfies(
            lambda got, keys=keys: len(got) == keys and all(type(key) is bytes and len(key) == 32 for key in got),
            want=f"a list of {keys} key{'' if keys == 1 else 's'} of 32 bytes",
            because=f"{len(tokens)} tokens fill {len(tokens) // 2} blocks of 2",
            tip=tip,
        )


@task("prefix.2")
def test_equal_prompts_have_equal_keys(student):
    """The same tokens give the same keys, now and later, as a list and as an array."""
    import numpy

    keys = student.block_keys([1, 2, 3, 4], 2)
    expect(student.block_keys, [1, 2, 3, 4], 2).equals(keys, because="nothing has changed", tip="no random numbers")
    expect(student.block_keys, [1, 2, 3, 4, 5], 2).equals(keys, because="the fifth token fills no block")
    expect(student.block_keys, numpy.array([1, 2, 3, 4], dtype=numpy.int32), 2).equals(
        keys, because="an array holds the same numbers", tip="turn every token into a plain int, or pack it as one"
    )


@task("prefix.2")
def test_a_key_stands_for_all_tokens_before(student):
    """A changed token changes the key of its block and of every block behind it, and of none before it."""
    keys = student.block_keys([1, 2, 3, 4, 5, 6], 2)
    expect(student.block_keys, [1, 2, 3, 9, 5, 6], 2).satisfies(
        lambda got: got[0] == keys[0] and got[1] != keys[1] and got[2] != keys[2],
        want=f"the first key of [1, 2, 3, 4, 5, 6] and two other ones; that prompt has {short(keys)}",
        because="the block [5, 6] stands behind other tokens now: its keys and values are others",
        tip="put the key of the block before into what you hash",
    )
    expect(student.block_keys, [1, 2, 1, 2], 2).satisfies(
        lambda got: got[0] != got[1],
        want="two different keys",
        because="the second [1, 2] stands behind the first",
        tip="put the key of the block before into what you hash",
    )


@task("prefix.2")
def test_tokens_do_not_run_together(student):
    """Different tokens never look alike: neither their order nor their borders get lost."""
    tip = "give every token the same number of bytes"
    for a, b in (([1, 2], [2, 1]), ([1, 23], [12, 3]), ([1, 256], [256, 1]), ([5, 6], [5, 6 + 2**32])):
        keys = student.block_keys(a, 2)
        expect(student.block_keys, b, 2).satisfies(
            lambda got, keys=keys: got != keys,
            want=f"not the key of {a}, {short(keys)}",
            because="other tokens",
            tip=tip,
        )


@task("prefix.2")
def test_extras_change_every_key(student):
    """Extras change every key; kind and value both count."""
    tip = "hash the extras, with borders between all parts, in front of the first block"
    pairs = [(), (("salt", "a"),), (("salt", "b"),), (("lora", "a"),), (("sal", "ta"),), (("salt", ""),)]
    seen: dict[tuple, list] = {}
    for extra in pairs:
        keys = expect(student.block_keys, [1, 2, 3, 4], 2, extra).value
        for other, known in seen.items():
            expect(student.block_keys, [1, 2, 3, 4], 2, extra).satisfies(
                lambda got, known=known: got[0] != known[0] and got[1] != known[1],
                want=f"no key of those that extra={other} gives, {short(known)}",
                because="whose tokens they are, or with which weights they were computed, counts as well",
                tip=tip,
            )
        seen[extra] = keys


@task("prefix.2", after="test_full_blocks_have_keys")
def test_empty_blocks_are_refused(student):
    """A block size below 1 is refused by name."""
    tip = "raise ValueError with a sentence that names block_size: require() above does that"
    expect(student.block_keys, [1, 2], 0).refused(naming="block_size", because="no block is empty", tip=tip)
    expect(student.block_keys, [1, 2], -2).refused(naming="block_size", because="no block is empty", tip=tip)


# --- prefix.6


@task("prefix.6")
def test_stable_parts_first(student):
    """What changes least comes first, and equal parts stay in their order."""
    expect(student.order_prompt, [("date", 1.0), ("rules", 0.0)]).equals(
        [("rules", 0.0), ("date", 1.0)], because="the rules are the same in every request", tip="sort by changes"
    )
    parts = [("user", 0.5), ("tools", 0.0), ("date", 1.0), ("rules", 0.0)]
    expect(student.order_prompt, parts).equals(
        [("tools", 0.0), ("rules", 0.0), ("user", 0.5), ("date", 1.0)],
        because="tools and rules change equally seldom: their order stays",
        tip="sorted() keeps the order of equal items; compare by changes only",
    )


@task("prefix.6")
def test_the_question_comes_last(student):
    """The question comes last, however seldom it changes."""
    expect(student.order_prompt, [("question", 0.1), ("date", 1.0), ("rules", 0.0)]).equals(
        [("rules", 0.0), ("date", 1.0), ("question", 0.1)],
        because="the model answers what it reads last",
        tip="sort by two things: is it the question, and how often does it change",
    )


@task("prefix.6")
def test_hits_are_cheaper(student):
    """Cached tokens cost the hit price, the others the miss price, for a million of them."""
    expect(student.prompt_cost, [[1, 2, 3]], 0, 2, 2).close(
        6e-6, because="3 tokens at 2 dollars for a million", tip="divide by 1,000,000"
    )
    expect(student.prompt_cost, [[1, 2, 3], [1, 2, 4]], 0.5, 2, 2).close(
        9e-6, because="3 x 2, then 2 x 0.5 + 1 x 2", tip="count the full blocks that an earlier prompt had"
    )
    expect(student.prompt_cost, [[1, 2, 3], [4, 5, 6], [1, 2, 7]], 0.5, 2, 2).close(
        15e-6, because="the third prompt finds the blocks of the first", tip="remember all prompts, not the last one"
    )


@task("prefix.6")
def test_only_full_blocks_are_hits(student):
    """Only full blocks are hits, and the last token of a prompt is always computed."""
    expect(student.prompt_cost, [[1, 2, 3, 4], [1, 2, 3, 5]], 0, 1, 2).close(
        6e-6, because="3 tokens are shared, but only one full block: 4 + 2 computed", tip="count in blocks"
    )
    expect(student.prompt_cost, [[1, 2, 3, 4], [1, 2, 3, 4]], 0, 1, 2).close(
        6e-6, because="of 4 tokens at most (4 - 1) // 2 = 1 block is found: 4 + 2 computed", tip="leave one token over"
    )


@task("prefix.6")
def test_the_order_decides_the_bill(student):
    """Ten questions behind 3,000 tokens of rules: a tenth of the price with the rules first, full price behind."""
    questions = [[10_000 + 40 * number + i for i in range(40)] for number in range(10)]
    right = [LONG_PROMPT + question for question in questions]
    wrong = [question + LONG_PROMPT for question in questions]
    expect(student.prompt_cost, right, 0.3, 3.0, 20).close(
        (3040 * 3.0 + 9 * (3000 * 0.3 + 40 * 3.0)) / 1e6,
        because="3,040 tokens computed once, then 9 times 3,000 cached and 40 computed",
    )
    expect(student.prompt_cost, wrong, 0.3, 3.0, 20).close(30_400 * 3.0 / 1e6, because="nothing is shared")


@task("prefix.6", after="test_hits_are_cheaper")
def test_nonsense_prices_are_refused(student):
    """Negative prices and empty blocks are refused by name."""
    tip = "raise ValueError with a sentence that names the argument"
    expect(student.prompt_cost, [[1]], -1, 1, 2).refused(naming="hit_price", because="nobody pays you", tip=tip)
    expect(student.prompt_cost, [[1]], 1, -1, 2).refused(naming="miss_price", because="nobody pays you", tip=tip)
    expect(student.prompt_cost, [[1]], 1, 1, 0).refused(naming="block_size", because="no block is empty", tip=tip)


def short(keys: list) -> str:
    """Keys by their first bytes."""
    return "[" + ", ".join(f"{key[:3].hex()}…" for key in keys) + "]"
