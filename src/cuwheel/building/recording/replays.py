"""A recorded call once more: run, printed for a shell, or compared with how it would go in another environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import calls, culprits, differences, options, reader, rerun
from cuwheel.building.recording.calls import Call, Record
from cuwheel.building.recording.culprits import Blame
from cuwheel.building.recording.differences import Differences, compiler_versions
from cuwheel.building.recording.rerun import Prepared
from cuwheel.errors import CuwheelError, UsageError
from cuwheel.support import log, process, quoting

if TYPE_CHECKING:
    from cuwheel.building.recording.rerun import Ready
    from cuwheel.support.quoting import Shell


# How a program ended, in words: on Windows a crash is a status too, of 32 bits.

_FIRST, _LAST = 0x8000_0000, 0xFFFF_FFFF  # of Windows' own
# Microsoft, [MS-ERREF] 2.3.1 "NTSTATUS Values".
_CRASHES = {
    0x8000_0003: "a breakpoint",
    0xC000_0005: "an access violation",
    0xC000_0017: "no memory",
    0xC000_001D: "an illegal instruction",
    0xC000_0026: "an invalid exception",
    0xC000_007B: "a DLL of another processor, or a damaged one",
    0xC000_0094: "a division by zero",
    0xC000_00FD: "a stack overflow",
    0xC000_012D: "no memory: the paging file is too small",
    0xC000_0135: "a DLL was not found",
    0xC000_0138: "a DLL lacks a function by its number",
    0xC000_0139: "a DLL lacks a function",
    0xC000_013A: "Ctrl-C",
    0xC000_0142: "a DLL could not be initialised",
    0xC000_0374: "a damaged heap",
    0xC000_0409: "it aborted, or found its stack damaged",
    0xC000_041D: "an exception in a callback",
}


def crash_name(status: int) -> str:
    """What a status of Windows' own means; empty for any other."""
    return _CRASHES.get(status, "")


def status_words(status: int | None) -> str:
    """`1`, or `0xC0000135 (a DLL was not found)`."""
    if status is None or not _FIRST <= status <= _LAST:
        return str(status)
    known = crash_name(status)
    return f"0x{status:08X} ({known})" if known else f"0x{status:08X}"


def shell_status(status: int) -> int:
    """As a shell has it: 128+n where signal n ended it; Windows' own of 32 bits in the range of a C integer."""
    if status < 0:
        return 128 - status
    return status - (1 << 32) if _FIRST <= status <= _LAST else status


_SHORTEST_S = 60.0  # a run's time, whatever the recorded one took
_LONGER = 10  # times as long as the recorded one
_LONGEST_S = 24 * 3600.0


class Chosen(Struct, frozen=True, kw_only=True):
    """A call of a record, made ready. `notes`: what could not be as it was."""

    record: Record
    call: Call
    prepared: Prepared
    notes: tuple[str, ...] = ()


class Ran(Struct, frozen=True, kw_only=True):
    """`written`: each output as the call names it, and where it went. `restored`: response files from the record.

    `stdout`, `stderr`: None where the caller's own streams had them.
    """

    chosen: Chosen
    command: tuple[str, ...]
    written: tuple[tuple[str, str], ...]
    restored: tuple[str, ...]
    status: int
    seconds: float
    stdout: str | None
    stderr: str | None


class Compared(Struct, frozen=True, kw_only=True):
    """`blame`: what makes the difference; None where nothing was run to find it."""

    chosen: Chosen
    differences: Differences
    blame: Blame | None = None


def choose_call(asked: str | Path, *, here: bool = False, directory: Path | None = None) -> Chosen:
    """`RECORD` or `RECORD:N`, in its environment or, with `here`, in the caller's."""
    record, number = reader.read_target(asked)
    call = reader.require_call(record, number)
    prepared = _in_directory((rerun.here if here else rerun.recorded)(record, call, os.environ), directory)
    return Chosen(record=record, call=call, prepared=prepared, notes=prepared.notes)


def run_call(chosen: Chosen, *, scratch: bool, attend: bool, timeout: float | None, as_recorded: bool) -> Ran:
    """`as_recorded`: in the same environment and folder, so that another end is worth a note."""
    call, prepared = chosen.call, chosen.prepared
    out: str | None = None
    err: str | None = None
    with rerun.ready(prepared, scratch=scratch) as made:
        _log_notes(chosen, made)
        began = time.monotonic()
        if attend:
            status = process.attend(made.command, env=made.environ, cwd=made.cwd)
        else:
            limit = timeout or _LONGEST_S
            done = process.run(made.command, timeout=limit, check=False, env=made.environ, cwd=made.cwd)
            status, out, err = done.status, done.stdout, done.stderr
        seconds = time.monotonic() - began
    unlike = _unlike_recorded(call, works=status == 0) if as_recorded else ()
    for note in unlike:
        log.info("note: %s", note)
    return Ran(
        chosen=replace(chosen, notes=(*chosen.notes, *unlike)),
        command=made.command,
        written=made.written or tuple((path, path) for path in options.output_files(call.words, call.tool)),
        restored=made.restored,
        status=status,
        seconds=round(seconds, 3),
        stdout=out,
        stderr=err,
    )


