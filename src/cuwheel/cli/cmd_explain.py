from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Option
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.list:
        return
    if args.log is None and sys.stdin.isatty():
        yield UsageError("no log was given", hint="cuwheel explain build.log, or pipe one into it")


def _explain(args: Namespace) -> Answer:
    from cuwheel import api

    if args.list:
        return api.causes()
    source = sys.stdin.buffer if args.log in (None, "-") else Path(args.log)
    answer = api.explain(source, on=args.on)
    if args.report:
        from cuwheel.report import investigation

        investigation.save(answer, args.report)
    return answer


EXPLAIN = Command(
    """\
  cuwheel explain build.log
  pip install flash-attn 2>&1 | cuwheel explain
  cuwheel explain cuwheel-record                from cuwheel record
  cuwheel explain ci.txt --on gpu07.json        (from doctor --save)
  cuwheel explain error.txt --on this           looks at this machine too
  cuwheel explain build.log --report investigation.md
  cuwheel explain --list                        all known causes

exit status: 0 a cause was found, 1 none is known""",
    (
        Option("[LOG]", "a build log, traceback, CI output or RECORD[:N]; without it, or with -, standard input"),
        Option("--list", "list all known causes"),
        Option("--report FILE", "write the investigation as a Markdown document", places.new_file),
        Option(
            "--on MACHINE",
            "the machine on which it failed: its GPU, a profile from doctor --save, or 'this' to look at this one; "
            "with commas, or repeated",
            values.one_machine,
            many=True,
        ),
    ),
    _explain,
    refuse=_refuse,
)
