"""Prompts for a model that reads: the kinds of request whose prefixes repeat, in text and seeded.

Each family returns its prompts in the order they would arrive. `messages` go into a tokenizer's chat template as they
are. `weather` and `shared_prefix` are the two examples with tokens that can be counted by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kvcourse.workload.phrases import ANSWERS, FACTS, QUESTIONS, RULES, code_file, passage, sentence, tool_list

Message = dict[str, str]
CLERK = "You answer questions for the town hall of Brindle Quay. Be short and friendly. These are the rules.\n\n"
AGENT = "You are an agent of the town hall. Call one tool at a time, then answer. The tools are:\n"


@dataclass(frozen=True)
class Prompt:
    """One request to a chat model."""

    family: str
    session: str
    messages: tuple[Message, ...]

    def text(self) -> str:
        """The messages as plain paragraphs, for a model without a chat template."""
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in self.messages)


def chats(users: int = 4, seed: int = 0, system_words: int = 300) -> list[Prompt]:
    """Single questions of different users under one long system prompt."""
    system, rng = _system(seed, system_words), Random(f"{seed}/chats")
    return [
        Prompt("chat", f"user {user}", (system, _message("user", sentence(rng, QUESTIONS)))) for user in range(users)
    ]


def conversations(users: int = 2, turns: int = 3, seed: int = 0, system_words: int = 100) -> list[Prompt]:
    """Chats that grow: all users' first turns, then all second turns …; a turn repeats everything before it."""
    system, rng = _system(seed, system_words), Random(f"{seed}/conversations")
    said: list[tuple[Message, ...]] = [(system,) for _ in range(users)]
    prompts = []
    for _ in range(turns):
        for user in range(users):
            said[user] = (*said[user], _message("user", sentence(rng, QUESTIONS)))
            prompts.append(Prompt("conversation", f"user {user}", said[user]))
            said[user] = (*said[user], _message("assistant", sentence(rng, ANSWERS)))
    return prompts


def completions(requests: int = 4, seed: int = 0, functions: int = 12) -> list[Prompt]:
    """Code completion: the same file in front, another unfinished function behind it."""
    rng = Random(f"{seed}/code")
    file, prompts = code_file(rng, functions), []
    for number in range(requests):
        start = f"def total_{rng.randint(100, 999)}(fares: list[int]) -> int:\n    "
        prompts.append(Prompt("code", f"editor {number}", (_message("user", f"{file}\n{start}"),)))
    return prompts


def documents(
    questions: int = 4, documents: int = 2, seed: int = 0, words: int = 300, question_first: bool = False
) -> list[Prompt]:
    """Questions about documents, in turn; `question_first` puts the question in front, which spoils every prefix."""
    rng = Random(f"{seed}/documents")
    texts = [passage(rng, FACTS, words) for _ in range(documents)]
    prompts = []
    for number in range(questions):
        document, question = texts[number % documents], sentence(rng, QUESTIONS)
        parts = (question, document) if question_first else (document, question)
        prompts.append(Prompt("document", f"document {number % documents}", (_message("user", "\n\n".join(parts)),)))
    return prompts


def agents(runs: int = 2, steps: int = 3, seed: int = 0, tools: int = 8) -> list[Prompt]:
    """Agents that share a list of tools; each step repeats the run so far, with the tool's result added."""
    rng = Random(f"{seed}/agents")
    system = _message("system", AGENT + "\n".join(tool_list(rng, tools)))
    prompts = []
    for run in range(runs):
        said: tuple[Message, ...] = (system, _message("user", sentence(rng, QUESTIONS)))
        for step in range(steps):
            prompts.append(Prompt("agent", f"run {run}", said))
            call = f'{{"tool": {rng.randrange(tools)}, "limit": {rng.randint(1, 50)}}}'
            result = f"Result {step}: {passage(rng, FACTS, 30)}"
            said = (*said, _message("assistant", call), _message("user", result))
    return prompts


def weather(novel_first: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lesson's two prompts of four tokens: the city third (2 tokens are shared) or first (none are)."""
    if novel_first:
        return ("SF", "Weather", "in", "?"), ("NYC", "Weather", "in", "?")
    return ("Weather", "in", "SF", "?"), ("Weather", "in", "NYC", "?")


def shared_prefix(
    count: int = 2,
    shared: int = 3000,
    unique: int = 40,
    seed: int = 0,
    *,
    vocab: int = 32_000,
    first_token: int = 0,
    unique_first: bool = False,
) -> list[list[int]]:
    """`count` prompts of token ids in [first_token, vocab): `shared` common ones, then `unique` ones of their own.

    The first tokens of the unique parts all differ, so the shared prefix is exactly `shared` long (0 with
    `unique_first`). ValueError if there are more prompts than token ids.
    """
    if not 1 <= count <= vocab - first_token or shared < 0 or unique < 1:
        raise ValueError(
            f"{count} prompts, {shared} + {unique} tokens, ids from {first_token} below {vocab}: impossible"
        )
    rng = Random(f"{seed}/prefix")

    def tokens(length: int) -> list[int]:
        return [rng.randrange(first_token, vocab) for _ in range(length)]

    common = tokens(shared)
    own = [[first, *tokens(unique - 1)] for first in rng.sample(range(first_token, vocab), count)]
    return [part + common if unique_first else common + part for part in own]


def _system(seed: int, words: int) -> Message:
    return _message("system", CLERK + passage(Random(f"{seed}/system"), RULES, words))


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
