"""A plugged-in part that answers something impossible is refused by name, and the others are served."""

from __future__ import annotations

import pytest
import torch
from engine_helpers import generate, random_model, tokens

from kvcourse.engine import Allocation, Engine, SocketError
from kvcourse.engine.attention import GatherAttention
from kvcourse.engine.blocks import PlainAllocator
from kvcourse.engine.fake import FakeModel
from kvcourse.engine.reference import MemoryTier, PrefixCache
from kvcourse.engine.scheduler import schedule_chunked, schedule_whole

FAKE = FakeModel(vocab_size=50)
BLOCKS, SIZE = 32, 4


class Faulty(PrefixCache):
    """The reference cache; for request 1 alone, one method answers what `lie` makes of the right answer."""

    method, lie = "", None

    def match(self, tokens, extra=()):
        found = super().match(tokens, extra)
        return self.lie(found) if self.method == "match" and tokens[0] == 1 else found

    def allocate(self, request_id, tokens, extra=()):
        answer = super().allocate(request_id, tokens, extra)
        return self.lie(answer) if self.method == "allocate" and request_id == 1 else answer

    def append(self, request_id, token):
        block = super().append(request_id, token)
        return self.lie(block) if self.method == "append" and request_id == 1 else block

    def free(self, request_id):
        super().free(request_id)
        if self.method == "free" and request_id == 1:
            self.lie(None)


def fail(_):
    raise IndexError("list index out of range")


def table(change):
    return lambda answer: Allocation(change(answer.block_table), answer.hit_tokens)


CACHE_FAULTS = [
    ("match", lambda found: None, "match gave None to request 1, not a list of block ids"),
    ("match", lambda found: "0", "match gave '0' to request 1"),
    ("match", lambda found: [99], "match gave block 99 to request 1; the pool has blocks 0 to 31"),
    ("match", lambda found: [True], "match gave block True"),
    ("match", lambda found: [1.0], "match gave block 1.0"),
    ("match", lambda found: [0, 0], "match gave block 0 to request 1 twice"),
    ("match", lambda found: [31], "match found block 31 for tokens 0 to 3 of request 1, but that block is not full"),
    ("match", lambda found: [4, 5, 6], "match found 3 blocks of 4 for the 9 tokens of request 1; at most 2, so"),
    ("match", fail, "match raised IndexError: list index out of range"),
    ("allocate", lambda answer: [1, 2, 3], "allocate gave [1, 2, 3]; an Allocation has block_table and hit_tokens"),
    ("allocate", table(lambda t: t[:-1]), "allocate gave 2 blocks for 9 tokens of request 1; 3 are needed"),
    ("allocate", table(lambda t: [-1, *t[1:]]), "allocate gave block -1 to request 1"),
    ("allocate", table(lambda t: [t[1], *t[1:]]), "to request 1 twice"),
    ("allocate", table(lambda t: [0, *t[1:]]), "allocate gave block 0 to request 1 as new, but it is in use"),
    ("allocate", lambda answer: Allocation(answer.block_table, 4), "gave hit_tokens 4; match had just found 0"),
    ("allocate", lambda answer: Allocation(answer.block_table, None), "allocate gave hit_tokens None"),
    ("allocate", fail, "allocate raised IndexError"),
    ("append", lambda block: None, "append found no room, but the last block of request 1 has free slots"),
    ("append", lambda block: 0, "append gave block 0, but the last block"),
    ("append", lambda block: "x", "append gave block 'x' to request 1"),
    ("append", lambda block: 1000, "append gave block 1000 to request 1"),
    ("append", fail, "append raised IndexError"),
]


