"""The material of the text prompts: sentences about an invented town, made from a seed, none of them twice in a row."""

from __future__ import annotations

from random import Random

PLACES = ("the harbour", "the old mill", "the glass market", "Lantern Hill", "the ferry dock", "the north gate")
THINGS = ("tram line", "bicycle store", "library branch", "swimming hall", "repair café", "garden", "ticket office")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
VERBS = ("opened", "closed for repairs", "moved", "doubled its hours", "took on new staff", "changed its prices")
REASONS = ("after a vote", "because of the floods", "at the wish of its users", "to save power", "for the festival")
RULES = (
    "Ask for the {thing} number before you answer questions about {place}.",
    "Visitors to {place} pay {amount} crowns; children below {small} pay nothing.",
    "The {thing} at {place} is closed on {day} and opens at {hour} on other days.",
    "Never promise a refund above {amount} crowns; pass such wishes to the desk at {place}.",
    "Letters about the {thing} are answered within {small} working days.",
    "Lost things found near {place} are kept for {amount} days in room {hour}.",
)
FACTS = (
    "In the year {year} the {thing} near {place} {verb} {reason}.",
    "It served {amount} people on a usual {day} and {small} times as many during the fair.",
    "The council set {amount} thousand crowns aside for {place}, to be spent by {day} of week {hour}.",
    "Measured at {hour} o'clock, the queue at {place} was {small} metres long.",
)
QUESTIONS = (
    "When does the {thing} at {place} open on {day}?",
    "How much does a visit to {place} cost for {small} people?",
    "I lost my bag near {place} on {day}. What should I do?",
    "Can I bring a dog into the {thing} at {place}?",
    "Who answers letters about the {thing}, and how long does it take?",
    "What changed for the {thing} at {place} after {year}?",
)
ANSWERS = (
    "The {thing} at {place} opens at {hour} on {day}. Is there anything else?",
    "That costs {amount} crowns at {place}, and children pay less.",
    "Please come to the desk at {place} before {hour} on {day} and bring a form.",
)


def sentence(rng: Random, forms: tuple[str, ...]) -> str:
    """One sentence, its gaps filled at random."""
    return rng.choice(forms).format(
        place=rng.choice(PLACES),
        thing=rng.choice(THINGS),
        day=rng.choice(DAYS),
        verb=rng.choice(VERBS),
        reason=rng.choice(REASONS),
        amount=rng.randint(12, 980),
        small=rng.randint(3, 9),
        hour=rng.randint(7, 21),
        year=rng.randint(1950, 2020),
    )


def passage(rng: Random, forms: tuple[str, ...], words: int) -> str:
    """Sentences up to `words` words or just over, five to a paragraph."""
    text, count, number = "", 0, 0
    while count < words:
        line = sentence(rng, forms)
        text += ("" if not text else "\n\n" if number % 5 == 0 else " ") + line
        count, number = count + len(line.split()), number + 1
    return text


def code_file(rng: Random, functions: int) -> str:
    """A Python module of small functions about fares and timetables."""
    lines = ['"""Fares and timetables of the town."""', ""]
    for number in range(functions):
        noun = rng.choice(("fare", "delay", "queue", "ticket", "seat", "stop")) + f"_{number}"
        first, second = rng.randint(2, 90), rng.randint(2, 9)
        lines += [
            f"def {noun}(count: int, zone: int) -> int:",
            f'    """The {noun.split("_")[0]} for `count` people in `zone`, at least {second}."""',
            f"    base = {first} + zone * {second}",
            f"    return max({second}, base * count - {rng.randint(1, 30)})",
            "",
        ]
    return "\n".join(lines)


def tool_list(rng: Random, tools: int) -> list[str]:
    """Descriptions of tools, one line of JSON each."""
    names = ("find_route", "read_timetable", "book_room", "list_events", "report_fault", "weather", "search")
    return [
        f'{{"name": "{names[number % len(names)]}_{number}", "description": "{sentence(rng, RULES)}", '
        f'"parameters": {{"place": "string", "day": "string", "limit": {rng.randint(1, 50)}}}}}'
        for number in range(tools)
    ]
