# %% [markdown]
# Two requests that begin alike need the same keys and values for that beginning. An engine that keeps them computes
# them once. This lesson builds the part that keeps them, finds them again and decides what to forget: the **prefix
# cache**.
#
# You will write it in pure Python, test it against a slow and obvious referee, put it into a serving engine with a
# real model, and measure what it saves. The last, harder part looks at reuse beyond the prefix. It takes 2 to 3 hours.
#
# The words of lesson 1 are used again: a **token**, its **key** and **value**, **prefill** (the model reads the prompt
# and fills the cache), **decode** (it writes token by token), **TTFT** (time to first token, most of it prefill). New
# here: a **block** is a group of token slots of a fixed size, 16 in most engines. An engine cuts its cache memory into
# blocks, numbers them, and gives each request a **block table**, the numbers of its blocks in order.
#
# `check("prefix.1")` says which properties of your code hold, `hint("prefix.1")` gives up to three hints,
# `progress()` shows where you are.

# %% setup=true
from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2s

from kvcourse import check, hint, progress, quiz  # noqa: F401

# %% [markdown]
# ## prefix.1 the shared prefix
#
# Take two prompts that have four tokens each on most tokenizers:
#
# | | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|
# | A | Weather | in | SF | ? |
# | B | Weather | in | NYC | ? |
#
# An engine without reuse runs prefill on all four tokens of both. But the first two agree, and the key and value of a
# token depend only on itself and the tokens before it. What was computed for "Weather" and "in" of A is exactly right
# for B. B reads 2 of 4 tokens from the cache and computes 2.
#
# The fourth token agrees as well, and is of no use: in A it stands behind "SF", in B behind "NYC", so its keys and
# values differ. What can be reused starts at the first token and ends at the first difference: a **prefix**.
#
# Now put the new word first: "SF Weather in ?" and "NYC Weather in ?". The same tokens in another order, and nothing
# is reused, since the first token differs already.
#
# **Your task.** Write `shared_prefix_length`: how many leading tokens two prompts share. Tokens may be numbers or
# words. It ends at the first difference, or with the shorter prompt.


# %% solution="prefix.1"
def shared_prefix_length(a: Sequence, b: Sequence) -> int:
    """How many leading tokens two prompts share.

    Tokens are token ids or words: whatever `==` compares. The prefix ends at the first difference, however much agrees
    behind it, and at the end of the shorter prompt.
    """
    ### BEGIN SOLUTION
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
    ### END SOLUTION


# %% check="prefix.1"
if __name__ == "__main__":
    check("prefix.1")


# %% [markdown]
# ### The order of a prompt decides what it saves
#
# The weather prompts in both orders, then a prompt of realistic size: a system prompt of 3,000 tokens and a question of
# 40, in both orders.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.workload.prompts import shared_prefix, weather

    a, b = weather()
    reused = shared_prefix_length(a, b)
    print(f"novel token in the middle  prefill {len(b) - reused} of {len(b)} tokens, reuse {reused}")
    a, b = weather(novel_first=True)
    reused = shared_prefix_length(a, b)
    print(f"novel token first          prefill {len(b) - reused} of {len(b)} tokens, reuse {reused}")

    for name, first in (("system prompt first", False), ("question first", True)):
        a, b = shared_prefix(2, shared=3000, unique=40, unique_first=first)
        reused = shared_prefix_length(a, b)
        print(f"{name:19}: reuse {reused} of {len(b)} tokens ({100 * reused / len(b):.1f}%)")

# %% [markdown]
# 3,000 of 3,040 is 98.7 %, and with the question in front it is 0, though 3,000 tokens still agree. The rule for
# everybody who writes prompts: **stable content first (system prompt, tools, documents), new content last.**
#
# ### Why one token changes everything after it
#
# A language model is **autoregressive**: every token looks at all tokens before it. Here is how far that reaches. A
# model reads two prompts of 24 tokens that differ in token 8 only, and the cached keys are compared layer by layer.

# %% demo=true
if __name__ == "__main__":
    import torch
    import transformers

    from kvcourse.models.load import load_model
    from kvcourse.models.recall import cache_argument
    from kvcourse.tasks.course import UserError

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the models here are small: more threads would only slow them down
    try:
        real = load_model("smollm2")
    except UserError:
        real = load_model("random")  # without the real weights: same code, random text
    print("model:", real.name)

    @torch.no_grad()
    def cached_keys(model, tokens):
        """The keys of a prompt, [layers, tokens, kv_heads, head_dim]."""
        cache = transformers.DynamicCache()
        model(torch.tensor([tokens]), use_cache=True, **cache_argument(model, cache))
        return torch.stack([layer.keys[0].transpose(0, 1) for layer in cache.layers])

    prompt = [int(token) for token in torch.randint(300, 900, (24,), generator=torch.Generator().manual_seed(0))]
    other = [*prompt[:8], 999, *prompt[9:]]
    keys, other_keys = cached_keys(real.model, prompt), cached_keys(real.model, other)
    change = (other_keys - keys).flatten(2).norm(dim=2) / keys.flatten(2).norm(dim=2)
    print("layer   tokens 0-7    token 8   tokens 9-23: change of the keys, % of their length (mean)")
    for layer in (0, 1, len(keys) // 2, len(keys) - 1):
        row = 100 * change[layer]
        print(f"{layer:>5} {row[:8].mean():>12.4f} {row[8]:>10.1f} {row[9:].mean():>13.1f}")

# %% [markdown]
# Before the difference nothing changes beyond rounding. Behind it, layer 0 is still the same, because its keys are
# made from each token and its position alone. From layer 1 on every later token has taken in something of token 8, and
# its keys are others, although its text is the same to a human reader. That is why the cache stops there.
#
# ### Where prompts repeat
#
# Saving two tokens is not worth a lesson. Four kinds of application repeat thousands:
#
# - **System prompts** of agents, chatbots and retrieval, tool lists included: the same text in front of each call.
# - **Code completion**: the same file in front of each request.
# - **Documents**: summaries and questions about one text, and retrieval that finds the same pages again.
# - **Multi-turn chats**: each turn repeats all earlier ones, so the saving grows with every turn.
#
# The share below is what a request has in common with the best earlier one, in tokens of the model above.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.workload import prompts

    def tokens_of(prompt):
        """A prompt as the model reads it: through the chat template if there is one."""
        tokenizer = real.tokenizer
        if tokenizer.chat_template:
            text = tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True, tokenize=False)
        else:
            text = prompt.text()
        return tokenizer.encode(text, add_special_tokens=False)

    families = {
        "system prompt": prompts.chats(users=6),
        "code completion": prompts.completions(requests=6),
        "documents": prompts.documents(questions=6),
        "documents, question first": prompts.documents(questions=6, question_first=True),
        "agents": prompts.agents(runs=2, steps=3),
        "multi-turn chat": prompts.conversations(users=2, turns=4),
    }
    for name, family in families.items():
        seen, shares = [], []
        for prompt in map(tokens_of, family):
            best = max((shared_prefix_length(prompt, earlier) for earlier in seen), default=0)
            shares.append(f"{100 * best / len(prompt):.0f}")
            seen.append(prompt)
        print(f"{name:26} share repeated, request by request, %: {', '.join(shares)}")

# %% [markdown]
# The first request of each kind finds nothing, the later ones most of their text; the second document is new as well.
# With the question first, 5 % are left: the words that the chat template puts in front of every prompt.

