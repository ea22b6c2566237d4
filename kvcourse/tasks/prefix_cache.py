"""Public tests of prefix.3 to prefix.5, the cache itself: by hand first, then random calls against the referee."""

from __future__ import annotations

from random import Random
from typing import Any

from kvcourse.tasks.api import task
from kvcourse.tasks.prefix_draw import EVERYTHING, Profile
from kvcourse.tasks.prefix_judge import Judge, Step
from kvcourse.tasks.prefix_story import Calls, follow

ROOMY = Profile((24, 24), (1, 2, 4), depth=3, at_once=3, frees=0.3, grows=0.3, copies=True, salted=True)


def empty_cache(student: Any) -> Calls:
    """A cache of 8 blocks of 2 tokens in which nothing is found."""
    cache = Calls(student, 8, 2)
    cache.match([0]).equals([], because="the cache is empty")
    return cache


def gets(number: int) -> dict[str, Any]:
    """The answer is an Allocation of so many blocks."""
    return {
        "predicate": lambda got: len(set(got.block_table)) == len(got.block_table) == number,
        "want": f"an Allocation of {number} different block{'' if number == 1 else 's'}",
    }


# --- prefix.3


@task("prefix.3")
def test_what_is_published_is_found(student):
    """Published blocks are found, in the order of the prompt."""
    cache = empty_cache(student)
    cache.hold([5, 0], [1, 2, 3, 4])
    cache.match([1, 2, 3, 4, 9]).equals(
        [5, 0], because="block 5 holds [1, 2], block 0 holds [3, 4] behind it", tip="look every key up, in order"
    )
    cache.match([1, 2, 9]).equals([5], because="a shorter prompt needs only the first block")
    cache.match([3, 4, 9]).equals(
        [], because="block 0 holds [3, 4] behind [1, 2], not in front", tip="use the keys of block_keys"
    )


@task("prefix.3")
def test_the_first_miss_ends_it(student):
    """A lookup ends at the first block that is not there, whatever is cached behind it."""
    cache = empty_cache(student)
    cache.hold([5, 6, 7], [1, 2, 3, 4, 5, 6])
    cache.match([1, 2, 9, 9, 5, 6, 0]).equals(
        [5], because="[9, 9] is not cached, and [5, 6] behind it would be another block", tip="stop at the first miss"
    )
    cache.forget(6)
    cache.match([1, 2, 3, 4, 5, 6, 0]).equals(
        [5], because="block 6 was forgotten: a hole in the middle", tip="stop at the first miss"
    )


@task("prefix.3")
def test_one_token_is_left_to_compute(student):
    """One token at least is left to compute, and a part of a block is never found."""
    cache, tip = empty_cache(student), "look up (n - 1) // block_size keys at most"
    cache.hold([5, 6], [1, 2, 3, 4])
    cache.match([1, 2, 3, 4]).equals([5], because="with both blocks cached no token would be left to compute", tip=tip)
    cache.match([1, 2]).equals([], because="the only block has the last token in it", tip=tip)
    cache.match([1, 2, 3]).equals([5], because="[3] is part of a block")


@task("prefix.3")
def test_extras_must_agree(student):
    """A block is found only with the extras it was published with."""
    cache, tip = empty_cache(student), "pass extra on to block_keys"
    cache.hold([5], [1, 2])
    cache.hold([6], [1, 2], (("salt", "a"),))
    cache.match([1, 2, 3], (("salt", "a"),)).equals([6], because="block 6 belongs to salt a", tip=tip)
    cache.match([1, 2, 3], (("salt", "b"),)).equals([], because="nobody published with salt b", tip=tip)
    cache.match([1, 2, 3]).equals([5], because="block 5 has no salt", tip=tip)


@task("prefix.3")
def test_copies_stand_in_for_each_other(student):
    """Of two blocks with the same content the first is found, and the other one when the first is gone."""
    cache, tip = empty_cache(student), "keep all blocks of a key in the order they came, and forget one at a time"
    cache.hold([5], [1, 2])
    cache.hold([3], [1, 2])
    cache.match([1, 2, 9]).equals([5], because="5 came before 3", tip=tip)
    cache.forget(5)
    cache.match([1, 2, 9]).equals([3], because="5 is forgotten, but 3 holds the same", tip=tip)
    cache.forget(3)
    cache.match([1, 2, 9]).equals([], because="both are forgotten", tip=tip)


@task("prefix.3")
def test_new_content_replaces_the_old(student):
    """A block that is published with new content is no longer found for the old one."""
    cache, tip = empty_cache(student), "forget what a block held before you publish it"
    cache.hold([5], [1, 2])
    cache.hold([5], [3, 4])
    cache.match([1, 2, 9]).equals([], because="block 5 holds [3, 4] now", tip=tip)
    cache.match([3, 4, 9]).equals([5], because="block 5 holds [3, 4] now", tip=tip)
    cache.forget(0)
    cache.match([3, 4, 9]).equals([5], because="block 0 held nothing: forgetting it changes nothing", tip=tip)


