"""What all verbs share: dispatch, common options, help, completion, and printing the report."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import typing
from typing import TYPE_CHECKING, Any, Protocol

from cuwheel.errors import EXIT_NO, EXIT_OK, UsageError
from cuwheel.support.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import NoReturn

    from cuwheel.report.answer import Answer

VERBOSE_FLAGS = {"-v", "--verbose"}

_INTRODUCTION = """\
cuwheel gets CUDA wheels to run: it builds them, reads them, predicts whether
they run on a machine, proves it, and explains what failed.
It needs no GPU, no CUDA toolkit and no root."""

# One line for each kind of new user.
_BEGIN = """\
start here:
  an import or a build just failed       cuwheel explain error.txt
  you publish a package with CUDA code   cuwheel build . --for a100,h100
  you run a fleet of GPU machines        cuwheel check torch --on fleet.toml"""

_EPILOGUE = """\
`cuwheel VERB --help` shows the options of a verb. Shell completion:
  eval "$(cuwheel completion bash)"       (or zsh, tcsh)"""


class Verb(Protocol):
    """What a module `cmd_<verb>` holds; it is imported only when the verb is called."""

    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def refuse_conflicts(self, args: argparse.Namespace) -> None:
        """Raise UsageError where options do not go together. Values that are wrong are there as text."""

    def run(self, args: argparse.Namespace) -> Answer: ...


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that there is one catch and one place that sets the status.

    A bad value does not stop it: `problems` has all of them, and its text stands in for the value.
    """

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse's own signature
        self.problems: list[UsageError] = []
        return super().parse_args(args, namespace)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - as the type has it
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            self._note(action, error)
            return arg_string

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as the type has it
        if action.choices is not None and value not in action.choices:
            from cuwheel.cli import option_values
            from cuwheel.support import wording

            one_of = ", ".join(map(str, action.choices))
            near = wording.nearest_name(value, tuple(map(str, action.choices)))
            hint = f"did you mean {near!r}?" if near else ""
            self._note(action, UsageError(f"{option_values.shortened(value)!r} is not one of {one_of}", hint))

    def _note(self, action: argparse.Action, error: UsageError) -> None:
        name = "/".join(action.option_strings) or str(action.metavar)
        self.problems.append(UsageError(f"{name}: {error.message}", error.hint))

    def error(self, message: str) -> NoReturn:
        """A problem of the whole command line: an unknown option, a missing word."""
        self.problems.append(UsageError(message))
        raise self.refused()

    def refused(self) -> UsageError:
        from cuwheel.cli import option_values

        whole = f"{self.prog} --help"
        if len(self.problems) == 1:
            return UsageError(self.problems[0].message, self.problems[0].hint or whole)
        listed = "".join(f"\n  - {option_values.with_hint(each)}" for each in self.problems)
        return UsageError(f"the command line has {len(self.problems)} problems:{listed}", whole)


def _parsed(verb: str, module: Verb, words: Sequence[str]) -> argparse.Namespace:
    """Every bad value, and options that do not go together, reported at once."""
    parser = _verb_parser(verb, module)
    args: argparse.Namespace = parser.parse_args(words)
    try:
        module.refuse_conflicts(args)
    except UsageError as error:
        if not parser.problems:
            raise
        parser.problems.append(error)
    if parser.problems:
        raise parser.refused()
    return args


def run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return EXIT_OK
    if words[0] == "completion":
        sys.stdout.write(_completion(words[1:]))
        return EXIT_OK
    module, args = understood(words)
    _listen(args)
    _end_as_interrupted()
    _import_msgspec()
    answer = module.run(args)
    _print(answer, args)
    # `record` and `replay` end as the command did that they ran.
    status: int | None = getattr(answer, "exit_status", None)
    if status is not None:
        return status
    return EXIT_OK if answer.succeeded else EXIT_NO


def _import_msgspec() -> None:
    """Without typing_extensions, which it takes where it finds it: a tenth of a short command's time.

    It has nothing that msgspec does not find in Python 3.11's own typing; whoever imports it later gets it.
    """
    if not hasattr(typing, "NotRequired") or not sys.modules.keys().isdisjoint(("msgspec", "typing_extensions")):
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment] # as one that is not installed
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def understood(words: Sequence[str]) -> tuple[Verb, argparse.Namespace]:
    """The verb that is meant and its options."""
    if words[0] not in VERBS:
        raise _unknown_verb(words[0])
    module = verb_module(words[0])
    return module, _parsed(words[0], module, words[1:])


