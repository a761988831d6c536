"""A request to slim, its words looked up in the tables and on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.binaries.decisions import SlimOptions
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.errors import UsageError
from cuwheel.facts import toolkits
from cuwheel.machine import named
from cuwheel.tracing import traced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine

_ALL = "all"


class Task(Struct, frozen=True, kw_only=True):
    """`options`: what each library keeps. `cuda`: of any spelling, as the tables have it."""

    request: SlimRequest
    options: SlimOptions
    cuda: str | None = None


def of(request: SlimRequest) -> Task:
    changes_all = bool(request.recompress or request.drop_relocatable or request.strip_debug or request.cuda)
    found = traced.read_workload(request.used) if request.used else None
    wanted = request.machines or (found.gpus if found else ())  # a trace knows its GPUs
    options = SlimOptions(
        targets=_machines(wanted, request.env, changes_all=changes_all),
        workload=found,
        future=request.future,
        recompress=request.recompress,
        drop_relocatable=request.drop_relocatable,
        strip_debug=request.strip_debug,
        force=request.force,
        drop_signature=request.drop_signature,
    )
    return Task(request=request, options=options, cuda=_cuda(request.cuda) if request.cuda else None)


def _machines(
    words: Sequence[str | Path | Machine], env: Path | None, *, changes_all: bool
) -> tuple[Machine, ...] | None:
    """None for `all`. `changes_all`: whether anything is asked for that changes files which keep everything."""
    flat = [part for word in words for part in (map(str.strip, word.split(",")) if isinstance(word, str) else [word])]
    if not flat:
        raise UsageError(
            "no GPUs to keep were given", hint="--for h100,l40, --for this, or --for all with --recompress"
        )
    if _ALL in flat:
        if len(flat) > 1 or not changes_all:
            raise UsageError("--for all keeps every architecture", hint="use it alone, with --recompress or --cuda")
        return None
    found = named.machines_named(flat, env=env)
    if unknown := [each.name for each in found if each.capability is None]:
        raise UsageError(f"the GPUs of {', '.join(unknown)} are not known", hint="give the GPUs instead: --for h100")
    return found


def _cuda(text: str) -> str:
    """`12.8`, of any spelling that `cuwheel toolkits` knows; a major alone stays one."""
    majors = {each.version.partition(".")[0] for each in toolkits.all_toolkits()}
    return text if text in majors else toolkits.find_toolkit(text).version