@pytest.mark.parametrize(("method", "lie", "words"), CACHE_FAULTS, ids=[words[:48] for _, _, words in CACHE_FAULTS])
@pytest.mark.parametrize("scheduler", [schedule_whole, schedule_chunked])
def test_a_faulty_prefix_cache_fails_its_request_alone(method, lie, words, scheduler):
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty, scheduler=scheduler)
    engine.memory.cache.method, engine.memory.cache.lie = method, lie
    prompts = [[0, 2, 3, 4, 5, 6, 7, 8, 9, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 3, 4]]
    for prompt in prompts:
        engine.add_request(prompt, 6)
    with pytest.raises(SocketError) as caught:
        engine.run()
    assert str(caught.value).startswith("prefix_cache: ") and words in str(caught.value)
    assert engine.request(1).finish_reason == "error" and engine.request(1).error is caught.value
    for served in (0, 2):
        assert engine.request(served).output == FAKE.generate(prompts[served], 6)
    engine.memory.cache.method = ""
    again = engine.add_request([9, 8, 7], 4)
    assert engine.run() == {again: FAKE.generate([9, 8, 7], 4)}


def test_a_hit_on_other_tokens_is_refused():
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty)
    engine.add_request([0, 2, 3, 4, 5], 3)
    engine.run()
    engine.memory.cache.method, engine.memory.cache.lie = "match", lambda found: [0]
    engine.add_request([1, 2, 3, 4, 5], 3)
    with pytest.raises(SocketError, match="block 0 for tokens 0 to 3 of request 1, but that block holds other tokens"):
        engine.run()


@pytest.mark.parametrize("others", [1, 3])
def test_a_request_that_is_refused_costs_the_running_ones_nothing(others):
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty)
    engine.memory.cache.method, engine.memory.cache.lie = "allocate", fail
    prompts = [[7 + i, 2, 3] for i in range(others)]
    first = engine.add_request(prompts[0], 6)
    engine.step()
    engine.add_request([1, 2, 3], 6)
    ids = [first] + [engine.add_request(prompt, 6) for prompt in prompts[1:]]
    with pytest.raises(SocketError, match="allocate raised IndexError"):
        engine.run()
    assert [engine.request(i).output for i in ids] == [FAKE.generate(prompt, 6) for prompt in prompts]
    assert engine.metrics.preemptions == 0


def test_a_block_that_fails_while_the_request_runs_is_refused_at_that_moment():
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty)
    engine.memory.cache.method = "append"
    engine.memory.cache.lie = lambda block: 0 if len(engine.memory.cache.tokens[1]) == 5 else block
    for prompt in ([0, 2, 3], [1, 2, 3]):
        engine.add_request(prompt, 6)
    with pytest.raises(SocketError, match="append gave block 0 to request 1 as new, but it is in use"):
        engine.run()
    assert engine.request(1).output == FAKE.generate([1, 2, 3], 6)[:2]
    assert engine.request(0).output == FAKE.generate([0, 2, 3], 6)


def test_tokens_handed_over_before_a_refusal_are_computed_for_those_who_share_their_blocks():
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty, scheduler=schedule_chunked, budget=6)
    cache, prompt = engine.memory.cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    cache.method = "append"
    cache.lie = lambda block: "x" if len(cache.tokens[1]) == 10 else block
    engine.add_request([0], 1)
    engine.run()
    engine.add_request(prompt, 4)  # tokens 0-5, then 6-11 of which the one at 9 is refused; block 4-7 is full by then
    while not engine.problems:
        engine.step()
        engine.check()
    late = engine.request(engine.add_request(prompt, 4))
    assert engine.run() == {late.id: FAKE.generate(prompt, 4)}
    assert late.metrics.reused == 8


def test_a_cache_that_cannot_free_is_reported_and_everybody_is_served():
    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Faulty)
    engine.memory.cache.method, engine.memory.cache.lie = "free", fail
    prompts = [[0, 2, 3], [1, 2, 3]]
    for prompt in prompts:
        engine.add_request(prompt, 6)
    with pytest.raises(SocketError, match="free raised IndexError"):
        engine.run()
    assert [engine.request(i).output for i in (0, 1)] == [FAKE.generate(prompt, 6) for prompt in prompts]