def verb_module(verb: str) -> Verb:
    module: ModuleType = importlib.import_module(f"cuwheel.cli.cmd_{verb}")
    return module


def _unknown_verb(word: str) -> UsageError:
    if word.startswith("-"):
        return UsageError(f"options must come after the verb: {word}", hint="cuwheel --help")
    from cuwheel.support import wording

    near = wording.nearest_name(word, (*VERBS, "completion", "help"))
    hint = f"did you mean 'cuwheel {near}'?" if near else "cuwheel --help lists the verbs"
    return UsageError(f"unknown verb {word!r}", hint=hint)


def _verb_parser(verb: str, module: Verb) -> _Parser:
    parser = _Parser(
        prog=f"cuwheel {verb}",
        description=VERBS[verb].line[0].upper() + VERBS[verb].line[1:] + ".",
        epilog="examples:\n" + module.EXAMPLES,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    fill_verb_parser(parser, module)
    return parser


def fill_verb_parser(parser: argparse.ArgumentParser, module: Verb) -> None:
    module.add_arguments(parser)
    guard_values(parser)
    common = parser.add_argument_group("output")
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("-v", "--verbose", action="store_true", help="show more, such as where each fact was found")
    common.add_argument("-q", "--quiet", action="store_true", help="print no progress and no warnings on stderr")


def guard_values(parser: argparse.ArgumentParser) -> None:
    """No value is empty or holds a NUL, whatever the option's own type makes of it."""
    from cuwheel.cli import option_values

    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if action.nargs not in (0, argparse.REMAINDER) and action.choices is None:
            action.type = option_values.guarded(action.type, without=action.const)  # type: ignore[arg-type]


def _formatter(prog: str) -> argparse.HelpFormatter:
    from cuwheel.cli.streams import terminal_width

    width = min(terminal_width(), 100)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=width)


def _overview() -> str:
    widest = max(map(len, VERBS))
    verbs = "\n".join(f"  {each.name:<{widest}}  {each.line}" for each in VERBS.values())
    return f"{_INTRODUCTION}\n\n{_BEGIN}\n\nusage: cuwheel VERB [options]\n\nverbs:\n{verbs}\n\n{_EPILOGUE}\n"


def _completion(words: Sequence[str]) -> str:
    import shtab

    shells: tuple[str, ...] = tuple(shtab.SUPPORTED_SHELLS)
    if len(words) != 1 or words[0] not in shells:
        raise UsageError("completion needs the name of a shell: " + ", ".join(shells), hint="cuwheel completion bash")
    parser = argparse.ArgumentParser(prog="cuwheel")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers(dest="verb")
    for each in VERBS.values():
        fill_verb_parser(verbs.add_parser(each.name, help=each.line), verb_module(each.name))
    return str(shtab.complete(parser, shell=words[0]))


def _listen(args: argparse.Namespace) -> None:
    from cuwheel.support import log

    level = "debug" if args.verbose else "error" if args.quiet else "info"
    show_progress = sys.stderr.isatty() and not args.quiet and os.environ.get("TERM") != "dumb"
    from cuwheel.cli import progress

    listener = progress.on_terminal if show_progress else None if args.quiet else progress.in_lines
    log.listen(level=level, on_progress=listener)


def _end_as_interrupted() -> None:
    """A service manager, or a terminal that goes, asks us to end: what we started must end too, as with Ctrl-C."""
    import signal

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # nohup has it ignored; and who calls us from a thread keeps the signals to himself.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            with contextlib.suppress(ValueError):
                signal.signal(number, interrupt)


def _print(answer: Answer, args: argparse.Namespace) -> None:
    if args.json:
        from cuwheel.cli import streams
        from cuwheel.report.answer import to_json

        streams.write_utf8(to_json(answer))
        return
    from cuwheel.report import documents, terminal

    # Beside the output of a command that was run, stdout is not ours.
    stream = sys.stderr if getattr(answer, "aside", False) else sys.stdout
    terminal.write(documents.of(answer, verbose=args.verbose), stream)
