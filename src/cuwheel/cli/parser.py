"""The parser of a verb, made of its rows; every problem of a command line is reported at once."""

from __future__ import annotations

import argparse
import textwrap
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from cuwheel.cli import places, values
from cuwheel.cli.options import Group, Option, flat
from cuwheel.errors import UsageError
from cuwheel_core.support import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

    from cuwheel.cli.options import Command, Row

# All is said in English, and looking for translations of argparse's own words takes longer than parsing does.
argparse._ = str  # type: ignore[attr-defined]


def _output(command: Command) -> Group:
    return Group(
        "output",
        (
            Option("--json", command.json),
            Option("-v --verbose", "show more, such as where each fact comes from"),
            Option("-q --quiet", "no progress and no warnings on stderr"),
        ),
    )


def parse(prog: str, line: str, command: Command, words: Sequence[str]) -> argparse.Namespace:
    """Every bad value, and options that do not go together, reported at once.

    `prog`: the words that lead here, such as `cuwheel slim`. `line`: what it does.
    """
    words = list(words)
    if not command.actions:
        return _without_conflicts(prog, command, *_parse(prog, line, command, words))
    action = next((word for word in words if word in command.actions), "")
    if action:
        words.remove(action)
        own = action_of(prog, command, action)
        args, problems = _parse(f"{prog} {action}", command.actions[action], own, words)
    elif {"-h", "--help"}.isdisjoint(words):
        raise _no_action(prog, command, words)
    else:
        args, problems = _parse(prog, line, command._replace(options=()), words)  # prints its help and ends
    args.action = action
    for row in flat(command.options):  # those of other actions, as if they were not given
        if not hasattr(args, row.dest):
            setattr(args, row.dest, row.unset)
    return _without_conflicts(prog, command, args, problems)


def _parse(prog: str, line: str, command: Command, words: list[str]) -> tuple[argparse.Namespace, list[UsageError]]:
    behind = next((row for row in flat(command.options) if row.spelled.startswith("-- ")), None)
    own = words.index("--") if behind and "--" in words else len(words)
    parser = _parser(prog, line, command, rows_of(command))
    parser.command = command
    everything = words[-2:] in (["-h", "all"], ["--help", "all"])
    parser.shown = lambda: help_parser(prog, line, command, everything=everything)
    args: argparse.Namespace = parser.parse_args(words[:own])
    for row in flat(command.options):
        if row is behind:
            setattr(args, row.dest, words[own + 1 :])
        elif row.value.endswith(" ..."):
            command_words = getattr(args, row.dest)
            setattr(args, row.dest, command_words[1:] if command_words[:1] == ["--"] else command_words)
    return args, parser.problems


def _without_conflicts(
    prog: str, command: Command, args: argparse.Namespace, problems: list[UsageError]
) -> argparse.Namespace:
    found = list(conflicts(prog, command, args))
    if len(found) > 1:
        found = [UsageError("; ".join(each.message for each in found), f"{prog} --help")]
    if found and not problems:
        raise found[0]
    if problems:
        raise together(prog, [*problems, *found])
    return args


def together(prog: str, problems: Sequence[UsageError]) -> UsageError:
    whole = f"{prog} --help"
    if len(problems) == 1:
        return UsageError(problems[0].lines, problems[0].hint_parts or whole)
    each_on_a_line = (f"  - {values.with_hint(each)}" for each in problems)
    return UsageError((f"the command line has {len(problems)} problems:", *each_on_a_line), whole)


def _no_action(prog: str, command: Command, words: Sequence[str]) -> UsageError:
    verb = prog.removeprefix("cuwheel ")
    first = next((word for word in words if not word.startswith("-")), "")
    one_of = ", ".join(command.actions)
    if not first:
        return UsageError(f"{verb} needs an action: {one_of}", f"{prog} --help")
    near = wording.nearest_name(first, command.actions)
    hint = f"did you mean '{prog} {near}'?" if near else f"{prog} --help"
    return UsageError(f"{places.shortened(first)!r} is not one of {one_of}", hint)


def rows_of(command: Command) -> tuple[Row, ...]:
    """All that it takes."""
    return (*command.options, _output(command))


