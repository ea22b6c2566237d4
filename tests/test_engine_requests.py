"""Bad requests and sizes, order, aborts, streams, callbacks, Ctrl-C, light imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from kvcourse.engine import Engine, RequestError
from kvcourse.engine.attention import GatherAttention
from kvcourse.engine.fake import FakeModel
from kvcourse.engine.interrupt import uninterrupted
from kvcourse.engine.reference import PrefixCache
from kvcourse.engine.scheduler import schedule_chunked
from kvcourse.engine.sockets import Work

FAKE = FakeModel(vocab_size=50, context=100)


@pytest.mark.parametrize(
    ("prompt", "new", "words"),
    [
        ([], 4, "The prompt is empty"),
        ("abc", 4, "The prompt is a str: give token ids"),
        ([1, 2.5], 4, "flat list of whole numbers, got [1, 2.5]"),
        ([[1, 2]], 4, "flat list of whole numbers"),
        (7, 4, "flat list of whole numbers, got 7"),
        ([1, 50], 4, "Token id 50 is outside the vocabulary of 50"),
        ([1, -1], 4, "Token id -1 is outside the vocabulary"),
        ([1], 0, "max_new_tokens must be a whole number from 1 on, got 0"),
        ([1] * 30, 4, "A prompt of 30 tokens with 4 new ones needs 33 positions; the pool has 8 blocks of 4 tokens"),
        ([1] * 99, 4, "needs 102 positions; the model's context is 100"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_one_sentence(prompt, new, words):
    engine = Engine(FAKE, 8, 4)
    with pytest.raises(RequestError) as caught:
        engine.add_request(prompt, new)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    engine.add_request([1] * 29, 4)  # the last token of an answer needs no room
    assert engine.run() == {0: FAKE.generate([1] * 29, 4)}


@pytest.mark.parametrize("extra", [[("salt",)], [("salt", 1)], ["salt"], [("a", "b", "c")]])
def test_extra_keys_are_pairs_of_text(extra):
    with pytest.raises(RequestError, match="extra must be pairs of text"):
        Engine(FAKE, 8, 4).add_request([1], 4, extra=extra)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "16"])
@pytest.mark.parametrize("name", ["num_blocks", "block_size", "budget", "max_running"])
def test_sizes_are_whole_and_positive(name, size):
    with pytest.raises(ValueError, match=f"{name} must be a whole number from 1 on, got {size!r}"):
        Engine(FAKE, **{name: size})


def test_a_pool_that_fits_into_no_memory_is_refused():
    with pytest.raises(ValueError, match="does not fit into the memory of cpu: 1000000000000 blocks of 512 bytes"):
        Engine(FAKE, 10**12)


def test_prompts_may_be_tensors_arrays_or_tuples():
    engine = Engine(FAKE, 8, 4)
    for prompt in (torch.tensor([1, 2, 3]), np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        engine.add_request(prompt, 3)
    assert list(engine.run().values()) == [FAKE.generate([1, 2, 3], 3)] * 4


def test_the_whole_pool_can_be_used():
    engine = Engine(FAKE, 4, 4, prefix_cache=PrefixCache)
    for _ in range(2):
        engine.add_request([3] * 10, 7)
    assert list(engine.run().values()) == [FAKE.generate([3] * 10, 7)] * 2
    assert engine.metrics.peak_blocks == 4


def test_other_tenants_share_nothing():
    engine = Engine(FAKE, 16, 4, prefix_cache=PrefixCache)
    for extra in ((), [("salt", "a")], [("salt", "b")], [("salt", "a")], [("lora", "a")]):
        engine.add_request([1, 2, 3, 4, 5], 1, extra=extra)
        engine.run()
        engine.check()
    assert [request.metrics.reused for request in engine.finished.values()] == [0, 0, 0, 4, 0]


def test_first_come_first_served_and_prompts_hold_decodes_up():
    engine = Engine(FAKE, 16, 4, budget=8)
    for length in (5, 6, 3):
        engine.add_request([1] * length, 3)
    engine.run()
    rows = [event.rows for event in engine.events]
    assert rows[:3] == [((0, 0, 5),), ((1, 0, 6),), ((2, 0, 3),)]
    assert rows[3] == ((0, 5, 1), (1, 6, 1), (2, 3, 1))
    assert [event.num_waiting for event in engine.events][:3] == [2, 1, 0]


def test_chunks_run_beside_decodes():
    engine = Engine(FAKE, 16, 4, budget=4, scheduler=schedule_chunked)
    engine.add_request([1] * 3, 5)
    engine.add_request([2] * 8, 2)
    engine.run()
    assert [event.rows for event in engine.events] == [
        ((0, 0, 3), (1, 0, 1)),
        ((0, 3, 1), (1, 1, 3)),
        ((0, 4, 1), (1, 4, 3)),
        ((0, 5, 1), (1, 7, 1)),
        ((0, 6, 1), (1, 8, 1)),
    ]


def test_decodes_that_use_up_the_budget_leave_a_token_for_prompts():
    running = [Work(0, 1), Work(1, 1), Work(2, 1)]
    assert schedule_chunked(running, [], 3) == [(0, 1), (1, 1), (2, 1)]
    assert schedule_chunked(running, [Work(3, 50)], 3) == [(0, 1), (1, 1), (3, 1)]
    assert schedule_chunked([*running, Work(3, 49)], [Work(4, 9)], 100) == [(0, 1), (1, 1), (2, 1), (3, 49), (4, 9)]


def test_the_scheduler_sees_uncached_tokens_and_only_the_head_of_the_queue():
    seen = []

    def spy(running, waiting, budget):
        seen.append((running, waiting, budget))
        return schedule_chunked(running, waiting, budget)

    engine = Engine(FAKE, 16, 4, budget=6, scheduler=spy, prefix_cache=PrefixCache, max_running=3)
    engine.add_request([1, 2, 3, 4, 5], 1)
    engine.run()
    for _ in range(9):
        engine.add_request([1, 2, 3, 4, 5], 2)
    engine.step()
    assert seen[0] == ([], [Work(0, 5)], 6)
    assert seen[1] == ([], [Work(1, 1, cached=4), Work(2, 1, cached=4), Work(3, 1, cached=4)], 6)
    engine.run()
    assert seen[2] == ([Work(1, 1, cached=5), Work(2, 1, cached=5), Work(3, 1, cached=5)], [], 6)


def test_streams_and_callbacks_give_every_token_once():
    engine = Engine(FAKE, 16, 4)
    heard = []
    engine.add_request([1, 2], 5, on_token=lambda *args: heard.append(args))
    second = engine.add_request([3], 4)
    assert list(engine.stream(second)) == FAKE.generate([3], 4)
    engine.run()
    assert heard == [(0, token) for token in FAKE.generate([1, 2], 5)]
    assert list(engine.stream(0)) == FAKE.generate([1, 2], 5)


def test_a_callback_may_add_and_abort_requests():
    engine = Engine(FAKE, 16, 4)

    def on_token(request_id, token):
        if engine.request(request_id).num_output == 2:
            engine.abort(1)
            engine.add_request([7], 2)

    engine.add_request([1, 2], 5, on_token=on_token)
    engine.add_request([3], 9)
    answers = engine.run()
    assert answers == {1: FAKE.generate([3], 9)[:2], 2: FAKE.generate([7], 2), 0: FAKE.generate([1, 2], 5)}


def test_a_callback_that_fails_costs_nobody_a_token():
    engine = Engine(FAKE, 16, 4)
    heard = []

    def on_token(request_id, token):
        heard.append(token)
        if len(heard) == 2:
            raise RuntimeError("the client has gone")

    for prompt in ([1], [2]):
        engine.add_request(prompt, 3, on_token=on_token)
    with pytest.raises(RuntimeError, match="gone"):
        engine.run()
    engine.run()
    assert sorted(heard) == sorted(FAKE.generate([1], 3) + FAKE.generate([2], 3))


def test_aborts_in_every_state():
    engine = Engine(FAKE, 16, 4, max_running=1, prefix_cache=PrefixCache)
    for prompt in ([1, 2, 3], [4], [5]):
        engine.add_request(prompt, 4)
    engine.step()
    assert engine.abort(0) and engine.abort(1) and not engine.abort(1)
    engine.check()
    assert engine.blocks_in_use == 0
    assert engine.run() == {2: FAKE.generate([5], 4)}
    assert engine.request(0).output == FAKE.generate([1, 2, 3], 4)[:1]
    with pytest.raises(RequestError, match="There is no request 3; 3 were added so far"):
        engine.abort(3)


def test_an_abort_during_an_interrupted_step_takes_effect_when_it_is_computed():
    class Once(GatherAttention):
        done = False

        def write(self, *args):
            if not self.done:
                self.done = True
                raise KeyboardInterrupt
            super().write(*args)

    engine = Engine(FAKE, 16, 4, prefix_cache=PrefixCache, attention=Once())
    prompt = [1, 2, 3, 4, 5, 6]
    for _ in range(2):
        engine.add_request(prompt, 4)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.abort(0)  # request 1 shares the block that 0 computes
    engine.check()
    assert engine.run() == {0: [], 1: FAKE.generate(prompt, 4)}
    engine.check()


@pytest.fixture
def python_ctrl_c():
    """A job in the background may have been started with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_books_are_written(python_ctrl_c):
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("end")
    assert reached == ["end"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(1)


def test_ctrl_c_leaves_a_working_engine(python_ctrl_c):
    engine = Engine(FAKE, 64, 4, prefix_cache=PrefixCache)
    prompts = [[i % 7, i % 5, 3, 4, 5] for i in range(40)]
    for prompt in prompts:
        engine.add_request(prompt, 60)
    for delay in (0.01, 0.02, 0.03):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            engine.run()
        timer.join()
        engine.check()
    engine.run()
    engine.check()
    assert [engine.request(i).output for i in range(40)] == [FAKE.generate(prompt, 60) for prompt in prompts]


def test_times_come_from_the_engines_clock():
    ticks = iter(range(1000))
    engine = Engine(FAKE, 16, 4, clock=lambda: next(ticks))
    request = engine.request(engine.add_request([1, 2], 4))
    engine.run()
    m = request.metrics
    assert m.added_at == 0 and m.ttft == m.first_token_at > 0
    assert len(m.tbt) == 3 and sum(m.tbt) == m.last_token_at - m.first_token_at
    assert m.finished_at >= m.last_token_at
    summary = engine.metrics.summary()
    assert summary["computed"] == 5 and summary["tokens_out"] == 4 and summary["steps"] == 4
    assert summary["seconds"] >= summary["model_seconds"] > 0


def test_the_event_log_is_bounded():
    engine = Engine(FAKE, 16, 4, keep_events=3)
    engine.add_request([1], 10)
    engine.run()
    assert [event.step for event in engine.events] == [7, 8, 9]


def test_the_progress_bar_counts_requests(capsys):
    engine = Engine(FAKE, 16, 4)
    for _ in range(3):
        engine.add_request([1], 2)
    engine.run(progress=True)
    assert "3/3" in capsys.readouterr().err


def test_block_tables_schedulers_and_requests_import_no_torch():
    names = (
        "batcher, blocks, check, guard, interrupt, memory, metrics, progress, reference, request, scheduler, sockets"
    )
    code = f"import sys; from kvcourse.engine import {names}; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
