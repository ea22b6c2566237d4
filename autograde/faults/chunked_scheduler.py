"""Planted mistakes of chunked.2, the scheduler; K-numbers are those of the course notes."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

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