def action_of(prog: str, command: Command, action: str) -> Command:
    """An action of a verb, as a command of its own: with its rows, its examples and what becomes of it."""
    rows: list[Row] = []
    for row in command.options:
        own = [each._replace(of=()) for each in flat([row]) if not each.of or action in each.of]
        rows += [row._replace(rows=tuple(own))] if isinstance(row, Group) and own else own
    examples = [each for each in command.examples.splitlines() if f"{prog} {action}" in each]
    taken = {flag for row in flat(rows) for flag in row.flags}
    elsewhere = {flag: row.of for row in flat(command.options) for flag in row.flags if flag not in taken}
    return command._replace(
        options=tuple(rows),
        examples="\n".join([*examples, "", f"exit status: {command.exits.get(action, '0 done')}"]),
        actions={},
        ways=(),
        conflicts=(),
        refuse=None,
        elsewhere=elsewhere,
    )


def help_parser(prog: str, line: str, command: Command, action: str = "", *, everything: bool = True) -> Parser:
    """What help is printed from: of a verb with actions its list of them, of an action its own options and examples.

    `everything`: groups that few people need, too.
    """
    if action:
        prog, line, command = f"{prog} {action}", command.actions[action], action_of(prog, command, action)
    rows = list(command.options)
    if command.actions:
        rows = [row for row in rows if isinstance(row, Option) and not row.of]
    away = [] if everything else [row for row in rows if isinstance(row, Group) and row.more]
    parser = _parser(prog, line, command, [*(row for row in rows if row not in away), _output(command)])
    words = [row.value for row in rows if isinstance(row, Option) and not row.flags]
    parser.usage = command.usage or " ".join((prog, *(["ACTION"] if command.actions else words), "[options]"))
    if command.actions:
        about = f"actions, each with options of its own (`{prog} ACTION --help`):\n{listed(command.actions)}"
        parser.description = f"{parser.description}\n\n{about}"
    if away:
        titles = textwrap.fill(f"`{prog} --help all` shows more: {', '.join(row.title for row in away)}", 79)
        parser.epilog = f"{titles}\n\n{parser.epilog}"
    return parser


