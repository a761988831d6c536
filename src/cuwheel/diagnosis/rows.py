"""A cause as its file in `causes/` describes it. What each key means is written in docs/why/contributing.md."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.support import codec
from cuwheel_core.support.finding import Change, Fix, ShellName


def placeholders(text: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


_NAMED = re.compile(r"<@([\w-]+)>")
_ERRORS = Path(__file__).with_name("errors.toml")  # CUDA's errors in the words of many programs, for all causes
_STATEMENTS = Path(__file__).with_name("statements.toml")
Relation: TypeAlias = Literal["too-old", "too-new", "other"]
Situation: TypeAlias = Literal[
    "linux", "windows", "macos", "wsl", "jetson", "arm64", "container", "conda", "apt", "dnf", "torch", "bitsandbytes",
    "jax", "cargo", "cargo-alone", "cmake", "build", "recorded"
]  # fmt: skip


class Signature(Struct, frozen=True, kw_only=True):
    """One way in which a cause shows itself: any of these texts in a line.

    `errors`: or one of CUDA's errors, by its number. `weight`: how sure it is by itself. `needs`, `unless`: texts that
    must, or must not, be elsewhere in the log. `holds`: facts (see `conditions`) that must be so. `by`: who must say it
    (speakers.toml), where others use the same words for something else. `says`: or that one of the things in `of` is
    too old, too new or of another version, in all the wordings of statements.toml. `told`: in a person's own words it
    counts too, which with little weight does not. `facts`: or no text at all: the lines that tell these facts (see
    `known`), where what it `holds` follows from them and the log tells of a failure. `seen`: where one of the cause's
    `rules` finds the same on the machine. `trouble`: only where somebody tells of a GPU or a build that does not work.
    """

    weight: float
    any: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    says: Relation | None = None
    of: tuple[str, ...] = ()
    told: bool = False
    facts: tuple[str, ...] = ()
    seen: bool = False
    trouble: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        if not (self.errors or self.says):
            return self.any
        stated = texts_of_statement(self.says, self.of) if self.says else ()
        return (*self.any, *texts_of_errors(self.errors), *stated)


class FactChange(Struct, frozen=True, kw_only=True):
    """How a fact (see `known`) raises or lowers the confidence of a cause that was found."""

    when: str
    change: float
    says: str = ""


class FixRow(Struct, frozen=True, kw_only=True):
    """`text`: with {names} that `known` fills; a fix with one that nobody knows is left out.

    `commands`: lines as sh has them, with {names} too, which are filled in after the line was taken apart: a value
    with a blank in it stays one word. `changes`: what is different afterwards (see `Fix`).

    `unless_known`: names that, where all of them are known, a better fix has use for. `shown`: it is for a log that
    has one of these texts, and then goes before those for any. `holds`: facts (see `conditions`) that must be so.
    """

    text: str
    source: str
    commands: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    shown: tuple[str, ...] = ()
    unless_known: tuple[str, ...] = ()
    when: tuple[Situation, ...] = ()
    unless: tuple[Situation, ...] = ()
    holds: tuple[str, ...] = ()

    @property
    def fills(self) -> frozenset[str]:
        """The names in its text and commands that a log or a machine has to fill."""
        return placeholders(self.text).union(*map(placeholders, self.commands))

    def filled(self, names: Mapping[str, str], shell: ShellName) -> Fix:
        return Fix(
            text=self.text.format_map(names),
            commands=tuple(_filled_words(command, names) for command in self.commands),
            changes=self.changes,
            needs=(*self.when, *self.holds),
            unless=(*self.unless, *self.unless_known),
            fills=tuple(sorted(self.fills)),
            shell=shell,
        )


def _filled_words(command: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Python and its pip are those of the log, where it is one that no prompt calls by these names."""
    words = tuple(word.format_map(names) for word in shlex.split(command))
    own = names.get("python_program")
    if own and words[0] in ("pip", "python"):
        return (own, *(("-m", "pip") if words[0] == "pip" else ()), *words[1:])
    return words


class Example(Struct, frozen=True, kw_only=True):
    """A log that must be explained by this cause first. `also`: causes that may stand beside it."""

    log: str
    also: tuple[str, ...] = ()
    says: tuple[str, ...] = ()