# --- prefix.4


@task("prefix.4")
def test_a_prompt_gets_blocks(student):
    """A prompt gets a block for every block_size tokens; a started block counts as a whole."""
    cache = Calls(student, 8, 2)
    for request, tokens in enumerate(([1, 2, 3], [4, 5, 6, 7], [8])):
        num = (len(tokens) + 1) // 2
        cache.allocate(request, tokens).satisfies(
            lambda got, num=num: got.hit_tokens == 0 and len(set(got.block_table)) == num == len(got.block_table),
            want=f"an Allocation of {num} different blocks, hit_tokens 0",
            because=f"{len(tokens)} tokens in blocks of 2, and nothing is cached yet",
            tip="round up",
        )


@task("prefix.4")
def test_running_requests_share_blocks(student):
    """A second prompt shares the full blocks of the first, also while that one runs."""
    cache = Calls(student, 8, 2)
    head, second, tail = cache.allocate(1, [1, 2, 3, 4, 5]).satisfies(**gets(3)).block_table
    cache.allocate(2, [1, 2, 3, 4, 6]).satisfies(
        lambda got: got.hit_tokens == 4 and got.block_table[:2] == [head, second] and got.block_table[2] != tail,
        want=f"block_table [{head}, {second}] and a new block, hit_tokens 4",
        because="both blocks are full and agree; the last block of request 1 is not full, so it is not shared",
        tip="publish the full blocks of a request as soon as it has them",
    )
    cache.allocate(3, [1, 2, 3, 4]).satisfies(
        lambda got: got.hit_tokens == 2 and got.block_table[0] == head and got.block_table[1] != second,
        want=f"block_table [{head}] and a new block, hit_tokens 2",
        because="one token at least is computed, so the block [3, 4] is computed again, in a block of its own",
        tip="take as many keys as match does",
    )


@task("prefix.4")
def test_blocks_come_back(student):
    """A block becomes idle when the last request that uses it ends; what it holds can still be found."""
    cache = Calls(student, 4, 2)
    head, _ = cache.allocate(1, [1, 2, 3]).satisfies(**gets(2)).block_table
    cache.allocate(2, [1, 2, 4, 5, 6]).satisfies(
        lambda got: got.hit_tokens == 2, want="hit_tokens 2", because="[1, 2] is cached"
    )
    cache.free(1)
    cache.match([1, 2, 9]).equals([head], because="request 2 still uses this block")
    cache.allocate(3, [7, 8, 9]).equals(
        None, because="request 2 uses 3 of 4 blocks, one of them from request 1", tip="count the users of a block"
    )
    cache.free(2)
    cache.match([1, 2, 9]).equals([head], because="nobody uses it, and nobody needed it", tip="keep the key")


@task("prefix.4")
def test_answers_grow(student):
    """A token goes into the last block, or into a new one if that is full; a block that it fills can be found."""
    cache = Calls(student, 4, 2)
    [first] = cache.allocate(1, [1]).satisfies(**gets(1)).block_table
    cache.append(1, 2).equals(first, because="the block has room for one token", tip="give the last block")
    cache.match([1, 2, 9]).equals([first], because="[1, 2] is full now", tip="publish a block when it fills")
    second = cache.append(1, 3).satisfies(
        lambda got: type(got) is int and got != first, want="another block", because="the first block is full"
    )
    cache.append(1, 4).equals(second, because="the second block has room")
    cache.match([1, 2, 3, 4, 9]).equals([first, second], because="both are full", tip="chain the keys")


@task("prefix.4")
def test_all_or_nothing(student):
    """If the blocks do not suffice, the answer is None and nothing has changed."""
    cache, tip = Calls(student, 4, 2), "look for room before you take anything"
    cache.allocate(1, [1, 2, 3]).satisfies(**gets(2))
    cache.allocate(2, [4, 5, 6, 7, 8]).equals(None, because="3 new blocks are needed, 2 are idle", tip=tip)
    cache.allocate(2, [4, 5, 6, 7]).satisfies(
        **gets(2), because="the refused request took nothing, and it does not count as running", tip=tip
    )
    cache.append(1, 9).satisfies(lambda got: type(got) is int, want="the last block of request 1")
    cache.append(1, 9).equals(None, because="a new block is needed, and none is idle", tip="return None")


@task("prefix.4")
def test_found_blocks_are_not_free(student):
    """A found block that is idle cannot be a new one as well."""
    cache = Calls(student, 3, 2)
    cache.allocate(1, [1, 2, 3, 4]).satisfies(**gets(2))
    cache.free(1)
    cache.allocate(2, [1, 2, 3, 4, 5, 6, 7]).equals(
        None,
        because="2 blocks are found and 2 new ones are needed: of the 3 idle blocks only 1 is left for them",
        tip="new blocks needed <= idle blocks - found blocks that are idle",
    )
    cache.allocate(2, [1, 2, 3, 4, 5]).satisfies(
        lambda got: got.hit_tokens == 4, want="hit_tokens 4", because="2 blocks are found, 1 is left for the new one"
    )


