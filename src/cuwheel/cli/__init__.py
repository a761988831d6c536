"""The command line: one catch, one way to print. Verbs of one subject share a module `cmd_<subject>`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.errors import CuwheelError


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
    from cuwheel.errors import EXIT_BUG, EXIT_INTERRUPTED, CuwheelError, UnreadableError

    streams.prepare()
    try:
        return frame.run(words)
    except CuwheelError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `cuwheel … | head`: not an error of ours, and Python must not complain while closing stdout.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, too many open files: the system refused
        _complain(UnreadableError.from_os(error))
        return UnreadableError.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: a bug must still end in a sentence
        verbose = frame.VERBOSE_FLAGS.intersection(words) != set()
        if verbose:
            import traceback

            traceback.print_exception(error)
        sys.stderr.write(f"error: this is a bug in cuwheel: {_shown(f'{type(error).__name__}: {error}')}\n")
        if not verbose:
            sys.stderr.write("hint: run it again with --verbose and report the output\n")
        return EXIT_BUG


def _complain(error: CuwheelError) -> None:
    _say("error", "1;31", error.message)
    if error.hint:
        _say("hint", "36", error.hint)


def _say(label: str, colour: str, text: str) -> None:
    """In colour and wrapped on a terminal; elsewhere as it is, for whoever reads it with a program."""
    import os

    text = _shown(text)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from cuwheel.cli import streams

        streams.say_on_terminal(label, text, colour)
    else:
        sys.stderr.write(f"{label}: {text}\n")


def _shown(text: str) -> str:
    """An error may quote what a program said, or an address with a password in it."""
    import os

    from cuwheel.support import masking, wording

    return wording.printable_message(masking.known(text, os.environ))
