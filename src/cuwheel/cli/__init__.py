"""The command line: one catch, one way to print. Verbs of one subject share a module `cmd_<subject>`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel_core.fix import Fix


def main(argv: Sequence[str] | None = None) -> int:
    if argv is not None:
        return _main(list(argv))
    # The process is ours, and ends with the answer. What is imported stays until then: looking for garbage in it, again
    # and again and once more at the end, takes a sixth of a short command's time.
    gc.set_threshold(100_000, 50, 50)
    try:
        return _main(sys.argv[1:])
    finally:
        gc.freeze()


def _main(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):  # without argparse: asked by scripts, many times over
        from cuwheel.version import __version__

        print(f"cuwheel {__version__}")  # noqa: T201
        return 0
    from cuwheel.cli import frame, streams

    streams.prepare()
    try:
        return frame.run(words)
    except BrokenPipeError:  # `cuwheel … | head`: not an error of ours
        streams.lead_stdout_nowhere()
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last resort: a bug must still end in a sentence
        return _fail(error, words)


def _fail(error: BaseException, words: list[str]) -> int:
    """Tells people on stderr what happened, and a program that asked for JSON on stdout; returns the exit status."""
    from cuwheel.cli import frame, streams
    from cuwheel.errors import EXIT_BUG, EXIT_INTERRUPTED
    from cuwheel_core.errors import CuwheelError, UnreadableError
    from cuwheel_core.fix import Fix

    if isinstance(error, OSError):  # a full disk, too many open files: the system refused
        error = UnreadableError.from_os(error)
    message: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()
    if isinstance(error, CuwheelError):
        name, status, message, fixes = type(error).__name__, error.exit_code, error.lines, error.fixes
    elif isinstance(error, KeyboardInterrupt):
        name, status, message = "Interrupted", EXIT_INTERRUPTED, ("interrupted",)
    else:
        name, status = "Bug", EXIT_BUG
        message = (f"this is a bug in cuwheel: {type(error).__name__}: {error}",)
        fixes = (Fix(text="run it again with --verbose and report the output"),)
        if frame.VERBOSE_FLAGS.intersection(words):
            import traceback

            streams.say(_shown(*"".join(traceback.format_exception(error)).splitlines()))
            fixes = ()
    if isinstance(error, KeyboardInterrupt):
        streams.say(*message)
    else:
        _say("error", "1;31", *message)
        for fix in fixes:
            _say("hint", "36", *fix.text.splitlines(), commands=_commands(fix))
    if frame.wants_json(words):
        from cuwheel.report.answer import Error

        try:
            hint = "\n".join(each.words for each in fixes)
            told = Error(error=name, message="\n".join(message), hint=hint, fixes=fixes, status=status)
            streams.write_json(told)
        except OSError:  # nobody reads it, or it cannot be kept; people were told
            streams.lead_stdout_nowhere()
    return status


def _commands(fix: Fix) -> tuple[str, ...]:
    from cuwheel.support import quoting

    return tuple(quoting.command_of_fix(words, fix.shell) for words in fix.commands)


def _say(label: str, colour: str, *lines: str, commands: Sequence[str] = ()) -> None:
    """In colour and wrapped on a terminal; elsewhere as it is, for whoever reads it with a program.

    A command is never wrapped, and stands on a line of its own.
    """
    import os

    from cuwheel.cli import streams

    text, whole = _shown(*lines) if lines else "", [_shown(each) for each in commands]
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        streams.say_on_terminal(label, text, colour, commands=whole)
    elif text:
        streams.say("\n".join((f"{label}: {text}", *(f"  {each}" for each in whole))))
    else:
        streams.say("\n  ".join((f"{label}: {whole[0]}", *whole[1:])))


def _shown(*lines: str) -> str:
    """An error may quote what a program said, or an address with a password in it."""
    import os

    from cuwheel.support import masking
    from cuwheel_core.support import printable

    return printable.message(printable.Lines(map(masking.Lines(os.environ).masked, lines)))
