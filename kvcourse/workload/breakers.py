"""Logs of prompts that should share a long prefix and do not: the usual ways in which a prefix is broken."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kvcourse.workload.phrases import QUESTIONS, RULES, passage, sentence, tool_list

BREAKERS = ("none", "timestamp", "request id", "tool order", "white space", "question first")


class Part(NamedTuple):
    """A piece of a prompt; the prompt is its parts' texts, one after the other."""

    name: str
    text: str


def prompt_log(breaker: str, requests: int = 6, seed: int = 0, words: int = 120) -> list[list[Part]]:
    """Prompts of one application as they were sent, spoilt by `breaker` (one of BREAKERS); ValueError otherwise.

    With "none" all prompts share the parts "system" and "tools"; every other breaker ends the shared prefix early.
    """
    if breaker not in BREAKERS:
        raise ValueError(f"breaker {breaker!r} is not one of {', '.join(BREAKERS)}")
    stable, rng = Random(f"{seed}/stable"), Random(f"{seed}/{breaker}")
    system, tools = passage(stable, RULES, words) + "\n", tool_list(stable, 5)
    log = []
    for number in range(requests):
        order, head = list(tools), []
        if breaker == "timestamp":
            head = [Part("timestamp", f"It is {9 + number // 60:02}:{number % 60:02}:{rng.randint(0, 59):02}.\n")]
        elif breaker == "request id":
            head = [Part("request id", f"Request {rng.getrandbits(64):016x}\n")]
        elif breaker == "tool order" and number:
            while order == tools:
                rng.shuffle(order)
        space = " " * number if breaker == "white space" else ""
        parts = [
            *head,
            Part("system", space + system),
            Part("tools", "\n".join(order) + "\n"),
            Part("question", sentence(rng, QUESTIONS)),
        ]
        if breaker == "question first":
            parts.insert(0, parts.pop())
        log.append(parts)
    return log