def test_a_cache_whose_methods_are_not_all_written_is_refused():
    class Half:
        def match(self, tokens, extra=()):
            return []

        def allocate(self, request_id, tokens, extra=()):
            raise NotImplementedError("prefix.4: blocks and reference counts")

    engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=Half())
    engine.add_request([1, 2, 3], 6)
    with pytest.raises(SocketError, match=r"prefix_cache: allocate raised NotImplementedError: prefix\.4"):
        engine.run()
    with pytest.raises(SocketError, match=r"prefix_cache: match raised AttributeError: .* no attribute 'match'"):
        engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=object())
        engine.add_request([1, 2, 3], 6)
        engine.run()


def test_a_cache_that_leaks_ends_in_a_sentence_not_in_a_loop():
    class Leaking(PlainAllocator):
        def free(self, request_id):
            del self.tables[request_id], self.lengths[request_id]

    engine = Engine(FAKE, 4, 4, prefix_cache=Leaking)
    for _ in range(3):
        engine.add_request([1, 2, 3, 4, 5], 4)
    with pytest.raises(SocketError, match="allocate found no room for request 2, but no other one runs"):
        engine.run()
    assert [request.finish_reason for request in engine.finished.values()] == ["length", "length", "error"]
    with pytest.raises(SocketError, match="no other one runs"):
        engine.add_request([1], 9)
        engine.run()


PLANS = [
    (lambda r, w, b: None, "a plan is a list of (request id, tokens), got None"),
    (lambda r, w, b: [], "the plan is empty; 0 requests run and 3 can start"),
    (lambda r, w, b: [1], "an entry of a plan is (request id, tokens), got 1"),
    (lambda r, w, b: [("a", 1)], "got ('a', 1)"),
    (lambda r, w, b: [(99, 1)], "the plan names request 99, which is none of [0, 1, 2]"),
    (lambda r, w, b: [((r + w)[0].request_id, 1)] * 2, "the plan names request 0 twice"),
    (lambda r, w, b: [((r + w)[0].request_id, 0)], "the plan computes 0 tokens of request 0"),
    (lambda r, w, b: [((r + w)[0].request_id, 500)], "computes 500 tokens of request 0, which has 9 left"),
    (lambda r, w, b: [(x.request_id, x.tokens) for x in r + w], "computes 20 tokens; the budget of a step is 12"),
    (lambda r, w, b: 1 / 0, "it raised ZeroDivisionError: division by zero"),
    (5, "it raised AttributeError: 'int' object has no attribute '__call__'"),
]


@pytest.mark.parametrize(("plan", "words"), PLANS, ids=[words[:40] for _, words in PLANS])
def test_a_faulty_scheduler_is_refused_and_the_default_one_serves(plan, words):
    engine = Engine(FAKE, BLOCKS, SIZE, scheduler=plan, budget=12)
    prompts = [[0, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 3]]
    for prompt in prompts:
        engine.add_request(prompt, 6)
    with pytest.raises(SocketError) as caught:
        engine.run()
    assert str(caught.value).startswith("scheduler: ") and words in str(caught.value)
    assert [engine.request(i).output for i in range(3)] == [FAKE.generate(prompt, 6) for prompt in prompts]