# %% [markdown]
# ## prefix.2 a key for every block
#
# Comparing a new prompt with all earlier ones is too slow: there are thousands. An engine asks a dictionary instead.
# It cuts a prompt into blocks and makes a **key** for each full one, a short string of bytes computed from its content
# (a **hash**). Equal keys mean equal content. (The word has two meanings: these keys have nothing to do with the key
# vectors of attention.)
#
# The content of a block alone is not enough. Take blocks of 2 and the prompt A B A B. Both blocks hold A B, but the
# second stands behind the first, and its keys and values are others. So a key must stand for its block **and
# everything before it**. That is done by a chain:
#
# - key 1 = hash(root, tokens of block 1)
# - key 2 = hash(key 1, tokens of block 2), and so on.
#
# By hand: A B A B and C D A B have the same second block. Key 1 differs, so key 2 does too. A B A B and A B A C share
# key 1 and differ in key 2.
#
# Tokens are not all that must agree. An adapter (LoRA) or an image changes the keys and values behind the same token
# ids, and tenants may not be allowed to share. Such things are **extras**, pairs of kind and value, and go into the
# root of the chain.
#
# **Your task.** Write `pack_tokens`, `root_key`, `chain_key`, and with them `block_keys`. The rules:
#
# - A key is 32 bytes. Only full blocks have one: 7 tokens in blocks of 3 have 2 keys.
# - Tokens are whole numbers from 0 to below 2**63, in a list, a tuple or an array: the same numbers give the same keys.
# - Different inputs must not look alike as bytes: tokens 1, 23 and 12, 3 must differ, and so must the extras
#   ("a", "bc") and ("ab", "c").
# - Of the extras the kind, the value, their number and their order all count. An empty value is not no value.
# - The same input gives the same keys in every process and on every machine. Python's `hash()` does not: it starts from
#   a random number for text and bytes, and it has only 64 bits. A router, or a store that outlives a restart, could
#   not use it.
# - A block size below 1 raises `ValueError`.

# %%
Extra = Sequence[tuple[str, str]]  # what must agree besides the tokens, such as (("salt", "tenant-a"),)
NO_PARENT = bytes(32)  # stands in front of the first block of a prompt without extras


