"""A recorded call once more, and why it does otherwise elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.recording.again import Prepared, Ready
    from cuwheel.recording.quoting import Shell
    from cuwheel.recording.remedies import Blame
    from cuwheel.recording.values import Call, Record
    from cuwheel.report.replay import CallLine, Replay

_SHORTEST_S = 60.0  # a run's time, whatever the recorded one took
_LONGER = 10  # times as long as the recorded one
_LONGEST_S = 24 * 3600.0


def replay(
    target: str | Path,
    *,
    here: bool = False,
    scratch: bool = False,
    directory: Path | None = None,
    attend: bool = False,
    timeout: float | None = None,
) -> Replay:
    """Runs a recorded call again (`RECORD` or `RECORD:N`), in its environment or, with `here`, in the caller's.

    `attend`: its output goes to the caller's own streams as it comes; else it is in the answer.
    `scratch`: what it writes goes to a folder that is removed afterwards, not over the build's files.
    """
    import time

    from cuwheel import log, process
    from cuwheel.recording import again
    from cuwheel.report.replay import Written

    record, call, prepared = _prepared(target, here=here, directory=directory)
    with again.ready(prepared, scratch=scratch) as made:
        _say(call, prepared, made)
        began = time.monotonic()
        out: str | None = None
        err: str | None = None
        if attend:
            status = process.attend(made.command, env=made.environ, cwd=made.cwd)
        else:
            limit = timeout or _LONGEST_S
            done = process.run(made.command, timeout=limit, check=False, env=made.environ, cwd=made.cwd)
            status, out, err = done.status, done.stdout, done.stderr
        seconds = time.monotonic() - began
    notes = (*prepared.notes, *(() if here or directory else _unlike(call, works=status == 0)))
    for note in notes[len(prepared.notes) :]:
        log.info("note: %s", note)
    return replace(
        _answer(record, call, prepared),
        command=made.command,
        notes=notes,
        restored=made.restored,
        written=tuple(Written(path=path, now=now) for path, now in made.written)
        or tuple(Written(path=path, now=path) for path in _outputs(call)),
        exit_status=status if status >= 0 else 128 - status,
        seconds=round(seconds, 3),
        stdout=out,
        stderr=err,
    )


def replay_print(
    target: str | Path, *, here: bool = False, directory: Path | None = None, shell: Shell = "posix"
) -> Replay:
    """The lines that run the call, to paste into a shell that has the caller's environment."""
    from cuwheel.recording import differences, quoting

    record, call, prepared = _prepared(target, here=here, directory=directory)
    situation = prepared.situation
    names = [
        name
        for name in differences.differing(situation.environ, os.environ)
        if differences.weight(name) != "session"  # a shell's own: nobody pastes another's
    ]
    script = quoting.Script(
        words=(situation.program, *situation.words),
        cwd=situation.cwd,
        setting={name: situation.environ[name] for name in names if name in situation.environ},
        unset=tuple(name for name in names if name not in situation.environ),
    )
    return replace(_answer(record, call, prepared), action="print", lines=quoting.script(script, shell))


def replay_list(target: str | Path) -> Replay:
    """The calls of a record."""
    from cuwheel.report.replay import Replay

    record, _ = _record(target)
    return Replay(action="list", record=record.folder, calls=tuple(_line(call) for call in record.calls))


def replay_diff(
    target: str | Path,
    other: str | Path | None = None,
    *,
    directory: Path | None = None,
    runs: bool = True,
    most: int = 60,
    timeout: float | None = None,
) -> Replay:
    """What differs between a recorded call and the caller's environment, or another call, and which of it matters.

    `runs`: runs the call, writing nothing where the build did, until the smallest change is found that makes the
    difference: at most `most` times, each at most `timeout` seconds (ten times the recorded time, at least a minute).
    """
    from cuwheel.recording import again, compilers, culprits, differences, remedies

    record, call, prepared = _prepared(target, directory=directory)
    if other is None:
        against = again.here(record, call, os.environ)
        against = _moved(against, directory)
    else:
        against = _other(other, target, call)
    left, right = prepared.situation, against.situation
    origins = cargo_origins(record, left.environ)
    limit = timeout or max(_SHORTEST_S, _LONGER * ((call.ended or 0.0) - call.began))
    found = differences.compare(left, right, origins)
    if runs:
        for side in (left, right):
            again.refuse_impossible(side)
        found = replace(found, versions=compilers.versions(left, right, limit))
    answer = replace(_answer(record, call, prepared), action="diff", differences=found)
    if not runs or not found.any:
        return answer
    worked = call.state == "succeeded"
    traced = culprits.find(left, right, again.trial(prepared, limit), most=most, recorded=worked)
    notes = (*answer.notes, *_unlike(call, works=traced.left.works))
    blamed = remedies.blame(traced, left, right, origins)
    _keep(record, call, blamed)
    return replace(answer, notes=notes, blame=blamed)


def _keep(record: Record, call: Call, blamed: Blame) -> None:
    """Beside the record, for whoever explains it later."""
    from cuwheel import log
    from cuwheel.errors import CuwheelError
    from cuwheel.recording import layout

    try:
        layout.write(Path(record.folder), layout.blame(call.number), {"answer": blamed.answer})
    except (OSError, CuwheelError) as error:
        log.debug("%s: %s", record.folder, error)


