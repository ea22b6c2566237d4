"""Planted mistakes of chunked.1, the passes over a prompt; K-numbers are those of the course notes."""
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
