# %% [markdown]
# A long prompt and many short answers share one engine. If the prompt is computed in one go, everybody else waits. If
# it is computed in pieces, nobody does, and the engine needs attention that can continue where the last piece stopped:
# over keys and values that lie in blocks, scattered in a pool.
#
# This lesson builds both: the scheduler that cuts prompts into **chunks**, in Python, and the attention under it, as
# **CUDA kernels**, the small programs that a GPU runs. At the end your kernels serve a model, token by token.
#
# **No GPU is needed.** Without one, the course runs the same CUDA source on the CPU: slowly, but it watches every
# access to memory, names the line that goes wrong, and counts what a GPU would have to move. All points are earned
# there. With a GPU (a T4 of Colab is enough) the same cells also run on it, and each check has a few properties more
# for it; they carry no points, and without a GPU they say "not run". Some C or C++ helps; every feature of CUDA that
# you need is explained where it comes up. It takes 3 to 5 hours.
#
# The words of lesson 1 are used again: **token**, **key** and **value**, **head** and **KV head**, **prefill**,
# **decode**, **TTFT** (time to first token). Of lesson 2: **block** (a group of token slots) and **block table** (the
# blocks of a request, in order). New is **TBT**, the time between two tokens of an answer.

# %% setup=true
from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvcourse import check, hint, progress, quiz  # noqa: F401
from kvcourse.cuda import Kernel

# %% [markdown]
# ## When is a context long?
#
# The usual definition is circular: a context is long once its cache is so big that it makes trouble. Where that begins
# depends on the model, the GPU, the engine and the traffic. 32K, 64K and 128K tokens are common places to draw the line
# (K is 1,024 here).
#
# What grows? With a KV cache a new token looks at each earlier one once. So its attention costs an amount that is
# **linear** in the length: twice the context, twice the work. For a whole prompt these add up, 1 + 2 + … + n = n(n + 1)
# / 2 pairs of a query and a key: 5,000,050,000 for 100,000 tokens, in each head of each layer. That is the quadratic
# part of prefill.
#
# Decode has another problem. To write one token, the GPU reads all weights and all caches once, and computes little
# with them. It is limited by memory: how much fits (VRAM) and how fast it is read. By hand, Llama-3-8B at 16 bits: the
# weights are 16.1 GB, a token costs 131,072 bytes (lesson 1). One context of 128K tokens is 131,072 × 131,072 bytes =
# 17.2 GB. It alone takes more room, and more time to read, than the model.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.plots import chunked as plots

    lengths = [2**power for power in range(10, 18)]
    caches = {
        f"caches of {users} sequence{'s' * (users > 1)}": [users * n * 131_072 / 1e9 for n in lengths]
        for users in (1, 8, 64)
    }
    for users in (1, 8, 64):
        print(f"{users:>2} sequences: more cache than weights from {16.1e9 / 131_072 / users:>9,.0f} tokens each on")
    plots.step_bytes(lengths, caches, 16.1, "Llama-3-8B")

# %% [markdown]
# So "long" is 123K tokens for one user of this model, 15K for eight users, and 2K for sixty-four. A good benchmark
# sends very large inputs on purpose, to see where a service of yours begins to suffer.
#
# How models get long windows at all: most encode the position of a token by turning its key and query (RoPE, rotary
# position embeddings). Labs scale these turns so that a model trained on short texts can place tokens much further
# away, and train it a little more. That gives the window. It does not make it cheap.
#
# Some models change attention itself:
#
# - **Sliding window**: a layer looks only at the last tokens, so its cache stops growing.
# - **Compressed attention**: what is stored per token is smaller, such as the latent vector of lesson 1.
# - **Sparse attention**: a token looks at a chosen part of the earlier ones (lesson 6).
#
# These belong to the model. Three techniques help with any model and give exactly the same answer as before:
#
# | technique | what it does | you write it in |
# |---|---|---|
# | **chunked prefill** | computes a prompt in pieces, with decodes in between | chunked.1, chunked.2 |
# | **PagedAttention** | reads keys and values through a block table, wherever they lie | chunked.3, chunked.4 |
# | **FlashAttention** | goes through the keys in tiles, never stores all scores | chunked.4, chunked.5 |
#
# If a cache still does not fit, several GPUs share it (**model parallelism**: `tp` in lesson 1, lesson 6 again).

# %% [markdown]
# ## chunked.1 chunks
#
# A **pass** is one run of the model over some new tokens. A prompt of 100,000 tokens can be one pass, or chunks of
# 8,192: ceil(100,000 / 8,192) = 13 passes, of which 12 have 8,192 tokens and the last 100,000 - 12 × 8,192 = 1,696.
#
# Tokens that a prefix cache found are not computed, so they count in no pass. Of a prompt of 8,292 tokens with 8,192
# cached ones, 100 are left: 1 pass at a chunk size of 512, not 17. One token at least is always computed, else there is
# nothing to predict the next one from.
#
# Three questions for each chunk:
#
# **Which positions does it compute?** Small, by hand: a prompt of 11 tokens in chunks of 5 has the positions 0 to 4, 5
# to 9, and 10. With 4 cached tokens: 4 to 8, and 9 to 10.
#
# **Where do its keys and values go?** Position p stands in block `block_table[p // block_size]`, at place `p %
# block_size`. The engine numbers all places of the pool through: **slot** = block × block size + place. By hand, blocks
# of 4 and the block table [7, 2, 5]: position 3 is in block 7, slot 7 × 4 + 3 = 31; position 4 is in block 2, slot 8;
# position 5, of the next chunk, goes beside it, slot 9. A chunk need not end where a block does. The next one continues
# that block.
#
# **Which keys do its queries see?** A query at position p sees the keys 0 to p. All queries of the chunk 5 to 9
# together see 0 to 9: everything up to the **end of the chunk**. The rest of the prompt is not there yet; its slots
# hold garbage. In a layer with a window of 4, query 5 sees 2 to 5 and query 9 sees 6 to 9, together 2 to 9: that is 8 =
# 4 - 1 + 5 keys, window - 1 + chunk. A cache that keeps only the last 4 keys would be wrong in the middle of the chunk.

# %% [markdown]
# **Your task.** Write `chunks`, `chunk_slots` and `chunk_keys`. The rules:
#
# - `chunks(prompt_tokens, chunk_size, cached=0)`: one `range` of positions for each pass, in order. The first begins at
#   `cached`, all but the last have `chunk_size` positions, and together they cover `cached` to `prompt_tokens - 1`.
#   `ValueError` for `prompt_tokens` below 1, `chunk_size` below 1, negative `cached`, and `cached` of `prompt_tokens`
#   or more.
# - `chunk_slots(block_table, chunk, block_size)`: the slot of each position of the chunk, in order. The table may be
#   longer than the chunk needs; `ValueError` if it is too short (naming `block_table`), or for `block_size` below 1.
# - `chunk_keys(chunk, window=None)`: the `range` of all keys that its queries see together: from 0, or with a window
#   from `max(0, chunk.start - window + 1)`, to the last position of the chunk. `ValueError` for `window` below 1 and
#   for an empty chunk.
# - Each message names the argument. `require` is there for that.