def shell_lines(chosen: Chosen, shell: Shell | None) -> tuple[str, ...]:
    """To paste into a shell that has the caller's environment."""
    situation = chosen.prepared.situation
    names = [
        name
        for name in differences.differing_variables(situation.environ, os.environ)
        if differences.weight(name) != "session"  # a shell's own: nobody pastes another's
    ]
    script = quoting.Script(
        words=(situation.program, *situation.words),
        cwd=situation.cwd,
        setting={name: situation.environ[name] for name in names if name in situation.environ},
        unset=tuple(name for name in names if name not in situation.environ),
    )
    return quoting.script(script, shell or quoting.shell_here())


def compare_environments(
    asked: str | Path,
    other: str | Path | None = None,
    *,
    directory: Path | None = None,
    runs: bool = True,
    most: int = 60,
    timeout: float | None = None,
) -> Compared:
    """A call against the caller's environment, or another call; with `runs`, tried until what matters is found."""
    chosen = choose_call(asked, directory=directory)
    record, call = chosen.record, chosen.call
    if other:
        against, notes = _prepare_other(other, asked, chosen)
    else:
        against, notes = _in_directory(rerun.here(record, call, os.environ), directory), ()
    left, right = chosen.prepared.situation, against.situation
    origins = rerun.cargo_origins(record, left.environ)
    limit = timeout or max(_SHORTEST_S, _LONGER * ((call.ended or 0.0) - call.began))
    found = differences.compare_situations(left, right, origins)
    if runs:
        for side in (left, right):
            rerun.refuse_impossible(side)
        found = replace(found, versions=compiler_versions(left, right, limit))
    elsewhere = (f"{right.label} worked in its own copy: files that its build made there make the difference",)
    if not runs or not found.any:
        notes = (*notes, *elsewhere) if notes and not found.any else notes
        return Compared(chosen=replace(chosen, notes=(*chosen.notes, *notes)), differences=found)
    worked = call.state == "succeeded"
    traced = culprits.find_culprits(left, right, rerun.trial(chosen.prepared, limit), most=most, recorded=worked)
    blamed = culprits.assign_blame(traced, left, right, origins)
    _keep_blame(record, call, blamed)
    if notes and not traced.right.works:
        notes = (*notes, *elsewhere)
    noted = replace(chosen, notes=(*chosen.notes, *notes, *_unlike_recorded(call, works=traced.left.works)))
    return Compared(chosen=noted, differences=found, blame=blamed)


def _keep_blame(record: Record, call: Call, blamed: Blame) -> None:
    """Next to the record, for `explain`."""
    try:
        calls.write_json(Path(record.folder), calls.blame_file(call.number), {"answer": blamed.answer})
    except (OSError, CuwheelError) as error:
        log.debug("%s: %s", record.folder, error)


def _unlike_recorded(call: Call, *, works: bool) -> tuple[str, ...]:
    if call.state not in ("succeeded", "failed") or works == (call.state == "succeeded"):
        return ()
    before = "worked" if call.state == "succeeded" else f"failed with status {status_words(call.status)}"
    now = "works" if works else "fails"
    reason = "its inputs have changed since, or it does not always behave the same"
    return (f"call {call.number} {before} when it was recorded, and {now} now in the same environment: {reason}",)


def _prepare_other(other: str | Path, asked: str | Path, chosen: Chosen) -> tuple[Prepared, tuple[str, ...]]:
    """`RECORD:M`; `:M` of the same record; or a record, in which the call that did the same job is sought.

    With notes. A matrix removes the copy of the project in which a configuration succeeded: its call is then taken as
    it would have been in the copy of the one that it is compared with.
    """
    call = chosen.call
    text = str(other)
    same, _ = reader.split_target(asked)
    record, number = reader.read_target(f"{same}{text}" if text.startswith(":") else other)
    found = reader.numbered_call(record, number) if number is not None else rerun.same_call(record, call)
    if found is None:
        hint = reader.listing_command(record)
        raise UsageError(f"no call of {record.folder} does what call {call.number} does", hint=hint)
    prepared = rerun.recorded(record, found, os.environ)
    copy, its = rerun.copy_of(chosen.record), rerun.copy_of(record)
    if copy is None or its is None or its.is_dir() or not copy.is_dir():
        return prepared, ()
    moved = rerun.moved_into(prepared, copy, record)
    return moved, (f"{moved.situation.label} is run in {copy}: its own copy of the source was removed",)


def _in_directory(prepared: Prepared, directory: Path | None) -> Prepared:
    if directory is None:
        return prepared
    return replace(prepared, situation=replace(prepared.situation, cwd=str(directory.absolute())))


def _log_notes(chosen: Chosen, made: Ready) -> None:
    """On stderr: the call's own output must stay as it is."""
    for each in chosen.prepared.masked:
        taken = "taken from this environment" if each.restored else "not set here, so it is not set"
        log.info("note: %s is masked in the record; %s", each.name, taken)
    for note in chosen.notes:
        log.info("note: %s", note)
    if made.restored:
        log.info("note: taken from the record, as they have changed: %s", ", ".join(made.restored))
    log.debug("call %d, in %s", chosen.call.number, chosen.prepared.situation.cwd)
