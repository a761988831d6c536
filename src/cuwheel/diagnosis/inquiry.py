"""What is explained: a log, a recorded call or a text, with what is known of the machine and of a wheel."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import asdict

from cuwheel.building.recording import reader
from cuwheel.diagnosis import remedies, text
from cuwheel.diagnosis.answer import Explain, known_cause
from cuwheel.diagnosis.case import Case
from cuwheel.diagnosis.explain import explain, nearest_causes
from cuwheel.errors import UsageError
from cuwheel.machine import fleet
from cuwheel.support import masking
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.diagnosis.text import Log
    from cuwheel.machine.fleet import Machine
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.support.cause import Cause
    from cuwheel.verdicts.verdict import Verdict


SILENT = "nvcc-silent-failure"  # the cause that asks for nvcc's own words


def inquire(
    log: str | Path | BinaryIO,
    machine: MachineProfile | None = None,
    *,
    wheel: str | Path | None = None,
    gpu: Machine | None = None,
    building: bool = False,
) -> Explain:
    """Explains a log: the machine's facts, the log's and those of a recorded call, what they show, and the answer.

    `wheel`: one at hand, on the disk. `gpu`: on which it failed. `building`: it failed inside of `cuwheel build`, whose
    options then help. The answer quotes the log, and is made to be passed on: secrets are masked in it.
    """
    case = _recorded(log) if isinstance(log, (str, Path)) else None
    case = case or Case(logs=(_read(log),))
    verdicts = _verdicts(wheel, gpu, machine) if wheel else ()
    facts = {**case.facts, **dict(_facts(gpu))}
    found = explain(case.logs[0], machine, facts, verdicts, building=building)
    read = case.logs[0]
    for other in case.logs[1:]:  # the first that tells something more than that something failed
        if found.causes and found.causes[0].id != SILENT:
            break
        more = explain(other, machine, facts, verdicts, building=building)
        if more.causes:
            read, found = other, more
    answer = Explain(
        log=str(log) if isinstance(log, (str, Path)) else "standard input",
        lines=read.total,
        unread=read.truncated,
        prose=read.prose,
        verdicts=verdicts,
        call=case.call,
        similar=() if found.causes else tuple(map(known_cause, nearest_causes(case.logs[0]))),
        **{**asdict(found), "tried": case.tried or found.tried},
    )
    return masking.within(answer, masking.hiding(os.environ))


def causes(printed: str, facts: Mapping[str, str] | None = None, *, building: bool = False) -> tuple[Cause, ...]:
    """Finds the causes that a program's output shows. Secrets of the environment are not quoted."""
    read = text.read_log(io.BytesIO(printed.encode(errors="surrogateescape")))
    found = explain(read, facts=facts, building=building).causes
    shown = tuple(each for each in found if found[0].when or not each.when)
    return masking.within(shown, lambda each: masking.known(each, os.environ))


def _recorded(log: str | Path) -> Case | None:
    """The case of a record; None where the path names none, as for most: then nothing of records is imported."""
    folder, number = reader.split_target(log)
    if not Path(folder).is_dir():
        return None
    from cuwheel.building.recording import differences, replays  # noqa: PLC0415
    from cuwheel.diagnosis import recorded  # noqa: PLC0415

    record = reader.read_record(folder)
    call = reader.chosen_call(record, number)
    last_words = recorded.last_words(record, call) if number is None else ()
    if call is None or last_words:
        hidden = recorded.silenced(record) if number is None else None
        logs = (*last_words, *((recorded.log(record, hidden),) if hidden else ()))
        return Case(
            logs=logs or (text.parse(""),), facts={remedies.RECORD: str(record.folder)}, tried=recorded.tried(record)
        )
    origins = replays.cargo_origins(record, replays.call_environment(record, call))
    return Case(
        logs=(recorded.log(record, call), *((recorded.log_of_all(record),) if number is None else ())),
        facts={
            remedies.RECORD: str(record.folder),
            **({"system": record.system} if record.system else {}),
            **differences.reported_versions(record, call),
        },
        call=recorded.described(record, call, origins),
        tried=recorded.tried(record),
    )


def _read(log: str | Path | BinaryIO) -> Log:
    if not isinstance(log, (str, Path)):
        return text.read_log(log)
    try:
        with Path(log).open("rb") as file:
            return text.read_log(file)
    except OSError as error:
        raise UnreadableError.from_os(error, log, "name a log, or pipe one: COMMAND 2>&1 | cuwheel explain") from error


def _facts(gpu: Machine | None) -> Iterator[tuple[str, str]]:
    if gpu:
        yield "gpu", gpu.gpu or gpu.name
        if gpu.capability:
            yield "capability", gpu.capability


def _verdicts(wheel: str | Path, gpu: Machine | None, machine: MachineProfile | None) -> tuple[Verdict, ...]:
    from cuwheel.device_code.survey import survey  # noqa: PLC0415
    from cuwheel.verdicts.judge import judge_all  # noqa: PLC0415 - few have a wheel at hand

    if gpu:
        machines: tuple[Machine, ...] = (gpu,)
    elif machine:
        machines = fleet.from_profile(machine)
    else:
        raise UsageError("a wheel needs a machine to check it for", hint='cuwheel.explain(log, on="h100", wheel=wheel)')
    return tuple(judge_all(survey(wheel, detail="containers"), machines))