def _parser(prog: str, line: str, command: Command, rows: Iterable[Row]) -> Parser:
    parser = Parser(
        prog=prog,
        usage=command.usage or None,
        description=f"{line[0].upper()}{line[1:]}.",
        epilog=f"examples:\n{command.examples}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser._positionals.title = "arguments"  # noqa: SLF001 - argparse calls them positional
    add_rows(parser, rows)
    return parser


def listed(lines: Mapping[str, str]) -> str:
    """Names and what they mean, in two columns."""
    widest = max(map(len, lines))
    return "\n".join(f"  {name:<{widest}}  {line}" for name, line in lines.items())


def add_rows(parser: argparse._ActionsContainer, rows: Iterable[Row]) -> None:
    for row in rows:
        if isinstance(row, Group):
            add_rows(parser.add_argument_group(row.title, row.about or None), row.rows)
        elif not row.spelled.startswith("-- "):
            _add_row(parser, row)


def _add_row(parser: argparse._ActionsContainer, row: Option) -> None:
    value = row.value
    rest: dict[str, Any] = {"help": row.help, "default": row.unset}
    if row.flags:
        rest["dest"] = row.dest
    if not value:
        parser.add_argument(*row.flags, action="store_const", const=row.gives, **rest)
        return
    optional = value[0] == "["
    shown = (value[1:-1] if optional else value).removesuffix("...").rstrip()
    rest["metavar"] = shown
    if value.endswith(" ..."):
        parser.add_argument(row.dest, nargs=argparse.REMAINDER, **rest)
        return
    if optional:
        rest["nargs"] = "*" if value.endswith("...]") else "?"
        if row.flags:
            rest["const"] = row.gives
    elif value.endswith("..."):
        rest["nargs"] = "+"
    kind = tuple(shown[1:-1].split(",")) if shown[0] == "{" else row.kind
    if isinstance(kind, tuple):
        rest["choices"] = kind
    else:
        rest["type"] = values.guarded(kind, without=rest.get("const"))
    if row.many:
        rest["action"] = _Many
    parser.add_argument(*(row.flags or (row.dest,)), **rest)


class _Many(argparse._AppendAction):  # noqa: SLF001 - completion knows it as one that may be repeated
    """One value more, or all of a list with commas."""

    def __call__(self, _parser: object, args: argparse.Namespace, value: Any, _option: object = None) -> None:  # noqa: ANN401 - as the kind has it
        before = getattr(args, self.dest)
        setattr(args, self.dest, (*before, *value) if isinstance(value, list) else [*before, value])


def conflicts(prog: str, command: Command, args: argparse.Namespace) -> Iterator[UsageError]:
    """Options that do not go together, or not with the way in which the verb is used."""
    rows = {row.name: row for row in flat(command.options)}
    hint = f"{prog} --help"
    ways = [each for each in command.ways if each in rows]
    chosen = [each for each in ways if rows[each].is_given(args)]
    if len(chosen) > 1:
        yield UsageError(f"{', '.join(ways[:-1])} and {ways[-1]} cannot be used together")
    elif ways:
        otherwise = [each for each in command.ways if each not in rows]
        way = (*chosen, *otherwise, "")[0]
        strange = [row for row in rows.values() if row.is_strange(args, way)]
        names = " and ".join(row.name for row in strange)
        if strange and way:
            yield UsageError(f"{names} cannot be used with {way}", hint)
        elif strange:
            needed = rows[strange[0].of[0]]
            yield UsageError(f"{names} {'need' if strange[1:] else 'needs'} {needed.name} {needed.value}", hint)
    for each in command.conflicts:
        if all(rows[name].is_given(args) for name in each.options):
            yield UsageError(each.message or f"{' and '.join(each.options)} cannot be used together", each.hint)
    if command.refuse:
        yield from command.refuse(args)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        from cuwheel.cli.streams import terminal_width

        super().__init__(prog, max_help_position=26, width=min(terminal_width(), 100))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-o, --output FOLDER`: the value once, and on one line."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, str(action.metavar))}"


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that there is one catch and one place that sets the status.

    A bad value does not stop it: `problems` has all of them, and its text stands in for the value.
    """

    shown: Callable[[], argparse.ArgumentParser] | None = None
    command: Command | None = None
    words: Sequence[str] = ()

    def print_help(self, file: Any = None) -> None:  # noqa: ANN401 - argparse's own signature
        argparse.ArgumentParser.print_help(self.shown() if self.shown else self, file)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse's own signature
        """Options may stand before, between and behind the words, but for a command's own."""
        self.problems: list[UsageError] = []
        # Behind -- are those of another command.
        self.words = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", args)]
        whole_command = any(action.nargs == argparse.REMAINDER for action in self._actions)
        parse = self.parse_known_args if whole_command else self.parse_known_intermixed_args
        found, strange = parse(args, namespace)
        options = [word for word in strange if word.startswith("-") and word != "--"]
        self.problems += [self._unknown(word.partition("=")[0]) for word in options]
        if strange and not options:
            self.problems.append(UsageError(f"unexpected: {' '.join(map(places.shortened, strange))}"))
        return found

    def _unknown(self, option: str) -> UsageError:
        """An option that there is not: of another action, or written wrong."""
        elsewhere = self.command.elsewhere if self.command else {}
        action = self.prog.rpartition(" ")[2]
        if option in elsewhere:
            return UsageError(f"{option} cannot be used with {action}", f"it is for {' and '.join(elsewhere[option])}")
        near = wording.nearest_name(option, self._option_string_actions) if option.startswith("--") else None
        near_words = f"; did you mean {near}?" if near else ""
        return UsageError(f"unknown option {places.shortened(option)}{near_words}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - as the type has it
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            self._note(action, error)
            return arg_string

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as the type has it
        if action.choices is not None and value not in action.choices:
            one_of = ", ".join(map(str, action.choices))
            near = wording.nearest_name(value, tuple(map(str, action.choices)))
            hint = f"did you mean {near!r}?" if near else ""
            self._note(action, UsageError(f"{places.shortened(value)!r} is not one of {one_of}", hint))

    def _note(self, action: argparse.Action, error: UsageError) -> None:
        name = "/".join(action.option_strings) or str(action.metavar)
        first, *more = error.lines
        self.problems.append(UsageError((f"{name}: {first}", *more), error.hint_parts))

    def error(self, message: str) -> NoReturn:
        """A problem of the whole command line: an unknown option, a missing word."""
        self.problems.append(UsageError(message))
        raise self.refused()

    def refused(self) -> UsageError:
        return together(self.prog, self.problems)
