"""What all verbs share: dispatch, help, and printing the report."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import typing
from typing import TYPE_CHECKING

from cuwheel.errors import EXIT_NO, EXIT_OK, UsageError
from cuwheel.support.verbs import FAMILIES, OF_INSPECT, SECTIONS, SHOWN, VERBS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cuwheel.cli.options import Command
    from cuwheel.support.answer import Answer

VERBOSE_FLAGS = {"-v", "--verbose"}

_INTRODUCTION = """\
cuwheel gets CUDA wheels to run: it builds them, reads them, predicts whether
they run on a machine, proves it, and explains what failed.
It needs no GPU, no CUDA toolkit and no root."""

# One line for each kind of new user.
_BEGIN = """\
start here:
  an import or a build just failed   cuwheel explain error.txt
  you publish CUDA code for others   cuwheel build . --for a100,h100
  you run a fleet of GPU machines    cuwheel check torch==2.11.0 --on fleet.toml"""

_EPILOGUE = """\
`cuwheel VERB --help` shows its options. eval "$(cuwheel completion bash)"
completes them in this shell (or zsh, tcsh, fish, powershell)."""


_SEARCH = ("--directory", "--max-runs", "--timeout")


def run(words: Sequence[str]) -> int:
    if words[:1] == ["help"] and words[1:] and words[1] != "help":  # `cuwheel help check` is `cuwheel check --help`
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return EXIT_OK
    if words[0] in FAMILIES and words[0] not in VERBS and words[1:2] in (["-h"], ["--help"]):
        sys.stdout.write(_family_help(words[0]))
        return EXIT_OK
    if words[0] == "completion":
        from cuwheel.cli import completion

        sys.stdout.write(completion.completion_script(words[1:]))
        return EXIT_OK
    if {"-h", "--help"}.isdisjoint(words):  # before the options: what checks some of them imports it too
        _import_msgspec()
    command, args = understood(words)
    from cuwheel.cli import streams
    from cuwheel.support import log

    level = "debug" if args.verbose else "error" if args.quiet else "info"
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    listener = None if args.quiet else streams.on_terminal if on_terminal else streams.in_lines
    log.listen(level=level, on_progress=listener, on_message=streams.say_on_terminal if on_terminal else None)
    _end_as_interrupted()
    answer = command.run(args)
    if getattr(args, "html", None):
        from cuwheel.report import html

        html.save(answer, args.html)
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


def _in_words_of_today(words: Sequence[str]) -> Sequence[str]:
    """`kernels`, `compare`, `replay --diff` and `record --matrix`: what says the same now.

    A bare `--kernels` comes last: what stands behind it would be taken for a name.
    """
    verb, *rest = words[1:] if words[:2] == ["record", "replay"] else words
    own = rest[: rest.index("--")] if "--" in rest else rest
    flag = {"replay": "--diff", "record": "--matrix", **OF_INSPECT}.get(verb, "")
    given = next((word for word in own if word.partition("=")[0] == flag), "")
    if not flag or not (given or verb in OF_INSPECT):
        return words
    operands: list[str] = []
    options: list[str] = []
    for before, word in zip(["", *own], own, strict=False):
        in_order = word.startswith("-") or before in (
            "-o",
            "--output",
            "--env",
            "--html",
            "--way",
            *_SEARCH,
        )
        (options if in_order else operands).append(word)
    if given:
        value = given.partition("=")[2]
        options.remove(given)
        operands += [value] if value else []
    if verb in ("record", "replay"):
        return ["record", "matrix" if verb == "record" else "diff", *operands, *options, *rest[len(own) :]]
    if {"-h", "--help"} & set(options):
        return ["inspect", *own]
    named = [flag, *operands[1:]] if verb == "compare" else [f"{flag}={operands[1]}" if operands[1:] else flag]
    return ["inspect", *operands[:1], *options, *named, *operands[2:]]


def understood(words: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """The command that is meant and its options."""
    from cuwheel.cli import parser
    from cuwheel.cli.options import command_of

    name, prog, rest = _named(_in_words_of_today(words))
    line, shown = spelled_command(name, prog)
    return command_of(name), parser.parse(prog, line, shown, rest)


def _named(words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """The command's name, the words that lead to it, and those behind them."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    family = FAMILIES.get(first)
    if family and second in family.commands:
        return family.commands[second], f"cuwheel {first} {second}", words[2:]
    if first in VERBS:
        return first, f"cuwheel {first}", words[1:]
    if family:
        choices = " or ".join(family.commands)
        raise UsageError(f"{first} needs {choices}", hint=f"cuwheel {first} --help")
    raise _unknown_verb(first)


def wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among our own words, and not among those of a command that is to be run.

    Asked where something failed: perhaps before the words were understood.
    """
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own:
        return False
    from cuwheel.cli.options import command_of, flat

    try:
        name, _, rest = _named(_in_words_of_today(own))
    except UsageError:
        return True
    rows = list(flat(command_of(name).options))
    if not any(row.value.endswith(" ...") and not row.spelled.startswith("-- ") for row in rows):
        return True
    takes_value = {flag for row in rows if row.value for flag in row.flags}
    first = (word for before, word in zip(["", *rest], rest, strict=False) if before not in takes_value)
    return "--json" in itertools.takewhile(lambda word: word.startswith("-"), first)


def spelled_command(name: str, prog: str) -> tuple[str, Command]:
    """What it does, and its help, in the words that it is called by: `cuwheel lab bench` is called `bench` inside."""
    from cuwheel.cli.options import command_of

    command = command_of(name)
    own = f"cuwheel {name} "
    examples = command.examples if prog.split()[1] == name else command.examples.replace(own, f"{prog} ")
    spelled = command._replace(examples=examples, usage=command.usage.replace(own, f"{prog} "))
    return command.line or VERBS[name].line, spelled


def _unknown_verb(word: str) -> UsageError:
    if word.startswith("-"):
        return UsageError(f"options must come after the verb: {word}", hint="cuwheel --help")
    from cuwheel.support import wording

    near = wording.nearest_name(word, (*SHOWN, *VERBS, "completion", "help"))
    hint = f"did you mean 'cuwheel {near}'?" if near else "cuwheel --help lists the verbs"
    return UsageError(f"unknown verb {word!r}", hint=hint)


def _overview() -> str:
    from cuwheel.cli.parser import listed

    widest = max(map(len, SHOWN))
    *everyday, more = SECTIONS
    parts = [_INTRODUCTION, _BEGIN, "usage: cuwheel VERB [options]"]
    for title in everyday:
        lines = {f"{name:<{widest}}": SHOWN[name].line for name in SECTIONS[title]}
        parts += [f"{title}:\n{listed(lines)}"]
    parts += [f"{more}: {', '.join(SECTIONS[more])}", _EPILOGUE]
    return "\n\n".join(parts) + "\n"


def _family_help(name: str) -> str:
    from cuwheel.cli.options import command_of
    from cuwheel.cli.parser import listed

    family = FAMILIES[name]
    lines = {word: command_of(verb).line or VERBS[verb].line for word, verb in family.commands.items()}
    about = f"{family.line[0].upper()}{family.line[1:]}."
    usage = f"usage: cuwheel {name} {'|'.join(lines)} [options]"
    return f"{usage}\n\n{about}\n\n{listed(lines)}\n\n`cuwheel {name} {next(iter(lines))} --help` shows its options.\n"


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

        streams.write_json(answer)
        return
    from cuwheel.report import terminal
    from cuwheel.report.answer import document_of

    # Beside the output of a command that was run, or a file that is shown, stdout is not the report's.
    stream = sys.stderr if getattr(answer, "aside", False) or getattr(args, "aside", False) else sys.stdout
    terminal.write(document_of(answer, verbose=args.verbose), stream)
