"""A request to slim, its words looked up in the tables and on this machine."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.binary.decisions import SlimOptions
from cuwheel.slimming import machines
from cuwheel.slimming.request import SlimRequest
from cuwheel.tracing import workload


class Task(Struct, frozen=True, kw_only=True):
    """`options`: what each library keeps. `cuda`: of any spelling, as the tables have it."""

    request: SlimRequest
    options: SlimOptions
    cuda: str | None = None


def of(request: SlimRequest) -> Task:
    changes_all = bool(request.recompress or request.drop_relocatable or request.strip_debug or request.cuda)
    found = workload.read(request.used) if request.used else None
    wanted = request.machines or (found.gpus if found else ())  # a trace knows its GPUs
    options = SlimOptions(
        targets=machines.machines(wanted, request.env, changes_all=changes_all),
        workload=found,
        future=request.future,
        recompress=request.recompress,
        drop_relocatable=request.drop_relocatable,
        strip_debug=request.strip_debug,
        force=request.force,
    )
    return Task(request=request, options=options, cuda=machines.cuda(request.cuda) if request.cuda else None)