def require(condition: bool, message: str) -> None:
    """Refuse a bad input: raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


# %% solution="prefix.2" part="a"
def pack_tokens(tokens: Sequence[int]) -> bytes:
    """The token ids as bytes, 8 each, so that different tokens never look alike."""
    ### BEGIN SOLUTION
    return struct.pack(f"<{len(tokens)}q", *tokens)
    ### END SOLUTION


def root_key(extra: Extra = ()) -> bytes:
    """What stands in front of the first block: NO_PARENT, or 32 bytes that depend on every kind and every value."""
    ### BEGIN SOLUTION
    if not extra:
        return NO_PARENT
    return blake2s(json.dumps([list(pair) for pair in extra]).encode()).digest()
    ### END SOLUTION


def chain_key(parent: bytes, block: bytes) -> bytes:
    """The key of a full block: 32 bytes made from the key before it and its own packed tokens."""
    ### BEGIN SOLUTION
    return blake2s(parent + block).digest()
    ### END SOLUTION


# %% solution="prefix.2" part="b"
def block_keys(tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[bytes]:
    """One key of 32 bytes for every full block of a prompt, in order.

    A key stands for `extra`, the tokens of its block and all tokens before: equal keys mean that all of them are equal.
    tokens: whole numbers from 0 to below 2**63 in a list, a tuple or an array: the same numbers give the same keys
    extra: (kind, value) pairs of text; kinds, values, their number and their order all count; () means none
    A last block that is not full has no key. The same input gives the same keys in every process and on every machine.
    ValueError for a block size below 1.
    """
    ### BEGIN SOLUTION
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    data, width = pack_tokens(tokens), 8 * block_size
    key, keys = root_key(extra), []
    for end in range(width, len(data) + 1, width):
        key = chain_key(key, data[end - width : end])
        keys.append(key)
    return keys
    ### END SOLUTION


# %% check="prefix.2"
if __name__ == "__main__":
    check("prefix.2")


# %% demo=true
if __name__ == "__main__":

    def short(keys):
        return [key.hex()[:6] for key in keys]

    A, B, C, D = 1, 2, 3, 4
    print("A B A B               ", short(block_keys([A, B, A, B], 2)), "the same tokens twice, two keys")
    print("C D A B               ", short(block_keys([C, D, A, B], 2)), "another first block changes the second key")
    print("A B A C               ", short(block_keys([A, B, A, C], 2)), "the same first key")
    print("A B A B A             ", short(block_keys([A, B, A, B, A], 2)), "a block that is not full has no key")
    print("A B A B, salt tenant-a", short(block_keys([A, B, A, B], 2, (("salt", "tenant-a"),))), "nothing shared")

# %% [markdown]
# Blocks cost a little reuse: what is shared is rounded down to full blocks. With blocks of 16, 3,000 shared tokens are
# 187 full blocks, 2,992 tokens. Smaller blocks lose less and need more keys; TensorRT-LLM has 32 tokens by default,
# vLLM 16.

# %% [markdown]
# ## prefix.3 find what is cached
#
# The class `PrefixCache` grows over this task and the next two. Three ideas first.
#
# **A lookup is a walk.** Ask for the first key of the prompt, then the second, and stop at the first one that no block
# holds. What lies behind a gap cannot be used.
#
# **One token is always computed.** The model must compute something to predict the next token from. So of a prompt of
# n tokens at most (n - 1) // block_size blocks count. By hand, blocks of 4: a prompt of 8 tokens that is cached to the
# end finds (8 - 1) // 4 = 1 block; one of 9 tokens finds 2.
#
# **A content can exist twice.** The last block of that prompt of 8 is computed again into another block, and now two
# blocks hold the same. Two requests that write the same answer side by side do the same. Nobody swaps a block that is
# being used, so copies stay, and when one is given up the other must still be found.
#
# **Your task.** Write `publish`, `forget`, `find` and `match`. The rules the tests rely on:
#
# - A block is in use while the table of a request names it, else idle. It can be found from the moment it is full, in
#   use or idle, until it is handed out for new content.
# - `match` gives at most (n - 1) // block_size blocks, and looking changes nothing: no order, no count.
# - Of several blocks with one content the one published first that still holds it is found. Copies all stay.
# - Block numbers are free: wherever a rule allows several blocks, any of them is right.
#
# `__init__` has all the fields that the three tasks need. The decorator `add_to_class` puts a function of a later cell
# into the class. **If you run the cell of prefix.3 again, it makes a new class, so run the cells of prefix.4 and
# prefix.5 again as well.**


# %%
@dataclass
class Allocation:
    """block_table: the blocks of all tokens of a request, in order; hit_tokens: how many leading ones were cached."""

    block_table: list[int]
    hit_tokens: int


@dataclass
class Running:
    """A request that has blocks.

    table: its blocks, in order; rest: the tokens of its last block if that is not full
    key: the key of its last full block, `root_key(extra)` if it has none: the parent of the next key
    """

    table: list[int]
    key: bytes
    rest: list[int]


def add_to_class(cls: type) -> Callable[[Callable], Callable]:
    """Make the function below a method of `cls`, so that a class can grow over several cells."""

    def add(function: Callable) -> Callable:
        setattr(cls, function.__name__, function)
        return function

    return add


# %% solution="prefix.3"
class PrefixCache:
    """Says which block holds which tokens, and finds them again. It sees tokens and block numbers, no keys and values.

    Blocks have the numbers 0 to num_blocks - 1. A block is in use while the table of a request names it, else idle.
    A block can be found from the moment it is full, in use or idle, until it is handed out for new content.
    Handed out are idle blocks only: first the empty ones, which hold nothing that can be found, then the others in the
    order in which they became idle. The blocks of a request become idle from the last to the first when it ends.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        # prefix.3: what the blocks hold. Several may hold the same content: all stay, the first one is found.
        self.key_of: dict[int, bytes] = {}  # block -> key of its content; a block without a key holds nothing
        self.block_of: dict[bytes, int] = {}  # key -> the first block that holds it
        self.copies: dict[bytes, list[int]] = {}  # key -> further blocks that hold it, in the order they came
        # prefix.4: who uses them
        self.users = [0] * num_blocks  # how many tables name the block
        self.running: dict[int, Running] = {}  # request -> its blocks
        # prefix.5: what is handed out next
        self.empty = list(range(num_blocks))[::-1]  # idle blocks that hold nothing; the last in the list goes first
        self.idle: OrderedDict[int, None] = OrderedDict()  # idle blocks that hold something; the first one goes first
        self.hit_tokens = self.asked_tokens = self.evictions = 0

    def publish(self, blocks: Sequence[int], keys: Sequence[bytes]) -> None:
        """From now on blocks[i] is found under keys[i]. Surplus blocks or keys at the end are left out.

        What such a block held before is forgotten. Other blocks that hold the same content stay.
        """
        ### BEGIN SOLUTION
        for block, key in zip(blocks, keys, strict=False):
            if block in self.key_of:
                self.forget(block)
            self.key_of[block] = key
            if key in self.block_of:
                self.copies.setdefault(key, []).append(block)
            else:
                self.block_of[key] = block
        ### END SOLUTION

    def forget(self, block: int) -> None:
        """The block can no longer be found; other blocks with the same content can. It may hold nothing already."""
        ### BEGIN SOLUTION
        key = self.key_of.pop(block, None)
        if key is None:
            return
        copies = self.copies.get(key)
        if not copies:
            del self.block_of[key]
            return
        if self.block_of[key] == block:
            self.block_of[key] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self.copies[key]
        ### END SOLUTION

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The blocks of the leading keys, up to the first key that no block holds."""
        ### BEGIN SOLUTION
        found = []
        for key in keys:
            if key not in self.block_of:
                break
            found.append(self.block_of[key])
        return found
        ### END SOLUTION

    def match(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        """The blocks of the longest cached prefix of a prompt, in order.

        Only full blocks count, and one token at least is left to compute: of n tokens (n - 1) // block_size blocks at
        most. If several blocks hold a content, it is the one published first among those that still hold it.
        Looking changes nothing.
        """
        ### BEGIN SOLUTION
        keys = block_keys(tokens, self.block_size, extra)
        return self.find(keys[: (len(tokens) - 1) // self.block_size])
        ### END SOLUTION


# %% check="prefix.3"
if __name__ == "__main__":
    check("prefix.3")


# %% [markdown]
# ### The tree in the dictionary
#
# Chained keys make a tree without anybody building one: every key has one parent, and prompts that begin alike share a
# path from the root. Blocks of 4 tokens here, with letters as tokens; find the point where each prompt leaves the
# others.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.plots import prefix as plots

    def in_blocks(text, size=4):
        return [text[i : i + size] for i in range(0, len(text) - size + 1, size)]

    texts = {
        "chat 1": "SYS!SYS?hi, me",
        "chat 2": "SYS!SYS?help",
        "chat 2 later": "SYS!SYS?helpyes.more",
        "other": "CODECODE",
    }
    small = PrefixCache(num_blocks=16, block_size=4)
    numbers = iter(range(16))
    for name, text in texts.items():
        keys = block_keys([ord(letter) for letter in text], 4)
        found = small.find(keys)
        small.publish([next(numbers) for _ in keys[len(found) :]], keys[len(found) :])
        print(f"{name:13} {len(keys)} full blocks, {len(found)} of them there already: blocks {found}")
    plots.prefix_tree({name: in_blocks(text) for name, text in texts.items()})

# %% [markdown]
# SGLang keeps such a tree as a data structure (a **radix tree**, whose edges hold runs of tokens) and walks it token by
# token; vLLM keeps the dictionary of chained keys, as you do. Both find the same prefixes, down to the block.

# %% [markdown]
# ## prefix.4 blocks for a request
#
# A request asks for blocks for all its tokens. Some are found, the others must be new. Small, by hand, with a pool of 6
# blocks of 2 tokens:
#
# 1. Request 1 brings the tokens 1 2 3 4 5. Nothing is cached; 3 blocks. Two are full and can be found, the third holds
#    one token.
# 2. Request 2 brings 1 2 3 4 9 9 9. Its first two blocks are found and now belong to both requests; 2 new ones.
# 3. Request 1 ends. Its shared blocks stay in use, because request 2 still names them. Its third block was not full:
#    nothing can be found in it, so it is empty.
#
# That is counting: each block knows how many tables name it, and it becomes idle when the count falls to 0.
#
# The one trap is a prompt that finds **idle** blocks. 4 idle blocks, of which 3 are found, and 2 more needed: there is
# room for 1, not for 2, because found blocks are about to be used. So: needed are new blocks plus found idle ones.
#
# **Your task.** Write `allocate`, `append` and `free`. The rules:
#
# - `allocate` is all or nothing. A refused prompt gives None and leaves no trace, in no count and no order.
# - It takes the blocks that `match` finds, then new ones. New full blocks can be found from now on.
# - `append` gives the block of one more token. A block that this token fills can be found from now on.
# - The blocks of a request become idle from the last to the first when it ends. A shared block waits for its last user.
# - A known request in `allocate`, an unknown or freed one in `append` and `free`: `ValueError` naming the request. A
#   number may come again after `free`.
# - `match` must say what is true after every call, and all counts in `stats` too (prefix.5).
#
# `take` is given. Until prefix.5 is there, it can hand out empty blocks only; the checks of this task need no others.


# %% solution="prefix.4"
@add_to_class(PrefixCache)
def take(self, count: int) -> list[int]:
    """Take `count` idle blocks for new content: empty ones first, then those that `evict` gives up (prefix.5)."""
    blocks = [self.empty.pop() for _ in range(min(count, len(self.empty)))]
    if len(blocks) < count:
        blocks += self.evict(count - len(blocks))
    return blocks


@add_to_class(PrefixCache)
def allocate(self, request_id: int, tokens: Sequence[int], extra: Extra = ()) -> Allocation | None:
    """Blocks for all tokens of a prompt: those that `match` finds, then new ones; a started block counts as a whole.

    New blocks that are full can be found from now on, a content that is cached already (the last block of a prompt that
    is cached to the end) included. All or nothing: if too few blocks are idle for the new ones, the answer is None and
    nothing changes. A found block that is idle cannot be a new one as well.
    ValueError, naming the request, if it has blocks already. Its number may come again after `free`.
    """
    ### BEGIN SOLUTION
    require(request_id not in self.running, f"request {request_id} has blocks already: free it first")
    keys = block_keys(tokens, self.block_size, extra)
    hits = self.find(keys[: (len(tokens) - 1) // self.block_size])
    num_new = -(-len(tokens) // self.block_size) - len(hits)
    idle_hits = [block for block in hits if block in self.idle]
    if num_new > len(self.empty) + len(self.idle) - len(idle_hits):
        return None
    for block in idle_hits:
        del self.idle[block]
    table = hits + self.take(num_new)
    for block in table:
        self.users[block] += 1
    self.publish(table[len(hits) :], keys[len(hits) :])
    rest = tokens[len(keys) * self.block_size :]
    self.running[request_id] = Running(table, keys[-1] if keys else root_key(extra), list(rest))
    self.hit_tokens += len(hits) * self.block_size
    self.asked_tokens += len(tokens)
    return Allocation(list(table), len(hits) * self.block_size)
    ### END SOLUTION


@add_to_class(PrefixCache)
def append(self, request_id: int, token: int) -> int | None:
    """The block for one more token of a running request: its last one, or a new one if that is full.

    A block that this token fills can be found from now on. If a new block is needed and none is idle, the answer is
    None and nothing changes. ValueError, naming the request, if it has no blocks.
    """
    ### BEGIN SOLUTION
    require(request_id in self.running, f"request {request_id} has no blocks: allocate first")
    request = self.running[request_id]
    if not request.rest:
        if not self.empty and not self.idle:
            return None
        [block] = self.take(1)
        self.users[block] = 1
        request.table.append(block)
    request.rest.append(token)
    if len(request.rest) == self.block_size:
        request.key = chain_key(request.key, pack_tokens(request.rest))
        self.publish(request.table[-1:], [request.key])
        request.rest = []
    return request.table[-1]
    ### END SOLUTION


@add_to_class(PrefixCache)
def free(self, request_id: int) -> None:
    """The request ends and uses its blocks no longer; those that nobody else uses become idle.

    They become idle one by one, the last block of the table first: the order in which `evict` gives them up. What is
    full can still be found. ValueError, naming the request, if it has no blocks (never had, or freed before).
    """
    ### BEGIN SOLUTION
    require(request_id in self.running, f"request {request_id} has no blocks: freed before, or never there")
    for block in reversed(self.running.pop(request_id).table):
        self.users[block] -= 1
        if self.users[block] == 0:
            if block in self.key_of:
                self.idle[block] = None
            else:
                self.empty.append(block)
    ### END SOLUTION


# %% check="prefix.4"
if __name__ == "__main__":
    check("prefix.4")


# %% demo=true
if __name__ == "__main__":

    def picture(cache):
        """State and users of every block, ready to be drawn."""
        users = {}
        for request, running in cache.running.items():
            for block in running.table:
                users.setdefault(block, []).append(str(request))
        texts = {block: "r" + ",".join(names) for block, names in users.items()}
        return plots.block_states(cache.users, cache.key_of, texts)

    pool, moments = PrefixCache(num_blocks=8, block_size=2), {}
    print("request 1:", pool.allocate(1, [1, 2, 3, 4, 5]))
    moments["1 has 1 2 3 4 5"] = picture(pool)
    print("request 2:", pool.allocate(2, [1, 2, 3, 4, 9, 9, 9]))
    moments["2 has 1 2 3 4 9 9 9"] = picture(pool)
    print("token 7 for request 2 goes into block", pool.append(2, 7))
    pool.free(1)
    moments["1 ended"] = picture(pool)
    pool.free(2)
    moments["2 ended"] = picture(pool)
    print("1 2 3 4 9 9 is found in blocks", pool.match([1, 2, 3, 4, 9, 9, 0]))
    plots.pool_strips(moments, "A shared block waits for its last user")

# %% [markdown]
# ## prefix.5 what to forget
#
# A pool fills up quickly, and then every new block costs an old one: **eviction**. Which content should go? The future
# is not known, so the usual rule is **LRU**, least recently used: what has been idle for longest.
#
# One request leaves several blocks at once, and their order matters. Take a request with the blocks 1, 2, 3 and one
# block needed. Without block 1 the blocks 2 and 3 still take room, but no lookup gets past the gap: three blocks are
# lost. Without block 3 the blocks 1 and 2 are as useful as before. So the tail goes first.
#
# **Your task.** Write `evict` and `stats`. The rules:
#
# - Handed out are idle blocks only: first the empty ones, which hold nothing that can be found, then the others in the
#   order in which they became idle. The blocks of a request become idle from the last to the first when it ends.
# - A block that is found and used again goes behind all others when its last user ends.
# - In `stats`, free + referenced is the pool. `cached` counts the blocks that can be found, in use or not.
#   `asked_tokens` and `hit_tokens` count prompts that got blocks; a refused prompt, a lookup and an appended token
#   count as nothing. `evictions` counts blocks whose content was given up; an empty block has none.
#
# The check plays thousands of random calls against a slow referee. If something differs, it shows the shortest sequence
# of calls that it found and the first wrong answer.


# %% solution="prefix.5"
@add_to_class(PrefixCache)
def evict(self, count: int) -> list[int]:
    """Give up the content of `count` idle blocks, those that became idle first. There are enough: the caller saw to it.

    They can no longer be found. A block in use is never given up. One that was found and used again becomes idle anew,
    behind all others, when its last user ends.
    """
    ### BEGIN SOLUTION
    blocks = [self.idle.popitem(last=False)[0] for _ in range(count)]
    for block in blocks:
        self.forget(block)
    self.evictions += count
    return blocks
    ### END SOLUTION


@add_to_class(PrefixCache)
def stats(self) -> dict[str, int]:
    """How the blocks stand now, and what was counted since the start.

    free: blocks that no request uses; referenced: blocks in use; cached: blocks that can be found, in use or not
    asked_tokens, hit_tokens: tokens of all prompts that got blocks, and how many of them were found
    evictions: blocks whose content was given up
    A refused prompt, a lookup and an appended token count as nothing. More names are allowed.
    """
    ### BEGIN SOLUTION
    free = len(self.empty) + len(self.idle)
    return {
        "free": free,
        "referenced": self.num_blocks - free,
        "cached": len(self.key_of),
        "hit_tokens": self.hit_tokens,
        "asked_tokens": self.asked_tokens,
        "evictions": self.evictions,
    }
    ### END SOLUTION


# %% check="prefix.5"
if __name__ == "__main__":
    check("prefix.5")


# %% [markdown]
# ### The order of forgetting, drawn
#
# A pool of 6 blocks of 2. Requests 1 and 2 come and end, then request 3 needs 2 new blocks, which takes the tail of
# request 1. The texts are the tokens in a block.

# %% demo=true
if __name__ == "__main__":
    pool, moments, texts = PrefixCache(num_blocks=6, block_size=2), {}, {}

    def serve(request, tokens):
        table = pool.allocate(request, tokens).block_table
        texts.update({block: " ".join(map(str, tokens[2 * i : 2 * i + 2])) for i, block in enumerate(table)})
        moments[f"{request} runs"] = plots.block_states(pool.users, pool.key_of, texts)
        pool.free(request)

    serve(1, [1, 1, 2, 2, 3, 3])
    serve(2, [4, 4, 5, 5, 6, 6])
    serve(3, [7, 7, 8, 8])
    serve(4, [1, 1, 9, 9])
    moments["4 ended"] = plots.block_states(pool.users, pool.key_of, texts)
    print(pool.stats())
    plots.pool_strips(moments, "The tail of the oldest request goes first, its head is found again")

# %% [markdown]
# ### The referee, for your own experiments
#
# `find_difference` plays random calls with any cache class. Your class should give `None`. The class below frees from
# the first block to the last: all it does is legal at first sight, and the referee shows the shortest story it found in
# which that loses something.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.tasks.prefix_story import find_difference

    class HeadFirst(PrefixCache):
        def free(self, request_id):
            self.running[request_id].table.reverse()
            super().free(request_id)

    print("your cache:", find_difference(PrefixCache, sequences=60))
    story = find_difference(HeadFirst)
    print(story.text())
    print(f"expected {story.verdict.expected}, got {story.verdict.got}: {story.verdict.because}")
    plots.story_strips(story)

# %% [markdown]
# ## Plug it in
#
# Your class goes into the engine of the course. The engine asks it for blocks, and computes only the tokens that were
# not found; `Engine` without a prefix cache computes everything. Requests come one after the other here, so TTFT is
# prefill alone. What must hold: the **same answers**, token by token.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.engine import Engine

    def serve_all(prompts, new=6, block_size=16, **options):
        """Serve prompts one by one: answers, prompt tokens computed, TTFT of each, the engine."""
        engine = Engine(real.model, num_blocks=256, block_size=block_size, **options)
        answers, computed, ttft = [], 0, []
        for prompt in prompts:
            number = engine.add_request(prompt, max_new_tokens=new, eos=())
            answers += engine.run().values()
            metrics = engine.request(number).metrics
            computed += len(prompt) - metrics.reused
            ttft.append(metrics.ttft)
        return answers, computed, ttft, engine

    words = {"vocab": real.config.vocab_size, "first_token": 300}
    weather_texts = [" ".join(weather()[which][:3]) + "?" for which in (0, 1)]
    shapes = {
        "weather": [real.tokenizer.encode(text, add_special_tokens=False) for text in weather_texts],
        "system prompt first": shared_prefix(3, shared=300, unique=40, **words),
        "question first": shared_prefix(3, shared=300, unique=40, unique_first=True, **words),
        "multi-turn chat": [tokens_of(prompt) for prompt in prompts.conversations(users=1, turns=4)],
    }
    computed, seconds = {}, {}
    for name, family in shapes.items():
        plain, with_cache = serve_all(family), serve_all(family, prefix_cache=PrefixCache)
        computed[name] = plain[1], with_cache[1]
        seconds[name] = tuple(sum(run[2]) / len(run[2]) for run in (plain, with_cache))
        print(f"{name:20} same answers: {plain[0] == with_cache[0]}; prompt tokens {sum(map(len, family))}, computed")
        print(f"{'':20} {computed[name]}; TTFT by request, ms, {[round(1000 * t) for t in plain[2]]}")
        print(f"{'':20} and with the cache {[round(1000 * t) for t in with_cache[2]]}")
    print("weather with blocks of 1 token: computed", serve_all(shapes["weather"], 6, 1, prefix_cache=PrefixCache)[1])
    plots.before_after(computed, seconds)

# %% [markdown]
# - **Weather** saves nothing: two shared tokens are no full block of 16. With blocks of 1 token the engine computes
#   6 of 8 tokens, the 4 + 2 of the example, at 16 times as many keys.
# - **System prompt first**: 300 shared tokens are 18 full blocks, 288 tokens, found by the second and third request.
#   They compute 52 of 340 tokens. TTFT falls to about a third, not to 15 %, because a step has a cost of its own: four
#   tokens take a tenth of a second here as well.
# - **Question first**: nothing, and the cache costs nothing that you could see.
# - **Multi-turn chat**: each turn finds the turn before. The answers of the log are not those that the model wrote, so
#   the answer of the last turn counts as new text here; in a real chat it is found as well, since your `append`
#   publishes what is written.
#
# The first request of a group takes as long as before. A prefix cache helps the second one.
#
# ### The blocks of a request
#
# Three turns of the chat are served, then turns 2 and 3 come once more and run side by side. `r3` in a block: request
# 3 uses it.

# %% demo=true
if __name__ == "__main__":
    engine = serve_all(shapes["multi-turn chat"][:3], prefix_cache=PrefixCache)[3]
    cache = engine.memory.cache
    shown, moments = 24, {}
    running = [engine.add_request(prompt, max_new_tokens=4, eos=()) for prompt in shapes["multi-turn chat"][1:3]]
    moments["before"] = picture(cache)[:shown]
    engine.step()
    moments["two turns run"] = picture(cache)[:shown]
    for request, state in cache.running.items():
        print(f"block table of request {request}: {state.table}")
    engine.run()
    moments["both ended"] = picture(cache)[:shown]
    print(cache.stats())
    plots.pool_strips(moments, "Two turns of one chat share its first blocks")

# %% [markdown]
# The tables differ only at their ends: the last prompt tokens of each stand in a block of its own, which it is writing
# to. Block 14 (on SmolLM2) shows that answers are cached as well: it holds the end of turn 2 and the first tokens that
# the model answered. The log goes on with another answer, so nobody asks for it.
#
# ### How big must the cache be?
#
# One hour of real chats: the Mooncake conversation trace, 12,031 requests, whose prompts are recorded as block ids of
# 512 tokens each (full ones only here, since a part of a block is never found). If it is not on your machine, the
# course's generator stands in. `replay_cache` drives your class, one trace block for each of its blocks; `hit_curve`
# does the same with a plain LRU of block ids, and with the **optimal** rule (Belady): evict what is needed again
# latest. Nobody can run that in practice, since it knows the future. It says how much a better rule could gain at most.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.workload import (
        LRU,
        as_engine,
        generate,
        hit_curve,
        load_trace,
        optimal,
        replay_cache,
        replay_trace,
        reuse_ceiling,
    )

    try:
        trace, sizes = load_trace("mooncake_conversation").convention("F"), (1000, 5000, 10_000, 20_000, 50_000)
    except UserError:
        trace, sizes = generate().convention("F"), (250, 500, 1000, 2000, 5000)
    yours = replay_cache(PrefixCache(sizes[2], 2), trace, tokens_per_block=2)
    oracle = replay_trace(as_engine(trace, "both")(sizes[2]), trace)
    print(f"{trace.name}: {len(trace):,} requests, {trace.input_tokens:,} prompt tokens")
    print(f"{sizes[2]:,} blocks: your cache finds {yours.hit_tokens:,} tokens ({100 * yours.token_ratio:.1f} %)")
    print("the same as the oracle under the same rules, request by request:", yours.hits == oracle.hits)

    lru, best = hit_curve(trace, sizes, LRU), hit_curve(trace, sizes, optimal(trace))
    ceiling = reuse_ceiling(trace).token_ratio
    for row, size in enumerate(sizes):
        print(f"{size:>7,} blocks: LRU {100 * lru.ratios[row]:5.1f} %, optimal {100 * best.ratios[row]:5.1f} %")
    print(f"without limit: {100 * ceiling:.1f} %")
    plots.hit_rates(lru.capacity_tokens, {"LRU": lru.ratios, "optimal (knows the future)": best.ratios}, ceiling)

# %% [markdown]
# What the recorded trace shows:
#
# - 37 % of its prompt tokens repeat earlier ones. The rest is new, and no cache finds it.
# - At 10,000 blocks LRU finds 21.9 % and the optimal rule already everything. LRU lets prompts that never come again
#   push out those that do. So a hint from outside ("this system prompt stays", "this user is gone") can be worth more
#   than memory.
# - 10,000 blocks of 512 tokens in the shape of lesson 1 (327,680 bytes a token) are 1.7 TB, more than the memory of any
#   GPU. Where else to keep them is the question of lesson 3.

# %% [markdown]
# ## prefix.6 order and money
#
# What is reused costs little compute and little time, so providers that charge by the token take less for a **cache
# hit** than for a miss. By hand, with 1 dollar for a million tokens that miss and 0.10 for a million that hit: two
# prompts of 3,040 tokens that share 3,000, blocks of 8. The first misses, 3,040 × 1. The second finds 375 blocks,
# 3,000 × 0.1 + 40 × 1 = 340. Together 3,380 millionths of a dollar, not 6,080. With the question first it stays 6,080.
#
# **Your task.** Two functions.
#
# - `order_prompt(parts)`: parts are (name, changes) pairs; changes is the share of requests in which the part differs
#   from the request before. Changes rise, ties keep their order, and the part named "question" comes last however
#   seldom it changes. The list given stays as it is.
# - `prompt_cost(requests, hit_price, miss_price, block_size)`: prices are dollars per million tokens. The provider's
#   cache has no limit. Only full blocks are found, and at least one token is computed: the rule of `match`. A negative
#   price and a block size below 1 raise `ValueError`.


# %% solution="prefix.6" part="a"
def order_prompt(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The parts of a prompt in the order that keeps most of it the same from request to request.

    parts: (name, changes) pairs; changes is the share of requests in which the part differs from the request before,
    0 for never, 1 for always. Parts that change less come first, equal ones stay in their order, and a part with the
    name "question" comes last however seldom it changes. The list given is left as it is.
    """
    ### BEGIN SOLUTION
    return sorted(parts, key=lambda part: (part[0] == "question", part[1]))
    ### END SOLUTION


