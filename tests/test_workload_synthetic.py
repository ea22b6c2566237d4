"""The generator, arrivals, and prompts: seeded, consistent, refused with a sentence when impossible."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse.workload import (
    TINY,
    Request,
    Trace,
    Workload,
    gamma_arrivals,
    gap_cv,
    generate,
    poisson_arrivals,
    replayed_arrivals,
    reuse_ceiling,
    trace_statistics,
    with_arrivals,
)
from kvcourse.workload.breakers import BREAKERS, prompt_log
from kvcourse.workload.prompts import agents, chats, completions, conversations, documents, shared_prefix, weather
from kvcourse.workload.synthetic import KINDS
from kvcourse.workload.trace import broken_chains


@st.composite
def workloads(draw) -> Workload:
    low = draw(st.integers(0, 5))
    return replace(
        TINY,
        requests=draw(st.integers(1, 40)),
        block_size=draw(st.integers(1, 9)),
        first_token=low,
        vocab=low + draw(st.sampled_from([2, 3, 200])),
        max_prompt=draw(st.integers(8, 200)),
        cv=draw(st.floats(0, 4)),
        rate=draw(st.floats(0.1, 50)),
        repeats=draw(st.sampled_from([0.0, 0.3, 1.0])),
        shares=tuple(draw(st.permutations([0.4, 0.3, 0.2, 0.1]))),
    )


@given(workloads(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_equal_ids_are_equal_prefixes(work, seed):
    """Two blocks have the same id exactly when the prompts agree up to the end of the block."""
    trace = generate(work, seed)
    assert len(trace) == work.requests and not broken_chains(trace)
    contents: dict[int, tuple[int, ...]] = {}
    for request in trace:
        tokens = request.prompt()
        assert len(tokens) == request.input_tokens <= work.max_prompt
        assert all(work.first_token <= token < work.vocab for token in tokens)
        assert len(request.block_ids) == math.ceil(len(tokens) / work.block_size)
        for number, block in enumerate(request.block_ids, start=1):
            content = tuple(tokens[: number * work.block_size])
            assert contents.setdefault(block, content) == content
    assert len(set(contents.values())) == len(contents)


@given(workloads(), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_the_seed_decides(work, seed):
    """The same seed gives the same trace, another seed another one; arrivals are in order."""
    trace = generate(work, seed)
    assert generate(work, seed) == trace
    assert generate(work, seed + 1) != trace
    times = [request.arrival for request in trace]
    assert times == sorted(times) and times[0] >= 0


def test_turns_grow():
    """A session's next prompt is the one before, its answer, and more; or the same once again."""
    grown = repeated = 0
    for session in generate(replace(TINY, requests=200, repeats=0.2)).sessions().values():
        for before, after in zip(session.requests, session.requests[1:], strict=False):
            if after.content == before.content:
                repeated += 1
                continue
            answer = [token for segment in before.answer for token in segment.token_ids()]
            assert len(answer) == before.output_tokens
            said = before.prompt() + answer
            assert after.prompt()[: len(said)] == said and len(after.prompt()) > len(said)
            grown += 1
    assert grown > 10 and repeated > 0


def test_statistics_are_like_those_of_recorded_traces():
    """All kinds occur, popularity is skewed, lengths have a long tail, arrivals are bursty, much can be reused."""
    trace = generate()
    stats = trace_statistics(trace, trace.block_size)
    assert {request.kind for request in trace} == set(KINDS)
    assert stats.requests == 2000 and stats.sessions > 300
    assert stats.gap_cv > 1.2
    assert stats.input.p99 > 3 * stats.input.p50
    assert 0.7 < stats.reuse.ceiling < 0.95
    assert 0.1 < stats.reuse.first_block_share < 0.3
    assert stats.reuse.whole_prompts > 10


def test_session_starts_have_the_given_cv():
    """The CV is that of the gaps between session starts."""
    starts = [session.requests[0].arrival for session in generate(Workload(requests=3000, cv=2.0)).sessions().values()]
    assert gap_cv(starts) == pytest.approx(2.0, rel=0.25)


def test_files_have_no_content():
    """A request of a trace file says that it has no tokens."""
    with pytest.raises(ValueError, match="no content"):
        Request(0, 5, 1, (1,)).prompt()


@pytest.mark.parametrize(
    "change",
    [
        {"requests": 0},
        {"block_size": 0},
        {"vocab": 1},
        {"max_prompt": 3},
        {"turns": 0.5},
        {"shares": (0, 0, 0, 0)},
        {"shares": (1, 1, 1)},
        {"shares": (2, -1, 0, 0)},
        {"repeats": 1.5},
        {"documents": 0},
        {"think": 0},
        {"rate": 0},
        {"rate": math.inf},
        {"cv": -1},
    ],
)
def test_impossible_workloads(change):
    """A workload that cannot be is refused, and the setting is named."""
    (name,) = change
    with pytest.raises(ValueError, match="at least two" if name == "vocab" else name):
        generate(Workload(**change))


