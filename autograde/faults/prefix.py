"""Planted mistakes of lesson 2, the prefix cache: prefixes, keys, order and money."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- prefix.1


@fault("prefix.1", caught_by="test_fresh_prefixes", why="gives the place of the last shared token")
def shared_prefix_length(a, b):
    return reference.shared_prefix_length(a, b) - 1


@fault("prefix.1", caught_by="test_fresh_prefixes", why="counts from the end")
def shared_prefix_length(a, b):
    return reference.shared_prefix_length(a[::-1], b[::-1])


@fault("prefix.1", caught_by="test_fresh_prefixes", why="gives the tokens, not their number")
def shared_prefix_length(a, b):
    return list(a[: reference.shared_prefix_length(a, b)])


@fault("prefix.1", caught_by="test_later_agreement", why="counts every place that agrees", source="Example 2, the ?")
def shared_prefix_length(a, b):
    return sum(x == y for x, y in zip(a, b, strict=False))


@fault("prefix.1", caught_by="test_later_agreement", why="counts tokens that stand in both prompts")
def shared_prefix_length(a, b):
    both = len(set(a) & set(b))
    return max(both, reference.shared_prefix_length(a, b))


@fault("prefix.1", caught_by="test_later_agreement", why="finds the longest common piece anywhere")
def shared_prefix_length(a, b):
    from difflib import SequenceMatcher

    longest = SequenceMatcher(None, a, b, autojunk=False).find_longest_match().size
    return max(longest, reference.shared_prefix_length(a, b))


@fault("prefix.1", caught_by="test_prompts_of_different_length", why="wants prompts of one length")
def shared_prefix_length(a, b):
    count = 0
    for x, y in zip(a, b, strict=True):
        if x != y:
            break
        count += 1
    return count


@fault("prefix.1", caught_by="test_prompts_of_different_length", why="says nothing where one prompt ends")
def shared_prefix_length(a, b):
    shared = reference.shared_prefix_length(a, b)
    return None if shared in (len(a), len(b)) else shared


@fault("prefix.1", caught_by="test_equal_prompts", why="leaves a token of equal prompts over", source="S2.3")
def shared_prefix_length(a, b):
    return reference.shared_prefix_length(a, b) - (len(a) > 0 and list(a) == list(b))


@fault("prefix.1", caught_by="test_words", why="subtracts tokens")
def shared_prefix_length(a, b):
    count = 0
    for x, y in zip(a, b, strict=False):
        if x - y:
            break
        count += 1
    return count


@fault("prefix.1", caught_by="test_nothing_shared", why="always shares a beginning", source="a start token")
def shared_prefix_length(a, b):
    return max(1, reference.shared_prefix_length(a, b))


@fault("prefix.1", caught_by="test_long_prompts", why="calls itself for every token")
def shared_prefix_length(a, b):
    if not a or not b or a[0] != b[0]:
        return 0
    return 1 + shared_prefix_length(a[1:], b[1:])


# --- prefix.2


@fault("prefix.2", caught_by="test_a_key_for_every_full_block", why="hashes a partial block", source="S2.2, vLLM #5188")
def block_keys(tokens, block_size, extra=()):
    keys = reference.block_keys(tokens, block_size, extra)
    full = len(keys) * block_size
    if full < len(tokens):
        keys.append(chain_key(keys[-1] if keys else NO_PARENT, pack_tokens(tokens[full:])))
    return keys


@fault("prefix.2", caught_by="test_a_key_for_every_full_block", why="leaves a full last block out", source="S2.3")
def block_keys(tokens, block_size, extra=()):
    return reference.block_keys(tokens, block_size, extra)[: (len(tokens) - 1) // block_size]


@fault("prefix.2", caught_by="test_a_key_for_every_full_block", why="gives keys as text")
def block_keys(tokens, block_size, extra=()):
    return [key.hex() for key in reference.block_keys(tokens, block_size, extra)]


@fault("prefix.2", caught_by="test_a_key_for_every_full_block", why="has keys of 8 bytes", source="P2.3")
def block_keys(tokens, block_size, extra=()):
    return [key[:8] for key in reference.block_keys(tokens, block_size, extra)]


@fault("prefix.2", caught_by="test_keys_are_repeatable", why="starts anew at random", source="log 15, LMCache #1095")
def block_keys(tokens, block_size, extra=()):
    import os

    return [blake2s(os.urandom(8) + key).digest() for key in reference.block_keys(tokens, block_size, extra)]


@fault("prefix.2", caught_by="test_keys_are_repeatable", why="hashes the length of the prompt too")
def block_keys(tokens, block_size, extra=()):
    length = pack_tokens([len(tokens)])
    return [blake2s(length + key).digest() for key in reference.block_keys(tokens, block_size, extra)]


@fault("prefix.2", caught_by="test_the_whole_past_counts", why="hashes each block by itself", source="P2.1")
def block_keys(tokens, block_size, extra=()):
    reference.block_keys(tokens, block_size)
    full = len(tokens) // block_size * block_size
    blocks = [pack_tokens(tokens[start : start + block_size]) for start in range(0, full, block_size)]
    return [chain_key(root_key(extra), block) for block in blocks]


@fault("prefix.2", caught_by="test_the_whole_past_counts", why="looks back one block only", source="S2.1")
def block_keys(tokens, block_size, extra=()):
    reference.block_keys(tokens, block_size)
    ends = range(block_size, len(tokens) + 1, block_size)
    pairs = [pack_tokens(tokens[max(0, end - 2 * block_size) : end]) for end in ends]
    return [chain_key(root_key(extra), pair) for pair in pairs]


@fault("prefix.2", caught_by="test_every_place_counts", why="adds the tokens up")
def block_keys(tokens, block_size, extra=()):
    keys = reference.block_keys(tokens, block_size, extra)
    parent = root_key(extra)
    for i in range(len(keys)):
        block = sorted(int(t) for t in tokens[i * block_size : (i + 1) * block_size])
        keys[i] = parent = chain_key(parent, pack_tokens(block))
    return keys


@fault("prefix.2", caught_by="test_borders_between_tokens", why="writes the digits in a row")
def block_keys(tokens, block_size, extra=()):
    keys, parent = reference.block_keys(tokens, block_size, extra), root_key(extra)
    for i in range(len(keys)):
        digits = "".join(str(int(token)) for token in tokens[i * block_size : (i + 1) * block_size])
        keys[i] = parent = chain_key(parent, digits.encode())
    return keys


@fault("prefix.2", caught_by="test_large_tokens", why="keeps 16 bits of a token", source="log 12, LMCache #3301")
def pack_tokens(tokens):
    return reference.pack_tokens([int(token) % 2**16 for token in tokens])


@fault("prefix.2", caught_by="test_large_tokens", why="keeps 32 bits of a token")
def pack_tokens(tokens):
    return reference.pack_tokens([int(token) % 2**32 for token in tokens])


@fault("prefix.2", caught_by="test_what_python_cannot_tell_apart", why="uses hash()", source="log 13-15, vLLM #12621")
def block_keys(tokens, block_size, extra=()):
    keys, parent = reference.block_keys(tokens, block_size, extra), (tuple(map(tuple, extra)), 0)
    for i in range(len(keys)):
        parent = hash((parent, tuple(tokens[i * block_size : (i + 1) * block_size])))
        keys[i] = blake2s(str(parent).encode()).digest()
    return keys


@fault("prefix.2", caught_by="test_no_two_of_many_keys_agree", why="cuts keys to 16 bits", source="P2.3, log 12")
def block_keys(tokens, block_size, extra=()):
    return [key[:2] * 16 for key in reference.block_keys(tokens, block_size, extra)]


@fault("prefix.2", caught_by="test_arrays_are_as_good", why="hashes how the tokens are written", source="numpy 2 repr")
def block_keys(tokens, block_size, extra=()):
    keys, parent = reference.block_keys(tokens, block_size, extra), root_key(extra)
    for i in range(len(keys)):
        parent = keys[i] = chain_key(parent, repr(list(tokens[i * block_size : (i + 1) * block_size])).encode())
    return keys


@fault("prefix.2", caught_by="test_salts_of_tenants", why="ignores extras", source="S2.8, C2.7, log 10, vLLM #3264")
def root_key(extra=()):
    return NO_PARENT


@fault(
    "prefix.2", caught_by="test_salts_of_tenants", why="hashes the kinds of extras only", source="log 9, vLLM #30931"
)
def root_key(extra=()):
    return reference.root_key([(kind, "") for kind, _ in extra])


@fault("prefix.2", caught_by="test_salts_of_tenants", why="salts the first block only, unchained", source="S2.8")
def block_keys(tokens, block_size, extra=()):
    keys = reference.block_keys(tokens, block_size)
    return reference.block_keys(tokens, block_size, extra)[:1] + keys[1:]


@fault("prefix.2", caught_by="test_kinds_of_extras", why="hashes values without their kinds", source="S2.8")
def root_key(extra=()):
    return reference.root_key([("", value) for _, value in extra])


@fault("prefix.2", caught_by="test_borders_between_extras", why="writes extras in a row")
def root_key(extra=()):
    return blake2s("".join(f"{kind}{value}" for kind, value in extra).encode()).digest() if extra else NO_PARENT


@fault("prefix.2", caught_by="test_borders_between_extras", why="separates extras with ; and =")
def root_key(extra=()):
    return blake2s(";".join(f"{kind}={value}" for kind, value in extra).encode()).digest() if extra else NO_PARENT


@fault("prefix.2", caught_by="test_order_of_extras", why="sorts the extras")
def root_key(extra=()):
    return reference.root_key(sorted(map(tuple, extra)))


@fault("prefix.2", caught_by="test_empty_extras", why="takes an empty salt for none", source="S2.12, None and empty")
def root_key(extra=()):
    return reference.root_key([(kind, value) for kind, value in extra if value])


@fault("prefix.2", caught_by="test_extras_in_lists", why="hashes how the extras are written")
def root_key(extra=()):
    return blake2s(repr(extra).encode()).digest() if extra else NO_PARENT


@fault("prefix.2", caught_by="test_extras_in_lists", why="starts from hash() of the extras", source="log 14, LMCache")
def root_key(extra=()):
    return blake2s(str(hash(extra)).encode()).digest() if extra else NO_PARENT


@fault("prefix.2", caught_by="test_sizes_that_cannot_be", why="accepts any block size")
def block_keys(tokens, block_size, extra=()):
    return reference.block_keys(tokens, block_size, extra) if block_size > 0 else []


# --- prefix.6


@fault("prefix.6", caught_by="test_rates_in_rising_order", why="puts what changes most first")
def order_prompt(parts):
    return reference.order_prompt([(name, -rate) for name, rate in parts])


@fault("prefix.6", caught_by="test_rates_in_rising_order", why="sorts by name")
def order_prompt(parts):
    return sorted(parts)


@fault("prefix.6", caught_by="test_rates_in_rising_order", why="knows only stable and unstable")
def order_prompt(parts):
    return sorted(parts, key=lambda part: (part[0] == "question", part[1] > 0))


@fault("prefix.6", caught_by="test_equal_rates_keep_their_order", why="sorts equal parts by name")
def order_prompt(parts):
    return sorted(parts, key=lambda part: (part[0] == "question", part[1], part[0]))


@fault("prefix.6", caught_by="test_a_question_anywhere", why="treats the question as any other part")
def order_prompt(parts):
    return sorted(parts, key=lambda part: part[1])


@fault("prefix.6", caught_by="test_parts_are_left_alone", why="sorts the list it is given")
def order_prompt(parts):
    parts.sort(key=lambda part: (part[0] == "question", part[1]))
    return parts


@fault("prefix.6", caught_by="test_a_prompt_like_the_one_before", why="has prices for a thousand tokens")
def prompt_cost(requests, hit_price, miss_price, block_size):
    return 1000 * reference.prompt_cost(requests, hit_price, miss_price, block_size)


@fault("prefix.6", caught_by="test_a_prompt_like_the_one_before", why="pays for hits and again for computing them")
def prompt_cost(requests, hit_price, miss_price, block_size):
    return reference.prompt_cost(requests, hit_price + miss_price, miss_price, block_size)


@fault("prefix.6", caught_by="test_a_prompt_like_the_one_before", why="mixes the prices up")
def prompt_cost(requests, hit_price, miss_price, block_size):
    return reference.prompt_cost(requests, miss_price, hit_price, block_size)


@fault("prefix.6", caught_by="test_a_part_of_a_block", why="reuses single tokens", source="S2.2, R14")
def prompt_cost(requests, hit_price, miss_price, block_size):
    cost, seen = 0.0, []
    for tokens in requests:
        shared = max((shared_prefix_length(tokens, other) for other in seen), default=0)
        if shared % block_size == 0 or shared == len(tokens):
            shared = min(shared, (len(tokens) - 1) // block_size * block_size)
        cost += shared * hit_price + (len(tokens) - shared) * miss_price
        seen.append(tokens)
    reference.prompt_cost([], hit_price, miss_price, block_size)
    return cost / 1e6


@fault("prefix.6", caught_by="test_any_earlier_prompt", why="remembers the last prompt only")
def prompt_cost(requests, hit_price, miss_price, block_size):
    reference.prompt_cost([], hit_price, miss_price, block_size)
    both = [reference.prompt_cost(requests[max(0, i - 1) : i + 1], hit_price, miss_price, block_size)
            for i in range(len(requests))]  # fmt: skip
    return sum(both) - sum(len(tokens) * miss_price / 1e6 for tokens in requests[:-1])


@fault("prefix.6", caught_by="test_any_earlier_prompt", why="caches the first prompt only")
def prompt_cost(requests, hit_price, miss_price, block_size):
    reference.prompt_cost([], hit_price, miss_price, block_size)
    both = [reference.prompt_cost([requests[0], tokens], hit_price, miss_price, block_size) for tokens in requests[1:]]
    return sum(both) + (2 - len(requests)) * len(requests[0]) * miss_price / 1e6 if len(requests) > 1 else (
        reference.prompt_cost(requests, hit_price, miss_price, block_size))  # fmt: skip


@fault("prefix.6", caught_by="test_the_same_prompt_again", why="computes no token of a cached prompt", source="log 35")
def prompt_cost(requests, hit_price, miss_price, block_size):
    longer = [[*tokens, -1 - i] for i, tokens in enumerate(requests)]
    cost = reference.prompt_cost(longer, hit_price, miss_price, block_size)
    return cost - len(requests) * miss_price / 1e6


@fault("prefix.6", caught_by="test_blocks_in_the_middle", why="counts blocks behind the first miss", source="P2.2")
def prompt_cost(requests, hit_price, miss_price, block_size):
    reference.prompt_cost([], hit_price, miss_price, block_size)
    cost, cached = 0.0, set()
    for tokens in requests:
        blocks = [tuple(tokens[i : i + block_size]) for i in range(0, len(tokens) - block_size + 1, block_size)]
        hits = block_size * sum(block in cached for block in blocks[: (len(tokens) - 1) // block_size])
        cached.update(blocks)
        cost += hits * hit_price + (len(tokens) - hits) * miss_price
    return cost / 1e6


@fault("prefix.6", caught_by="test_prices_that_cannot_be", why="accepts any price")
def prompt_cost(requests, hit_price, miss_price, block_size):
    return reference.prompt_cost(requests, abs(hit_price), abs(miss_price), block_size)
