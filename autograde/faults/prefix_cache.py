"""Planted mistakes of prefix.3 to prefix.5, the cache itself; S-, P- and log numbers are those of the course notes."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- prefix.3


@fault("prefix.3", caught_by="test_chains_are_found", why="takes block 0 for no block")
class block_zero:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            found = []
            for key in keys:
                if not self.block_of.get(key):
                    break
                found.append(self.block_of[key])
            return found


@fault("prefix.3", caught_by="test_chains_are_found", why="gives keys, not blocks")
class keys_for_blocks:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            return block_keys(tokens, self.block_size, extra)[: len(super().match(tokens, extra))]


@fault("prefix.3", caught_by="test_chains_are_found", why="finds the first block only")
class first_block:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            return super().find(keys[:1])


@fault("prefix.3", caught_by="test_holes", why="counts blocks behind the first miss", source="P2.2")
class over_the_hole:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            if not keys or keys[0] not in self.block_of:
                return []
            return [self.block_of[key] for key in keys if key in self.block_of]


@fault("prefix.3", caught_by="test_holes", why="looks from the end for the longest key that is there")
class from_the_end:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            if not keys or keys[0] not in self.block_of:
                return []
            last = max(i for i, key in enumerate(keys) if key in self.block_of)
            return [self.block_of.get(key, 0) for key in keys[: last + 1]]


@fault("prefix.3", caught_by="test_prompts_that_are_all_there", why="leaves no token to compute", source="S2.3, log 35")
class nothing_left:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            return self.find(block_keys(tokens, self.block_size, extra))


@fault("prefix.3", caught_by="test_salted_chains", why="looks up without extras", source="S2.8, C2.7")
class no_extras:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            return super().match(tokens)


@fault(
    "prefix.3", caught_by="test_forgotten_blocks", why="forgets the block's key, not the key's block", source="log 36"
)
class half_forgotten:
    class PrefixCache(reference.PrefixCache):
        def forget(self, block):
            self.key_of.pop(block, None)


@fault("prefix.3", caught_by="test_forgotten_blocks", why="forgets everything behind the block too")
class forgets_too_much:
    class PrefixCache(reference.PrefixCache):
        def forget(self, block):
            if block in self.key_of and not self.copies:
                keys = list(self.block_of)
                for key in keys[keys.index(self.key_of[block]) :]:
                    super().forget(self.block_of[key])
            else:
                super().forget(block)


@fault("prefix.3", caught_by="test_forgotten_blocks", why="cannot forget a block that holds nothing")
class forgets_once:
    class PrefixCache(reference.PrefixCache):
        def forget(self, block):
            self.key_of[block]
            super().forget(block)


@fault("prefix.3", caught_by="test_copies_in_turn", why="loses all copies with one", source="S2.6, P2.6")
class loses_copies:
    class PrefixCache(reference.PrefixCache):
        def forget(self, block):
            key = self.key_of.pop(block, None)
            self.block_of.pop(key, None)
            self.copies.pop(key, None)


@fault("prefix.3", caught_by="test_copies_in_turn", why="finds the newest copy", source="log 37, nano-vllm #219")
class newest_copy:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            return [self.copies.get(key, [block])[-1] for key, block in zip(keys, super().find(keys), strict=False)]


@fault("prefix.3", caught_by="test_copies_in_turn", why="keeps the first copy only", source="S2.6")
class no_copies:
    class PrefixCache(reference.PrefixCache):
        def publish(self, blocks, keys):
            for block, key in zip(blocks, keys, strict=False):
                if key not in self.block_of:
                    super().publish([block], [key])


@fault("prefix.3", caught_by="test_blocks_with_new_content", why="keeps the old content too", source="log 36")
class old_content:
    class PrefixCache(reference.PrefixCache):
        def publish(self, blocks, keys):
            for block in blocks:
                self.key_of.pop(block, None)
            super().publish(blocks, keys)


@fault("prefix.3", caught_by="test_looking_changes_nothing", why="takes what it finds", source="P2.4")
class takes:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            found = super().match(tokens, extra)
            self.seen = getattr(self, "seen", 0) + 1
            for block in found if self.seen > 6 else []:
                self.forget(block)
            return found


@fault(
    "prefix.3", caught_by="test_nothing_is_found_by_chance", why="compares 16 bits of a key", source="P2.3, log 12, 16"
)
class short_keys:
    class PrefixCache(reference.PrefixCache):
        def publish(self, blocks, keys):
            super().publish(blocks, [key[:2] for key in keys])

        def find(self, keys):
            return super().find([key[:2] for key in keys])


@fault("prefix.3", caught_by="test_nothing_is_found_by_chance", why="uses keys made with hash()", source="log 13, P2.3")
class hash_keys:
    def block_keys(tokens, block_size, extra=()):
        keys, parent = reference.block_keys(tokens, block_size, extra), hash(tuple(map(tuple, extra)))
        for i in range(len(keys)):
            parent = hash((parent, *tokens[i * block_size : (i + 1) * block_size]))
            keys[i] = blake2s(str(parent).encode()).digest()
        return keys

    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            keys = block_keys(tokens, self.block_size, extra)
            return self.find(keys[: (len(tokens) - 1) // self.block_size])


# --- prefix.4


@fault("prefix.4", caught_by="test_blocks_of_their_own", why="rounds down")
class rounds_down:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            full = max(1, len(tokens) // self.block_size) * self.block_size
            return super().allocate(request_id, tokens[:full], extra)


@fault("prefix.4", caught_by="test_blocks_of_their_own", why="has a block in reserve for the answer")
class one_more:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            return super().allocate(request_id, [*tokens, *[-1] * self.block_size], extra)


@fault("prefix.4", caught_by="test_blocks_of_their_own", why="hands a block out twice")
class twice:
    class PrefixCache(reference.PrefixCache):
        def take(self, count):
            return [self.empty[-1 - i] for i in range(count)]


@fault("prefix.4", caught_by="test_blocks_of_their_own", why="calls new tokens hits")
class all_hits:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            return made and Allocation(made.block_table, len(tokens) // self.block_size * self.block_size)


@fault("prefix.4", caught_by="test_shared_prompts", why="publishes blocks when the request ends")
class late:
    class PrefixCache(reference.PrefixCache):
        def __init__(self, num_blocks, block_size):
            super().__init__(num_blocks, block_size)
            self.waiting = {}

        def allocate(self, request_id, tokens, extra=()):
            self.waiting[request_id], publish = [], self.publish
            self.publish = lambda blocks, keys: self.waiting[request_id].append((list(blocks), list(keys)))
            made = super().allocate(request_id, tokens, extra)
            self.publish = publish
            return made

        def free(self, request_id):
            for blocks, keys in self.waiting.pop(request_id, []):
                self.publish(blocks, keys)
            super().free(request_id)


@fault("prefix.4", caught_by="test_shared_prompts", why="copies what it finds")
class no_sharing:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            self.find, hits = (lambda keys: []), len(self.match(tokens, extra))
            made = super().allocate(request_id, tokens, extra)
            del self.find
            return made and Allocation(made.block_table, hits * self.block_size)


@fault("prefix.4", caught_by="test_shared_prompts", why="counts hits in blocks", source="R14")
class hits_in_blocks:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            return made and Allocation(made.block_table, made.hit_tokens // self.block_size)


@fault("prefix.4", caught_by="test_shared_prompts", why="leaves no token to compute", source="log 35, nano-vllm #144")
class nothing_to_compute:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            full = len(tokens) % self.block_size == 0
            if not full or len(self.match([*tokens, 0], extra)) * self.block_size < len(tokens):
                return super().allocate(request_id, tokens, extra)
            made = super().allocate(request_id, [*tokens, 0], extra)
            return made and Allocation(made.block_table[:-1], len(tokens))


@fault("prefix.4", caught_by="test_shared_prompts", why="shares a block that is not full", source="S2.2, vLLM #5188")
class shares_partial:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            mine = self.running[request_id]
            for other, theirs in self.running.items():
                if made and mine.rest and other != request_id and (theirs.key, theirs.rest) == (mine.key, mine.rest):
                    return Allocation([*made.block_table[:-1], theirs.table[-1]], made.hit_tokens + len(mine.rest))
            return made


@fault(
    "prefix.4",
    caught_by="test_requests_that_end",
    why="takes shared blocks from those who still use them",
    source="S2.4",
)
class shared_blocks:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            for block in self.running.pop(request_id).table:
                self.users[block] = 0
                self.idle.pop(block, None)
                self.forget(block)
                self.empty.append(block)


@fault("prefix.4", caught_by="test_requests_that_end", why="forgets what ended requests had", source="S2.5")
class forgets_at_end:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            super().free(request_id)
            for block in self.idle:
                self.forget(block)
            self.empty += self.idle
            self.idle.clear()


@fault("prefix.4", caught_by="test_requests_that_end", why="keeps partial blocks for ever")
class leaks:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            empty = list(self.empty)
            super().free(request_id)
            self.empty = empty


@fault("prefix.4", caught_by="test_requests_that_end", why="knows a number once and for all", source="log 39")
class numbers_once:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            self.known = getattr(self, "known", set())
            require(request_id not in self.known, f"request {request_id} has blocks already")
            made = super().allocate(request_id, tokens, extra)
            self.known |= {request_id} if made else set()
            return made


@fault("prefix.4", caught_by="test_requests_that_grow", why="takes a new block one token late")
class late_block:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            block = super().append(request_id, token)
            request = self.running[request_id]
            return request.table[-2] if len(request.rest) == 1 else block


@fault("prefix.4", caught_by="test_requests_that_grow", why="takes a new block for every token")
class block_a_token:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            super().append(request_id, token)
            [block] = self.take(1)
            self.users[block] = 1
            self.running[request_id].table.append(block)
            return block


@fault("prefix.4", caught_by="test_requests_that_grow", why="caches prompts only, not answers", source="S2.2")
class prompts_only:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            publish, self.publish = self.publish, lambda blocks, keys: None
            block = super().append(request_id, token)
            self.publish = publish
            return block


@fault("prefix.4", caught_by="test_requests_that_grow", why="does not chain the keys of an answer", source="P2.1")
class unchained:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            if request_id in self.running:
                self.running[request_id].key = NO_PARENT
            return super().append(request_id, token)


@fault("prefix.4", caught_by="test_requests_that_grow", why="forgets the prompt's part of a block", source="vLLM #5188")
class half_a_block:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            if made and self.running[request_id].rest:
                self.running[request_id].rest = [0] * len(self.running[request_id].rest)
            return made


@fault("prefix.4", caught_by="test_salted_requests", why="caches without extras", source="S2.8, log 10")
class unsalted:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            return super().allocate(request_id, tokens)

        def match(self, tokens, extra=()):
            return super().match(tokens)


@fault("prefix.4", caught_by="test_salted_answers", why="loses the salt when an answer fills a block", source="S2.8")
class salt_lost:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            if made and extra:
                full = len(tokens) // self.block_size * self.block_size
                self.running[request_id].key = [NO_PARENT, *block_keys(tokens[:full], self.block_size)][-1]
            return made


@fault("prefix.4", caught_by="test_refused_prompts", why="takes what there is and then gives up", source="P2.4")
class takes_some:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            if made is None:
                self.empty = self.empty[1:]
            return made


@fault("prefix.4", caught_by="test_refused_prompts", why="gives as many blocks as there are", source="all or nothing")
class some_blocks:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            room = (len(self.empty) + len(self.match(tokens, extra))) * self.block_size
            return super().allocate(request_id, tokens[:room], extra)


@fault("prefix.4", caught_by="test_refused_prompts", why="remembers a request that it refused", source="P2.6")
class remembers:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            self.refused = getattr(self, "refused", set())
            require(request_id not in self.refused, f"request {request_id} is known already")
            made = super().allocate(request_id, tokens, extra)
            self.refused |= set() if made else {request_id}
            return made


@fault("prefix.4", caught_by="test_refused_prompts", why="raises an error where it should say None")
class raises:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            require(made is not None, "no room")
            return made


@fault("prefix.4", caught_by="test_refused_tokens", why="remembers a token that it refused")
class token_kept:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            block = super().append(request_id, token)
            if block is None and request_id in self.running:
                self.running[request_id].rest = [token]
            return block


@fault("prefix.4", caught_by="test_refused_tokens", why="fails when no block is idle")
class no_room:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            block = super().append(request_id, token)
            require(block is not None, "no block is idle")
            return block


@fault("prefix.4", caught_by="test_idle_hits_are_needed_too", why="counts idle hits as room", source="S2.7")
class over_admits:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            hits = self.match(tokens, extra)
            new = -(-len(tokens) // self.block_size) - len(hits)
            if made is None and new <= len(self.empty) + len(self.idle):
                return Allocation((hits + self.empty + hits)[: len(hits) + new], len(hits) * self.block_size)
            return made


@fault(
    "prefix.4", caught_by="test_idle_hits_are_needed_too", why="wants room for hits that are in use too", source="S2.7"
)
class under_admits:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            if -(-len(tokens) // self.block_size) > len(self.empty) + len(self.idle) and self.match(tokens, extra):
                return None
            return super().allocate(request_id, tokens, extra)


@fault("prefix.4", caught_by="test_requests_that_cannot_be", why="lets a request end twice", source="P2.4")
class ends_twice:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            if request_id in self.running:
                super().free(request_id)


@fault("prefix.4", caught_by="test_requests_that_cannot_be", why="gives a request a second table")
class second_table:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            if request_id in self.running:
                self.free(request_id)
            return super().allocate(request_id, tokens, extra)


@fault("prefix.4", caught_by="test_requests_that_cannot_be", why="does not say which request")
class nameless:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            require(request_id in self.running, "no such request")
            return super().append(request_id, token)


# --- prefix.5


@fault("prefix.5", caught_by="test_blocks_are_counted", why="counts empty blocks as the only free ones", source="P2.8")
class free_is_empty:
    class PrefixCache(reference.PrefixCache):
        def stats(self):
            return super().stats() | {"free": len(self.empty)}


@fault("prefix.5", caught_by="test_blocks_are_counted", why="counts a shared block once for each user", source="P2.8")
class counts_users:
    class PrefixCache(reference.PrefixCache):
        def stats(self):
            return super().stats() | {"referenced": sum(self.users)}


@fault("prefix.5", caught_by="test_blocks_are_counted", why="counts idle blocks as the only cached ones")
class cached_is_idle:
    class PrefixCache(reference.PrefixCache):
        def stats(self):
            return super().stats() | {"cached": len(self.idle)}


@fault("prefix.5", caught_by="test_blocks_are_counted", why="never counts the blocks that an answer fills")
class answers_uncounted:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            before = len(self.key_of)
            block = super().append(request_id, token)
            self.uncounted = getattr(self, "uncounted", 0) + len(self.key_of) - before
            return block

        def stats(self):
            counts = super().stats()
            return counts | {"cached": counts["cached"] - getattr(self, "uncounted", 0)}


@fault("prefix.5", caught_by="test_tokens_are_counted", why="counts refused prompts too", source="S2.10")
class counts_refused:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            self.asked_tokens += 0 if made else len(tokens)
            return made


@fault("prefix.5", caught_by="test_tokens_are_counted", why="counts hits in blocks", source="R14")
class counts_blocks:
    class PrefixCache(reference.PrefixCache):
        def stats(self):
            counts = super().stats()
            return counts | {"hit_tokens": counts["hit_tokens"] // self.block_size}


@fault("prefix.5", caught_by="test_tokens_are_counted", why="counts lookups as hits", source="P2.4, log 17")
class counts_lookups:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            found = super().match(tokens, extra)
            self.hit_tokens += len(found) * self.block_size
            return found


@fault("prefix.5", caught_by="test_tokens_are_counted", why="counts appended tokens as asked")
class counts_appended:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            self.asked_tokens += 1
            return super().append(request_id, token)


@fault("prefix.5", caught_by="test_evictions_are_counted", why="counts empty blocks as evicted")
class counts_empty:
    class PrefixCache(reference.PrefixCache):
        def take(self, count):
            self.evictions += min(count, len(self.empty))
            return super().take(count)


@fault("prefix.5", caught_by="test_evictions_are_counted", why="counts calls, not blocks")
class counts_calls:
    class PrefixCache(reference.PrefixCache):
        def evict(self, count):
            before = self.evictions
            blocks = super().evict(count)
            self.evictions = before + 1
            return blocks


@fault("prefix.5", caught_by="test_refused_prompts_leave_no_trace", why="keeps the found blocks of a refused prompt",
       source="P2.4, P2.6")  # fmt: skip
class leaks_hits:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            made = super().allocate(request_id, tokens, extra)
            if made is None and len(tokens) > self.num_blocks * self.block_size:
                for block in self.match(tokens, extra):
                    self.users[block] += 1
                    self.idle.pop(block, None)
            return made


@fault("prefix.5", caught_by="test_nothing_old_is_found", why="finds evicted blocks", source="C2.4, log 36, vLLM #4761")
class finds_evicted:
    class PrefixCache(reference.PrefixCache):
        def evict(self, count):
            forget, self.forget = self.forget, lambda block: self.key_of.pop(block)
            blocks = super().evict(count)
            self.forget = forget
            return blocks


@fault("prefix.5", caught_by="test_nothing_old_is_found", why="believes an earlier lookup", source="P2.5, log 19")
class believes:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            self.known = getattr(self, "known", {})
            return self.known.setdefault((tuple(tokens), tuple(extra)), super().match(tokens, extra))


@fault("prefix.5", caught_by="test_nothing_old_is_found", why="never evicts", source="C2.4")
class never_evicts:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            hits = self.match(tokens, extra)
            if request_id not in self.running and -(-len(tokens) // self.block_size) > len(hits) + len(self.empty):
                return None
            return super().allocate(request_id, tokens, extra)


@fault("prefix.5", caught_by="test_longest_idle_first", why="evicts the most recent block")
class newest_first:
    class PrefixCache(reference.PrefixCache):
        def evict(self, count):
            self.idle = OrderedDict.fromkeys(reversed(self.idle))
            blocks = super().evict(count)
            self.idle = OrderedDict.fromkeys(reversed(self.idle))
            return blocks


@fault(
    "prefix.5", caught_by="test_longest_idle_first", why="evicts what came first, used again or not", source="FIFO, 7.1"
)
class first_in:
    class PrefixCache(reference.PrefixCache):
        def publish(self, blocks, keys):
            self.order = [*getattr(self, "order", []), *blocks]
            super().publish(blocks, keys)

        def evict(self, count):
            self.idle = OrderedDict.fromkeys(sorted(self.idle, key=lambda block: len(self.order)
                                                    - self.order[::-1].index(block)))  # fmt: skip
            return super().evict(count)


@fault("prefix.5", caught_by="test_longest_idle_first", why="evicts the smallest number")
class smallest_number:
    class PrefixCache(reference.PrefixCache):
        def evict(self, count):
            self.idle = OrderedDict.fromkeys(sorted(self.idle))
            return super().evict(count)


@fault("prefix.5", caught_by="test_longest_idle_first", why="evicts while there are empty blocks", source="S2.5, C2.1")
class evicts_first:
    class PrefixCache(reference.PrefixCache):
        def take(self, count):
            evicted = self.evict(min(count, len(self.idle)))
            return evicted + [self.empty.pop() for _ in range(count - len(evicted))]


@fault("prefix.5", caught_by="test_longest_idle_first", why="takes a lookup for a use", source="P2.4")
class lookups_count:
    class PrefixCache(reference.PrefixCache):
        def match(self, tokens, extra=()):
            found = super().match(tokens, extra)
            for block in reversed(found):
                if block in self.idle:
                    self.idle.move_to_end(block)
            return found


@fault("prefix.5", caught_by="test_tails_before_heads", why="evicts heads before tails", source="S2.5, 7.1 head first")
class heads_first:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            if request_id in self.running:
                self.running[request_id].table.reverse()
            super().free(request_id)


@fault("prefix.5", caught_by="test_tails_before_heads", why="evicts what it has just found", source="C2.3, P2.7, T5")
class evicts_hits:
    class PrefixCache(reference.PrefixCache):
        def take(self, count):
            if count > len(self.empty) and self.found:
                rest = self.idle
                self.idle = OrderedDict.fromkeys([*self.found[-1:], *rest])
                blocks = super().take(count)
                self.idle.pop(self.found[-1], None)
                return blocks
            return super().take(count)

        def find(self, keys):
            found = super().find(keys)
            self.found = [block for block in found if not self.users[block]]
            return found


@fault("prefix.5", caught_by="test_used_blocks_stay", why="makes a shared block idle too early", source="P2.7, S2.4")
class idle_too_early:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            table = list(self.running[request_id].table)
            super().free(request_id)
            for block in reversed(table):
                if self.users[block] and block in self.key_of:
                    self.idle[block] = None


@fault("prefix.5", caught_by="test_used_blocks_stay", why="never makes a shared block idle again", source="P2.8")
class never_idle:
    class PrefixCache(reference.PrefixCache):
        def allocate(self, request_id, tokens, extra=()):
            hits = [block for block in self.match(tokens, extra) if self.users[block]]
            made = super().allocate(request_id, tokens, extra)
            for block in hits if made else []:
                self.users[block] += 1
            return made


@fault("prefix.5", caught_by="test_used_blocks_stay", why="orders a shared block by its first user's end")
class first_end:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            table = list(self.running[request_id].table)
            before = list(self.idle)
            super().free(request_id)
            self.ends = getattr(self, "ends", {})
            for block in table:
                if self.users[block]:
                    self.ends.setdefault(block, len(before))
                elif block in self.idle and block in self.ends:
                    order = [b for b in self.idle if b != block]
                    order.insert(min(self.ends.pop(block), len(order)), block)
                    self.idle = OrderedDict.fromkeys(order)


@fault("prefix.5", caught_by="test_growth_under_pressure", why="does not forget what append evicts", source="log 36")
class append_keeps:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            forget, self.forget = self.forget, lambda block: self.key_of.pop(block, None)
            block = super().append(request_id, token)
            self.forget = forget
            return block


@fault("prefix.5", caught_by="test_growth_under_pressure", why="does not evict for an answer")
class append_waits:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            if request_id in self.running and not self.running[request_id].rest and not self.empty:
                return None
            return super().append(request_id, token)


@fault("prefix.5", caught_by="test_growth_under_pressure", why="takes an answer's blocks for empty when it ends")
class answers_are_empty:
    class PrefixCache(reference.PrefixCache):
        def append(self, request_id, token):
            block = super().append(request_id, token)
            self.filled = getattr(self, "filled", set()) | ({block} if block in self.key_of else set())
            return block

        def evict(self, count):
            filled = [block for block in self.idle if block in getattr(self, "filled", ())]
            self.idle = OrderedDict.fromkeys([*filled, *self.idle])
            return super().evict(count)


@fault(
    "prefix.5", caught_by="test_copies_and_salts_under_pressure", why="loses both copies with one", source="S2.6, C2.9"
)
class copies_lost:
    class PrefixCache(reference.PrefixCache):
        def forget(self, block):
            key = self.key_of.get(block)
            super().forget(block)
            if key in self.block_of:
                del self.block_of[key]
                self.copies.pop(key, None)
                self.key_of = {b: k for b, k in self.key_of.items() if k != key}


@fault(
    "prefix.5",
    caught_by="test_copies_and_salts_under_pressure",
    why="finds a copy that is not the first",
    source="log 37",
)
class last_copy:
    class PrefixCache(reference.PrefixCache):
        def find(self, keys):
            found = super().find(keys)
            return [self.copies.get(self.key_of[block], [block])[-1] for block in found]


@fault("prefix.5", caught_by="test_copies_and_salts_under_pressure", why="takes a copy for an empty block")
class copies_are_empty:
    class PrefixCache(reference.PrefixCache):
        def free(self, request_id):
            super().free(request_id)
            for block in list(self.idle):
                if self.block_of[self.key_of[block]] != block:
                    del self.idle[block]
                    self.forget(block)
                    self.empty.append(block)