@pytest.mark.parametrize(
    ("method", "answer", "words"),
    [
        ("find", lambda keys: [1] * (len(keys) + 1), "find gave [1"),
        ("find", lambda keys: [0], "find gave [0] for 3 keys"),
        ("find", lambda keys: 1, "find gave 1 for 3 keys"),
        ("load", lambda key: b"bytes", "load gave a bytes, not a tensor"),
        ("load", lambda key: torch.zeros(2, 2), "load gave a tensor [2, 2] torch.float32; a block is [1, 2, 4, 1, 2]"),
        ("load", lambda key: 1 / 0, "raised ZeroDivisionError"),
        ("evicted", lambda key, block: 1 / 0, "raised ZeroDivisionError"),
        ("filled", lambda key, block: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_faulty_tier_is_reported_and_its_blocks_are_computed(method, answer, words):
    tier = MemoryTier()
    engine = Engine(FAKE, 6, SIZE, prefix_cache=PrefixCache, tiers=tier)
    first, second = [0, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4], [1] * 16
    setattr(tier, method, answer)
    outputs = []
    with pytest.raises(SocketError) as caught:
        for prompt in (first, second, first):
            engine.add_request(prompt, 6)
            engine.step()
        engine.run()
    assert str(caught.value).startswith("tiers: ") and words in str(caught.value)
    outputs = [request.output for request in sorted(engine.finished.values(), key=lambda r: r.id)]
    assert outputs == [FAKE.generate(prompt, 6) for prompt in (first, second, first)]
    engine.check()


def test_a_loaded_block_that_finds_no_room_goes_back_to_its_tier():
    class Exclusive(MemoryTier):
        loads = 0

        def load(self, key):
            self.loads += 1
            return self.blocks.pop(key, None)

    engine = Engine(FAKE, 8, SIZE, prefix_cache=PrefixCache, tiers=Exclusive())
    first = [0, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]
    for prompt in (first, [1] * 30):
        engine.add_request(prompt, 2)
        engine.run()
    engine.add_request([2] * 24, 6)
    engine.step()
    late = engine.request(engine.add_request(first, 6))
    while engine.has_work:
        engine.step()
        engine.check()
    assert late.output == FAKE.generate(first, 6)
    assert late.metrics.loaded[1] == 12 and engine.memory.tiers.loads == 6  # three in vain, three that stayed


def test_only_the_last_copy_of_a_content_is_evicted():
    class Spy(MemoryTier):
        def __init__(self):
            super().__init__()
            self.log = []

        def evicted(self, key, block):
            self.log.append(key)

    engine = Engine(FAKE, 8, SIZE, tiers=Spy())
    for _ in range(2):
        engine.add_request([1, 2, 3, 4, 5], 1)
    engine.run()
    engine.add_request([9] * 29, 1)
    engine.run()
    assert len(engine.memory.tiers.log) == 1


def test_a_block_that_vanished_from_a_tier_is_computed():
    tier = MemoryTier()
    engine = Engine(FAKE, 6, SIZE, prefix_cache=PrefixCache, tiers=tier)
    first = [0, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]
    for prompt in (first, [1] * 16):
        engine.add_request(prompt, 6)
        engine.run()
    tier.load = lambda key: None
    request = engine.request(engine.add_request(first, 6))
    engine.run()
    assert request.output == FAKE.generate(first, 6) and not request.metrics.loaded


class Broken(GatherAttention):
    def __init__(self, answer):
        self.answer = answer

    def attend(self, query, *args):
        return self.answer(query, *args)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda query, *args: None, "attend gave NoneType, a tensor [37, 8, 32] torch.float32 is needed"),
        (lambda query, *args: query[:1], "attend gave [1, 8, 32] torch.float32"),
        (lambda query, *args: query.half(), "attend gave [37, 8, 32] torch.float16"),
        (lambda query, *args: 1 / 0, "layer 0 raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_step_whose_attention_failed_is_computed_again_by_the_next_one(answer, words):
    model = random_model()
    engine = Engine(model, 16, 16, prefix_cache=PrefixCache, attention=Broken(answer))
    prompts = [tokens(20, seed=1), tokens(17, seed=2)]
    for prompt in prompts:
        engine.add_request(prompt, 5)
    for _ in range(2):
        with pytest.raises(SocketError) as caught:
            engine.run()
        assert str(caught.value).startswith("attention: ") and words in str(caught.value)
    assert model.config._attn_implementation != "kvcourse_paged"
    engine.attention = GatherAttention()
    assert list(engine.run().values()) == [generate(model, prompt, 5)[0] for prompt in prompts]
    engine.check()


def test_a_class_or_an_object_may_be_plugged_in():
    for part in (PrefixCache, PrefixCache(BLOCKS, SIZE)):
        engine = Engine(FAKE, BLOCKS, SIZE, prefix_cache=part)
        engine.add_request([1, 2, 3], 3)
        assert engine.run() == {0: FAKE.generate([1, 2, 3], 3)}
    wrong = Engine(FAKE, BLOCKS, SIZE, prefix_cache=PrefixCache(BLOCKS, 2))
    wrong.add_request([1, 2, 3], 3)
    with pytest.raises(SocketError, match="allocate gave 2 blocks for 3 tokens of request 0; 1 are needed"):
        wrong.run()