@task("prefix.4", after="test_a_prompt_gets_blocks")
def test_wrong_requests_are_refused(student):
    """A request that is there already, one that is not, and a second free are refused by name."""
    cache, tip = Calls(student, 8, 2), "raise ValueError with a sentence that names the request"
    cache.allocate(17, [1, 2, 3]).satisfies(**gets(2))
    cache.allocate(17, [4]).refused(naming="17", because="request 17 has blocks already", tip=tip)
    cache.append(18, 4).refused(naming="18", because="request 18 has no blocks", tip=tip)
    cache.free(17)
    cache.free_again(17).refused(naming="17", because="request 17 was freed before", tip=tip)


@task("prefix.4", after="test_a_prompt_gets_blocks")
def test_random_calls_with_room(student):
    """In random calls to a large pool every answer follows the rules."""
    follow(student.PrefixCache, Random(4), ROOMY, sequences=18, shortest=6)


# --- prefix.5


@task("prefix.5")
def test_counts(student):
    """`stats` counts blocks, tokens and evictions."""
    cache, judge = Calls(student, 4, 2), Judge(4, 2)
    because = "free + referenced is the whole pool; tokens are counted when a request gets its blocks"
    cache.stats(judge, because=because)
    for step in (
        Step("allocate", 1, (1, 2, 3)),
        Step("allocate", 2, (1, 2, 3, 4, 5)),
        Step("append", 1, (9,)),
        Step("free", 1),
        Step("free", 2),
        Step("allocate", 3, (6, 7, 8, 9, 10, 11, 12)),
    ):
        cache.make(step, judge)
        cache.stats(judge, because=because)


@task("prefix.5")
def test_the_longest_idle_goes_first(student):
    """The block that became idle first goes first; one that was used again in between goes later."""
    cache = Calls(student, 4, 2)
    for request, tokens in enumerate(([1, 1], [2, 2], [3, 3])):
        cache.allocate(request, tokens).satisfies(**gets(1))
        cache.free(request)
    cache.allocate(8, [1, 1, 9]).satisfies(lambda got: got.hit_tokens == 2, want="hit_tokens 2")
    cache.free(8)
    cache.allocate(9, [5, 5, 5, 5]).satisfies(
        **gets(2), because="one block is empty, three hold [1, 1], [2, 2] and [3, 3]"
    )
    because = "[2, 2] was idle for longest: [1, 1] came before it, but was used again"
    tip = "free puts blocks to the end of `idle`, evict takes from its front, and a found block leaves it"
    for tokens, number in (([2, 2, 9], 0), ([3, 3, 9], 1), ([1, 1, 9], 1)):
        cache.match(tokens).satisfies(
            lambda got, number=number: len(got) == number,
            want="[]" if number == 0 else "one block",
            because=because,
            tip=tip,
        )


@task("prefix.5")
def test_tails_go_before_heads(student):
    """Of one prompt the tail goes before the head, since a tail without its head is of no use."""
    cache = Calls(student, 4, 2)
    table = cache.allocate(1, [1, 2, 3, 4, 5, 6]).satisfies(**gets(3)).block_table
    cache.free(1)
    cache.allocate(2, [7, 7, 7, 7]).satisfies(**gets(2), because="one is empty, one must be evicted")
    cache.match([1, 2, 3, 4, 5, 6, 9]).equals(
        table[:2],
        because="the block of [5, 6] was to go; without its head nothing at all could be found",
        tip="free goes through the table from its end",
    )


@task("prefix.5")
def test_evicted_blocks_are_not_found(student):
    """What was evicted is not found any more."""
    cache = Calls(student, 2, 2)
    cache.allocate(1, [1, 2, 3, 4]).satisfies(**gets(2))
    cache.free(1)
    cache.allocate(2, [5, 6, 7]).satisfies(**gets(2), because="both blocks are idle")
    cache.match([1, 2, 3, 4, 9]).equals([], because="both blocks were given to request 2", tip="forget the key")


@task("prefix.5")
def test_found_blocks_stay(student):
    """The blocks that a prompt hits are not evicted to make room for its other blocks."""
    cache = Calls(student, 2, 2)
    for request, tokens in ((1, [1, 2]), (2, [3, 4])):
        cache.allocate(request, tokens).satisfies(**gets(1))
        cache.free(request)
    [first] = cache.match([1, 2, 9]).satisfies(lambda got: len(got) == 1, want="the block of [1, 2]")
    cache.allocate(3, [1, 2, 3, 4]).satisfies(
        lambda got: got.hit_tokens == 2 and got.block_table == [first, 1 - first],
        want=f"block_table [{first}, {1 - first}], hit_tokens 2",
        because="[1, 2] is found; [3, 4] is cached too, but as a first block, so it has to go",
        tip="take the found blocks out of `idle` before you evict",
    )


@task("prefix.5", after="test_counts")
def test_random_calls(student):
    """In random calls to a small pool every answer follows the rules."""
    follow(student.PrefixCache, Random(5), EVERYTHING, sequences=20, shortest=8)