# %%
def require(condition: bool, message: str) -> None:
    """Refuse a bad input: raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


# %% solution="chunked.1" part="a"
def chunks(prompt_tokens: int, chunk_size: int, cached: int = 0) -> list[range]:
    """The positions that each pass over a prompt computes, in order: `chunk_size` of them, in the last pass the rest.

    cached: leading tokens whose keys and values are there already; the first pass starts at position `cached`
    All passes together compute the positions cached .. prompt_tokens - 1, each once.
    ValueError for a chunk size or a prompt below 1, and for a `cached` that is negative or leaves no token to compute.
    """
    ### BEGIN SOLUTION
    require(prompt_tokens >= 1, f"prompt_tokens must be at least 1, got {prompt_tokens}: an empty prompt has no passes")
    require(chunk_size >= 1, f"chunk_size must be at least 1, got {chunk_size}: a pass computes something")
    require(cached >= 0, f"cached must not be negative, got {cached}")
    left = "one token at least is computed, else there is nothing to sample from"
    require(cached < prompt_tokens, f"cached is {cached} of {prompt_tokens} tokens: {left}")
    starts = range(cached, prompt_tokens, chunk_size)
    return [range(start, min(start + chunk_size, prompt_tokens)) for start in starts]
    ### END SOLUTION


# %% solution="chunked.1" part="b"
def chunk_slots(block_table: list[int], chunk: range, block_size: int) -> list[int]:
    """The slot in the pool for the keys and values of every position of a chunk, in order.

    block_table: the blocks of the whole sequence so far, in order; position p stands in block_table[p // block_size]
    Slot s is place s % block_size of block s // block_size. A chunk may begin and end inside a block.
    ValueError for a block table that ends before the chunk does, and for a block size below 1.
    """
    ### BEGIN SOLUTION
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}")
    room = len(block_table) * block_size
    require(chunk.stop <= room, f"block_table has room for {room} tokens, but the chunk ends at {chunk.stop}")
    return [block_table[p // block_size] * block_size + p % block_size for p in chunk]
    ### END SOLUTION


# %% solution="chunked.1" part="c"
def chunk_keys(chunk: range, window: int | None = None) -> range:
    """The positions of all keys that the queries of a chunk see, taken together.

    A query at position p sees the keys 0 .. p, with a `window` only the last `window` of them, its own included.
    ValueError for an empty chunk and for a window below 1.
    """
    ### BEGIN SOLUTION
    require(len(chunk) > 0, "chunk is empty: nobody asks for keys")
    require(window is None or window >= 1, f"window must be at least 1, got {window}: a token sees itself")
    start = 0 if window is None else max(0, chunk.start - window + 1)
    return range(start, chunk.stop)
    ### END SOLUTION


# %% check="chunked.1"
if __name__ == "__main__":
    check("chunked.1")

# %% [markdown]
# ### Look: 100,000 tokens

# %% demo=true
if __name__ == "__main__":
    prompt, size = 100_000, 8_192
    passes = chunks(prompt, size)
    print(f"one block: {len(chunks(prompt, prompt))} pass of {prompt} tokens (decode waits for all of it)")
    print(f"chunked  : {len(passes)} passes, each at most {size} tokens")
    for number, chunk in enumerate(passes, start=1):
        if number <= 2 or number == len(passes):
            print(f"  pass {number}: {len(chunk)} tokens, {prompt - chunk.stop} left")
        elif number == 3:
            print("  ...")
    for cached in (64_000, 99_999):
        print(f"{cached:,} tokens cached: passes of {[len(chunk) for chunk in chunks(prompt, size, cached)]}")

# %% [markdown]
# Chunks are not free. Each pass reads the weights again, and each pass reads the keys of all earlier ones again. Here
# is how much, for one head of one layer; the number of pairs (query and key) that are multiplied stays the same.

# %% demo=true
if __name__ == "__main__":
    print("chunk size   passes = times the weights are read   keys read        pairs of query and key")
    for size in (100_000, 32_768, 8_192, 2_048, 512):
        passes = chunks(100_000, size)
        keys = sum(len(chunk_keys(chunk)) for chunk in passes)
        pairs = sum(len(chunk_keys(range(p, p + 1))) for chunk in passes for p in chunk)
        print(f"{size:>10,} {len(passes):>8,} {keys:>41,} {pairs:>29,}")

# %% [markdown]
# So a chunk should be as large as the waiting of others allows. With hundreds of tokens in a pass, a GPU is busy
# computing while it reads the weights, and reading them again costs little.

# %% demo=true
if __name__ == "__main__":
    table, passes = [7, 2, 5], chunks(11, 5)
    slots = [chunk_slots(table, chunk, 4) for chunk in passes]
    for chunk, places in zip(passes, slots, strict=True):
        print(f"positions {list(chunk)}: slots {places}; keys {chunk_keys(chunk)}, window of 4 {chunk_keys(chunk, 4)}")
    plots.pool_of_chunks(table, slots, block_size=4, blocks=8)

# %% [markdown]
# ## chunked.2 the scheduler
#
# An engine works in steps. Each step is one pass of the model over tokens of several requests at once: one token for
# each request that decodes, many for a prompt. Who takes part is the decision of the **scheduler**.
#
# A step takes as long as its tokens need. Say 20 ms and half a millisecond for each token (an illustration; you will
# measure soon). Three answers are being written, 21.5 ms a token. Now a prompt of 1,600 tokens arrives.
#
# - In one pass it takes 20 + 800 = 820 ms, and all three answers stand still for that long.
# - With a **budget** of 256 tokens a step, a step takes 148 ms: 3 tokens for the answers, 253 for the prompt. That is
#   ceil(1,600 / 253) = 7 steps. The answers go on, one token each 148 ms.

# %% demo=true
if __name__ == "__main__":

    def seconds_of(given):
        return 0.020 + 0.0005 * sum(given.values())  # the illustration above

    def on_a_clock(plans):
        steps, now = [], 0.0
        for given in plans:
            steps.append((now, now + seconds_of(given), given))
            now = steps[-1][1]
        return steps

    answers = {f"answer {i}": 1 for i in (1, 2, 3)}
    whole = [answers] * 4 + [{"long prompt": 1600}] + [answers | {"long prompt": 1}] * 8
    pieces = [answers | {"long prompt": len(chunk)} for chunk in chunks(1600, 256 - 3)]
    cut = [answers] * 4 + pieces + [answers | {"long prompt": 1}] * 8
    panels = {"the prompt in one pass": on_a_clock(whole), "chunks, budget of 256 tokens": on_a_clock(cut)}
    for name, steps in panels.items():
        last = [end for _, end, given in steps if "long prompt" in given and given["long prompt"] > 1][-1]
        longest_step = max(end - start for start, end, _ in steps)
        print(f"{name:29} longest wait for a token {1000 * longest_step:4.0f} ms, prompt done at {1000 * last:5.0f} ms")
    plots.step_timeline(panels, "A long prompt stops all answers, unless it comes in chunks")

# %% [markdown]
# The price is visible too: the prompt itself is done later, since each of its 7 steps pays the 20 ms and carries the
# answers along. Small chunks help TBT and harm TTFT. The budget is where you choose.
#
# ### One step, by hand
#
# The scheduler sees `Work` records: how many `tokens` a request must still compute before its next one can be sampled.
# A running request with 1 token left is a **decode** (or computes the last token of its prompt, which costs the same).
# More than 1: a prompt that is half read. Requests in `waiting` have no blocks yet.
#
# Three prompts of 800 tokens arrive together; the budget is 1,024, and no prompt may have more than 400 in a step:
#
# | step | prompt 1 | prompt 2 | prompt 3 | why |
# |---|---|---|---|---|
# | 1 | 400 | 400 | 224 | 1,024 - 800 = 224 are left for the third |
# | 2 | 400 | 400 | 224 | the same; prompts 1 and 2 are complete now and sample their first token |
# | 3 | 1 | 1 | 352 | two decodes, and what is left of prompt 3: 800 - 448 |
#
# A decode is running, a prompt of 80 tokens arrives, the budget is 50: 1 + 49, then 1 + 31.
#
# 64 decodes are running, a prompt of 100,000 arrives, the budget is 512: 448 tokens of it in each step, 224 steps, in
# the last one 100,000 - 223 × 448 = 96.
#
# And one trap. 512 decodes are running and the budget is 512. If decodes always come first, the prompt never gets a
# token for as long as the answers go on. So one token of the budget is kept for prompts.

# %% [markdown]
# **Your task.** Write `schedule_step`. It returns a list of (request id, tokens). Both lists of `Work` are in the order
# of arrival, oldest first. The rules:
#
# - First the decodes: each **running** request with 1 token left gets 1 token, in order.
# - Then the prompts: running requests with more than 1 token, in order, after them the waiting ones, in order. Each
#   gets as much as it needs, at most what is left of the budget, at most `longest` if that is given. A waiting request
#   with 1 token is a prompt as well and comes in its turn.
# - Stop when the budget is used up. No entry has 0 tokens, none appears twice.
# - Nobody starves: if there is a prompt (running or waiting), at most budget - 1 decodes are planned, the oldest ones.
#   The others wait.
# - `tokens` counts what is left to compute. `cached` tokens (found in the cache, or computed in earlier steps) are
#   **not** in it and cost nothing of the budget.
# - Nothing is remembered from step to step. A request that lost its blocks (a **preemption**) comes back in `waiting`,
#   with all its tokens again, or with fewer if some are still cached. Only the numbers you are given count.
# - Read a `Work` by its fields (`work.tokens`) or unpack it. When tests call your function it is a plain record with
#   these fields, without the other methods of a tuple.
# - The two lists belong to the engine: leave them as they are.
# - `ValueError`, naming the argument: `budget` below 1, `longest` below 1, and `budget` below 2 when there are both
#   decodes and prompts, since one of them would never run.


# %%
class Work(NamedTuple):
    """What the scheduler sees of a request: so many `tokens` must be computed before its next token can be sampled.

    A running request with 1 token left is a decode, or computes the last token of its prompt: both cost the same.
    cached: leading tokens that were found in the cache or computed before; they are not in `tokens`
    """

    request_id: int
    tokens: int
    cached: int = 0


# %% solution="chunked.2"
def schedule_step(
    running: list[Work], waiting: list[Work], budget: int, longest: int | None = None
) -> list[tuple[int, int]]:
    """Who computes how many tokens in the next step: (request id, tokens), decodes first, then prompts in order.

    running: requests that have blocks; waiting: requests that have none yet; both oldest first
    budget: the most tokens of a step, all requests together; longest: the most tokens of one prompt, None: no such cap
    Nothing is remembered from step to step: a preempted request is a waiting one with all its tokens again.
    ValueError for a budget or a `longest` below 1, and for a budget of 1 when decodes and prompts are there.
    """
    ### BEGIN SOLUTION
    require(budget >= 1, f"budget must be at least 1, got {budget}")
    require(longest is None or longest >= 1, f"longest must be at least 1, got {longest}")
    decodes = [work for work in running if work.tokens == 1]
    prompts = [work for work in running if work.tokens > 1] + waiting
    require(budget >= 2 or not (decodes and prompts), "budget must be at least 2: a decode and a prompt need one each")
    room = budget - 1 if prompts else budget  # one token is kept for the first prompt
    plan = [(work.request_id, 1) for work in decodes[:room]]
    left = budget - len(plan)
    for work in prompts:
        if left == 0:
            break
        tokens = min(work.tokens, left) if longest is None else min(work.tokens, left, longest)
        plan.append((work.request_id, tokens))
        left -= tokens
    return plan
    ### END SOLUTION


# %% check="chunked.2"
if __name__ == "__main__":
    check("chunked.2")

# %% [markdown]
# ### Look: the steps above, by your scheduler

# %% demo=true
if __name__ == "__main__":

    def play(prompts, budget, longest=None, decodes=0):
        """What each prompt gets in each step, until all are read; `decodes` requests write answers all the while."""
        running = [Work(i, 1) for i in range(decodes)]
        waiting = [Work(decodes + i, tokens) for i, tokens in enumerate(prompts)]
        numbers = [work.request_id for work in waiting]
        unread, steps = set(numbers), []
        while unread:
            plan = dict(schedule_step(running, waiting, budget, longest))
            steps.append([plan.get(number, 0) for number in numbers])
            unread -= {work.request_id for work in running + waiting if plan.get(work.request_id) == work.tokens}
            stay = [work for work in running + waiting if work in running or work.request_id in plan]
            waiting = [work for work in waiting if work.request_id not in plan]
            running = [
                Work(number, max(1, tokens - plan.get(number, 0)), cached + plan.get(number, 0))
                for number, tokens, cached in stay
            ]
        return steps

    print("3 prompts of 800, budget 1,024, longest 400:", play([800] * 3, 1024, longest=400))
    print("a decode and a prompt of 80, budget 50     :", play([80], 50, decodes=1))
    steps = play([100_000], 512, decodes=64)
    print(f"64 decodes and a prompt of 100,000, budget 512: {steps[0]} a step, {len(steps)} steps, last {steps[-1]}")
    crowd = schedule_step([Work(i, 1) for i in range(512)], [Work(512, 80)], 512)
    print(f"512 decodes and a prompt of 80, budget 512: {len(crowd)} entries, the last one {crowd[-1]}")

# %% [markdown]
# ### Plug it in: the same tokens for every chunk size
#
# `schedule_step` fits the engine's socket for schedulers as it is. The engine adds the blocks, and throws requests out
# when there are none left. Does the size of the chunks change an answer? It must not: the same keys and values are
# computed, only in other passes. Numbers are added up in another order, so they differ in the last digits, and in 32
# bits that changes no token here.

# %% demo=true
if __name__ == "__main__":
    import time
    from random import Random

    import transformers

    from kvcourse.engine import Engine
    from kvcourse.models.load import load_model
    from kvcourse.tasks.course import UserError

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the models here are small: more threads would only slow them down
    try:
        real = load_model("smollm2")
    except UserError:
        real = load_model("random")  # without the real weights: same code, random text
    print("model:", real.name)

    def words(count, seed):
        """`count` random token ids: what a prompt says does not matter for time and memory."""
        rng = Random(seed)
        return [rng.randrange(100, real.config.vocab_size) for _ in range(count)]

    def serve(prompts, new=4, **options):
        engine = Engine(real.model, num_blocks=512, block_size=16, **options)
        for prompt in prompts:
            engine.add_request(prompt, max_new_tokens=new, eos=())
        return list(engine.run().values()), engine

    prompts = [words(50, 1), words(9, 2), words(20, 3)]
    expected, _ = serve(prompts)
    print("budget   steps   largest step   tokens computed   same tokens as with whole prompts")
    for budget in (7, 16, 48, 512):
        answers, engine = serve(prompts, scheduler=schedule_step, budget=budget)
        largest = max(event.tokens for event in engine.events)
        same = sorted(answers) == sorted(expected)
        print(f"{budget:>6} {engine.metrics.steps:>7} {largest:>14} {engine.metrics.computed:>17}   {same}")

# %% [markdown]
# ### A long prompt beside two answers, on a real clock
#
# The timeline from above, now measured. The engine's own default computes whole prompts; your scheduler cuts them.

# %% demo=true
if __name__ == "__main__":

    def long_beside_answers(**options):
        """Two answers are being written, then a long prompt arrives: (start, end, tokens by request) of each step."""
        engine = Engine(real.model, num_blocks=512, block_size=16, **options)
        names = {engine.add_request(words(12, i), max_new_tokens=18, eos=()): f"answer {i}" for i in (1, 2)}
        for _ in range(5):
            engine.step()
        names[engine.add_request(words(240, 3), max_new_tokens=4, eos=())] = "long prompt"
        engine.run()
        events = list(engine.events)[1:]  # the first step reads the two short prompts
        zero = events[0].started_at
        return [
            (e.started_at - zero, e.started_at - zero + e.seconds, {names[i]: count for i, _, count in e.rows})
            for e in events
        ]

    panels = {
        "whole prompts": long_beside_answers(),
        "your scheduler, budget of 48 tokens": long_beside_answers(scheduler=schedule_step, budget=48),
    }
    plots.step_timeline(panels, "Measured: whole, the prompt stops both answers; in chunks it does not")

# %% [markdown]
# ### Chunk size against waiting, with real lengths
#
# One prompt proves little. Here come requests with recorded lengths: the first of a conversation trace of Azure's
# service (2023), at an eighth of their length, so that a CPU can serve them. If the trace is not on your machine, the
# course's generator stands in. Four users send a request each and the next one when the answer is complete, so there
# are always decodes beside the prompts.
#
# **p50** is the median: half of all waits are shorter. **p99** is the wait that only 1 in 100 exceeds: what your least
# lucky users see.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.engine.scheduler import schedule_whole
    from kvcourse.workload import TINY, generate, load_trace

    def percentile(values, share):
        values = sorted(values)
        return values[min(len(values) - 1, int(share * len(values)))]

    def serve_trace(lengths, users=4, **options):
        """Serve (prompt tokens, answer tokens) with so many at a time: all TBT and TTFT in seconds, tokens, answers."""
        engine = Engine(real.model, num_blocks=512, block_size=16, **options)
        coming = [(words(prompt, i), new) for i, (prompt, new) in enumerate(lengths)][::-1]
        numbers = []
        while coming or engine.has_work:
            while coming and len(numbers) - len(engine.finished) < users:
                prompt, new = coming.pop()
                numbers.append(engine.add_request(prompt, max_new_tokens=new, eos=()))
            engine.step()
        requests = [engine.request(number) for number in numbers]
        between = [wait for request in requests for wait in request.metrics.tbt]
        first = [request.metrics.ttft for request in requests]
        return between, first, engine.metrics.computed, [request.output for request in requests]

    try:
        trace, shrink = load_trace("azure_conv_2023").head(14), 8
    except UserError:
        trace, shrink = generate(TINY).head(14), 1
    lengths = [(max(2, r.input_tokens // shrink), max(2, r.output_tokens // shrink)) for r in trace]
    print(f"{trace.name}: {len(lengths)} prompts of {min(lengths)[0]} to {max(lengths)[0]} tokens")

    settings = {str(budget): {"scheduler": schedule_step, "budget": budget} for budget in (16, 32, 128, 256)}
    settings["whole"] = {"scheduler": schedule_whole}
    between, first = {"p50": [], "p99": []}, {"p50": [], "p99": []}
    outputs = []
    print("budget   TBT p50    p99   TTFT p50    p99, s   all together, s   tokens computed")
    for name, options in settings.items():
        started = time.perf_counter()
        tbt, ttft, computed, answers = serve_trace(lengths, **options)
        outputs.append(answers)
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            between[label].append(percentile(tbt, share))
            first[label].append(percentile(ttft, share))
        row = (between["p50"][-1], between["p99"][-1], first["p50"][-1], first["p99"][-1])
        took = time.perf_counter() - started
        print(f"{name:>6} {row[0]:>9.3f} {row[1]:>6.3f} {row[2]:>10.2f} {row[3]:>6.2f} {took:>16.1f} {computed:>17}")
    print("the same answers at every budget:", all(answers == outputs[0] for answers in outputs))
    tail = between["p99"][-1] / between["p99"][0]
    print(f"p99 of TBT: {tail:.1f} times longer with whole prompts than with a budget of {next(iter(settings))}")
    plots.latency_by_budget(list(settings), between, first)

# %% [markdown]
# What to look for:
#
# - **p99 of TBT** falls with the budget, since no step is longer than the budget allows. This is what chunks are for.
# - **p50 of TBT** hardly moves, or rises with small budgets: when prompts come in many pieces, most decode steps carry
#   one along.
# - **TTFT** rises when chunks get small: a prompt needs more steps, and each step has a cost of its own.
# - **Tokens computed** and the answers are the same everywhere. These two do not depend on your machine.
#
# With few requests p99 is close to the largest value, so read it as "the worst that happened". On a GPU the same shape
# appears at other sizes: budgets of 512 to 8,192 tokens, and milliseconds in place of tenths of a second.

# %% [markdown]
# ## chunked.3 first kernels
#
# A GPU runs one function thousands of times at once. Such a function is a **kernel**; each run of it is a **thread**.
# Threads come in **blocks** (nothing to do with the blocks of a cache), and all blocks of a launch are its **grid**. A
# thread knows only where it is:
#
# - `threadIdx.x`: its number in its block, `blockDim.x`: how many threads a block has,
# - `blockIdx.x`: the number of its block, `gridDim.x`: how many blocks there are.
#
# From these it works out its own piece of the work. The first kernel computes out[i] = a × x[i] + y[i] for n numbers,
# one number a thread:
#
# $$i = \text{blockIdx.x} \times \text{blockDim.x} + \text{threadIdx.x}$$
#
# By hand, n = 300 in blocks of 128 threads: ceil(300 / 128) = 3 blocks.
#
# | block | its threads | i | |
# |---|---|---|---|
# | 0 | 0 to 127 | 0 to 127 | |
# | 1 | 0 to 127 | 128 to 255 | |
# | 2 | 0 to 43 | 256 to 299 | |
# | 2 | 44 to 127 | 300 to 383 | 84 threads with nothing to do: they must not touch memory |
#
# Threads run in no particular order. Those of a block run in groups of 32, the **warps**, which execute one instruction
# together; a thread of a warp is also called a **lane**.

# %% [markdown]
# ### How to write a kernel in this notebook
#
# A cell that begins with `%%cuda axpy` holds CUDA C++ for the kernel `axpy`. Running the cell compiles it and puts it
# into the Python variable `axpy`. `--template "float, 64"` on the first line gives the arguments of a template kernel.
# Keep that line, and keep the parameters: the engine calls the kernel with them. In such a cell:
#
# - Replace both lines, `// YOUR CODE HERE` and the `#error` below it. As long as the `#error` is there, the cell
#   answers "not started".
# - Lines in messages count from the first line of the cell, `%%cuda` being line 1.
# - `__global__` marks a kernel, `__device__` a helper function that kernels call; write helpers above the kernel. The
#   only header you need is `cuda_fp16.h`, which has `__half`, a number of 16 bits.
# - `template <typename T, int D>` means that T (a type) and D (a number) are filled in when it is compiled. Your text
#   is compiled for several of them, so write T and D, not `float` and 64. A kernel without template begins with `extern
#   "C"`.
# - JupyterLab colours these cells as Python. That is only looks.
#
# From Python:
#
# - `axpy.launch(grid, block, *arguments)` runs it: on the GPU if the tensors are there, else on the CPU. Tensors arrive
#   as pointers and are changed in place.
# - `axpy.check(grid, block, *arguments)` runs it on the CPU, watches every access, and returns a report.

# %% [markdown]
# ### What every kernel is tested for
#
# - **No faults**: nothing outside the arrays, no races, nothing read before it is written.
# - **No luck**: threads run in three different orders, and the results agree (up to the rounding of float atomics).
# - **All of the output, and nothing else**: outputs hold NaN before the launch, inputs (`const`) must stay as they are.
# - **No garbage**: each unused place of a pool holds NaN, and NaN × 0 is NaN, so a number too many shows.
# - **Right numbers**: as computed in double precision, to 0.00002 in `float` and 0.002 in `__half`, times 1 + the
#   largest number of the result.
# - **Little memory**: what the kernel asks of memory is counted. It may be a quarter more than the task needs.

# %% [markdown]
# ### What a report says
#
# Here is a kernel without the check of bounds. On a GPU the 84 surplus threads would write over whatever lies behind
# the array, and nobody would notice until something else goes wrong.

# %% demo=true
if __name__ == "__main__":
    BROKEN = """
    extern "C" __global__ void axpy_broken(float* out, const float* x, const float* y, float a, int n) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      out[i] = a * x[i] + y[i];
    }
    """
    x, y, out = torch.arange(300.0), torch.ones(300), torch.empty(300)
    print(Kernel(BROKEN, "axpy_broken").check(3, 128, out, x, y, 2.0, 300))

# %% [markdown]
# **Your task, part 1.** Write `axpy`. It is launched with ceil(n / 128) blocks of 128 threads. Every out[i] below n is
# written, nothing else is touched, and n may be any number from 1 on.

# %% solution="chunked.3" part="a" cuda="axpy.cu"
axpy = Kernel(Path(__file__).with_name("axpy.cu").read_text(encoding="utf-8"), "axpy", first_line=2)

# %% demo=true
if __name__ == "__main__":
    out = torch.full((300,), float("nan"))
    print(axpy.check(3, 128, out, x, y, 2.0, 300, empty=["out"]))
    print("out[299] =", out[299].item())

# %% [markdown]
# ### What memory costs
#
# The report speaks of **sectors**. GPU memory is moved in pieces of 32 bytes, whether a thread needs 4 of them or all.
# When the 32 lanes of a warp read 32 neighbouring floats, that is 32 × 4 = 128 bytes, 4 sectors, none wasted: the
# access is **coalesced**. When each lane reads a float 32 bytes from its neighbour's, the warp moves 32 sectors for the
# same 128 bytes. A kernel that only moves data is then 8 times as slow.
#
# The same copy kernel with distances (strides) 1, 2 and 8 between the floats of neighbouring lanes:

# %% demo=true
if __name__ == "__main__":
    from kvcourse.cuda import kernels

    copy = Kernel(kernels.source("strided_copy"), "strided_copy")
    for stride in (1, 2, 8):
        report = copy.check(1, 128, torch.ones(128 * stride), torch.empty(128), 128, stride)
        loads = report.counters.load_sectors / report.counters.loads
        print(f"stride {stride}: {loads:4.0f} sectors for each load of a warp")
    report.plot_sectors()

# %% [markdown]
# Each row is one load of a warp, each square a sector with the bytes that were used of it: 4 of 32.
#
# A rule to keep: **neighbours in the warp touch neighbours in memory.** `threadIdx.x` (or the lane) counts along the
# last dimension of a tensor.

# %% [markdown]
# ### Into the pool
#
# Now a kernel of an engine. After a layer has computed the keys and values of the new tokens, they are written into the
# pool: the key of token t goes to slot `slot_mapping[t]`, all KV heads of it. Your `chunk_slots` makes this mapping.
#
# In memory a pool [blocks, block_size, kv_heads, head_dim] is one long row of numbers. Slot s begins at s × width,
# where width = kv_heads × head_dim. By hand, 2 heads of 64: width 128, and slot 9 begins at number 1,152.
#
# Engines pad their steps to fixed sizes, with tokens that belong nowhere. Their slot is negative.
#
# Mind large pools. Blocks × block size × width grows beyond 2,147,483,647, the largest `int`, long before a GPU is
# full: slot 20,000,000 × 128 is 2,560,000,000. In `int` it becomes negative. So compute places in `long long`, 64 bits.
#
# **Your task, part 2.** Write `write_kv`. Rules:
#
# - Launched with one block of 128 threads for each token: `blockIdx.x` is the token.
# - `key`, `value`: [tokens, kv_heads, head_dim]. `k_pool`, `v_pool`: [blocks, block_size, kv_heads, head_dim]. `width`
#   may be any number, above or below 128, and need not be a multiple of it.
# - A negative slot (any negative number) writes nothing. All other slots of the pool stay as they are.
# - Slots times width may be beyond 32 bits.
# - `T` is `float` or `__half`; numbers are copied bit by bit.
# - For both kernels: each number is read once and written once, by neighbours. Moving up to a quarter more sectors than
#   that is accepted.
#
# Both kernels use each number once, so shared memory has nothing to offer them: their ladder ends at coalesced.

# %% solution="chunked.3" part="b" cuda="write_kv.cu" template="float"
write_kv = Kernel(
    Path(__file__).with_name("write_kv.cu").read_text(encoding="utf-8"), "write_kv", "float", first_line=2
)

# %% check="chunked.3"
if __name__ == "__main__":
    check("chunked.3")

# %% demo=true
if __name__ == "__main__":
    k_pool, v_pool = torch.zeros(8, 4, 2, 64), torch.zeros(8, 4, 2, 64)
    new = chunks(11, 5)[1]  # positions 5 to 9 of the prompt above
    slots = torch.tensor([*chunk_slots([7, 2, 5], new, 4), -1])  # and one token of padding
    key = torch.randn(len(slots), 2, 64)
    report = write_kv.check(len(slots), 128, k_pool, v_pool, key, -key, slots, 2 * 64)
    print(report)
    print("slots that are written:", k_pool.flatten(0, 1).abs().sum((1, 2)).nonzero().flatten().tolist())

    def line_of(report, name):
        """The line of a kernel that asks most often for the tensor of that name."""
        counts = [c for c in report.lines if not c.shared and any(sample.object == name for sample in c.samples)]
        return max(counts, key=lambda c: c.requests).line if counts else None

    report.plot_sectors(line_of(report, "k_pool"))

# %% [markdown]
# ## chunked.4 attention over blocks
#
# One query, the keys and values of its sequence, wherever they lie: **PagedAttention**. The usual recipe is: all
# scores, then their maximum, then the weights, then the weighted mean of the values.
#
# By hand, three tokens with the scores 1, 3, 2 and the values 10, 20, 40. The maximum is 3, the weights are
# exp(1 - 3) = 0.1353, exp(0) = 1 and exp(-1) = 0.3679, together 1.5032. The mean is (0.1353 × 10 + 1 × 20 + 0.3679 ×
# 40) / 1.5032 = 36.07 / 1.5032 = 23.99. (The maximum is taken off because exp(100) is too large for a float; it cancels
# out.)
#
# That needs all scores at once. For 128K tokens they do not fit into the fast memory of a GPU. The trick of
# FlashAttention is the **online softmax**: keep only the largest score so far (`high`), the sum of weights (`total`)
# and the weighted sum of values (`sum`). When a larger score turns up, what was summed up belongs to the old maximum;
# multiply it by exp(old - new):

# %% demo=true
if __name__ == "__main__":
    from math import exp, inf

    high, total, weighted = -inf, 0.0, 0.0
    print("score   value      high   rescale    weight     total       sum   sum / total")
    for score, value in ((1.0, 10.0), (3.0, 20.0), (2.0, 40.0)):
        higher = max(high, score)
        rescale, weight = exp(high - higher), exp(score - higher)
        total, weighted, high = total * rescale + weight, weighted * rescale + weight * value, higher
        row = f"{rescale:>9.4f} {weight:>9.4f} {total:>9.4f} {weighted:>9.4f}"
        print(f"{score:>5} {value:>7} {high:>9} {row} {weighted / total:>13.4f}")
    exact = (torch.softmax(torch.tensor([1.0, 3.0, 2.0]), 0) * torch.tensor([10.0, 20.0, 40.0])).sum()
    print(f"softmax over all three at once: {exact:.4f}")

# %% [markdown]
# The first maximum must be -INFINITY. With 0, a sequence whose scores all lie at -150 would get weights exp(-150),
# which are 0 in a float, and 0 / 0 in the end.
#
# **Which keys?** Token t of a sequence lies in slot `table[t / block_size] * block_size + t % block_size`, as in
# `chunk_slots`. Its key for one KV head begins at (slot × kv_heads + kv_head) × D. Slots behind the last token hold
# garbage, and the block table holds -1 behind its end: neither may be read.
#
# **Which head?** With GQA neighbouring query heads share a KV head: query head h reads KV head h / (heads / kv_heads),
# rounded down. By hand, 6 heads on 2: heads 0, 1, 2 read KV head 0, heads 3, 4, 5 read 1. (`h % kv_heads` would give 0,
# 1, 0, 1, 0, 1, a common mistake.)
#
# **Who does what?** A block of 128 threads has one query head of one sequence: 4 warps. Let each warp take other tokens
# (warp w, for example, the tokens w, w + 4, w + 8, …) and keep its own `high`, `total` and `sum`. At the end the four
# are merged as above: the largest `high` of all, each part multiplied by exp(its high - the largest).
#
# By hand, two warps: one had the scores 1 and 3 (high 3, total 1.1353, sum 21.353), the other the score 2 (high 2,
# total 1, sum 40). Largest: 3. Total: 1.1353 + 0.3679 × 1 = 1.5032. Sum: 21.353 + 0.3679 × 40 = 36.07. As before.
#
# A warp that had no token at all has `high` = -INFINITY. exp(-INFINITY - 3) is 0, so it counts nothing: good. But
# -INFINITY - -INFINITY is NaN: never compute that.

# %% [markdown]
# **Inside a warp.** The 32 lanes read one key together: lane l the numbers l, l + 32, l + 64, … of its D. These are
# neighbours, so each sector is used whole. Each lane multiplies its numbers with those of the query, and the 32 partial
# sums must be added up. `warp_sum` does that; it stands above the kernel. `__shfl_xor_sync(mask, value, offset)` hands
# a lane the `value` of another one, the lane whose number differs in the bit `offset`; all lanes named in `mask` must
# take part. After 5 exchanges (16, 8, 4, 2, 1) every lane has the sum of all 32.
#
# **Between warps.** Only memory marked `__shared__` is seen by the whole block. One warp writes, another reads, and
# between the two stands a **barrier**, `__syncthreads()`, where all threads of the block wait until everybody is there.
#
# **Your task.** Write `paged_decode`. Rules:
#
# - Grid (heads, sequences), blocks of 128 threads. `query`, `out`: [sequences, heads, D]. Pools: [blocks, block_size,
#   kv_heads, D]. `block_tables`: [sequences, max_blocks]. `context_lens`: tokens of each sequence, 1 at least.
# - A score is query · key × `scale`; take `scale` as it is given.
# - D is 32, 64, 80, 96 or 128 (80 is no multiple of 32), `block_size` any number from 1 on, kv_heads any divisor of
#   heads. Sequences may share blocks.
# - `T` is `float` or `__half`. Products, sums and weights are kept in `float`; write `(T)` only at the end.
# - Scores may lie far below zero or far above it, rise or fall. A context may be as long as it likes: do not keep all
#   scores (shared memory has 48 KB).
# - Places in the pools may be beyond 32 bits.
# - The result does not depend on the order in which threads run.
# - Each key and value is read once for each head, as whole sectors, with at most a quarter more than that; no bank
#   conflicts in shared memory (next task; a quarter more again). The four warps share the tokens and meet at the end,
#   not at each token: at most one barrier for 16 tokens, and 4 more.

# %% solution="chunked.4" cuda="paged_decode.cu" template="float, 64"
paged_decode = Kernel(
    Path(__file__).with_name("paged_decode.cu").read_text(encoding="utf-8"), "paged_decode", "float, 64", first_line=2
)

# %% check="chunked.4"
if __name__ == "__main__":
    check("chunked.4")

# %% [markdown]
# ### Try it
#
# `paged` makes what an engine leaves in a pool: sequences in shuffled blocks, and NaN in every unused slot, so that a
# number too many shows at once.

# %% demo=true
if __name__ == "__main__":

    def paged(contexts, kv_heads, head_dim, block_size=16, seed=0):
        """Random keys and values of some sequences: pools, block tables, and dense [context, kv_heads, head_dim]."""
        generator = torch.Generator().manual_seed(seed)
        needs = [-(-context // block_size) for context in contexts]
        order = torch.randperm(sum(needs) + 2, generator=generator).tolist()
        tables = torch.full((len(contexts), max(needs)), -1, dtype=torch.int32)
        pools = [torch.full((len(order), block_size, kv_heads, head_dim), torch.nan) for _ in range(2)]
        dense = []
        for s, (context, need) in enumerate(zip(contexts, needs, strict=True)):
            table, order = order[:need], order[need:]
            tables[s, :need] = torch.tensor(table)
            slots = chunk_slots(table, range(context), block_size)
            dense.append([torch.randn(context, kv_heads, head_dim, generator=generator) for _ in range(2)])
            for pool, values in zip(pools, dense[-1], strict=True):
                pool.flatten(0, 1)[slots] = values
        return *pools, tables, dense

    def plain(query, keys, values, scale):
        """Attention of one query [heads, D] over keys and values [context, kv_heads, D]."""
        group = query.shape[0] // keys.shape[1]
        keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
        return torch.einsum("ht,thd->hd", torch.einsum("hd,thd->ht", query * scale, keys).softmax(1), values)

    HEADS, KV_HEADS, D, BLOCK = 4, 2, 64, 16
    contexts = [100, 33, 1]
    k_pool, v_pool, tables, dense = paged(contexts, KV_HEADS, D)
    query, lens = torch.randn(len(contexts), HEADS, D), torch.tensor(contexts, dtype=torch.int32)

    def decode_report(kernel):
        """Check a kernel with the parameters of paged_decode: its report, and what it wrote."""
        out = torch.full((len(contexts), HEADS, D), torch.nan)
        sizes = (HEADS, KV_HEADS, BLOCK, tables.shape[1], D**-0.5)
        report = kernel.check(
            (HEADS, len(contexts)), 128, out, query, k_pool, v_pool, tables, lens, *sizes, empty=["out"]
        )
        return report, out

    mine, out = decode_report(paged_decode)
    exact = torch.stack([plain(q, *kv, D**-0.5) for q, kv in zip(query, dense, strict=True)])
    print(mine)
    print(f"largest difference to plain attention: {(out - exact).abs().max():.1e}")

# %% [markdown]
# ### The ladder: from correct to coalesced
#
# The first version that comes to mind gives each **thread** a token: thread t computes the score of token t. It is
# correct (for contexts up to 1,024). But the 32 lanes of a warp then read 32 different keys, a whole key apart: 32
# sectors for each number.

# %% demo=true
if __name__ == "__main__":
    BY_TOKEN = """
    template <typename T, int D>
    __global__ void decode_by_token(T* out, const T* query, const T* k_pool, const T* v_pool, const int* block_tables,
                                    const int* context_lens, int heads, int kv_heads, int block_size, int max_blocks,
                                    float scale) {
      __shared__ float scores[1024];
      const int head = blockIdx.x, sequence = blockIdx.y, kv_head = head / (heads / kv_heads);
      const int context = context_lens[sequence];
      const int* table = block_tables + sequence * max_blocks;
      for (int t = threadIdx.x; t < context; t += blockDim.x) {
        const long long slot = (long long)table[t / block_size] * block_size + t % block_size;
        float score = 0.0f;
        for (int d = 0; d < D; d++) {
          const float q = query[(sequence * heads + head) * D + d];
          score += q * (float)k_pool[(slot * kv_heads + kv_head) * D + d];
        }
        scores[t] = score * scale;
      }
      __syncthreads();
      float high = -INFINITY, total = 0.0f;
      for (int t = 0; t < context; t++) high = fmaxf(high, scores[t]);
      for (int t = 0; t < context; t++) total += __expf(scores[t] - high);
      for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float sum = 0.0f;
        for (int t = 0; t < context; t++) {
          const long long slot = (long long)table[t / block_size] * block_size + t % block_size;
          sum += __expf(scores[t] - high) * (float)v_pool[(slot * kv_heads + kv_head) * D + d];
        }
        out[(sequence * heads + head) * D + d] = (T)(sum / total);
      }
    }
    """
    by_token, out = decode_report(Kernel(BY_TOKEN, "decode_by_token", "float, 64"))

    print(f"largest difference to plain attention: {(out - exact).abs().max():.1e}")
    moved = {"a thread a token": by_token.counters.sectors, "yours": mine.counters.sectors}
    fewer = moved["a thread a token"] / moved["yours"]
    plots.sectors_moved(moved, f"The same answer with {fewer:.1f} times fewer sectors")

# %% [markdown]
# The line that reads keys, in the first version and in yours:

# %% demo=true
if __name__ == "__main__":
    line = line_of(by_token, "k_pool")
    print(f"line {line}: {by_token.line_text(line)}")
    by_token.plot_sectors(line)

# %% demo=true
if __name__ == "__main__":
    line = line_of(mine, "k_pool")
    print(f"line {line}: {mine.line_text(line)}")
    mine.plot_sectors(line)

# %% [markdown]
# A GPU has caches, so that it does not pay for each of these sectors in full. But a decode step reads gigabytes of keys
# and values, each once, and what is requested in pieces of 4 bytes wastes most of the way between memory and threads.
#
# ## chunked.5 a chunk of queries
#
# A chunk has many queries over the same keys. `paged_decode`, called for each of them, would read all keys again and
# again. By hand, 8 queries and 32 keys of 64 numbers: 8 × 32 × 64 = 16,384 numbers of keys, and as many of values. If
# the block reads the 32 keys once into shared memory, where all 8 queries find them: 32 × 64 = 2,048. That is 8 times
# fewer. Such a piece of the keys is a **tile**.
#
# The kernel goes through the tiles one by one, and the online softmax carries `high`, `total` and `sum` from tile to
# tile. No table of all scores exists anywhere. That is FlashAttention: exact, with memory that does not grow with the
# length.
#
# ### Who sees whom
#
# Query i of the chunk stands at position `cached` + i and sees the keys 0 to `cached` + i. By hand, 2 queries behind 2
# cached keys:
#
# | | key 0 | key 1 | key 2 | key 3 |
# |---|---|---|---|---|
# | query 0 (position 2) | sees | sees | sees | |
# | query 1 (position 3) | sees | sees | sees | sees |
#
# The edge ends in the **lower right** corner. A mask that starts in the upper left one (query 0 sees key 0, query 1
# sees 0 and 1) is right only if nothing is cached. PyTorch's `is_causal=True` is of that kind, so it is wrong for each
# chunk but the first; the tiles below are for 20 queries behind 50 cached keys.

# %% demo=true
if __name__ == "__main__":
    plots.causal_tiles(count=20, cached=50)

# %% [markdown]
# ### Shared memory: banks
#
# Shared memory is divided into 32 **banks**; the float with number n lies in bank n % 32. A bank gives one float at a
# time. When the lanes of a warp ask for floats in 32 different banks, one **wave** serves them all. When all 32 ask for
# different floats of one bank, it takes 32 waves: a **bank conflict**.
#
# By hand, a tile of 32 keys of 64 floats, `tile[32][64]`, where lane l reads number d of key l: its place is 64 ×
# l + d, and (64 × l + d) % 32 = d % 32 for every l. All lanes meet in one bank. With rows of 65, one float of
# **padding**: (65 × l + d) % 32 = (l + d) % 32, all different.

# %% demo=true
if __name__ == "__main__":
    COLUMNS = """
    template <int PITCH>
    __global__ void key_sums(float* out, const float* keys) {
      __shared__ float tile[32][PITCH];
      for (int row = 0; row < 32; row++) {
        for (int d = threadIdx.x; d < 64; d += 32) tile[row][d] = keys[row * 64 + d];
      }
      __syncthreads();
      float sum = 0.0f;
      for (int d = 0; d < 64; d++) {
        sum += tile[threadIdx.x][d];
      }
      out[threadIdx.x] = sum;
    }
    """
    reports = {
        pitch: Kernel(COLUMNS, "key_sums", str(pitch)).check(1, 32, torch.empty(32), torch.ones(32, 64))
        for pitch in (64, 65)
    }
    for pitch, report in reports.items():
        print(f"rows of {pitch}: {report.counters.waves:,} waves for {report.counters.shared_requests} requests")
    tile_line = next(c.line for c in reports[64].lines if c.shared and c.kind == "load")
    reports[64].plot_banks(tile_line)

# %% demo=true
if __name__ == "__main__":
    reports[65].plot_banks(tile_line)

# %% [markdown]
# ### Barriers: which, and why
#
# A tile is loaded by all warps together, and each of them reads what others wrote. Two barriers for each tile:
#
# 1. **After loading**: nobody reads a key that is not there yet.
# 2. **Before the next loading**: nobody overwrites a key that a slower warp still reads.
#
# Within a warp, lanes that exchange numbers through shared memory need `__syncwarp()` between writing and reading.
#
# All threads of the block must reach each `__syncthreads()`. A warp without a query (the last block of a chunk may have
# fewer than 8) must not return early: it helps loading, meets every barrier, and writes nothing.
#
# This is what a missing barrier looks like. The kernel turns 128 numbers round, and may print the right answer a
# thousand times before it does not.

# %% demo=true
if __name__ == "__main__":
    REVERSE = """
    extern "C" __global__ void reverse(float* out, const float* in) {
      __shared__ float tile[128];
      tile[threadIdx.x] = in[threadIdx.x];
      out[threadIdx.x] = tile[127 - threadIdx.x];
    }
    """
    report = Kernel(REVERSE, "reverse").check(1, 128, torch.empty(128), torch.arange(128.0))
    print(report.faults[0], "\n      on a GPU:", report.faults[0].on_gpu)
    report.plot_race()

# %% [markdown]
# **Your task.** Write `chunked_prefill`. Rules:
#
# - One sequence. Grid (heads, ceil(count / 8)), blocks of (32, 8) threads: `threadIdx.x` is the lane, warp
#   `threadIdx.y` has query `blockIdx.y * 8 + threadIdx.y`.
# - `query`, `out`: [count, heads, D]; pools as before; `block_table`: the blocks of the sequence, in order. The keys
#   and values of the chunk are in the pool already (`write_kv` ran before).
# - Query i sees the keys 0 to `cached` + i. Slots behind the chunk hold garbage: nothing is read there, whatever the
#   prompt will need later. `cached` may be 0, and need not be a multiple of the block size or of the tile.
# - Any `count` from 1 on. D, `block_size`, heads, `T`, `scale`, far scores, places beyond 32 bits and the order of
#   threads: as in `paged_decode`. In half precision sums are kept in `float`.
# - Cutting a prompt into chunks of any size gives the same answers.
# - Sectors are used whole; each key and value is loaded from global memory once for the 8 queries of a block; no bank
#   conflicts. A quarter more is accepted each time.
# - Shared memory is declared in the kernel (`__shared__`), at most 48 KB.
#
# One way to begin: tiles of 32 keys, so that lane l of each warp computes the score of key l of the tile, and the warp
# exchanges maximum and sum as in `warp_sum` (copy it from your last kernel; with `fmaxf` it finds a maximum).

# %% solution="chunked.5" cuda="chunked_prefill.cu" template="float, 64"
chunked_prefill = Kernel(
    Path(__file__).with_name("chunked_prefill.cu").read_text(encoding="utf-8"),
    "chunked_prefill",
    "float, 64",
    first_line=2,
)

# %% check="chunked.5"
if __name__ == "__main__":
    check("chunked.5")

# %% [markdown]
# ### The ladder: from one query to a tile
#
# 32 queries behind 40 cached keys, with both of your kernels. `paged_decode` can do it too: a chunk is like 32
# sequences with one block table, each a token longer than the one before.

# %% demo=true
if __name__ == "__main__":
    count, cached = 32, 40
    k_pool, v_pool, tables, dense = paged([cached + count], KV_HEADS, D, seed=1)
    query = torch.randn(count, HEADS, D)
    one_by_one, tiled = torch.empty_like(query), torch.empty_like(query)
    lens = torch.arange(cached + 1, cached + count + 1, dtype=torch.int32)
    rows = tables.expand(count, -1).contiguous()
    sizes = (HEADS, KV_HEADS, BLOCK, rows.shape[1], D**-0.5)
    decode = paged_decode.check((HEADS, count), 128, one_by_one, query, k_pool, v_pool, rows, lens, *sizes)
    sizes = (count, cached, HEADS, KV_HEADS, BLOCK, D**-0.5)
    prefill = chunked_prefill.check((HEADS, -(-count // 8)), (32, 8), tiled, query, k_pool, v_pool, tables[0], *sizes)
    print(f"largest difference between the two: {(one_by_one - tiled).abs().max():.1e}")
    shared = prefill.counters
    print(f"shared memory: {shared.shared_requests:,} requests, {shared.bank_conflicts:,} waves for bank conflicts")
    moved = {"paged_decode, query by query": decode.counters.sectors, "chunked_prefill": prefill.counters.sectors}
    fewer = decode.counters.sectors / prefill.counters.sectors
    plots.sectors_moved(moved, f"Tiles move {fewer:.1f} times fewer sectors than single queries")

# %% [markdown]
# With 8 queries a tile it can be 8 times fewer at most. Real kernels have tiles of 64 or 128 queries, and let **tensor
# cores** multiply whole tiles; a T4 has them too. The plan is the same: load a tile, use it for many queries, carry the
# softmax along.

# %% [markdown]
# ### Plug it in: your kernels serve a model
#
# The engine's socket for attention has two methods: `write` puts new keys and values into the pool, `attend` computes
# attention for all tokens of a step. `KernelAttention` below calls your kernels: `write_kv`, then one `paged_decode`
# for all sequences with one new token, and a `chunked_prefill` for each chunk.

# %%
QUERIES_A_BLOCK, THREADS = 8, 128  # as the kernels are launched


class KernelAttention:
    """The engine's `attention` socket, made of your kernels; `dtype` is "float" or "__half", as the pool."""

    def __init__(self, head_dim: int, dtype: str = "float") -> None:
        self.write_kv = Kernel(write_kv.source, "write_kv", dtype)
        self.paged_decode = Kernel(paged_decode.source, "paged_decode", f"{dtype}, {head_dim}")
        self.chunked_prefill = Kernel(chunked_prefill.source, "chunked_prefill", f"{dtype}, {head_dim}")

    def write(self, key: Tensor, value: Tensor, k_pool: Tensor, v_pool: Tensor, slot_mapping: Tensor) -> None:
        """New keys and values of a step, [T, kv_heads, head_dim], into the pool."""
        self.write_kv.launch(len(key), THREADS, k_pool, v_pool, key, value, slot_mapping, key[0].numel())

    def attend(self, query: Tensor, k_pool: Tensor, v_pool: Tensor, layout: Any, scaling: float) -> Tensor:
        """query [T, heads, head_dim]: sequences with one new token go through one decode, each chunk by itself."""
        out, (_, block_size, kv_heads, _) = torch.empty_like(query), k_pool.shape
        heads, tables = query.shape[1], layout.block_tables
        starts = [0, *itertools.accumulate(layout.counts)]
        decodes = [s for s, count in enumerate(layout.counts) if count == 1]
        if decodes:
            rows, which = [starts[s] for s in decodes], torch.tensor(decodes, device=tables.device)
            mine = query[rows]  # a copy: [decodes, heads, head_dim]
            given = (mine, k_pool, v_pool, tables[which], layout.context_lens[which])
            sizes = (heads, kv_heads, block_size, tables.shape[1], scaling)
            answer = torch.empty_like(mine)
            self.paged_decode.launch((heads, len(decodes)), THREADS, answer, *given, *sizes)
            out[rows] = answer
        for s, (count, context) in enumerate(zip(layout.counts, layout.contexts, strict=True)):
            if count > 1:
                rows = slice(starts[s], starts[s] + count)
                grid = (heads, -(-count // QUERIES_A_BLOCK))
                sizes = (count, context - count, heads, kv_heads, block_size, scaling)
                given = (out[rows], query[rows], k_pool, v_pool, tables[s])
                self.chunked_prefill.launch(grid, (32, QUERIES_A_BLOCK), *given, *sizes)
        return out


# %% [markdown]
# First a tiny model: random weights, 4 layers, 8 heads on 2 KV heads of 32. Its tokens must be the same from the
# library's own `generate()`, from the engine with its plain attention, and from the engine with yours.

# %% demo=true
if __name__ == "__main__":
    tiny = load_model("random").model

    def tokens_of_engine(prompts, new, **options):
        engine = Engine(tiny, num_blocks=32, block_size=16, budget=24, scheduler=schedule_step, **options)
        numbers = [engine.add_request(prompt, max_new_tokens=new, eos=()) for prompt in prompts]
        answers = engine.run()
        return [answers[number] for number in numbers]

    def generated(prompt, new):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        return tiny.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()

    prompts = [[5 + 7 * i % 200 for i in range(37)], [9], [30 + i % 50 for i in range(18)]]
    library = [generated(prompt, 6) for prompt in prompts]
    gathered = tokens_of_engine(prompts, 6)
    by_kernels = tokens_of_engine(prompts, 6, attention=KernelAttention(tiny.config.head_dim))
    for prompt, tokens in zip(prompts, by_kernels, strict=True):
        print(f"prompt of {len(prompt):>2} tokens: {tokens}")
    print("your kernels, plain attention and generate() agree:", by_kernels == gathered == library)

# %% [markdown]
# Short texts are possible with the real model too, even on a CPU that plays GPU: 30 layers, 9 heads on 3 KV heads of
# 64, a budget of 7 tokens so that the prompts come in chunks. It takes some seconds.

# %% demo=true
if __name__ == "__main__":
    texts = ["The capital of France is", "Once upon a time there was a small dog who lived in a big house and"]
    prompts = [real.tokenizer.encode(text) for text in texts]
    outputs = {}
    for name, attention in (("plain", None), ("kernels", KernelAttention(real.config.head_dim))):
        engine = Engine(
            real.model, num_blocks=32, block_size=16, budget=7, scheduler=schedule_step, attention=attention
        )
        numbers = [engine.add_request(prompt, max_new_tokens=8, eos=()) for prompt in prompts]
        answers = engine.run()
        outputs[name] = [answers[number] for number in numbers]
    for text, tokens in zip(texts, outputs["kernels"], strict=True):
        print(f"{text} ... {real.tokenizer.decode(tokens)!r}")
    print("the same tokens with plain attention:", outputs["kernels"] == outputs["plain"])

# %% [markdown]
# ### On a GPU
#
# With a GPU the next two cells run your kernels on it: the real model in half precision, and two measurements. They are
# shown and never graded. In half precision two attentions may round a close decision between two tokens differently, so
# the texts need not agree to the end.
#
# - **Decode** does little but read. The yardstick is the speed at which the GPU copies memory: a kernel that reads each
#   key and value once comes close to it at best.
# - **Prefill** computes. The yardstick is PyTorch's own attention (SDPA), which uses tensor cores, as your kernel does
#   not: expect it to be several times faster.

# %% demo=true
if __name__ == "__main__":
    if torch.cuda.is_available():
        on_gpu = load_model(real.name, device="cuda", dtype="float16")
        prompts = [words(700, 1), words(40, 2), words(300, 3)]
        for name, attention in (
            ("plain attention", None),
            ("your kernels", KernelAttention(on_gpu.config.head_dim, "__half")),
        ):
            for _ in range(2):  # the first time compiles and warms up
                engine = Engine(
                    on_gpu.model,
                    num_blocks=256,
                    block_size=16,
                    budget=256,
                    scheduler=schedule_step,
                    attention=attention,
                )
                numbers = [engine.add_request(prompt, max_new_tokens=24, eos=()) for prompt in prompts]
                answers = engine.run()
            requests = [engine.request(number).metrics for number in numbers]
            tbt = percentile([wait for metrics in requests for wait in metrics.tbt], 0.5)
            print(f"{name:16} TTFT {max(m.ttft for m in requests):.3f} s at most, TBT {1000 * tbt:.1f} ms (median)")
            print(f"{'':16} first tokens of each answer: {[answers[number][:6] for number in numbers]}")
    else:
        print("No GPU here: this cell would serve the real model in half precision with your kernels and time it.")

# %% demo=true
if __name__ == "__main__":

    def seconds(run, repeats=10):
        """Median time of a run on the GPU."""
        times = []
        for _ in range(repeats + 2):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        return percentile(times[2:], 0.5)

    def time_kernels(sequences=32, context=4096, count=2048, heads=32, kv_heads=8, head_dim=128, block_size=16):
        """paged_decode against copying memory and SDPA, then chunked_prefill against SDPA, all in half precision."""
        from torch.nn.attention.bias import causal_lower_right

        half = {"device": "cuda", "dtype": torch.float16}
        blocks, scale = sequences * context // block_size, head_dim**-0.5
        k_pool, v_pool = (torch.randn(blocks, block_size, kv_heads, head_dim, **half) for _ in range(2))
        tables = torch.randperm(blocks, device="cuda").int().view(sequences, -1)
        lens = torch.full((sequences,), context, dtype=torch.int32, device="cuda")
        query, out = torch.randn(sequences, heads, head_dim, **half), torch.empty(sequences, heads, head_dim, **half)
        kernel = Kernel(paged_decode.source, "paged_decode", f"__half, {head_dim}")
        sizes = (heads, kv_heads, block_size, tables.shape[1], scale)
        arguments = (out, query, k_pool, v_pool, tables, lens, *sizes)
        decode = seconds(lambda: kernel.launch((heads, sequences), 128, *arguments))

        into = torch.empty_like(k_pool)
        copied = seconds(lambda: into.copy_(k_pool))  # reads and writes: twice its size
        del into
        speed, needed = 2 * k_pool.nbytes / copied, k_pool.nbytes + v_pool.nbytes
        keys, values = (  # put together once, before the clock starts
            pool[tables.flatten().long()].view(sequences, context, kv_heads, head_dim).transpose(1, 2).contiguous()
            for pool in (k_pool, v_pool)
        )
        sdpa = torch.nn.functional.scaled_dot_product_attention
        grouped = query.view(sequences, kv_heads, -1, head_dim)
        dense = seconds(lambda: sdpa(grouped, keys, values))
        print(f"copy: {speed / 1e9:,.0f} GB/s. Decode, {sequences} sequences of {context:,} tokens:")
        print(f"   yours {1000 * decode:.3f} ms, {100 * needed / decode / speed:.0f} % of the copy; ", end="")
        print(f"SDPA without blocks {1000 * dense:.3f} ms, {100 * needed / dense / speed:.0f} %")

        del keys, values, grouped
        cached = context - count
        query, out = torch.randn(count, heads, head_dim, **half), torch.empty(count, heads, head_dim, **half)
        kernel = Kernel(chunked_prefill.source, "chunked_prefill", f"__half, {head_dim}")
        arguments = (out, query, k_pool, v_pool, tables[0], count, cached, heads, kv_heads, block_size, scale)
        tiles = seconds(lambda: kernel.launch((heads, -(-count // 8)), (32, 8), *arguments))
        keys, values = (
            pool[tables[0].long()]
            .view(context, kv_heads, head_dim)
            .transpose(0, 1)
            .repeat_interleave(heads // kv_heads, 0)
            for pool in (k_pool, v_pool)
        )
        across, mask = query.transpose(0, 1)[None], causal_lower_right(count, context)
        dense = seconds(lambda: sdpa(across, keys[None], values[None], attn_mask=mask))
        print(f"Prefill, {count:,} queries behind {cached:,} cached keys: ", end="")
        print(f"yours {1000 * tiles:.2f} ms, SDPA {1000 * dense:.2f} ms, a ratio of {tiles / dense:.1f}")

    if torch.cuda.is_available():
        print(torch.cuda.get_device_name())
        time_kernels()
    else:
        print("No GPU here: this cell would time your kernels against copying memory and PyTorch's own attention.")

# %% [markdown]
# ## chunked.6 eight bits, and one long sequence (harder, may be skipped)
#
# Two more steps, both for long contexts.
#
# ### A byte for a number
#
# Decode reads the cache at each step, so half the bytes are close to half the time for attention, and twice the tokens
# fit. Lesson 1 (sizing.6) has shown which numbers may share a scale: **keys per channel, values per token**. Here codes
# are whole numbers from -127 to 127 with a scale and no zero: x ≈ code × scale, scale = largest |x| / 127.
#
# By hand, the value (0.5, -1.0, 0.25): scale 1 / 127 = 0.00787, codes 64, -127, 32, back come 0.504, -1.0, 0.252.
#
# The kernel never writes the full numbers down. It reads codes and multiplies on the way. And a little algebra saves
# most of the multiplications: the key of token t is code[d] × k_scale[d], so query · key = Σ query[d] × code[d] ×
# k_scale[d]. The scales do not depend on t. Multiply them into the query once, before the loop.
#
# ### Split over the sequence
#
# `paged_decode` uses one block of threads for each head and sequence. One sequence with 8 heads: 8 blocks. A T4 has 40
# **multiprocessors** (the units that run blocks), an A100 108, an H100 132. So with one long context at 128K tokens
# most of the GPU is idle. The way out: cut the sequence into parts, a block for each (FlashDecoding's idea).

# %% demo=true
if __name__ == "__main__":
    splits = (1, 2, 4, 8, 16, 32, 64)
    grids = [8 * n for n in splits]  # 8 heads of one sequence
    plots.blocks_for_processors(splits, grids, {"a T4": 40, "an A100": 108, "an H100": 132})

# %% [markdown]
# Parts are merged by the same rule as warps. Each split hands over its mean (`partial`) and one number, the **lse**,
# the logarithm of the sum of exp(score) over its tokens. By hand, the example of chunked.4 in two splits:
#
# - split 0, scores 1 and 3, values 10 and 20: lse = 3 + log(1.1353) = 3.1269, partial = 21.353 / 1.1353 = 18.808;
# - split 1, score 2, value 40: lse = 2 + log(1) = 2, partial = 40.
#
# Weights: exp(lse - largest lse), so 1 and exp(2 - 3.1269) = 0.3240. Merged: (18.808 + 0.3240 × 40) / 1.3240 = 23.99.
#
# **Your task.** Write `paged_decode_int8` and `merge_splits`. Rules for the first:
#
# - Grid (heads, sequences, splits), blocks of 128 threads. Split z covers the tokens z × split_tokens to min((z + 1) ×
#   split_tokens, context) - 1. It reads only those.
# - Pools: `signed char`, [blocks, block_size, kv_heads, D]. A key is k_pool × `k_scale[kv_head * D + d]`, a value is
#   v_pool × `v_scale[slot * kv_heads + kv_head]`. The scales of unused slots are garbage.
# - `partial`: [sequences, heads, splits, D], the mean of the values of the split, weighted by its own softmax. `lse`:
#   [sequences, heads, splits]. Both are `float`, also where `T`, the type of the query, is `__half`.
# - A split without tokens writes zeros, and -INFINITY as lse.
# - All else as in `paged_decode`, except that nobody counts barriers. The pool is read as bytes: at most 0.4 of the
#   sectors that floats would take, the scales of the keys once for each warp.
#
# And for `merge_splits`:
#
# - Grid (heads, sequences), blocks of 128 threads. out = Σ weight × partial / Σ weight, weight = exp(lse - largest
#   lse).
# - Any number of splits from 1 on. Splits with lse = -INFINITY weigh nothing; at least one has tokens. Every lse may
#   lie far below zero or far above it.

# %% solution="chunked.6" part="a" cuda="paged_decode_int8.cu" template="float, 64"
paged_decode_int8 = Kernel(
    Path(__file__).with_name("paged_decode_int8.cu").read_text(encoding="utf-8"),
    "paged_decode_int8",
    "float, 64",
    first_line=2,
)

# %% solution="chunked.6" part="b" cuda="merge_splits.cu" template="float, 64"
merge_splits = Kernel(
    Path(__file__).with_name("merge_splits.cu").read_text(encoding="utf-8"), "merge_splits", "float, 64", first_line=2
)

# %% check="chunked.6"
if __name__ == "__main__":
    check("chunked.6")

# %% [markdown]
# ### Try it on real keys and values
#
# Layer 20 of SmolLM2 after 512 tokens, the data of sizing.6: three KV heads of 64.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.data import real_kv

    heads = [real_kv(20, head) for head in range(3)]
    keys, values = (torch.stack([getattr(kv, name) for kv in heads], 1) for name in ("keys", "values"))
    query = torch.stack([kv.queries[-1] for kv in heads])[None]  # [1 sequence, 3 heads, 64]
    tokens, kv_heads, head_dim = keys.shape
    table = torch.randperm(tokens // 16, generator=torch.Generator().manual_seed(2)).tolist()
    slots = torch.tensor(chunk_slots(table, range(tokens), 16))

    k_scale = keys.abs().amax(0) / 127  # per channel: one for all tokens
    v_scale = torch.empty(tokens, kv_heads)
    v_scale[slots] = values.abs().amax(2) / 127  # per token
    k_pool, v_pool = (torch.empty(tokens // 16, 16, kv_heads, head_dim, dtype=torch.int8) for _ in range(2))
    k_pool.flatten(0, 1)[slots] = (keys / k_scale).round().to(torch.int8)
    v_pool.flatten(0, 1)[slots] = (values / v_scale[slots][:, :, None]).round().to(torch.int8)

    exact = plain(query[0], keys, values, head_dim**-0.5)
    tables, lens = torch.tensor([table], dtype=torch.int32), torch.tensor([tokens], dtype=torch.int32)
    print(f"bytes of keys and values: {2 * keys.numel() * 2:,} in 16 bits, ", end="")
    print(f"{2 * keys.numel() + 4 * (k_scale.numel() + v_scale.numel()):,} in 8 bits with their scales (32 bits each)")
    for splits in (1, 2, 4, 7):
        part = -(-tokens // splits)
        partial, lse = torch.empty(1, kv_heads, splits, head_dim), torch.empty(1, kv_heads, splits)
        out = torch.empty(1, kv_heads, head_dim)
        sizes = (kv_heads, kv_heads, 16, tables.shape[1], part, head_dim**-0.5)
        given = (query, k_pool, v_pool, k_scale, v_scale, tables, lens)
        paged_decode_int8.launch((kv_heads, 1, splits), 128, partial, lse, *given, *sizes)
        merge_splits.launch((kv_heads, 1), 128, out, partial, lse, splits)
        error = (out[0] - exact).norm() / exact.norm()
        parts = ", ".join(f"{number:.2f}" for number in lse[0, 0].tolist())
        print(
            f"parts: {splits} of at most {part} tokens; error of the output {100 * error:.2f} %; lse of head 0: {parts}"
        )

# %% [markdown]
# The error is that of 8 bits, and it is the same for every number of parts: splitting is exact, only the bits are not.
# A large lse marks a part that gets much of the attention: here the first one, which holds the attention sink of
# sizing.6, and the last one, the tokens just before the query.
#
# Means and lse of parts are also what several GPUs exchange when they share one long context (lesson 6).

# %% [markdown]
# ## How real systems do it
#
# As of late 2026; settings and defaults move, so check the linked pages.
#
# - **Sarathi-Serve** introduced what you built in chunked.2: chunks beside decodes under one budget, so that no decode
#   stalls. Under limits on the tail of TBT it reports 2.6 times the load that vLLM of early 2024 could serve with
#   Mistral-7B on one A100, and 3.7 times with Yi-34B on two. Source: [paper](https://arxiv.org/abs/2403.02310).
# - **vLLM**. One budget for each step, `max_num_batched_tokens`; running requests first, then waiting ones;
#   `long_prefill_token_threshold` is your `longest`. Decodes and prompts are one kind of request that has tokens to
#   compute, as in `Work`. Source: [settings](https://docs.vllm.ai/en/stable/api/vllm/config/scheduler/).
# - **SGLang**. `chunked_prefill_size` limits what a step computes of a prompt. Source:
#   [settings](https://docs.sglang.io/advanced_features/hyperparameter_tuning.html).
# - **TensorRT-LLM**. `enable_chunked_prefill`, with `max_num_tokens` as the budget of a step. Source:
#   [tuning](https://nvidia.github.io/TensorRT-LLM/performance/performance-tuning-guide/tuning-max-batch-size-and-max-num-tokens.html).
# - **Another answer: separate machines.** DistServe and others let some GPUs do prefill only and others decode only,
#   and send the cache between them (**disaggregation**). Nobody waits for anybody's prompt, at the price of moving
#   caches and of splitting the machines well. Source: [paper](https://arxiv.org/abs/2401.09670).
# - **Kernels**. FlashAttention: tiles and online softmax, on tensor cores. FlashInfer: attention over blocks, with
#   split sequences, for serving engines; vLLM and SGLang can use both. Causal masks there are aligned to the lower
#   right corner. Sources: [FlashAttention-2](https://arxiv.org/abs/2307.08691),
#   [FlashInfer](https://arxiv.org/abs/2501.01005).
# - **Split sequences**: [Flash-Decoding](https://crfm.stanford.edu/2023/10/12/flashdecoding.html) reports up to 8 times
#   faster generation for very long sequences. Engines choose the number of splits by length and load.
# - **Eight bits**: engines mostly use 8-bit floats for the cache; keys per channel and values per token come from
#   [KIVI](https://arxiv.org/abs/2402.02750).
#
# What your kernels leave out: tensor cores, copies that overlap with computing, and the tuning of sizes for each GPU.
# Expect a library kernel to be several times faster at prefill. At decode memory decides; if you have a GPU, the cell
# above shows how close yours comes.

# %% [markdown]
# ## Questions
#
# `quiz("chunked")` shows them. Answer with `quiz("chunked.q1", "b")`.

# %% demo=true
if __name__ == "__main__":
    quiz("chunked")

# %% [markdown]
# ## Summary
#
# - A context is long once its cache makes trouble: with 8 users of an 8B model from 15K tokens on, with one user from
#   123K on. Attention for a new token costs an amount linear in the length, and its cache competes for the memory that
#   limits decode.
# - A prompt is computed in chunks, ceil(uncached tokens / chunk size) passes: 13 for 100,000 at 8,192, the last of
#   1,696. A chunk sees the keys up to its own end, and goes on inside a block.
# - A budget of tokens for each step bounds how long a decode waits. Decodes first, then prompts in order, and one token
#   is kept for prompts, so that nobody starves. Small budgets help TBT and harm TTFT; the answers are the same.
# - PagedAttention reads keys and values through the block table. FlashAttention keeps a maximum, a total and a sum, and
#   corrects them as it goes: exact, without a table of scores.
# - On a GPU, memory decides: neighbours in the warp read neighbours in memory, tiles are loaded once for many queries,
#   and lanes meet different banks.
# - Eight bits halve what decode reads. Splitting the sequence gives a GPU work when there are few sequences, and the
#   parts merge exactly by their lse.
# - Some models help themselves with windows, compressed or sparse attention. When one GPU is not enough after all this,
#   several share the cache.
#
# ### What you built
#
# `schedule_step` and three kernels that serve a model, with the tokens of `generate()`. They stay useful: lesson 6 puts
# them together with the prefix cache, the tiers and the router, for contexts that are longer still.
#
# ### If you are asked in an interview
#
# - **What is long context?** A cache large enough to cause problems, often past 32K, 64K or 128K tokens, depending on
#   model, hardware, engine and traffic. Benchmark it with very large inputs on purpose.
# - **What do you do about it?** FlashAttention, PagedAttention, chunked prefill; then parallelism if a single GPU is
#   not enough. Per model: sliding windows, compressed or sparse attention.
# - **What does chunked prefill cost and bring?** It bounds the gaps between the tokens of others (p99 of TBT). It costs
#   TTFT of the long prompt, and it reads weights and earlier keys once more for each chunk.
# - **Why is decode limited by memory?** Each step reads all weights and caches for one token a sequence. More sequences
#   share the weights, but each brings its own cache.
# - **How does FlashAttention avoid the quadratic table?** Tiles and an online softmax: rescale by exp(old
#   maximum - new). The work is as before, the memory is not.
# - **What goes wrong in such kernels?** A causal mask aligned to the wrong corner, the wrong KV head, garbage behind
#   the last token, a maximum that starts at 0, sums in half precision, 32-bit indices, a missing barrier.
#
# ### Further reading
#
# - Dao and others, [FlashAttention](https://arxiv.org/abs/2205.14135): tiles, and why memory traffic decides.
# - Milakov and Gimelshein, [Online normalizer calculation](https://arxiv.org/abs/1805.02867): the softmax in one pass.
# - Kwon and others, [PagedAttention](https://arxiv.org/abs/2309.06180): blocks, and a kernel that reads through a
#   table.
# - Agrawal and others, [Sarathi-Serve](https://arxiv.org/abs/2403.02310): chunks beside decodes.
# - NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/): the language.

# %% demo=true
if __name__ == "__main__":
    progress()
