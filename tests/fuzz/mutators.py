"""Changes that keep a document a document: a value here, a key there. Bytes alone rarely get past the parser."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fixtures import foreign


class Bare:
    """Text that stands in a document as it is, without quotation marks: a number that Python would not write."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def dumped(value: Any) -> bytes:
    """As JSON, also with numbers that Python would not write."""
    marks: dict[str, str] = {}

    def marked(one: Any) -> Any:
        if isinstance(one, Bare):
            mark = f"@bare-{len(marks)}@"
            marks[f'"{mark}"'] = one.text
            return mark
        if isinstance(one, dict):
            return {key: marked(each) for key, each in one.items()}
        return [marked(each) for each in one] if isinstance(one, list) else one

    text = json.dumps(marked(value))
    for mark, number in marks.items():
        text = text.replace(mark, number)
    return text.encode()


DIGITS = "9" * 5000  # Python reads no more than 4,300 of them
NUMBERS = tuple(map(Bare, (DIGITS, "9" * 400, "-" + "9" * 25, "1e400", "18446744073709551615", "-9223372036854775808")))
# What files from strangers hold: ways out of the folder, escapes, ends of ranges, wrong types, deep and long things.
HOSTILE: tuple[Any, ...] = (
    *("", ".", "..", "../../outside", "/etc/passwd", "a/../../b", "C:\\x", "\\\\host\\share", "file:///etc/passwd"),
    *("\x1b[2J", "a\nb", "\x00", "\u202e", "\ud800", "é" * 3000, "x" * 100_000, "-", "--help", "$(id)", "%2e%2e%2f"),
    *(0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1e308, -0.5, True, False, None),
    *NUMBERS,
    *(DIGITS, f"1.{DIGITS}", f">={DIGITS}", "²", "abcdefghijklmnopqrst", "3.999999999", "libcudart.so" + ".1" * 30_000),
    *foreign.NAMES.values(),
    *([], {}, [[]], [None] * 50, {"": ""}, {"a": {"b": {"c": {}}}}),
)


def mutate(data: bytes, seed: int) -> bytes:
    """A document in JSON, lines of JSON, or TOML's simple shape; one to four changes."""
    chance = random.Random(seed)  # noqa: S311 - libFuzzer's seed, so that it can be repeated
    for _ in range(chance.randint(1, 4)):
        data = _json(data, chance) or _lines(data, chance)
    return data


def _json(body: bytes, chance: random.Random) -> bytes | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return dumped(_changed(value, chance))


def _changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        roll = chance.random()
        if roll < 0.1:
            return {other: each for other, each in value.items() if other != key}
        if roll < 0.2:
            return {**value, str(chance.choice(HOSTILE)): value[key]}
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        index = chance.randrange(len(value))
        return [*value[:index], _changed(value[index], chance), *value[index + (chance.random() < 0.8) :]]
    return chance.choice(HOSTILE)


def _lines(body: bytes, chance: random.Random) -> bytes:
    """A line of JSON changed inside; of `key = value` a value replaced; else lines doubled, dropped or swapped."""
    lines = body.split(b"\n")
    at = chance.randrange(len(lines))
    line = lines[at]
    roll = chance.random()
    if (changed := _json(line, chance)) is not None and roll < 0.7:
        lines[at] = changed
    elif b"=" in line and roll < 0.7:
        lines[at] = line.partition(b"=")[0] + b"= " + dumped(chance.choice(HOSTILE))
    elif roll < 0.8:
        lines.insert(chance.randrange(len(lines)), line)
    elif roll < 0.9:
        del lines[at]
    else:
        lines[at] = line + str(chance.choice(HOSTILE)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)
