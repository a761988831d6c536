"""Why it failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.compat.verdict import Verdict
    from cuwheel.diagnose.case import Case
    from cuwheel.diagnose.text import Log
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.report.explain import Explain, KnownCause


def explain(
    log: str | Path | BinaryIO,
    *,
    on: MachineProfile | Path | None = None,
    here: bool = False,
    wheel: str | Path | None = None,
    gpu: str | None = None,
    building: bool = False,
) -> Explain:
    """The causes of a failure, best first, from the log that it left (a path, or a stream of bytes).

    A record's folder, or `RECORD:N`, is a log too: of the first call that failed, or of that one.
    `on`, `here`: the machine it happened on. With a `wheel` at hand, `check` says whether that one would run there.
    `building`: it failed inside of `cuwheel build`, whose own options then help.
    """
    from cuwheel import masking
    from cuwheel.api.binaries import on_disk
    from cuwheel.diagnose import explain as stage
    from cuwheel.diagnose import nearest
    from cuwheel.diagnose.case import Case
    from cuwheel.machine import probe, profile
    from cuwheel.report.explain import Explain

    machine = profile.load(on) if isinstance(on, Path) else on
    if machine is None and here:
        machine = probe.probe(None)
    case = _recorded(log) if isinstance(log, (str, Path)) else None
    case = case or Case(logs=(_read(log),))
    verdicts = tuple(_verdicts(on_disk(wheel, None), gpu, machine)) if wheel else ()
    said = {**case.facts, **dict(_said(gpu))}
    for read in case.logs:  # the first that tells something
        found = stage.explain(read, machine, said, verdicts, building=building)
        if found.causes:
            break
    answer = Explain(
        log=str(log) if isinstance(log, (str, Path)) else "standard input",
        lines=read.total,
        causes=found.causes,
        ways_out=found.ways_out,
        versions=found.versions,
        situations=found.situations,
        tried=case.tried or found.tried,
        verdicts=verdicts,
        call=case.call,
        similar=() if found.causes else tuple(map(_known, nearest.nearest(case.logs[0]))),
        prose=read.prose,
        command=found.command,
    )
    # A log is quoted in what is answered, and in the report that is made to be passed on.
    return masking.within(answer, lambda text: masking.known(text, os.environ))


def _recorded(log: str | Path) -> Case | None:
    """The case of a record; None where the path names none, as for most: then nothing of records is imported."""
    from cuwheel.api.replaying import cargo_origins, chosen, split_target

    folder, number = split_target(log)
    if not Path(folder).is_dir():
        return None
    from cuwheel.diagnose import recorded, text
    from cuwheel.diagnose.case import Case
    from cuwheel.recording import again, compilers, reader

    record = reader.read(folder)
    call = chosen(record, number)
    if call is None:
        return Case(logs=(text.parse(""),), tried=recorded.tried(record))
    origins = cargo_origins(record, again.environment(record, call))
    return Case(
        logs=(recorded.log(record, call), *((recorded.log_of_all(record),) if number is None else ())),
        facts={**({"system": record.system} if record.system else {}), **compilers.heard(record, call)},
        call=recorded.described(record, call, origins),
        tried=recorded.tried(record),
    )


def causes() -> Explain:
    """All causes that are known."""
    from cuwheel.diagnose.causes import knowledge
    from cuwheel.report.explain import Explain

    return Explain(
        log="",
        lines=0,
        causes=(),
        ways_out=(),
        versions=(),
        situations=(),
        tried=(),
        known=tuple(map(_known, knowledge().causes)),
    )


def _known(id_: str) -> KnownCause:
    from cuwheel.diagnose.causes import knowledge
    from cuwheel.report.explain import KnownCause

    file = knowledge().causes[id_]
    return KnownCause(id=id_, family=file.family, title=file.title, why=" ".join(file.why.split()))


def _read(log: str | Path | BinaryIO) -> Log:
    from cuwheel.diagnose import text
    from cuwheel.errors import UnreadableError

    if not isinstance(log, (str, Path)):
        return text.read(log)
    try:
        with Path(log).open("rb") as file:
            return text.read(file)
    except OSError as error:
        raise UnreadableError.from_os(error, log) from error


def _said(gpu: str | None) -> Iterator[tuple[str, str]]:
    """A GPU by any of its names, or a capability; an unknown one is an error here as everywhere."""
    from cuwheel.machine import fleet

    if gpu:
        machine = fleet.from_gpu(gpu)
        yield "gpu", machine.gpu or gpu
        if machine.capability:
            yield "capability", machine.capability


def _verdicts(wheel: str | Path, gpu: str | None, machine: MachineProfile | None) -> Sequence[Verdict]:
    from cuwheel.compat import matrix
    from cuwheel.errors import UsageError
    from cuwheel.inspection.survey import survey
    from cuwheel.machine import fleet

    if gpu:
        machines: tuple[fleet.Machine, ...] = (fleet.from_gpu(gpu),)
    elif machine:
        machines = fleet.from_profile(machine)
    else:
        raise UsageError("--wheel needs to know the machine", hint="add --gpu NAME, --on PROFILE or --here")
    found = survey(wheel, detail="containers")
    return list(matrix.judge_all(found, machines))
