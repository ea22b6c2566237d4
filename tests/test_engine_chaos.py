"""Whatever the plugged-in parts answer: nobody gets a wrong token, the books stay right, and it ends."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse.engine import Allocation, Engine, SocketError
from kvcourse.engine.check import check_contents, check_counts, check_tables
from kvcourse.engine.fake import FakeModel
from kvcourse.engine.reference import MemoryTier, PrefixCache
from kvcourse.engine.scheduler import schedule_chunked

FAKE = FakeModel(vocab_size=4, context=200)


class LyingCache(PrefixCache):
    """The reference cache, except that now and then an answer is made up."""

    def __init__(self, num_blocks: int, block_size: int, dice: random.Random, often: float) -> None:
        super().__init__(num_blocks, block_size)
        self.dice, self.often = dice, often

    def match(self, tokens, extra=()):
        return self._blocks(super().match(tokens, extra))

    def allocate(self, request_id, tokens, extra=()):
        answer = super().allocate(request_id, tokens, extra)
        if answer is None or not self._lie():
            return answer
        hit_tokens = self.dice.choice([answer.hit_tokens, 0, -1, 3, self.block_size, None])
        return self.dice.choice(
            [None, Allocation(self._blocks(answer.block_table, always=True), hit_tokens), "nothing"]
        )

    def append(self, request_id, token):
        block = super().append(request_id, token)
        return self._number(block) if self._lie() else block

    def free(self, request_id):
        super().free(request_id)
        if self._lie():
            raise KeyError(request_id)

    def _lie(self) -> bool:
        return self.dice.random() < self.often

    def _number(self, honest):
        return self.dice.choice([honest, None, -1, True, "0", *range(self.num_blocks + 1)])

    def _blocks(self, honest: list, always: bool = False):
        if not always and not self._lie():
            return honest
        changed = [self._number(block) if self.dice.random() < 0.3 else block for block in honest]
        return self.dice.choice([changed, changed[:-1], [*changed, self._number(0)], changed[::-1], None, "12"])


class LyingTier(MemoryTier):
    def __init__(self, dice: random.Random, often: float) -> None:
        super().__init__()
        self.dice, self.often = dice, often

    def find(self, keys):
        tiers = super().find(keys)
        lies = [None, [0], [1] * (len(keys) + 1), [1] * len(keys), tiers[:-1], [2] * len(tiers)]
        return self.dice.choice(lies) if self.dice.random() < self.often else tiers

    def load(self, key):
        block = super().load(key)
        return self.dice.choice([None, 7, block]) if self.dice.random() < self.often else block

    def evicted(self, key, block):
        if self.dice.random() < self.often:
            raise OSError("disk full")
        super().evicted(key, block)


def lying_scheduler(dice: random.Random, often: float):
    def schedule(running, waiting, budget):
        plan = schedule_chunked(running, waiting, budget)
        if dice.random() >= often:
            return plan
        some = [work.request_id for work in running + waiting]
        made_up = [(dice.choice([*some, 99]), dice.choice([0, 1, 2, 50, None])) for _ in range(dice.randint(0, 3))]
        return dice.choice([plan[::-1], plan * 2, made_up, None, dice.sample(plan, dice.randint(0, len(plan)))])

    return schedule


@given(
    seed=st.integers(0, 2**32),
    often=st.sampled_from([0.02, 0.2, 1.0]),
    block_size=st.sampled_from([1, 2, 4]),
    num_blocks=st.integers(4, 14),
    budget=st.sampled_from([2, 9, 100]),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_no_answer_of_a_part_makes_a_wrong_token(seed, often, block_size, num_blocks, budget):
    dice = random.Random(seed)
    engine = Engine(
        FAKE,
        num_blocks,
        block_size,
        budget=budget,
        max_running=4,
        prefix_cache=LyingCache(num_blocks, block_size, dice, often),
        tiers=LyingTier(dice, often),
        scheduler=lying_scheduler(dice, often),
    )
    capacity = num_blocks * block_size
    for _ in range(8):
        prompt = dice.choices(range(4), k=dice.randint(1, max(1, capacity - 4)))
        engine.add_request(prompt, dice.randint(1, capacity - len(prompt) + 1))
    for _ in range(3000):
        if not engine.has_work:
            break
        engine.step()
        for check in (check_tables, check_contents, check_counts):
            check(engine)
    assert not engine.has_work, "this never ends"
    assert engine.blocks_in_use == 0
    for request in engine.finished.values():
        want = FAKE.generate(request.tokens[: request.num_prompt], request.max_new_tokens)
        if request.finish_reason == "error":
            assert isinstance(request.error, SocketError) and request.output == want[: request.num_output]
        else:
            assert request.output == want
