"""`gpus` and `toolkits`: what the tables know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import values
from cuwheel.cli.options import Command, Option

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer


def _gpus(args: Namespace) -> Answer:
    from cuwheel import api

    return api.gpus(*args.name)


GPUS = Command(
    """\
  cuwheel lookup gpu                       all GPUs
  cuwheel lookup gpu 'rtx 5060 ti' h100    these two
  cuwheel lookup gpu 9.0                   of one capability (90, sm_90, 90a)
  cuwheel lookup gpu jetson                all whose name contains it""",
    (Option("[NAME...]", "the name of a GPU or part of it, or a capability"),),
    _gpus,
)


def _toolkits(args: Namespace) -> Answer:
    from cuwheel import api

    return api.toolkits(*args.version, compiles=args.compiles)


TOOLKITS = Command(
    """\
  cuwheel lookup cuda                   all versions
  cuwheel lookup cuda 12.8              one (12.8.1, cu128; or 13: its newest)
  cuwheel lookup cuda --compiles 100f   that compile for it, or for a GPU""",
    (
        Option("[VERSION...]", "a CUDA version"),
        Option("--compiles TARGET", "only those that compile for this architecture, capability or GPU", values.gpu),
    ),
    _toolkits,
)
