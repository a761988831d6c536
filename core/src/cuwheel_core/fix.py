"""What puts something right, as a value: findings, causes and errors have it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

# What a fix changes, so that nobody has to read that out of its words. `nothing`: it only looks.
Change: TypeAlias = Literal[
    "nothing",
    "driver",
    "system",
    "package",
    "release",
    "toolkit",
    "compiler",
    "build",
    "variable",
    "file",
    "configuration",
    "machine",
]
Words: TypeAlias = tuple[str, ...]
ShellName: TypeAlias = Literal["", "posix", "cmd", "powershell"]  # empty: the reader's own


class Fix(Struct, frozen=True, kw_only=True):
    """One way to put something right.

    `text` says it to a person and reads alone. `commands` do it, one after the other; each is a list of words, quoted
    only where it is shown, for the shell that is there. `export NAME=VALUE`, also with `:$NAME` at its end, and
    `unset NAME` set variables of that shell. `changes`: what is different afterwards.

    `needs`, `unless` and `fills` are ids of facts: what must be there, what shows that it is done already or cannot
    work, and what was put into its words. `shell`: where the commands are typed, if that is not where they are read.

    `to`: the version that it changes to, of the first of `changes`. `rules_out`: changes that alone do not help.
    """

    text: str = ""
    commands: tuple[Words, ...] = ()
    changes: tuple[Change, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    shell: ShellName = ""
    to: str = ""
    rules_out: tuple[Change, ...] = ()

    @classmethod
    def run(cls, start: str, *words: object, text: str = "", changes: tuple[Change, ...] = ()) -> Fix:
        """One command: `start` is taken apart at its blanks, `words` are names and files, each a word as it is."""
        return cls(text=text, commands=((*start.split(), *map(str, words)),), changes=changes)

    @property
    def words(self) -> str:
        """Text and commands in one sentence, as JSON has it beside the parts; commands in the quotes of sh."""
        lines = [shlex.join(command) for command in self.commands]
        if not self.text:
            return ", then ".join(lines)
        return f"{self.text}: {', then '.join(f'`{line}`' for line in lines)}" if lines else self.text


def in_words(fixes: Iterable[Fix]) -> str:
    """Ways to put something right, in one line."""
    return ", or ".join(each.words for each in fixes)


def led_by(words: str, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Fixes with these words before the first."""
    return (replace(fixes[0], text=f"{words}{fixes[0].text}"), *fixes[1:]) if fixes else ()
