"""Sectioned chain recall: the synthetic task of the bundled `recall` model, where a damaged cache gives wrong answers.

A context is a row of sections. Each opens with a header `SEC s7` and holds facts `e4 e9 .` in random order ("after e4
comes e9"; the facts of a section form one cycle), with filler words between them. A question `ASK s7 e4` is answered
by walking the facts of that section: `e9 ...`. Every answer token is one lookup, and an entity occurs in many sections
with other successors, so both the fact and its section must be read from the cache. Imports neither torch nor
transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAD, BOS, EOS, SEC, ASK, DOT = range(6)
SECTIONS, ENTITIES, FILLERS = 48, 256, 64  # how many names of each kind there are
FIRST_SECTION = 8
FIRST_ENTITY = FIRST_SECTION + SECTIONS
FIRST_FILLER = FIRST_ENTITY + ENTITIES
VOCAB = 384
SMALLEST_SECTION = 2 + 3 * 3  # a header and three facts


@dataclass(frozen=True)
class RecallSample:
    """Context and questions with their answers, as one row of token ids."""

    ids: np.ndarray  # int64 [context + answers]
    context: int  # ids[:context] is the context, the questions follow
    is_answer: np.ndarray  # bool, same shape: this token follows from the context by one lookup
    section_starts: tuple[int, ...]


def recall_sample(
    rng: np.random.Generator,
    context: int,
    answers: int = 192,
    section: int = 128,
    filler: float = 0.25,
    chain: tuple[int, int] = (4, 16),
) -> RecallSample:
    """A context of exactly `context` tokens, then `answers` tokens of questions and answers about it.

    section: tokens of a section, roughly. filler: share of filler words. chain: entities of a question, from the first
    number up to, not including, the second. ValueError when a section would be too short for a header and three facts.
    """
    count = int(np.clip(context // section, 1, SECTIONS))
    starts = 1 + np.arange(count + 1) * (context - 1) // count
    if np.diff(starts).min() < SMALLEST_SECTION:
        raise ValueError(f"context {context} with section {section} leaves a section below {SMALLEST_SECTION} tokens")
    names = rng.choice(SECTIONS, count, replace=False)
    row, cycles = [np.array([BOS])], []
    for name, size in zip(names, np.diff(starts), strict=True):
        tokens, cycle = _section(rng, name, size, filler)
        row.append(tokens)
        cycles.append(cycle)
    mask, length = [np.zeros(context, bool)], 0
    while length < answers:
        at = rng.integers(count)
        question = _question(rng, names[at], cycles[at], chain)
        row.append(question)
        mask.append(np.arange(len(question)) >= 3)  # after ASK, the section and the first entity
        length += len(question)
    ids, is_answer = (np.concatenate(pieces)[: context + answers] for pieces in (row, mask))
    return RecallSample(ids, context, is_answer, tuple(map(int, starts[:-1])))


def recall_prompt(rng: np.random.Generator, context: int, answers: int = 6) -> tuple[list[int], list[int]]:
    """A prompt of `context` + 3 tokens that ends in one question, and the `answers` tokens that a good model generates.

    ValueError when a section of so short a context holds too few facts for so many answers.
    """
    sample = recall_sample(rng, context, answers + 3, chain=(answers + 1, answers + 2))
    if not sample.is_answer[context + 3 :].all():
        raise ValueError(f"a context of {context} tokens has too few facts for {answers} answers in a row")
    return sample.ids[: context + 3].tolist(), sample.ids[context + 3 :].tolist()


def recall_words() -> list[str]:
    """The text of every token id; words are separated by spaces."""
    words = ["<pad>", "<bos>", "<eos>", "SEC", "ASK", "."] + [f"<unused{i}>" for i in range(VOCAB)]
    words = words[:FIRST_SECTION] + [f"s{i}" for i in range(SECTIONS)]
    words += [f"e{i}" for i in range(ENTITIES)] + [f"w{i}" for i in range(FILLERS)]
    return words + [f"<unused{i}>" for i in range(len(words), VOCAB)]


def _section(rng: np.random.Generator, name: int, size: int, filler: float) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of one section, and its entities in the order of their facts."""
    facts = min(ENTITIES, max(3, int((size - 2) * (1 - filler) / 3)))
    cycle = FIRST_ENTITY + rng.permutation(ENTITIES)[:facts]
    triples = np.stack([cycle, np.roll(cycle, -1), np.full(facts, DOT)], axis=1)[rng.permutation(facts)]
    gaps = np.bincount(rng.integers(0, facts, size - 2 - 3 * facts), minlength=facts)  # filler words after each fact
    starts = 2 + 3 * np.arange(facts) + np.cumsum(gaps) - gaps
    tokens = FIRST_FILLER + rng.integers(0, FILLERS, size)
    tokens[:2] = SEC, FIRST_SECTION + name
    tokens[starts[:, None] + np.arange(3)] = triples
    return tokens, cycle


def _question(rng: np.random.Generator, name: int, cycle: np.ndarray, chain: tuple[int, int]) -> np.ndarray:
    entities = min(int(rng.integers(*chain)), len(cycle))
    walk = np.take(cycle, rng.integers(len(cycle)) + np.arange(entities), mode="wrap")
    return np.concatenate([[ASK, FIRST_SECTION + name], walk])
