"""Who computes how much in the next step: the default scheduler, and the chunked one to compare with."""

from __future__ import annotations

from kvcourse.engine.sockets import Work

PACK = 2048  # tokens; packing more whole prompts into one forward is no faster, and the first ones would wait longer


def schedule_whole(running: list[Work], waiting: list[Work], budget: int) -> list[tuple[int, int]]:
    """First come, first served, one-block prefill: prompts are computed whole, and every decode waits for them.

    Only a prompt longer than the budget is cut: it cannot run otherwise.
    """
    plan: list[tuple[int, int]] = []
    total = 0
    for work in [w for w in running if w.tokens > 1] + waiting:
        if plan and total + work.tokens > min(budget, PACK):
            break
        plan.append((work.request_id, min(work.tokens, budget)))
        total += plan[-1][1]
    return plan or [(work.request_id, 1) for work in running[:budget]]


def schedule_chunked(running: list[Work], waiting: list[Work], budget: int) -> list[tuple[int, int]]:
    """Chunked prefill: one token for every decode, then prompts in order; the last one is cut to what is left."""
    prompts = [work for work in running if work.tokens > 1] + waiting
    decodes = [work for work in running if work.tokens == 1]
    room = budget - 1 if prompts else budget  # one token is kept for prompts: they must not starve
    plan = [(work.request_id, 1) for work in decodes[:room]]
    left = budget - len(plan)
    for work in prompts:
        if left == 0:
            break
        plan.append((work.request_id, min(work.tokens, left)))
        left -= plan[-1][1]
    return plan
