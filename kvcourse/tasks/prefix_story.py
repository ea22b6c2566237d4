"""Random calls for a prefix cache, held against the referee, and the shortest of them that goes wrong.

story = find_difference(PrefixCache)     # None if nothing is found
print(story.text())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kvcourse.tasks.api import Expectation, Failure, StudentError, expect
from kvcourse.tasks.prefix_draw import EVERYTHING, SHORTEST, Profile, draw_all
from kvcourse.tasks.prefix_judge import BlockState, Judge, Step, Verdict, shown
from kvcourse.tasks.show import show

MOST_TRIES = 400  # sequences tried on the way to the shortest one
MOST_CALLS = 500


@dataclass
class Told:
    """One call with its answer, and the blocks before it."""

    step: Step
    answer: str
    before: list[BlockState]

    def text(self) -> str:
        arguments = ", ".join(repr(argument) for argument in self.step.arguments())
        return f"{self.step.kind}({arguments})" + (f" gave {self.answer}" if self.answer != "None" else "")


@dataclass
class Story:
    """Calls in order; with a `verdict` the last one got a wrong answer."""

    num_blocks: int
    block_size: int
    told: list[Told] = field(default_factory=list)
    verdict: Verdict | None = None
    calls: int = 0

    @property
    def steps(self) -> list[Step]:
        return [told.step for told in self.told]

    def text(self) -> str:
        """The calls as one would type them, one a line; the answer of a wrong last one is left out."""
        lines = [f"PrefixCache(num_blocks={self.num_blocks}, block_size={self.block_size})"]
        lines += [f"{number}. {told.text()}" for number, told in enumerate(self.told, start=1)]
        if self.verdict is not None:
            lines[-1] = lines[-1].split(" gave ")[0]
        return "\n".join(lines)

    def failure(self) -> Failure:
        assert self.verdict is not None
        return Failure(self.text(), *self.verdict)


def find_difference(cache_class: type, seed: int = 0, sequences: int = 200) -> Story | None:
    """The shortest sequence found in which a cache class breaks a rule; every kind of call, no remote student."""
    from kvcourse.check.student import LocalStudent

    with LocalStudent({"PrefixCache": cache_class}).session() as student:
        for num_blocks, block_size, steps in draw_all(Random(seed), EVERYTHING, sequences):
            story = play(student.PrefixCache, num_blocks, block_size, steps)
            if story.verdict is not None:
                return shortened(student.PrefixCache, story)
    return None


def follow(
    make: Callable[[int, int], Any], rng: Random, profile: Profile, sequences: int, shortest: int = SHORTEST
) -> None:
    """Play random sequences, the shortest first; a Failure with the shortest wrong one that is found."""
    for num_blocks, block_size, steps in draw_all(rng, profile, sequences, shortest):
        must_follow(make, num_blocks, block_size, steps, profile.evicts)


def must_follow(
    make: Callable[[int, int], Any], num_blocks: int, block_size: int, steps: Iterable[Step], evicts: bool = True
) -> None:
    """A Failure with the shortest wrong sequence that is found, if these calls get a wrong answer."""
    story = play(make, num_blocks, block_size, steps, evicts)
    if story.verdict is not None:
        raise shortened(make, story, evicts).failure()


def play(
    make: Callable[[int, int], Any], num_blocks: int, block_size: int, steps: Iterable[Step], evicts: bool = True
) -> Story:
    """Make the calls that apply, up to the first wrong answer; without `evicts` none that needs to evict."""
    story, judge = Story(num_blocks, block_size), Judge(num_blocks, block_size)
    cache, methods = make(num_blocks, block_size), {}
    for step in steps:
        if not judge.applies(step) or (not evicts and judge.evicts(step)):
            continue
        before = judge.states()
        try:
            if step.kind not in methods:
                methods[step.kind] = getattr(cache, step.kind)
            answer = methods[step.kind](*step.arguments())
        except StudentError as error:
            verdict: Verdict | None = Verdict("an answer", str(error), "the call is allowed here", "")
            story.told.append(Told(step, str(error), before))
        else:
            verdict = judge.watch(step, answer)
            story.told.append(Told(step, shown(answer), before))
        story.calls += 1
        if verdict is not None:
            story.verdict = verdict
            break
    return story


def shortened(make: Callable[[int, int], Any], story: Story, evicts: bool = True) -> Story:
    """A shorter story that goes wrong as well: calls are left out and prompts cut for as long as that helps."""
    best, calls, tries = story, 0, 0
    progress = True
    while progress:
        progress = False
        for steps in _simpler(best):
            shorter = play(make, best.num_blocks, best.block_size, steps, evicts)
            calls, tries = calls + shorter.calls, tries + 1
            if shorter.verdict is not None and _length(shorter) < _length(best):
                best, progress = shorter, True
                break
            if tries >= MOST_TRIES or calls >= MOST_CALLS:
                return best
    return best


def _length(story: Story) -> tuple[int, int, int]:
    return len(story.told), sum(len(step.tokens) for step in story.steps), sum(bool(step.extra) for step in story.steps)


def _simpler(story: Story) -> Iterator[list[Step]]:
    """Without the calls of one request, without any run of calls, with shorter prompts, with a prompt for an append."""
    steps, size = story.steps, story.block_size
    for request in sorted({step.request for step in steps if step.kind != "match"}):
        yield [step for step in steps if step.request != request or step.kind == "match"]
    length = len(steps) // 2
    while length:
        for start in range(len(steps) - length, -1, -length):
            yield steps[:start] + steps[start + length :]
        length //= 2
    yield [step._replace(extra=()) for step in steps]
    for i, step in enumerate(steps):
        if step.kind in ("allocate", "match"):
            for tokens in (step.tokens[:size], step.tokens[size:], step.tokens[:-1]):
                if 0 < len(tokens) < len(step.tokens):
                    yield [*steps[:i], step._replace(tokens=tokens), *steps[i + 1 :]]
        if step.kind == "append":
            start = max(k for k in range(i) if steps[k][:2] == ("allocate", step.request))
            longer = steps[start]._replace(tokens=steps[start].tokens + step.tokens)
            yield [*steps[:start], longer, *steps[start + 1 : i], *steps[i + 1 :]]


class Calls:
    """A cache under test whose reports show all calls so far: `Calls(...).allocate(1, [5, 6]).equals(...)`."""

    def __init__(self, student: Any, num_blocks: int, block_size: int) -> None:
        self.student, self.size = student, block_size
        self.cache = student.PrefixCache(num_blocks, block_size)
        self.methods: dict[str, Callable[..., Any]] = {}
        self.lines = [f"PrefixCache(num_blocks={num_blocks}, block_size={block_size})"]

    def hold(self, blocks: list[int], tokens: list[int], extra: tuple = (), last: int = 0) -> None:
        """Publish blocks that hold the full blocks of `tokens`, or the `last` ones of them."""
        keys = self.student.block_keys(tokens, self.size, *((extra,) if extra else ()))
        text = f"block_keys({show(tokens, 60)}, {self.size}{f', {extra}' if extra else ''})"
        self._ask(
            "publish", (blocks, keys[-last:]), f"{show(blocks, 60)}, {text}{f'[-{last}:]' if last else ''}"
        ).result()

    def match(self, tokens: list[int], extra: tuple = ()) -> Expectation:
        return self._ask("match", (tokens, extra) if extra else (tokens,))

    def allocate(self, request: int, tokens: list[int], extra: tuple = ()) -> Expectation:
        return self._ask("allocate", (request, tokens, extra) if extra else (request, tokens))

    def append(self, request: int, token: int) -> Expectation:
        return self._ask("append", (request, token))

    def free(self, request: int) -> None:
        self.free_again(request).result()

    def free_again(self, request: int) -> Expectation:
        return self._ask("free", (request,))

    def make(self, step: Step, judge: Judge) -> None:
        """Any one call, with an answer that the referee allows."""
        asked = self._ask(step.kind, step.arguments())
        verdict = judge.watch(step, asked.result())
        if verdict is not None:
            raise Failure(asked.call, *verdict)

    def forget(self, block: int) -> None:
        self._ask("forget", (block,)).result()

    def stats(self, judge: Judge, *names: str, **why: str) -> None:
        """`stats` agrees with the referee, in all counts or in those that are named."""
        want = {name: number for name, number in judge.counts().items() if not names or name in names}
        told = ", ".join(f"{name} {number}" for name, number in want.items())
        self._ask("stats", ()).satisfies(lambda got: {name: got[name] for name in want} == want, told, **why)
        self.lines.pop()  # right counts need not be shown again

    def _ask(self, name: str, arguments: tuple, text: str = "") -> _Result:
        if name not in self.methods:
            self.methods[name] = getattr(self.cache, name)
        asked = expect(self.methods[name], *arguments)
        line = f"{len(self.lines)}. {name}({text or ', '.join(show(argument, 120) for argument in arguments)})"
        call = "\n".join([*self.lines, line])
        told = str(asked.error) if asked.error else shown(asked.value)
        self.lines.append(line + (f" gave {told}" if told != "None" else ""))
        return _Result(call, asked.error, asked.value)


class _Result(Expectation):
    def result(self) -> Any:
        """The value, whatever it is; a Failure if the call raised an error."""
        return self._result("no error", "", "")