def _unlike(call: Call, *, works: bool) -> tuple[str, ...]:
    if call.state not in ("succeeded", "failed") or works == (call.state == "succeeded"):
        return ()
    before = "worked" if call.state == "succeeded" else f"failed with status {call.status}"
    now = "works" if works else "fails"
    reason = "what it reads has changed since, or it does not always do the same"
    return (f"call {call.number} {before} when it was recorded, and {now} now in the same environment: {reason}",)


def _other(other: str | Path, target: str | Path, call: Call) -> Prepared:
    """`RECORD:M`; `:M` of the same record; or a record, in which the call that did the same job is sought."""
    from cuwheel.errors import UsageError
    from cuwheel.recording import again

    text = str(other)
    same, _ = split_target(target)
    record, number = _record(f"{same}{text}" if text.startswith(":") else other)
    chosen = _numbered(record, number) if number is not None else again.same_call(record, call)
    if chosen is None:
        raise UsageError(f"no call of {record.folder} does what call {call.number} does", hint=_listing(record))
    return again.recorded(record, chosen, os.environ)


def _prepared(
    target: str | Path, *, here: bool = False, directory: Path | None = None
) -> tuple[Record, Call, Prepared]:
    from cuwheel.recording import again

    record, number = _record(target)
    call = chosen(record, number) or _none_failed(record)
    prepared = (again.here if here else again.recorded)(record, call, os.environ)
    return record, call, _moved(prepared, directory)


def _moved(prepared: Prepared, directory: Path | None) -> Prepared:
    if directory is None:
        return prepared
    return replace(prepared, situation=replace(prepared.situation, cwd=str(directory.absolute())))


def split_target(target: str | Path) -> tuple[str, int | None]:
    """`RECORD:N`: a folder's own name may end so too, and goes first."""
    text = str(target)
    folder, colon, number = text.rpartition(":")
    if colon and folder and number.isascii() and number.isdecimal() and not Path(text).is_dir():
        return folder, int(number[:9])
    return text, None


def _record(target: str | Path) -> tuple[Record, int | None]:
    from cuwheel.recording import reader

    folder, number = split_target(target)
    return reader.read(Path(folder)), number


def _numbered(record: Record, number: int) -> Call:
    from cuwheel.errors import UsageError

    found = next((call for call in record.calls if call.number == number), None)
    if found is None:
        count = len(record.calls)
        raise UsageError(f"{record.folder} has no call {number}: it has {count}", hint=_listing(record))
    return found


def _listing(record: Record) -> str:
    from cuwheel.recording import quoting

    return quoting.posix(("cuwheel", "replay", record.folder, "--list"))


def chosen(record: Record, number: int | None) -> Call | None:
    """The call of that number; without one, the first that failed and mattered."""
    from cuwheel.recording import failures

    return _numbered(record, number) if number is not None else failures.first(record)


def _none_failed(record: Record) -> NoReturn:
    from cuwheel.errors import UsageError

    numbers = f":1 to :{len(record.calls)}" if record.calls else "none"
    raise UsageError(
        f"no call of {record.folder} failed; say which one to run (there are {numbers})",
        hint=_listing(record),
    )


def _line(call: Call) -> CallLine:
    from cuwheel.recording import words
    from cuwheel.report.replay import CallLine

    seconds = round(call.ended - call.began, 3) if call.ended is not None else None
    return CallLine(
        number=call.number,
        what=words.label(call.name, call.words),
        state=call.state,
        status=call.status,
        seconds=seconds,
    )


def _answer(record: Record, call: Call, prepared: Prepared) -> Replay:
    from cuwheel.report.replay import Replay

    return Replay(
        action="run",
        record=record.folder,
        call=call.number,
        calls=(_line(call),),
        command=(prepared.situation.program, *prepared.situation.words),
        directory=prepared.situation.cwd,
        masked=prepared.masked,
        notes=prepared.notes,
    )


def _outputs(call: Call) -> tuple[str, ...]:
    from cuwheel.recording import outputs

    return outputs.outputs(call.words, call.tool)


def _say(call: Call, prepared: Prepared, made: Ready) -> None:
    """On stderr: the call's own output must stay as it is."""
    from cuwheel import log

    for each in prepared.masked:
        taken = "taken from this environment" if each.restored else "not set here, so it is not set"
        log.info("note: %s is masked in the record; %s", each.name, taken)
    for note in prepared.notes:
        log.info("note: %s", note)
    if made.restored:
        log.info("note: taken from the record, as they have changed: %s", ", ".join(made.restored))
    log.debug("call %d, in %s", call.number, prepared.situation.cwd)


def cargo_origins(record: Record, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that have the value that a .cargo/config.toml of the build's folder sets, and the file."""
    from cuwheel.machine.variables import cargo_variables
    from cuwheel.machine.world import World

    world = World(environ=environ, cwd=Path(record.cwd))
    return {
        variable.name: variable.found_via
        for variable, _ in cargo_variables(world)
        if environ.get(variable.name) == variable.value
    }
