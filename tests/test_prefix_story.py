"""The referee and the search for the shortest wrong sequence: right caches pass, wrong ones are shown in few calls."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from autograde.faults import load_faults
from autograde.sources import solution_namespace
from kvcourse.check.student import LocalStudent
from kvcourse.engine.reference import PrefixCache as EngineCache
from kvcourse.tasks.api import Failure, NotStarted
from kvcourse.tasks.course import find_lesson
from kvcourse.tasks.prefix_draw import EVERYTHING, draw_all
from kvcourse.tasks.prefix_judge import Judge, Step
from kvcourse.tasks.prefix_story import find_difference, follow, must_follow, play

LESSON = find_lesson("prefix")
solved = SimpleNamespace(**solution_namespace(LESSON))
WRONG = {
    fault.why: fault
    for fault in load_faults("prefix")
    if fault.task in ("prefix.4", "prefix.5") and not fault.caught_by.endswith(("_counted", "_that_cannot_be"))
}
LONGEST_STORY = 9  # calls
UNSEEN = {"remembers a request that it refused"}  # drawn calls never use the number of a refused prompt again


def wrong_class(why: str) -> type:
    return WRONG[why].plant(solution_namespace(LESSON))["PrefixCache"]


@pytest.mark.parametrize("cache_class", [solved.PrefixCache, EngineCache], ids=["lesson", "engine"])
def test_two_caches_written_apart_follow_the_rules(cache_class):
    for seed in range(3):
        assert find_difference(cache_class, seed, sequences=150) is None


def test_every_wrong_cache_is_shown_in_few_calls():
    lengths = {}
    for why in WRONG.keys() - UNSEEN:
        story = next(filter(None, (find_difference(wrong_class(why), seed) for seed in range(3))), None)
        assert story is not None, why
        lengths[why] = len(story.told)
        assert story.verdict is not None and story.told[-1].text() and len(story.told[-1].before) == story.num_blocks
    assert max(lengths.values()) <= LONGEST_STORY, lengths


def test_the_shortest_story_is_played_again_to_the_same_end():
    cache_class = wrong_class("evicts heads before tails")
    story = find_difference(cache_class)
    with LocalStudent({"PrefixCache": cache_class}).session() as student:
        again = play(student.PrefixCache, story.num_blocks, story.block_size, story.steps)
    assert again.text() == story.text() and again.verdict == story.verdict
    for i in range(len(story.steps)):  # no call can be left out
        with LocalStudent({"PrefixCache": cache_class}).session() as student:
            steps = story.steps[:i] + story.steps[i + 1 :]
            assert play(student.PrefixCache, story.num_blocks, story.block_size, steps).verdict is None


def test_a_story_reads_like_code():
    steps = [Step("allocate", 1, (1, 2, 3)), Step("free", 1), Step("match", tokens=(1, 2, 9))]
    wrong = wrong_class("forgets what ended requests had")
    with LocalStudent({"PrefixCache": wrong}).session() as student, pytest.raises(Failure) as caught:
        must_follow(student.PrefixCache, 2, 2, steps)
    assert caught.value.call == (
        "PrefixCache(num_blocks=2, block_size=2)\n"
        "1. allocate(1, [1, 2]) gave block_table [0], hit_tokens 0\n"
        "2. free(1)\n"
        "3. match([1, 2, 9])"
    )
    assert (caught.value.expected, caught.value.got) == ("[0]", "[]")


def test_the_blocks_can_be_drawn():
    judge = Judge(3, 2)
    for step, answer in (
        (Step("allocate", 1, (1, 2, 3)), SimpleNamespace(block_table=[2, 0], hit_tokens=0)),
        (Step("allocate", 2, (1, 2)), SimpleNamespace(block_table=[1], hit_tokens=0)),
        (Step("free", 1), None),
    ):
        assert judge.watch(step, answer) is None
    empty, copy, first = judge.states()
    assert (empty.tokens, empty.users, empty.turn) == ((), (), 0)
    assert (copy.tokens, copy.depth, copy.full, copy.users, copy.turn) == ((1, 2), 0, True, (2,), None)
    assert (first.tokens, first.users, first.turn) == ((1, 2), (), 1)
    assert judge.counts()["free"] == 2


def test_a_stub_and_an_error_are_told_apart():
    class Stub:
        def __init__(self, num_blocks, block_size):
            pass

        def allocate(self, request_id, tokens, extra=()):
            raise NotImplementedError("prefix.4: blocks for a request")

    class Broken(Stub):
        def allocate(self, request_id, tokens, extra=()):
            raise KeyError(request_id)

    with LocalStudent({"PrefixCache": Stub}).session() as student, pytest.raises(NotStarted):
        follow(student.PrefixCache, Random(0), EVERYTHING, 1)
    story = find_difference(Broken)
    assert story.verdict.got == "KeyError: 1" and len(story.told) == 1


def test_drawn_sequences_hold_what_the_profile_says():
    kinds = [step.kind for *_, steps in draw_all(Random(0), EVERYTHING, 100) for step in steps]
    assert {"allocate", "append", "free", "match"} == set(kinds)
    assert all(kinds.count(kind) > 100 for kind in ("allocate", "append", "free"))
