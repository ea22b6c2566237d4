"""Planted mistakes of lesson 5, chunks and the scheduler; K-numbers are those of the course notes."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- chunked.1: passes


@fault("chunked.1", caught_by="test_passes_over_a_prompt", why="leaves out the rest behind the full passes")
def chunks(prompt_tokens, chunk_size, cached=0):
    passes = reference.chunks(prompt_tokens, chunk_size, cached)
    return [chunk for chunk in passes if len(chunk) == chunk_size] or passes


@fault("chunked.1", caught_by="test_passes_over_a_prompt", why="makes the last pass a full one, beyond the prompt")
def chunks(prompt_tokens, chunk_size, cached=0):
    passes = reference.chunks(prompt_tokens, chunk_size, cached)
    return [range(chunk.start, chunk.start + chunk_size) for chunk in passes]


@fault("chunked.1", caught_by="test_passes_over_a_prompt", why="makes all passes about equally long")
def chunks(prompt_tokens, chunk_size, cached=0):
    from itertools import pairwise

    number = len(reference.chunks(prompt_tokens, chunk_size, cached))
    edges = [cached + (prompt_tokens - cached) * i // number for i in range(number + 1)]
    return [range(start, stop) for start, stop in pairwise(edges)]


@fault("chunked.1", caught_by="test_passes_over_a_prompt", why="counts every pass from position 0", source="K3")
def chunks(prompt_tokens, chunk_size, cached=0):
    return [range(len(chunk)) for chunk in reference.chunks(prompt_tokens, chunk_size, cached)]


@fault("chunked.1", caught_by="test_passes_over_a_prompt", why="lets a pass begin with the last position of the other")
def chunks(prompt_tokens, chunk_size, cached=0):
    passes = reference.chunks(prompt_tokens, chunk_size, cached)
    return [range(max(cached, chunk.start - 1), chunk.stop) for chunk in passes]


@fault("chunked.1", caught_by="test_prompts_of_full_passes", why="has an empty pass behind a full last one")
def chunks(prompt_tokens, chunk_size, cached=0):
    passes = reference.chunks(prompt_tokens, chunk_size, cached)
    return [*passes, range(prompt_tokens, prompt_tokens)] if len(passes[-1]) == chunk_size else passes


@fault("chunked.1", caught_by="test_prompts_of_full_passes", why="wants a prompt of one full pass at least")
def chunks(prompt_tokens, chunk_size, cached=0):
    require(chunk_size < prompt_tokens - cached or cached, "chunk_size must be smaller than prompt_tokens")
    return reference.chunks(prompt_tokens, chunk_size, cached)


@fault("chunked.1", caught_by="test_passes_behind_the_cache", why="starts at position 0 behind the cache", source="K3")
def chunks(prompt_tokens, chunk_size, cached=0):
    require(cached < prompt_tokens, "cached leaves nothing")
    require(cached >= 0, "cached is negative")
    return reference.chunks(prompt_tokens - cached, chunk_size)


@fault("chunked.1", caught_by="test_passes_behind_the_cache", why="computes the cached tokens again", source="K6")
def chunks(prompt_tokens, chunk_size, cached=0):
    require(0 <= cached < prompt_tokens or prompt_tokens < 1, "cached leaves nothing")
    return reference.chunks(prompt_tokens, chunk_size)


@fault("chunked.1", caught_by="test_passes_behind_the_cache", why="ends passes at multiples of the chunk size only")
def chunks(prompt_tokens, chunk_size, cached=0):
    from itertools import pairwise

    reference.chunks(prompt_tokens, chunk_size, cached)
    edges = [cached, *range(cached // chunk_size * chunk_size + chunk_size, prompt_tokens, chunk_size), prompt_tokens]
    return [range(start, stop) for start, stop in pairwise(edges)]


@fault("chunked.1", caught_by="test_passes_behind_the_cache", why="counts the cached tokens in the first pass")
def chunks(prompt_tokens, chunk_size, cached=0):
    reference.chunks(prompt_tokens, chunk_size, cached)
    passes = reference.chunks(prompt_tokens, chunk_size)
    return [range(max(cached, chunk.start), chunk.stop) for chunk in passes if chunk.stop > cached]


@fault("chunked.1", caught_by="test_passes_that_cannot_be", why="leaves no token to sample from", source="S2.3")
def chunks(prompt_tokens, chunk_size, cached=0):
    return [] if cached == prompt_tokens >= 1 else reference.chunks(prompt_tokens, chunk_size, cached)


@fault("chunked.1", caught_by="test_passes_that_cannot_be", why="takes a negative cache for none")
def chunks(prompt_tokens, chunk_size, cached=0):
    return reference.chunks(prompt_tokens, chunk_size, max(0, cached))


@fault("chunked.1", caught_by="test_passes_that_cannot_be", why="has no passes over an empty prompt")
def chunks(prompt_tokens, chunk_size, cached=0):
    return reference.chunks(prompt_tokens, chunk_size, cached) if prompt_tokens else []


# --- chunked.1: slots


@fault("chunked.1", caught_by="test_slots_of_full_blocks", why="gives the places inside the blocks")
def chunk_slots(block_table, chunk, block_size):
    return [slot % block_size for slot in reference.chunk_slots(block_table, chunk, block_size)]


@fault("chunked.1", caught_by="test_slots_of_full_blocks", why="takes positions for slots, as if blocks stood in order")
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    return list(chunk)


@fault("chunked.1", caught_by="test_slots_of_full_blocks", why="takes the first blocks of the table for each chunk")
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    first = chunk.start // block_size
    return reference.chunk_slots(block_table[:1] * first + block_table, range(chunk.start, chunk.stop), block_size)


@fault("chunked.1", caught_by="test_slots_of_full_blocks", why="takes block 0 for no block and leaves it out")
def chunk_slots(block_table, chunk, block_size):
    return [slot for slot in reference.chunk_slots(block_table, chunk, block_size) if slot >= block_size]


@fault("chunked.1", caught_by="test_slots_inside_blocks", why="starts every chunk in a new block", source="K4")
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    start = -(-chunk.start // block_size) * block_size
    moved = range(start, start + len(chunk))
    longer = [*block_table, max(block_table) + 1]
    return reference.chunk_slots(longer, moved, block_size)


@fault(
    "chunked.1", caught_by="test_slots_inside_blocks", why="starts every chunk at the front of its block", source="K4"
)
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    start = chunk.start // block_size * block_size
    return reference.chunk_slots(block_table, range(start, start + len(chunk)), block_size)


@fault(
    "chunked.1", caught_by="test_slots_inside_blocks", why="counts places from the start of the chunk", source="K1, K4"
)
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    return [block_table[p // block_size] * block_size + i % block_size for i, p in enumerate(chunk)]


@fault("chunked.1", caught_by="test_slots_inside_blocks", why="fills the last block to its end")
def chunk_slots(block_table, chunk, block_size):
    reference.chunk_slots(block_table, chunk, block_size)
    stop = -(-chunk.stop // block_size) * block_size
    return reference.chunk_slots(block_table, range(chunk.start, stop), block_size)


@fault("chunked.1", caught_by="test_slots_that_are_not_there", why="leaves out positions without a block", source="K11")
def chunk_slots(block_table, chunk, block_size):
    require(block_size >= 1, "block_size must be at least 1")
    stop = min(chunk.stop, len(block_table) * block_size)
    return reference.chunk_slots(block_table, range(chunk.start, stop), block_size)


@fault("chunked.1", caught_by="test_slots_that_are_not_there", why="falls with an IndexError at the end of the table")
def chunk_slots(block_table, chunk, block_size):
    require(block_size >= 1, "block_size must be at least 1")
    return [block_table[p // block_size] * block_size + p % block_size for p in chunk]


@fault("chunked.1", caught_by="test_slots_that_are_not_there", why="wants a table that ends with the chunk")
def chunk_slots(block_table, chunk, block_size):
    slots = reference.chunk_slots(block_table, chunk, block_size)
    require((len(block_table) - 2) * block_size < chunk.stop, "block_table is too long")
    return slots


@fault("chunked.1", caught_by="test_blocks_that_cannot_be", why="divides by a block size of 0")
def chunk_slots(block_table, chunk, block_size):
    require(len(block_table) * abs(block_size) >= chunk.stop or not block_size, "block_table is too short")
    return [block_table[p // block_size] * block_size + p % block_size for p in chunk]


# --- chunked.1: keys


@fault("chunked.1", caught_by="test_keys_up_to_the_end", why="aligns the mask with the top left corner", source="K1")
def chunk_keys(chunk, window=None):
    return range(len(chunk)) if window is None else reference.chunk_keys(chunk, window)


@fault("chunked.1", caught_by="test_keys_up_to_the_end", why="sees the chunk alone, not what was computed before")
def chunk_keys(chunk, window=None):
    return chunk if window is None and len(chunk) else reference.chunk_keys(chunk, window)


@fault("chunked.1", caught_by="test_keys_up_to_the_end", why="reads to the end of the last chunk's tile", source="K2")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return range(keys.start, -(-keys.stop // 64) * 64) if window is None else keys


@fault("chunked.1", caught_by="test_keys_up_to_the_end", why="leaves out the last token's own key")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return range(keys.start, keys.stop - 1)


@fault("chunked.1", caught_by="test_keys_in_a_window", why="sees a key too many in front of the window")
def chunk_keys(chunk, window=None):
    return reference.chunk_keys(chunk, window + 1 if window and window >= 1 else window)


@fault("chunked.1", caught_by="test_keys_in_a_window", why="lets the last query decide, not the first", source="K8")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return keys if window is None else range(max(0, chunk.stop - window), chunk.stop)


@fault("chunked.1", caught_by="test_keys_in_a_window", why="pays no attention to the window")
def chunk_keys(chunk, window=None):
    reference.chunk_keys(chunk, window)
    return reference.chunk_keys(chunk)


@fault("chunked.1", caught_by="test_windows_wider_than_the_past", why="begins at a negative position")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return keys if window is None else range(chunk.start - window + 1, chunk.stop)


@fault("chunked.1", caught_by="test_windows_wider_than_the_past", why="begins at 1: max(1, ...)")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return keys if window is None else range(max(1, chunk.start - window + 1), chunk.stop)


@fault(
    "chunked.1", caught_by="test_chunks_longer_than_the_window", why="keeps `window` keys, not one more", source="K8"
)
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return keys[-window:] if window is not None and len(chunk) > window else keys


@fault("chunked.1", caught_by="test_chunks_longer_than_the_window", why="keeps the chunk's own keys only", source="K8")
def chunk_keys(chunk, window=None):
    keys = reference.chunk_keys(chunk, window)
    return chunk if window is not None and len(chunk) > window else keys


@fault("chunked.1", caught_by="test_keys_that_cannot_be", why="takes a window of 0 for none")
def chunk_keys(chunk, window=None):
    return reference.chunk_keys(chunk, window or None)


@fault("chunked.1", caught_by="test_keys_that_cannot_be", why="gives keys to an empty chunk")
def chunk_keys(chunk, window=None):
    return reference.chunk_keys(chunk, window) if len(chunk) else range(chunk.stop)


# --- chunked.2: the budget


@fault("chunked.2", caught_by="test_prompts_that_fit", why="one prompt a step")
def schedule_step(running, waiting, budget, longest=None):
    others = [work.request_id for work in waiting[1:]]
    plan = reference.schedule_step(running, waiting, budget, longest)
    return [(request, tokens) for request, tokens in plan if request not in others]


@fault("chunked.2", caught_by="test_prompts_that_fit", why="tokens first, then the request")
def schedule_step(running, waiting, budget, longest=None):
    return [(tokens, request) for request, tokens in reference.schedule_step(running, waiting, budget, longest)]


@fault("chunked.2", caught_by="test_prompts_that_fit", why="newest first")
def schedule_step(running, waiting, budget, longest=None):
    return reference.schedule_step(running, waiting[::-1], budget, longest)


@fault("chunked.2", caught_by="test_prompts_that_fit", why="the shortest prompt first")
def schedule_step(running, waiting, budget, longest=None):
    by_tokens = sorted(waiting, key=lambda work: work.tokens)
    return reference.schedule_step(running, by_tokens, budget, longest)


@fault("chunked.2", caught_by="test_prompts_that_fit", why="cuts a prompt to full blocks of 16 although it fits")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    return [(request, tokens // 16 * 16 or tokens) for request, tokens in plan]


@fault("chunked.2", caught_by="test_the_last_prompt_is_cut", why="stops at the first prompt that does not fit whole")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    have = {work.request_id: work.tokens for work in running + waiting}
    whole = [entry for entry in plan if entry[1] == have[entry[0]] or entry[1] == longest]
    return whole if longest or len(whole) == len(plan) else plan[:-1]


@fault("chunked.2", caught_by="test_the_last_prompt_is_cut", why="the budget ends one token too late")
def schedule_step(running, waiting, budget, longest=None):
    require(budget >= 1, "budget must be at least 1")
    prompts = waiting or any(work.tokens > 1 for work in running)
    return reference.schedule_step(running, waiting, budget + 1 if prompts and budget > 1 else budget, longest)


@fault("chunked.2", caught_by="test_the_last_prompt_is_cut", why="lets in whoever comes while something is left")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    have = {work.request_id: work.tokens for work in running + waiting}
    return [(request, min(have[request], longest or have[request])) for request, _ in plan]


@fault("chunked.2", caught_by="test_the_last_prompt_is_cut", why="deals the budget out in equal parts")
def schedule_step(running, waiting, budget, longest=None):
    prompts = [work for work in running if work.tokens > 1] + waiting
    if longest or not prompts or sum(work.tokens for work in running + waiting) <= budget:
        return reference.schedule_step(running, waiting, budget, longest)
    share = max(1, (budget - len(running)) // len(prompts))
    return reference.schedule_step(running, waiting, budget, share)


@fault("chunked.2", caught_by="test_the_last_prompt_is_cut", why="cuts to full blocks of 16")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    have = {work.request_id: work.tokens for work in running + waiting}
    return [(r, n if n == have[r] or n == longest else max(1, n // 16 * 16)) for r, n in plan]


@fault("chunked.2", caught_by="test_nothing_is_left", why="entries of 0 tokens when the budget is used up", source="K5")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    planned = dict(plan)
    return plan + [(work.request_id, 0) for work in waiting if work.request_id not in planned]


@fault("chunked.2", caught_by="test_nothing_is_left", why="a token for everybody, whatever the budget", source="K5")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    planned = dict(plan)
    return plan + [(work.request_id, 1) for work in waiting if work.request_id not in planned]


@fault("chunked.2", caught_by="test_nothing_is_left", why="no cut when a smaller prompt behind would fit")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    planned = dict(plan)
    others = [work for work in waiting if work.request_id not in planned]
    if others and not running:
        last = plan.pop()
        plan.append((others[0].request_id, min(last[1], others[0].tokens)))
    return plan


# --- chunked.2: prompts that run, decodes


@fault("chunked.2", caught_by="test_prompts_that_have_begun", why="waiting prompts before running ones")
def schedule_step(running, waiting, budget, longest=None):
    decodes = [work for work in running if work.tokens == 1]
    begun = [work for work in running if work.tokens > 1]
    return reference.schedule_step(decodes, waiting + begun, budget, longest)


@fault("chunked.2", caught_by="test_prompts_that_have_begun", why="one running prompt a step, then waiting ones")
def schedule_step(running, waiting, budget, longest=None):
    begun = [work for work in running if work.tokens > 1]
    kept = [work for work in running if work.tokens == 1 or longest or not waiting or work is begun[0]]
    return reference.schedule_step(kept, waiting, budget, longest)


@fault("chunked.2", caught_by="test_prompts_that_have_begun", why="goes by the ids, not by who runs")
def schedule_step(running, waiting, budget, longest=None):
    decodes = [work for work in running if work.tokens == 1]
    prompts = [work for work in running if work.tokens > 1] + waiting
    by_id = sorted(prompts, key=lambda work: work.request_id)
    return reference.schedule_step(decodes, by_id, budget, longest)


@fault("chunked.2", caught_by="test_decodes_before_prompts", why="goes through running in order: a decode may wait")
def schedule_step(running, waiting, budget, longest=None):
    reference.schedule_step(running, waiting, budget, longest)
    plan, left = [], budget
    for work in running + waiting:
        tokens = min(work.tokens, left, longest or left)
        if tokens:
            plan.append((work.request_id, tokens))
            left -= tokens
    return plan


@fault("chunked.2", caught_by="test_decodes_before_prompts", why="decodes get what the prompts leave")
def schedule_step(running, waiting, budget, longest=None):
    prompts = [work for work in running if work.tokens > 1] + waiting
    decodes = [work for work in running if work.tokens == 1]
    reference.schedule_step(running, waiting, budget, longest)
    plan = reference.schedule_step([], prompts, budget, longest)
    left = budget - sum(tokens for _, tokens in plan)
    return plan + [(work.request_id, 1) for work in decodes[:left]]


@fault("chunked.2", caught_by="test_decodes_before_prompts", why="decodes cost nothing of the budget")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = [work for work in running if work.tokens == 1]
    prompts = [work for work in running if work.tokens > 1] + waiting
    if not prompts or not decodes:
        return plan
    return [(work.request_id, 1) for work in decodes] + reference.schedule_step([], prompts, budget, longest)


@fault(
    "chunked.2", caught_by="test_decodes_before_prompts", why="no decode beside a prompt", source="vLLM before chunks"
)
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    prompts = [work for work in running if work.tokens > 1] + waiting
    return reference.schedule_step([], prompts, budget, longest) if prompts else plan


@fault("chunked.2", caught_by="test_decodes_before_prompts", why="the youngest decode first")
def schedule_step(running, waiting, budget, longest=None):
    return reference.schedule_step(running[::-1] if waiting else running, waiting, budget, longest)


@fault("chunked.2", caught_by="test_short_prompts_wait_their_turn", why="takes a prompt of one token for a decode")
def schedule_step(running, waiting, budget, longest=None):
    short = [work for work in waiting if work.tokens == 1] if budget > 1 else []
    rest = [work for work in waiting if work.tokens > 1] if budget > 1 else waiting
    return reference.schedule_step(running + short, rest, budget, longest)


@fault("chunked.2", caught_by="test_short_prompts_wait_their_turn", why="never lets a prompt of one token in")
def schedule_step(running, waiting, budget, longest=None):
    return reference.schedule_step(running, [work for work in waiting if work.tokens > 1], budget, longest)


# --- chunked.2: the cap


@fault("chunked.2", caught_by="test_the_longest_chunk", why="caps running prompts only", source="vLLM: threshold")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    if longest is None or any(work.tokens > 1 for work in running):
        return plan
    return reference.schedule_step(running, waiting, budget)


@fault("chunked.2", caught_by="test_the_longest_chunk", why="caps waiting prompts only", source="vLLM: threshold")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    return reference.schedule_step(running, waiting, budget) if longest and not waiting else plan


@fault("chunked.2", caught_by="test_the_longest_chunk", why="caps the sum of all prompts", source="vLLM: threshold")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = sum(work.tokens == 1 for work in running)
    return reference.schedule_step(running, waiting, min(budget, decodes + longest)) if longest else plan


@fault("chunked.2", caught_by="test_the_longest_chunk", why="charges the budget before it caps")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    if longest is None:
        return plan
    return [(request, min(tokens, longest)) for request, tokens in reference.schedule_step(running, waiting, budget)]


@fault("chunked.2", caught_by="test_the_longest_chunk", why="a second entry for a capped prompt: budget is left")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    have = {work.request_id: work.tokens for work in running + waiting}
    left = budget - sum(tokens for _, tokens in plan)
    more = [(request, min(left, have[request] - tokens)) for request, tokens in plan if have[request] > tokens]
    return plan + more[:1] if left else plan


@fault("chunked.2", caught_by="test_the_longest_chunk", why="knows no cap")
def schedule_step(running, waiting, budget, longest=None):
    reference.schedule_step(running, waiting, budget, longest)
    return reference.schedule_step(running, waiting, budget)


@fault("chunked.2", caught_by="test_the_longest_chunk_beside_decodes", why="takes the decodes from the first chunk")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = sum(work.tokens == 1 for work in running)
    if longest is None or not decodes:
        return plan
    return reference.schedule_step(running, waiting, budget, max(1, longest - decodes))


@fault("chunked.2", caught_by="test_the_longest_chunk_beside_decodes", why="one capped prompt beside decodes")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = sum(work.tokens == 1 for work in running)
    return plan[: decodes + 1] if longest and decodes else plan


@fault("chunked.2", caught_by="test_caps_that_cannot_be", why="takes a cap of 0 for none")
def schedule_step(running, waiting, budget, longest=None):
    return reference.schedule_step(running, waiting, budget, longest or None)


@fault("chunked.2", caught_by="test_caps_that_cannot_be", why="plans nothing with a negative cap")
def schedule_step(running, waiting, budget, longest=None):
    return [] if longest is not None and longest < 1 else reference.schedule_step(running, waiting, budget, longest)


# --- chunked.2: what is cached, what was before


@fault("chunked.2", caught_by="test_cached_tokens", why="counts cached tokens too", source="K6, nano-vllm #211, #233")
def schedule_step(running, waiting, budget, longest=None):
    plan, left = [], budget
    have = {work.request_id: work.cached for work in running + waiting}
    for request, tokens in reference.schedule_step(running, waiting, budget, longest):
        if left > 0:
            plan.append((request, tokens))
            left -= tokens + have[request]
    return plan


@fault("chunked.2", caught_by="test_cached_tokens", why="subtracts cached tokens a second time", source="K6")
def schedule_step(running, waiting, budget, longest=None):
    def less(works):
        return [Work(w.request_id, max(2, w.tokens - w.cached) if w.tokens > 1 else 1) for w in works]

    return reference.schedule_step(less(running), less(waiting), budget, longest)


@fault("chunked.2", caught_by="test_cached_tokens", why="prefers prompts with a long cached part")
def schedule_step(running, waiting, budget, longest=None):
    by_cached = sorted(waiting, key=lambda work: -work.cached)
    return reference.schedule_step(running, by_cached, budget, longest)


@fault("chunked.2", caught_by="test_cached_tokens", why="takes a prompt with cached tokens for one that runs")
def schedule_step(running, waiting, budget, longest=None):
    begun = [work for work in waiting if work.cached]
    return reference.schedule_step(running, begun + [w for w in waiting if not w.cached], budget, longest)


@fault("chunked.2", caught_by="test_requests_that_come_back", why="remembers what was computed", source="K7")
def schedule_step(running, waiting, budget, longest=None):
    computed = vars(reference).setdefault("computed", {})
    left = [Work(w.request_id, max(1, w.tokens - computed.get(w.request_id, 0))) for w in waiting]
    plan = reference.schedule_step(running, left, budget, longest)
    for request, tokens in plan:
        computed[request] = computed.get(request, 0) + tokens
    return plan


@fault("chunked.2", caught_by="test_requests_that_come_back", why="never lets a request in twice", source="K7")
def schedule_step(running, waiting, budget, longest=None):
    seen = vars(reference).setdefault("seen", set())
    plan = reference.schedule_step(running, [w for w in waiting if w.request_id not in seen], budget, longest)
    ids = {work.request_id for work in running}
    seen.update(request for request, _ in plan if request in ids)
    return plan


# --- chunked.2: nobody starves


@fault("chunked.2", caught_by="test_more_decodes_than_budget", why="keeps a token for a prompt that is not there")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    return plan[: max(1, budget - 1)] if len(plan) == budget and not waiting and plan[-1][1] == 1 else plan


@fault("chunked.2", caught_by="test_more_decodes_than_budget", why="decodes beyond the budget")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    prompts = waiting or [work for work in running if work.tokens > 1]
    return plan if prompts else [(work.request_id, 1) for work in running]


@fault("chunked.2", caught_by="test_nobody_starves", why="decodes take the whole budget", source="K5")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = [work for work in running if work.tokens == 1]
    return [(work.request_id, 1) for work in decodes[:budget]] if len(decodes) >= budget else plan


@fault("chunked.2", caught_by="test_nobody_starves", why="of too many decodes the youngest are served")
def schedule_step(running, waiting, budget, longest=None):
    reference.schedule_step(running, waiting, budget, longest)
    decodes = [work for work in running if work.tokens == 1]
    others = [work for work in running if work.tokens > 1]
    room = budget - 1 if waiting or others else len(decodes)
    return reference.schedule_step(decodes[max(0, len(decodes) - room) :] + others, waiting, budget, longest)


@fault("chunked.2", caught_by="test_nobody_starves", why="begins the newest prompt when decodes fill the step")
def schedule_step(running, waiting, budget, longest=None):
    decodes = sum(work.tokens == 1 for work in running)
    crowded = decodes >= budget - 1 and len(waiting) > 1
    return reference.schedule_step(running, waiting[::-1] if crowded else waiting, budget, longest)


@fault("chunked.2", caught_by="test_one_token_is_kept", why="keeps a tenth of the budget for prompts")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = [work for work in running if work.tokens == 1]
    prompts = [work for work in running if work.tokens > 1] + waiting
    room = budget - max(1, budget // 10)
    if not prompts or len(decodes) <= room:
        return plan
    return reference.schedule_step(decodes[:room] + [w for w in running if w.tokens > 1], waiting, budget, longest)


@fault("chunked.2", caught_by="test_one_token_is_kept", why="gives a crowded step to prompts alone, half of it")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    decodes = [work for work in running if work.tokens == 1]
    prompts = [work for work in running if work.tokens > 1] + waiting
    if not prompts or len(decodes) < budget:
        return plan
    half = [work for work in running if work not in decodes[max(1, budget // 2) :]]
    return reference.schedule_step(half, waiting, budget, longest)


@fault("chunked.2", caught_by="test_a_budget_of_one", why="refuses a budget of one token whatever there is to do")
def schedule_step(running, waiting, budget, longest=None):
    require(budget >= 2, f"budget must be at least 2, got {budget}")
    return reference.schedule_step(running, waiting, budget, longest)


@fault("chunked.2", caught_by="test_budgets_that_cannot_be", why="serves decodes alone with a budget of one")
def schedule_step(running, waiting, budget, longest=None):
    if budget == 1 and any(work.tokens == 1 for work in running):
        return reference.schedule_step([work for work in running if work.tokens == 1], [], budget, longest)
    return reference.schedule_step(running, waiting, budget, longest)


@fault("chunked.2", caught_by="test_budgets_that_cannot_be", why="plans nothing with a budget of 0")
def schedule_step(running, waiting, budget, longest=None):
    return [] if budget < 1 else reference.schedule_step(running, waiting, budget, longest)


@fault("chunked.2", caught_by="test_the_lists_are_left_alone", why="takes prompts out of the queue it was given")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    waiting[:] = [work for work in waiting if work.request_id not in dict(plan)]
    return plan


@fault("chunked.2", caught_by="test_the_lists_are_left_alone", why="puts waiting prompts into the running ones")
def schedule_step(running, waiting, budget, longest=None):
    plan = reference.schedule_step(running, waiting, budget, longest)
    running += waiting
    return plan