class Shared(Struct, frozen=True, kw_only=True):
    """lists.toml: what the texts of several causes have in common. `texts`: whole ones, named `"@name"`."""

    lists: dict[str, tuple[str, ...]]
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def spelled(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        found = [each for text in texts for each in (self.texts.get(text[1:], (text,)) if text[:1] == "@" else (text,))]
        return tuple(map(self._spelled, found))

    def _spelled(self, text: str) -> str:
        if "<@" not in text:
            return text
        return _NAMED.sub(
            lambda match: f"<{'|'.join(self.lists[match[1]])}>" if match[1] in self.lists else match[0], text
        )


class CauseFile(Struct, frozen=True, kw_only=True):
    """`examples`: logs alone; `[[example]]`: what is said of one too.

    `explained_by`: causes that make this one a mere consequence where both are found.

    `when`: what shows that it is this one, which people look at where it might be another. `instead`: causes that show
    themselves by the same messages, the likeliest first. `places`: situations in one of which it may be that instead;
    `when_unless`: those in which nobody can look at what `when` says.

    `ruled_out_by`: facts (see `conditions`) with which it cannot be the cause. `rules`: those of `doctor` that find the
    same on a machine: what they found is a fact, and their fix goes first.
    `lists`: choices that several of its texts have, which write `<@name>` for one. Those of all files: lists.toml.
    """

    title: str
    family: str
    why: str
    ways_out: tuple[str, ...]
    source: tuple[str, ...]
    signature: tuple[Signature, ...]
    fix: tuple[FixRow, ...]
    example: tuple[Example, ...] = ()
    examples: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    when: str = ""
    when_unless: tuple[Situation, ...] = ()
    instead: tuple[str, ...] = ()
    places: tuple[Situation, ...] = ()
    ruled_out_by: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    fact: tuple[FactChange, ...] = ()
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def spelled_out(self, shared: Shared) -> CauseFile:
        """The cause with the lists, its own and those of all, in the places of their names."""
        lists = Shared(lists={**shared.lists, **self.lists}, texts=shared.texts)
        signatures = tuple(
            replace(
                each, any=lists.spelled(each.any), needs=lists.spelled(each.needs), unless=lists.spelled(each.unless)
            )
            for each in self.signature
        )
        fixes = tuple(replace(each, shown=lists.spelled(each.shown)) if each.shown else each for each in self.fix)
        examples = (*self.example, *(Example(log=each) for each in self.examples))
        return replace(self, signature=signatures, fix=fixes, lists={}, example=examples, examples=())


class Way(Struct, frozen=True, kw_only=True):
    """A way out that does not mend what failed. `when`, `unless`: the situations in which it is one."""

    id: str
    title: str
    text: str
    source: str
    general: str = ""
    when: tuple[Situation, ...] = ()
    unless: tuple[Situation, ...] = ()


class Ways(Struct, frozen=True, kw_only=True):
    """ways_out.toml, the best first where nothing else decides."""

    way: tuple[Way, ...]


class Reading(Struct, frozen=True, kw_only=True):
    """How a version, or another fact, is read off a log: the hole `value` of the first of these texts that is there.

    `means`: the situation that such a line shows, where it shows one. `inner`: of use here, of no interest to people.
    """

    name: str
    any: tuple[str, ...]
    means: Situation | None = None
    inner: bool = False


class Readings(Struct, frozen=True, kw_only=True):
    """readings.toml."""

    reading: tuple[Reading, ...]


class Statements(Struct, frozen=True, kw_only=True, rename="kebab"):
    """statements.toml: wordings with `{what}` in them."""

    too_old: tuple[str, ...]
    too_new: tuple[str, ...]
    other: tuple[str, ...]


@cache
def texts_of_statement(says: Relation, of: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns that say this of one of these things."""
    wordings: tuple[str, ...] = getattr(codec.own_table(_STATEMENTS, Statements), says.replace("-", "_"))
    return tuple(each.replace("{what}", f"{{b}}<{'|'.join(of)}>") for each in wordings)


class ErrorWordings(Struct, frozen=True, kw_only=True):
    """errors.toml."""

    wordings: tuple[str, ...]


@cache
def texts_of_errors(errors: tuple[int, ...]) -> tuple[str, ...]:
    """Patterns that hold one of these numbers."""
    if not errors:
        return ()
    choice = f"<{'|'.join(map(str, errors))}>"
    return tuple(each.replace("{error}", choice) for each in codec.own_table(_ERRORS, ErrorWordings).wordings)
