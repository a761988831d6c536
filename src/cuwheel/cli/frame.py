"""What all verbs share: dispatch, help, and printing the report."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import typing
from typing import TYPE_CHECKING

from cuwheel.errors import EXIT_NO, EXIT_OK, MissingExtraError, UsageError
from cuwheel.support.verbs import OFFERED, SECTIONS, SHOWN, Family, Word, own_word
from cuwheel_core.errors import CuwheelError

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


def run(words: Sequence[str]) -> int:
    from cuwheel.cli import streams

    if words[:1] == ["help"] and words[1:] and words[1] != "help":  # `cuwheel help check` is `cuwheel check --help`
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        streams.write(_overview())
        return EXIT_OK
    if words[0] == "completion":
        from cuwheel.cli import completion

        streams.write_utf8(completion.completion_script(words[1:]))
        return EXIT_OK
    if words[1:2] in (["-h"], ["--help"]) and (about := _family_help(words[0])):
        streams.write(about)
        return EXIT_OK
    if {"-h", "--help"}.isdisjoint(words):  # before the options: what checks some of them imports it too
        _import_msgspec()
    command, args = understood(words)
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


def find_word(name: str) -> Word:
    """The verb of that name, of cuwheel or of another distribution that is installed."""
    if name in SHOWN:
        return own_word(name)
    if name.startswith("-"):
        raise UsageError(f"options must come after the verb: {name}", hint="cuwheel --help")
    from cuwheel.support import extensions

    if word := extensions.find_word(name):
        return word
    if name in OFFERED:
        distribution, extra = OFFERED[name]
        raise MissingExtraError([distribution], f"cuwheel {name}", extra)
    from cuwheel_core.support import wording

    near = wording.nearest_name(name, (*SHOWN, *extensions.words(), *OFFERED, "completion", "help"))
    hint = f"did you mean 'cuwheel {near}'?" if near else "cuwheel --help lists the verbs"
    raise UsageError(f"unknown verb {name!r}", hint=hint)


def understood(words: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """The command that is meant and its options."""
    from cuwheel.cli import parser
    from cuwheel.cli.options import described_command

    word, name, prog, rest = _named(words)
    line, command = described_command(word, name)
    return command, parser.parse(prog, line, command, rest)


def _named(words: Sequence[str]) -> tuple[Word, str, str, Sequence[str]]:
    """The word that is meant, its command's name, the words that lead to it, and those behind them."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    word = find_word(first)
    commands = word.shown.commands if isinstance(word.shown, Family) else {}
    if second in commands:
        return word, commands[second], f"cuwheel {first} {second}", words[2:]
    if first in word.rows:  # `record` too, though commands may stand behind it
        return word, first, f"cuwheel {first}", words[1:]
    raise UsageError(f"{first} needs {' or '.join(commands)}", hint=f"cuwheel {first} --help")


def wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among our own words, and not among those of a command that is to be run.

    Asked where something failed: perhaps before the words were understood.
    """
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own:
        return False
    from cuwheel.cli.options import command_of, flat

    try:
        word, name, _, rest = _named(own)
    except CuwheelError:
        return True
    rows = list(flat(command_of(name, word.package).options))
    if not any(row.value.endswith(" ...") and not row.spelled.startswith("-- ") for row in rows):
        return True
    takes_value = {flag for row in rows if row.value for flag in row.flags}
    own_words = (each for before, each in zip(["", *rest], rest, strict=False) if before not in takes_value)
    return "--json" in itertools.takewhile(lambda each: each.startswith("-"), own_words)


def _overview() -> str:
    from cuwheel.cli.parser import listed

    widest = max(map(len, SHOWN))
    *everyday, more = SECTIONS
    parts = [_INTRODUCTION, _BEGIN, "usage: cuwheel VERB [options]"]
    for title in everyday:
        lines = {f"{name:<{widest}}": SHOWN[name].line for name in SECTIONS[title]}
        parts += [f"{title}:\n{listed(lines)}"]
    from cuwheel.support import extensions

    parts += [f"{more}: {', '.join((*SECTIONS[more], *extensions.words()))}", _EPILOGUE]
    return "\n\n".join(parts) + "\n"


def _family_help(name: str) -> str:
    """Of a word whose next word is a command, and that is none itself; else nothing."""
    word = find_word(name)
    if not isinstance(word.shown, Family) or name in word.rows:
        return ""
    from cuwheel.cli.options import described_command
    from cuwheel.cli.parser import listed

    family = word.shown
    lines = {second: described_command(word, verb)[0] for second, verb in family.commands.items()}
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
    from cuwheel.cli import streams

    if args.json:
        streams.write_json(answer)
        return
    from cuwheel.report import terminal
    from cuwheel.report.answer import document_of

    # Beside the output of a command that was run, or a file that is shown, stdout is not the report's.
    stream = sys.stderr if getattr(answer, "aside", False) or getattr(args, "aside", False) else sys.stdout
    terminal.write(document_of(answer, verbose=args.verbose), stream)
