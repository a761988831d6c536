"""Options as rows: the parser, help, completion, the reference and the tests of values are made of them.

An option is said once, in the `cmd_` module of its verb: how it is written, what it means, what its value may be, and
the field of the verb's request that it fills.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator

    from cuwheel.errors import UsageError
    from cuwheel.support.answer import Answer
    from cuwheel.support.verbs import Word

Request = TypeVar("Request")


class Option(NamedTuple):
    """An option as help shows it: `-o --output FOLDER`, `--lock [FILE]`, `--force`; or a word: `TARGET...`, `[NAME]`.

    `COMMAND ...`: all words from there on. `-- COMMAND ...`: those behind `--`.
    """

    spelled: str
    help: str
    kind: Callable[[str], Any] | tuple[str, ...] | None = None  # reads the value, or the values that there are
    field: str = ""  # of the request; without one, the option's own name
    default: Any = ...  # where it is not given; else False of a flag, an empty list of many, None
    many: bool = False  # may be given again; where a value is a list itself, the lists are joined
    gives: Any = True  # what a flag sets its field to, and what an option given without its value does
    of: tuple[str, ...] = ()  # the ways to use the verb that take it; empty: all of them

    @property
    def flags(self) -> list[str]:
        return [word for word in self.spelled.split() if word.startswith("-") and word != "--"]

    @property
    def value(self) -> str:
        """`FOLDER`, `[FILE]`; empty for a flag."""
        return " ".join(word for word in self.spelled.split() if not word.startswith("-"))

    @property
    def name(self) -> str:
        """The option as messages call it: `--output`, `TARGET`."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.value.strip("[]. "))

    @property
    def dest(self) -> str:
        return self.field or self.name.strip("-").replace("-", "_").lower()

    @property
    def unset(self) -> Any:  # noqa: ANN401 - as the field has it
        """The field's value where the option is not given. Of a configuration's key: nothing."""
        if self.default is not ...:
            return self.default
        if self.many or "..." in self.value:
            return []
        return None if self.value or "." in self.field else not self.gives

    def is_given(self, args: Namespace) -> bool:
        value = getattr(args, self.dest)
        return value is not None and value not in ([], self.unset)

    def is_strange(self, args: Namespace, way: str) -> bool:
        """Given, though it means nothing to this way to use the verb."""
        return bool(self.of) and way not in self.of and self.is_given(args)


class Group(NamedTuple):
    """Rows under a heading of their own."""

    title: str
    rows: tuple[Option, ...]
    about: str = ""
    more: bool = False  # few people need them: shown by `--help all`


Row: TypeAlias = "Option | Group"


class Conflict(NamedTuple):
    """Options that cannot be given together."""

    options: tuple[str, ...]
    message: str = ""
    hint: str = ""


class Command(NamedTuple):
    """A verb of the command line.

    `actions`: its first word, and what each does; they are the ways to use it. `ways`: of a verb without, options that
    make it do something else (`--undo`), or a name for what it does without them. `refuse`: the problems that no row
    can say; values that are wrong are there as text.
    """

    examples: str
    options: tuple[Row, ...]
    run: Callable[[Namespace], Answer]
    actions: dict[str, str] = {}  # noqa: RUF012 - never changed
    line: str = ""  # where the table of verbs has none
    conflicts: tuple[Conflict, ...] = ()
    ways: tuple[str, ...] = ()
    refuse: Callable[[Namespace], Iterator[UsageError]] | None = None
    usage: str = ""
    exits: dict[str, str] = {}  # noqa: RUF012 - never changed; of an action: how it ends, if not always with 0
    json: str = "print one JSON object instead of text"  # when it can, where that is not always
    elsewhere: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - of an action: options that others of its verb take


def flat(rows: Iterable[Row]) -> Iterator[Option]:
    """The rows without their groups."""
    for row in rows:
        if isinstance(row, Group):
            yield from row.rows
        else:
            yield row


def group(title: str, *rows: Option, about: str = "", more: bool = False) -> Group:
    return Group(title, rows, about, more)


def request_of(make: type[Request], args: Namespace, **given: object) -> Request:
    """A request of the options that fill its fields; what is not said is left to the request's own defaults.

    A field `settings.plan.future` is a key of the request's mapping `settings`. `given`: fields that no option fills
    as it is; of a mapping, what its options lie over.
    """
    import dataclasses

    found: dict[str, Any] = {name: {**value} if isinstance(value, dict) else value for name, value in given.items()}
    names = {each.name for each in dataclasses.fields(make)}  # type: ignore[arg-type]
    for dest, value in vars(args).items():
        first, *path = dest.split(".")
        if first not in names or (first in given and not path):
            continue
        if value is None or (path and not value and value is not False):
            continue
        place, last = found, first
        for key in path:
            place, last = place.setdefault(last, {}), key
        place[last] = value
    return make(**found)


# Commands that stand with another's, in `cmd_<module>`; of the others the module is called like the verb.
_TOGETHER = {
    "find": "install",
    "gpus": "lookup",
    "toolkits": "lookup",
    "cache": "toolchain",
    "replay": "record",
    "record_diff": "record",
}


def command_of(verb: str, package: str = "cuwheel") -> Command:
    """Its module is imported only when the verb is called. Another distribution has all of its own in `cli`."""
    own = package == "cuwheel"
    module = importlib.import_module(f"cuwheel.cli.cmd_{_TOGETHER.get(verb, verb)}" if own else f"{package}.cli")
    command: Command = getattr(module, verb.upper())
    return command


def described_command(word: Word, name: str) -> tuple[str, Command]:
    """In a line what a command does, and the command."""
    command = command_of(name, word.package)
    return command.line or word.rows[name].line, command