# %% solution="prefix.6" part="b"
def prompt_cost(requests: Sequence[Sequence[int]], hit_price: float, miss_price: float, block_size: int) -> float:
    """What the prompts of some requests cost, in order of arrival, at a provider with a cache without limit.

    requests: the tokens of each prompt; hit_price, miss_price: dollars for a million cached or computed tokens
    Hits are the full blocks of the longest prefix that an earlier prompt had, and one token at least is computed:
    (n - 1) // block_size blocks at most. ValueError for a negative price and a block size below 1.
    """
    ### BEGIN SOLUTION
    require(hit_price >= 0, f"hit_price must not be negative, got {hit_price}: it is dollars for a million tokens")
    require(miss_price >= 0, f"miss_price must not be negative, got {miss_price}: it is dollars for a million tokens")
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    cached: set[bytes] = set()
    cost = 0.0
    for tokens in requests:
        keys, hits = block_keys(tokens, block_size), 0
        for key in keys[: (len(tokens) - 1) // block_size]:
            if key not in cached:
                break
            hits += block_size
        cached.update(keys)
        cost += hits * hit_price + (len(tokens) - hits) * miss_price
    return cost / 1_000_000
    ### END SOLUTION


# %% check="prefix.6"
if __name__ == "__main__":
    check("prefix.6")


# %% demo=true
if __name__ == "__main__":
    parts = [("question", 0.2), ("time", 1.0), ("system prompt", 0.0), ("document", 0.4), ("tools", 0.0)]
    print("best order:", [name for name, _ in order_prompt(parts)])
    for name, first in (("system prompt first", False), ("question first", True)):
        two = shared_prefix(2, shared=3000, unique=40, unique_first=first)
        cost = prompt_cost(two, hit_price=0.10, miss_price=1.00, block_size=8)
        print(f"{name:19}: {cost:.6f} dollars for two prompts of 3,040 tokens")

# %% [markdown]
# ### Find what breaks the prefix
#
# Here are logs of one application: instructions, a list of tools, a question. Each log is spoilt in one way that is
# seen in practice. `break_point` looks for the first part that differs, and `money` says what a million such prompts
# cost at the prices above (an illustration; real price lists differ).

# %% demo=true
if __name__ == "__main__":
    from kvcourse.workload.breakers import BREAKERS, prompt_log

    def chat_tokens(text):
        return tokens_of(prompts.Prompt("log", "log", ({"role": "user", "content": text},)))

    def money(log):
        requests = [chat_tokens("".join(part.text for part in parts)) for parts in log]
        return prompt_cost(requests, hit_price=0.10, miss_price=1.00, block_size=16) / len(log) * 1_000_000

    def break_point(log):
        """The name of the first part in which any two prompts of the log differ."""
        for column in zip(*log, strict=True):
            if len({part.text for part in column}) > 1:
                return column[0].name

    logs = {breaker: prompt_log(breaker, requests=12) for breaker in BREAKERS}
    for breaker, log in logs.items():
        print(f"{breaker:15} prefix ends in part {break_point(log)!r:13} {money(log):6.1f} dollars per million prompts")

# %% [markdown]
# Now repair them. Two tools: `order_prompt`, with the shares of change measured in the log itself, and a normal form
# for parts that mean the same in different spelling (sorted tools, no space at the borders).

# %% demo=true
if __name__ == "__main__":
    from itertools import pairwise

    from kvcourse.workload.breakers import Part

    def changes(log):
        """How often each part differs from the request before, by name."""
        return {
            name: sum(a != b for a, b in pairwise(texts)) / (len(texts) - 1)
            for name in (part.name for part in log[0])
            for texts in ([part.text for parts in log for part in parts if part.name == name],)
        }

    def reordered(log):
        order = [name for name, _ in order_prompt(list(changes(log).items()))]
        return [sorted(parts, key=lambda part: order.index(part.name)) for parts in log]

    def normal(part):
        if part.name == "tools":
            return Part(part.name, "\n".join(sorted(part.text.split("\n"))[1:]) + "\n")
        return Part(part.name, part.text.strip() + ("" if part.name == "question" else "\n"))

    print("dollars per million prompts   as sent   reordered   normal form, then reordered")
    for breaker, log in logs.items():
        fixed = reordered([[normal(part) for part in parts] for parts in log])
        print(f"{breaker:28} {money(log):>8.1f} {money(reordered(log)):>11.1f} {money(fixed):>29.1f}")

# %% [markdown]
# - **Timestamp, request id, question first**: order repairs them. Better still, leave out what the model does not need.
# - **Tool order**: no order helps while the text itself differs. A set or a dictionary printed in another order is the
#   usual cause, sorting the repair.
# - **White space**: reordering saves half by putting the tools in front of the instructions, which is not what anybody
#   wanted. The normal form repairs the cause.
#
# The few dollars above those of the clean log come from questions of another length, and from the time or id itself,
# which is still sent.
#
# One breaker leaves no trace in the text at all. A tokenizer cuts a text in one way as a whole and in another way in
# pieces, and a model writes pieces. If turn 2 encodes the text of turn 1 anew, in place of keeping its tokens, the
# prefix can end inside it.

# %% demo=true
if __name__ == "__main__":
    text = "The harbour museum opens at nine. Unfortunately it is closed today."
    whole = real.tokenizer.encode(text, add_special_tokens=False)
    cut = text.index("tunately")
    pieces = [
        token for part in (text[:cut], text[cut:]) for token in real.tokenizer.encode(part, add_special_tokens=False)
    ]
    print("same text:", real.tokenizer.decode(whole) == real.tokenizer.decode(pieces))
    print(f"{len(whole)} and {len(pieces)} tokens, {shared_prefix_length(whole, pieces)} of them shared")

# %% [markdown]
# ## Who may share: salts and a side channel
#
# A hit is quicker than a miss, and everybody who sends requests can see that. So a shared cache answers a question that
# nobody meant to allow: has anyone sent this text before? Tenant A sends a private prompt. Tenant B sends guesses and
# looks at the clock; the engine's count of computed tokens stands beside it, because it has no noise.

# %% demo=true
if __name__ == "__main__":
    frame = "Write a short letter to my doctor. I have been thinking about this for days and want to be polite. " * 2
    secrets = ["a broken arm", "a bad cough", "high blood pressure", "trouble sleeping"]
    letters = {
        secret: chat_tokens(f"{frame}I am worried about {secret}. " + "Ask for a date soon. " * 6) for secret in secrets
    }

    def spy(salts):
        """What each guess of tenant B computes after tenant A asked about the third secret."""
        for guess in secrets:
            engine = Engine(real.model, num_blocks=256, block_size=16, prefix_cache=PrefixCache)
            engine.add_request(letters[secrets[2]], max_new_tokens=1, extra=salts("tenant-a"))
            engine.run()
            number = engine.add_request(letters[guess], max_new_tokens=1, extra=salts("tenant-b"))
            engine.run()
            metrics = engine.request(number).metrics
            print(f"   {guess:20} computed {metrics.computed:>3} tokens, TTFT {1000 * metrics.ttft:4.0f} ms")

    print("no salts:")
    spy(lambda tenant: ())
    print("a salt per tenant:")
    spy(lambda tenant: (("salt", tenant),))

# %% [markdown]
# Without salts the right guess stands out. An attacker need not guess a whole prompt: a block is 16 tokens, and a hit
# on one confirms it before the next is tried. With a salt, the first key of tenant B differs from that of tenant A, and
# so do all others: nothing can be told apart.
#
# The price is sharing: a system prompt that all tenants use is now computed and stored once per tenant. Some providers
# draw the line at the organisation. A finer choice is a salt that starts behind the public part of the prompt, which a
# chain of keys allows as well.

# %% [markdown]
# ## prefix.7 beyond the prefix (harder, may be skipped)
#
# Retrieval puts the same documents into many prompts, behind other text each time. The prefix ends before them. Could
# their keys and values be used all the same? Two things are wrong with them.
#
# **The position.** Most models turn each key by angles that grow with its position (**RoPE**). A document that was
# cached from position 0 on and now starts at position 200 has keys turned for the wrong places. But turning is
# additive: turn them by 200 positions more, and they are right. Small, by hand, head dimension 2: a key (1, 0) shifted
# by one position becomes (cos 1, sin 1) = (0.540, 0.841). Values are not turned.
#
# **The content.** From layer 1 on, keys and values of the document have taken in what stood in front of it, as you saw
# above. No turn repairs that. **CacheBlend** computes some tokens of the document again, in every layer, with the right
# text in front, and keeps the rest as it is: those tokens whose keys are furthest from what they should be.
#
# **Your task.** Two functions:
#
# - `shift_keys(keys, delta, theta)`: half-split layout, in which number i and number i + head_dim / 2 form a point, as
#   in Llama-type models. The angles in 32 bits or more, a new tensor of the old dtype, an odd head_dim is refused.
# - `pick_recompute(cached_k, fresh_k, ratio)`: the deviation of a token is the L2 length of the difference of its keys
#   over all heads. Pick ceil(ratio × tokens) tokens, of equal ones the earlier, as a sorted list.
#   A ratio outside 0..1 and keys of different shapes are refused with `ValueError`, naming the shapes.

# %%
import math

import torch


# %% solution="prefix.7" part="a"
def shift_keys(keys: torch.Tensor, delta: int, theta: float) -> torch.Tensor:
    """Cached keys as they would be `delta` positions later (earlier, if it is negative).

    keys: [..., head_dim], rotated for their old positions in the half-split layout: number i and number
    i + head_dim / 2 are the two coordinates of one point. Rotating a point by one position turns it by the angle
    theta ** (-2 * i / head_dim), from its first coordinate towards its second.
    A new tensor of the same shape and dtype; the angles are computed in 32 bits or more. ValueError, naming the keys,
    if head_dim is odd.
    """
    ### BEGIN SOLUTION
    head_dim = keys.shape[-1]
    require(head_dim % 2 == 0, f"keys have an odd head_dim, {head_dim}: they cannot be split into halves")
    half = head_dim // 2
    angles = delta * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    first, second = keys.double().split(half, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(keys.dtype)
    ### END SOLUTION


# %% solution="prefix.7" part="b"
def pick_recompute(cached_k: torch.Tensor, fresh_k: torch.Tensor, ratio: float) -> list[int]:
    """The tokens whose cached keys are furthest from what they should be: those worth computing again.

    cached_k, fresh_k: [tokens, kv_heads, head_dim]. A token's deviation is the length of the difference of its keys,
    all heads together: the square root of the sum of squares, in 32 bits or more.
    The ceil(ratio * tokens) tokens with the largest deviation, in rising order; of equal ones the earlier.
    ValueError for a ratio outside 0..1, and for keys of different shapes, naming the shapes.
    """
    ### BEGIN SOLUTION
    require(0 <= ratio <= 1, f"ratio must be between 0 and 1, got {ratio}: it is a share of the tokens")
    require(
        cached_k.shape == fresh_k.shape,
        f"cached_k and fresh_k have the shapes {tuple(cached_k.shape)} and {tuple(fresh_k.shape)}: use the same tokens",
    )
    deviation = (fresh_k.float() - cached_k.float()).flatten(1).norm(dim=1)
    count = math.ceil(ratio * len(deviation))
    worst_first = torch.argsort(deviation, descending=True, stable=True)
    return sorted(worst_first[:count].tolist())
    ### END SOLUTION


# %% check="prefix.7"
if __name__ == "__main__":
    check("prefix.7")


# %% [markdown]
# ### Plug it in: a document in another place
#
# `forward` runs tokens at any positions, with any cached keys and values in front: the mask lets each token look at
# everything whose position is not behind its own. First the shift alone: a document is read from position 0 on, then
# the same document with nothing in front but from position 60 on.

# %% demo=true
if __name__ == "__main__":
    from random import Random
    from typing import NamedTuple

    from kvcourse.workload.phrases import FACTS, QUESTIONS, RULES, passage, sentence

    @torch.no_grad()
    def forward(tokens, start, held=None, places=()):
        """Log-probabilities [tokens, vocab], and (keys, values) by layer, each [tokens, kv_heads, head_dim].

        start: position of the first token, or a list of positions; held: (keys, values) by layer at `places`
        """
        cache, old = transformers.DynamicCache(), list(places)
        for layer, (keys, values) in enumerate(held or []):
            cache.update(keys.transpose(0, 1)[None], values.transpose(0, 1)[None], layer)
        own = start if isinstance(start, list) else list(range(start, start + len(tokens)))
        at, all_at = torch.tensor(own), torch.tensor(old + own)
        mask = torch.zeros(len(own), len(all_at)).masked_fill(all_at > at[:, None], torch.finfo(torch.float32).min)
        options = {"position_ids": at[None], "attention_mask": mask[None, None], **cache_argument(real.model, cache)}
        logits = real.model(torch.tensor([tokens]), use_cache=True, **options).logits[0]
        new = [
            (x.keys[0, :, len(old) :].transpose(0, 1), x.values[0, :, len(old) :].transpose(0, 1)) for x in cache.layers
        ]
        return logits.log_softmax(-1), new

    theta = real.config.rope_parameters["rope_theta"]

    def encode(text):
        return real.tokenizer.encode(text, add_special_tokens=False)

    document = encode(passage(Random(0), FACTS, 60))
    at_0, at_60 = forward(document, 0)[1], forward(document, 60)[1]
    for layer in (0, len(at_0) - 1):
        (old_k, old_v), (new_k, new_v) = at_0[layer], at_60[layer]
        shifted = shift_keys(old_k, 60, theta)
        print(
            f"layer {layer:>2}: largest key {new_k.abs().max():5.1f}; largest difference "
            f"unshifted {(old_k - new_k).abs().max():6.2f}, shifted {(shifted - new_k).abs().max():.5f}, "
            f"values {(old_v - new_v).abs().max():.5f}"
        )

# %% [markdown]
# For a pure shift of position the keys agree to rounding in 32 bits, in every layer, and the values need nothing.
#
# Now the real case. A document was cached alone, and stands behind instructions in the new prompt, with a question
# after it. The measure is the KL divergence of the distribution over the next token, mean over the tokens of the
# question, against the model that computed everything; 0 means the same. Three ways of picking tokens compete: your
# `pick_recompute` on the keys of layer 1, the first tokens, and random ones.

# %% demo=true
if __name__ == "__main__":

    class Case(NamedTuple):
        """A prompt in three parts, and what the model computes for it from nothing."""

        front: list[int]
        document: list[int]
        question: list[int]
        exact: torch.Tensor
        full: list

    def blend(case, cached, again):
        """KL of the question's tokens with the document from `cached`, its tokens `again` computed anew."""
        F, D, Q = len(case.front), len(case.document), len(case.question)
        keep = [i for i in range(D) if i not in set(again)]
        held = [
            (torch.cat([k[:F], ck[keep]]), torch.cat([v[:F], cv[keep]]))
            for (k, v), (ck, cv) in zip(case.full, cached, strict=True)
        ]
        tokens = [case.document[i] for i in again] + case.question
        own = [F + i for i in again] + list(range(F + D, F + D + Q))
        got = forward(tokens, own, held, [*range(F), *(F + i for i in keep)])[0][-Q:]
        want = case.exact[-Q:]
        return float((want.exp() * (want - got)).sum(-1).mean().clamp(min=0))

    shares, texts_tried = (0, 0.05, 0.15, 0.3, 0.5, 1), 3
    curves = {way: [0.0] * len(shares) for way in ("largest deviation", "first tokens", "random tokens")}
    unshifted = 0.0
    for seed in range(texts_tried):
        rng = Random(seed)
        front, document = encode(passage(rng, RULES, 40) + "\n"), encode(passage(rng, FACTS, 80) + "\n")
        question = encode(f"Question: {sentence(rng, QUESTIONS)}\nAnswer:")
        F, D = len(front), len(document)
        case = Case(front, document, question, *forward(front + document + question, 0))
        alone = forward(document, 0)[1]
        turned = [(shift_keys(keys, F, theta), values) for keys, values in alone]
        fresh = case.full[1][0][F : F + D]
        unshifted += blend(case, alone, []) / texts_tried
        ends = {share: blend(case, turned, list(range(round(share * D)))) for share in (0, 1)}
        for column, share in enumerate(shares):
            picked = pick_recompute(turned[1][0], fresh, share)
            others = (picked, list(range(len(picked))), sorted(rng.sample(range(D), len(picked))))
            for line, again in zip(curves.values(), others, strict=True):
                line[column] += (ends[share] if share in ends else blend(case, turned, again)) / texts_tried
    print(f"KL in nats, mean of {texts_tried} texts; not even shifted: {unshifted:.3f}")
    print("share computed again  ", "  ".join(f"{100 * share:>4.0f} %" for share in shares))
    for way, line in curves.items():
        print(f"{way:20}    ", "  ".join(f"{kl:.4f}" for kl in line))
    print(f"picked at 15 % in the last text of {D} tokens: {pick_recompute(turned[1][0], fresh, 0.15)}")
    plots.error_by_share(shares, curves, "Well-chosen tokens repair more than as many random ones")

# %% [markdown]
# - **At share 1 the result is exact**: everything is computed again, in its right place.
# - **The shift does most of the work**, at nearly no cost: 0.179 nats without it, 0.049 with it.
# - **A few well-chosen tokens help more than many at random**: on SmolLM2 5 % picked by deviation leave 0.031 nats,
#   30 % at random leave 0.039.
# - **Most of the picked ones stand early in the document**, and taking simply the first tokens does as well up to 30 %.
#   Likely reasons: an early token has little of its own document to look at, so what stands in front matters most to
#   it; and the first token of a text is often an **attention sink**, where attention parks weight it has no use for,
#   which it must not be in the middle of a prompt.
# - **Below share 1 it does not reach 0.** What is left at 15 % is an error, not noise: this is lossy, unlike everything
#   before it in this lesson.
#
# What this cannot show: one model of 135 million weights (or a random one, if you have not fetched it), three short
# texts, and next-token distributions rather than answers. The paper of CacheBlend reports no or small loss of quality
# at about 15 % on models of 7 to 70 billion weights. Whether that holds for your model and task, you have to measure.
# And `fresh_k` came from a full pass here; CacheBlend computes it for the first layers only and narrows the choice
# layer by layer, else nothing would be saved.
#
# Why the prefix is still the main form of reuse: it is exact, needs no choice of a share, and costs a dictionary.

# %% [markdown]
# ## How real systems do it
#
# As of late 2026; settings and defaults move, so check the linked pages.
#
# - **vLLM**. A dictionary of chained hashes over full blocks of 16 tokens, with adapter, image and `cache_salt` in the
#   hash: your prefix.2. Free blocks in a queue, a request's tail before its head, copies kept: your prefix.3 to
#   prefix.5. Why: blocks exist anyway for paged attention, and a dictionary costs O(1) for each. Source:
#   [design](https://docs.vllm.ai/en/latest/design/prefix_caching/).
# - **SGLang** (RadixAttention). A radix tree over tokens, with LRU that evicts leaves first and counts users in its
#   nodes; requests can be run in the order of their longest match. Why: the tree gives that order, and sharing down to
#   single tokens when the page size is 1. Source: [paper](https://arxiv.org/abs/2312.07104).
# - **TensorRT-LLM**. Blocks in a tree, 32 tokens by default; a block that is partly equal can be reused by copying it,
#   and users can give token ranges a priority for eviction and its duration. Why: an operator knows more than LRU does,
#   for example that a system prompt will come back. Source:
#   [cache](https://nvidia.github.io/TensorRT-LLM/features/kvcache.html).
# - **LMCache**. Chunks of 256 tokens by default, with chained hashes, stored outside the engine in CPU memory, on disk
#   or on other machines. Why: bigger chunks suit slow media, and several engines share one store; so the hash must
#   agree between processes. Source: [code and documents](https://github.com/LMCache/LMCache).
# - **CacheBlend** (now part of LMCache). Reuse of chunks in any place: positions corrected, about 15 % of the tokens
#   computed again. Why: retrieval repeats documents, not prefixes. Source: [paper](https://arxiv.org/abs/2405.16444).
#
# What your cache leaves out: layers with sliding windows or states (each kind needs rules of its own, lesson 6), other
# places to keep blocks than the pool (lesson 3), and other machines (lesson 4).

# %% [markdown]
# ## Questions
#
# `quiz("prefix")` shows them. Answer with `quiz("prefix.q1", "b")`.

# %% demo=true
if __name__ == "__main__":
    quiz("prefix")

# %% [markdown]
# ## Summary
#
# - Keys and values of a token depend on it and on everything before it. So what two prompts share from the first token
#   on can be computed once, exactly, and nothing behind the first difference can.
# - Order decides: 3,000 of 3,040 tokens with the system prompt first, 0 with the question first.
# - A cache is a dictionary from chained keys to blocks, a count of users per block, and a queue of idle blocks. At
#   least one token is computed, and only full blocks are found.
# - Idle blocks keep their content until somebody needs room: empty ones first, then the longest idle, tails before
#   heads.
# - Time, ids, tool order, white space and another tokenisation break a prefix. Each is found by comparing two prompts.
# - Sharing leaks: a hit tells that somebody sent the text. A salt per tenant closes that, at the price of sharing.
# - Reuse beyond the prefix is possible and inexact: shift the positions, compute some tokens again.
#
# ### If you are asked in an interview
#
# - **What is prefix caching?** Every engine keeps keys and values within a request. A prefix cache keeps them between
#   requests: the shared prefix is read, the rest is computed, so prefill and TTFT shrink. Decode is as before.
# - **Why do providers charge less for cache hits?** A found token takes almost no compute.
# - **Where does the prefix end?** At the first token that differs. So stable content first and novel tokens late; a
#   different first token means no reuse at all.
# - **Why not reuse an equal paragraph in the middle?** Autoregression: its keys and values have taken in other text.
#   CacheBlend and LMCache correct positions and compute some entries again, with a small error.
# - **How is it built?** Chained hash per full block, extras in the root, reference counts, LRU with tails first.
#   Mention that one token is always computed, and the race for idle blocks that were found.
# - **What goes wrong in production?** A timestamp in the first line, tools in random order, a pool too small for the
#   traffic, tenants who can see each other's hits, a hash that differs between processes.
#
# ### Further reading
#
# - Kwon and others, [PagedAttention](https://arxiv.org/abs/2309.06180): blocks, and sharing them.
# - Zheng and others, [SGLang](https://arxiv.org/abs/2312.07104): the radix tree and scheduling by match.
# - Gim and others, [Prompt Cache](https://arxiv.org/abs/2311.04934): reuse of marked modules in a prompt.
# - Yao and others, [CacheBlend](https://arxiv.org/abs/2405.16444): reuse in any place.
# - Qin and others, [Mooncake](https://arxiv.org/abs/2407.00079): a cache as the centre of a service, and the
#   trace above.

# %% demo=true
if __name__ == "__main__":
    progress()