@given(st.floats(0.01, 100), st.floats(0.2, 5), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_gamma_arrivals(rate, cv, seed):
    """Rate and burstiness come out as they went in, within what 4,000 arrivals can show."""
    times = gamma_arrivals(4000, rate, cv, seed)
    assert times == sorted(times) == gamma_arrivals(4000, rate, cv, seed)
    assert len(times) / times[-1] == pytest.approx(rate, rel=0.12 * max(1, cv))
    assert gap_cv(times) == pytest.approx(cv, rel=0.1 * max(1, cv))


def test_even_and_poisson_arrivals():
    """CV 0 is a metronome; Poisson is gamma with CV 1."""
    assert gamma_arrivals(3, 4.0, 0.0) == [0.25, 0.5, 0.75]
    assert poisson_arrivals(5, 2.0, seed=3) == gamma_arrivals(5, 2.0, 1.0, seed=3)
    for bad in ((-1.0, 1.0), (0.0, 1.0), (math.nan, 1.0), (1.0, math.nan)):
        with pytest.raises(ValueError, match=r"rate|cv"):
            gamma_arrivals(3, *bad)
    assert math.isnan(gap_cv([1.0, 2.0])) and math.isnan(gap_cv([1.0, 1.0, 1.0]))
    assert gap_cv([0.0, 1.0, 4.0]) == 0.5


def test_recorded_arrivals():
    """A trace's own arrivals, faster; and other arrivals for a trace."""
    trace = Trace("t", tuple(Request(time, 5, 1) for time in (10.0, 14.0, 12.0)))
    assert replayed_arrivals(trace, speed=2) == [0.0, 1.0, 2.0]
    assert [request.arrival for request in with_arrivals(trace, [7.0, 8.0, 9.0])] == [7.0, 8.0, 9.0]
    with pytest.raises(ValueError, match="2 arrivals for 3 requests"):
        with_arrivals(trace, [1.0, 2.0])
    with pytest.raises(ValueError, match="speed 0"):
        replayed_arrivals(trace, speed=0)


def common(first, second) -> int:
    """Length of the common prefix."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def test_weather():
    """The lesson's example: 2 of 4 tokens shared with the city third, none with the city first."""
    assert common(*weather()) == 2 and common(*weather(novel_first=True)) == 0
    assert [sorted(prompt) for prompt in weather()] == [sorted(prompt) for prompt in weather(novel_first=True)]


@given(st.integers(2, 5), st.integers(0, 50), st.integers(1, 20), st.integers(0, 9), st.sampled_from([6, 300]))
@settings(deadline=None)
def test_shared_prefix(count, shared, unique, seed, vocab):
    """Prompts of token ids share exactly the prefix asked for, or nothing with the unique part first."""
    for unique_first, want in ((False, shared), (True, 0)):
        prompts = shared_prefix(count, shared, unique, seed, vocab=vocab, first_token=1, unique_first=unique_first)
        assert {len(prompt) for prompt in prompts} == {shared + unique}
        assert all(common(*pair) == want for pair in combinations(prompts, 2))
        assert all(1 <= token < vocab for prompt in prompts for token in prompt)


def test_shared_prefix_of_the_lesson():
    """3,000 of 3,040 tokens, or none; more prompts than first tokens cannot differ."""
    assert common(*shared_prefix()) == 3000 and common(*shared_prefix(unique_first=True)) == 0
    with pytest.raises(ValueError, match="9 prompts"):
        shared_prefix(9, vocab=8)


@pytest.mark.parametrize("family", [chats, conversations, completions, documents, agents])
def test_text_families(family):
    """Seeded, alternating roles, a long shared start, and something new in each prompt."""
    prompts = family(seed=1)
    assert prompts == family(seed=1) != family(seed=2)
    assert len({prompt.text() for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        roles = [message["role"] for message in prompt.messages if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    by_start = max(common(a.text(), b.text()) for a, b in combinations(prompts, 2))
    assert by_start > 0.6 * min(len(prompt.text()) for prompt in prompts)


def test_text_families_in_detail():
    """Turns repeat what was said, code parses, tools are JSON, and a question in front spoils the prefix."""
    first, _, second, _ = conversations(users=2, turns=2)
    assert second.messages[: len(first.messages)] == first.messages and first.session == second.session
    compile(completions()[0].messages[0]["content"] + "pass\n", "completion", "exec")
    tools = agents()[0].messages[0]["content"].splitlines()[1:]
    assert len(tools) == 8 and all(json.loads(line)["parameters"]["place"] == "string" for line in tools)
    long = chats(system_words=1500)[0].text().split()
    assert 1500 < len(long) < 1600
    late, early = documents(questions=2, documents=1), documents(questions=2, documents=1, question_first=True)
    assert common(late[0].text(), late[1].text()) > 1000 > 200 > common(early[0].text(), early[1].text())


@pytest.mark.parametrize("breaker", BREAKERS)
def test_breakers(breaker):
    """Without a breaker the stable parts are shared; each breaker ends the shared prefix early, at its place."""
    log = prompt_log(breaker, seed=4)
    assert log == prompt_log(breaker, seed=4)
    texts = ["".join(part.text for part in parts) for parts in log]
    stable = sum(len(part.text) for part in log[0] if part.name in ("system", "tools"))
    shared = max(common(a, b) for a, b in combinations(texts, 2))
    if breaker == "none":
        assert shared >= stable
    else:
        assert min(common(a, b) for a, b in combinations(texts, 2)) < stable
    with pytest.raises(ValueError, match="'typo'"):
        prompt_log("typo")


def test_ceiling_of_a_generated_trace_is_its_content():
    """What a cache without limit finds equals the longest prefix shared with any earlier prompt, token by token."""
    trace = generate(replace(TINY, block_size=1))
    seen: list[list[int]] = []
    for request, hits in zip(trace, reuse_ceiling(trace).hits, strict=True):
        tokens = request.prompt()
        assert hits == max((common(tokens, earlier) for earlier in seen), default=0)
        seen.append(tokens)
