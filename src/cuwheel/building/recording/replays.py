"""A recorded call once more: run, printed for a shell, or compared with how it would go in another environment."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import calls, culprits, differences, options, reader, words
from cuwheel.building.recording.calls import Call, CallState, Record, ResponseFile, status_words
from cuwheel.building.recording.culprits import Explanation, Outcome
from cuwheel.building.recording.differences import Differences, Situation, compiler_versions
from cuwheel.errors import ToolError, ToolTimeoutError, UsageError
from cuwheel.machine.compilers import nvcc_in
from cuwheel.machine.system import cargo_variables
from cuwheel.machine.world import World
from cuwheel.support import log, masking, process, quoting
from cuwheel.support.answer import Answer
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support.wording import elided, file_name, uncoloured

if TYPE_CHECKING:
    from cuwheel.support.quoting import Shell

_NOT_STARTED = 127  # as shells tell that a program could not be started
_RECORDER = "CUWHEEL_RECORD"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
_JOBSERVERS = ("MAKEFLAGS", "CARGO_MAKEFLAGS", "MFLAGS")
_JOBSERVER = re.compile(r"\s*--jobserver-(?:auth|fds)=\S+")
_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT")
_ERROR = re.compile(r"\b(?:error|fatal|undefined reference|cannot find|not found|denied|killed)\b", re.IGNORECASE)
_PLACES = re.compile(r"\S*[/\\]\S*|\d+|0x[0-9a-f]+")
_LONGEST_ERROR = 300
_SHOWN = 200  # letters of a command that is run again
_LONGEST_LINE = 100_000  # well below what Linux takes
_SHORTEST_S = 60.0  # a run's time, whatever the recorded one took
_LONGER = 10  # times as long as the recorded one
_LONGEST_S = 24 * 3600.0
Action: TypeAlias = Literal["run", "print", "list", "diff"]


class Masked(Struct, frozen=True, kw_only=True):
    """A variable whose value the record does not hold; `restored`: the caller's own was taken."""

    name: str
    restored: bool


class CallLine(Struct, frozen=True, kw_only=True):
    """A call in a line; `what`: the program and what it was given, shortly."""

    number: int
    what: str
    state: CallState
    status: int | None
    seconds: float | None


class Written(Struct, frozen=True, kw_only=True):
    """`path`: as the call names it, `now`: where it went; the same but for --scratch."""

    path: str
    now: str


class Replay(Answer, frozen=True, kw_only=True):
    """`exit_status`: the call's own, as a shell has it; None where nothing was run.

    `stdout`, `stderr`: what it printed, where that was not passed on. `lines`: to paste. `written`: what it writes.
    `masked`: variables whose values the record does not hold. `restored`: response files taken from the record.
    """

    schema: Literal["cuwheel.replay/1"] = "cuwheel.replay/1"
    action: Action
    record: str
    calls: tuple[CallLine, ...] = ()
    call: int | None = None
    command: tuple[str, ...] = ()
    directory: str = ""
    lines: tuple[str, ...] = ()
    masked: tuple[Masked, ...] = ()
    restored: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()
    exit_status: int | None = None
    seconds: float | None = None
    stdout: str | None = None
    stderr: str | None = None
    differences: Differences | None = None
    blame: Explanation | None = None

    @property
    def succeeded(self) -> bool:
        """Whether `record diff` found what makes the difference, or, without runs, a difference; else the status."""
        if self.action == "diff":
            found = self.blame.verdict in ("found", "unfinished") if self.blame else None
            return bool(self.differences and self.differences.any) if found is None else found
        return not self.exit_status


class Chosen(Struct, frozen=True, kw_only=True):
    """A call of a record, made ready."""

    record: Record
    call: Call
    prepared: Prepared


def choose_call(asked: str | Path, *, here: bool = False, directory: Path | None = None) -> Chosen:
    """`RECORD` or `RECORD:N`, in its environment or, with `here`, in the caller's."""
    record, number = reader.read_target(asked)
    call = reader.require_call(record, number)
    prepared = _in_directory((as_here if here else as_recorded)(record, call, os.environ), directory)
    return Chosen(record=record, call=call, prepared=prepared)


def run_call(
    asked: str | Path,
    *,
    here: bool = False,
    directory: Path | None = None,
    scratch: bool = False,
    attend: bool = False,
    timeout: float | None = None,
) -> Replay:
    """Another end than the recorded one is worth a note where environment and folder are the same."""
    chosen = choose_call(asked, here=here, directory=directory)
    call, prepared = chosen.call, chosen.prepared
    out: str | None = None
    err: str | None = None
    with ready_to_run(prepared, scratch=scratch) as made:
        _log_notes(chosen, made)
        began = time.monotonic()
        if attend:
            status = process.attend(made.command, env=made.environ, cwd=made.cwd)
        else:
            limit = timeout or _LONGEST_S
            done = process.run(made.command, timeout=limit, check=False, env=made.environ, cwd=made.cwd)
            status, out, err = done.status, done.stdout, done.stderr
        seconds = time.monotonic() - began
    unlike = _unlike_recorded(call, works=status == 0) if not here and directory is None else ()
    for note in unlike:
        log.info("note: %s", note)
    written = made.written or tuple((path, path) for path in options.output_files(call.words, call.tool))
    return replace(
        _about_call(chosen, "run"),
        notes=(*chosen.prepared.notes, *unlike),
        command=made.command,
        written=tuple(Written(path=path, now=now) for path, now in written),
        restored=made.restored,
        exit_status=calls.shell_status(status),
        seconds=round(seconds, 3),
        stdout=out,
        stderr=err,
    )


def print_call(
    asked: str | Path, *, here: bool = False, directory: Path | None = None, shell: Shell | None = None
) -> Replay:
    """The lines to paste into a shell that has the caller's environment."""
    chosen = choose_call(asked, here=here, directory=directory)
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
    return replace(_about_call(chosen, "print"), lines=quoting.script(script, shell or quoting.shell_here()))


def compare_environments(
    asked: str | Path,
    other: str | Path | None = None,
    *,
    directory: Path | None = None,
    most: int = 60,
    timeout: float | None = None,
) -> Replay:
    """A call against the caller's environment, or another call; run up to `most` times until what matters is found."""
    chosen = choose_call(asked, directory=directory)
    record, call = chosen.record, chosen.call
    if other:
        against, notes = _prepare_other(other, asked, chosen)
    else:
        against, notes = _in_directory(as_here(record, call, os.environ), directory), ()
    left, right = chosen.prepared.situation, against.situation
    origins = cargo_origins(record, left.environ)
    limit = timeout or max(_SHORTEST_S, _LONGER * ((call.ended or 0.0) - call.began))
    found = differences.compare_situations(left, right, origins)
    if most:
        for side in (left, right):
            refuse_impossible(side)
        found = replace(found, versions=compiler_versions(left, right, limit))
    elsewhere = (f"{right.label} worked in its own copy: files that its build made there make the difference",)
    if not most or not found.any:
        notes = (*notes, *elsewhere) if notes and not found.any else notes
        return replace(_about_call(chosen, "diff"), notes=(*chosen.prepared.notes, *notes), differences=found)
    succeeded = call.state == "succeeded"
    traced = culprits.find_culprits(left, right, trial_runner(chosen.prepared, limit), most=most, recorded=succeeded)
    blamed = culprits.explain_culprits(traced, left, right, origins)
    # Next to the record, for `explain`.
    try:
        calls.write_json(Path(record.folder), calls.blame_file(call.number), {"answer": blamed.answer})
    except (OSError, CuwheelError) as error:
        log.debug("%s: %s", record.folder, error)
    if notes and not traced.right.works:
        notes = (*notes, *elsewhere)
    notes = (*chosen.prepared.notes, *notes, *_unlike_recorded(call, works=traced.left.works))
    return replace(_about_call(chosen, "diff"), notes=notes, differences=found, blame=blamed)


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
    found = reader.numbered_call(record, number) if number is not None else same_call(record, call)
    if found is None:
        hint = reader.listing_command(record)
        raise UsageError(f"no call of {record.folder} does what call {call.number} does", hint=hint)
    prepared = as_recorded(record, found, os.environ)
    copy, its = copy_of(chosen.record), copy_of(record)
    if copy is None or its is None or its.is_dir() or not copy.is_dir():
        return prepared, ()
    moved = moved_into(prepared, copy, record)
    return moved, (f"{moved.situation.label} is run in {copy}: its own copy of the source was removed",)


def _in_directory(prepared: Prepared, directory: Path | None) -> Prepared:
    if directory is None:
        return prepared
    return replace(prepared, situation=replace(prepared.situation, cwd=str(directory.absolute())))


def _log_notes(chosen: Chosen, made: Ready) -> None:
    """Says on stderr what there is to say: the call's own output must stay as it is."""
    for each in chosen.prepared.masked:
        taken = "taken from this environment" if each.restored else "not set here, so it is not set"
        log.info("note: %s is masked in the record; %s", each.name, taken)
    for note in chosen.prepared.notes:
        log.info("note: %s", note)
    if made.restored:
        log.info("note: taken from the record, as they have changed: %s", ", ".join(made.restored))
    command = elided(quoting.here(made.command), _SHOWN)
    log.info("call %d, in %s: %s", chosen.call.number, chosen.prepared.situation.cwd, command)


def list_calls(record: Record) -> Replay:
    return Replay(action="list", record=record.folder, calls=tuple(map(_line, record.calls)))


def _about_call(chosen: Chosen, action: Action) -> Replay:
    situation = chosen.prepared.situation
    return Replay(
        action=action,
        record=chosen.record.folder,
        call=chosen.call.number,
        calls=(_line(chosen.call),),
        command=(situation.program, *situation.words),
        directory=situation.cwd,
        masked=chosen.prepared.masked,
        notes=chosen.prepared.notes,
    )


def _line(call: Call) -> CallLine:
    seconds = round(call.ended - call.began, 3) if call.ended is not None else None
    return CallLine(
        number=call.number,
        what=words.call_label(call.name, call.words),
        state=call.state,
        status=call.status,
        seconds=seconds,
    )


# A recorded call made ready to run again: in the environment it had, or in the current one.


class Prepared(Struct, frozen=True, kw_only=True):
    """`notes`: what could not be as it was."""

    situation: Situation
    response_files: tuple[ResponseFile, ...]
    masked: tuple[Masked, ...] = ()
    notes: tuple[str, ...] = ()


class Ready(Struct, frozen=True, kw_only=True):
    """`written`: each output as the call named it, and where it goes. `restored`: response files from the record."""

    command: tuple[str, ...]
    environ: dict[str, str]
    cwd: Path
    written: tuple[tuple[str, str], ...] = ()
    restored: tuple[str, ...] = ()


def call_environment(record: Record, call: Call) -> dict[str, str]:
    """All variables of a call, as the record has them."""
    kept = {name: value for name, value in record.environment.items() if name not in call.unset}
    environ = kept | call.changed
    environ.pop(_RECORDER, None)
    return environ


def as_recorded(record: Record, call: Call, caller: Mapping[str, str]) -> Prepared:
    """Prepares a call as it was, as far as a record tells: secrets are the caller's, and passing things left out."""
    environ = call_environment(record, call)
    notes = list(_drop_what_passed(environ))
    masked = []
    for name, value in list(environ.items()):
        if record.masked and masking.MASK in value:
            masked.append(Masked(name=name, restored=name in caller))
            del environ[name]
            if name in caller:
                environ[name] = caller[name]
    if any(masking.MASK in word for word in call.words):
        notes.append("an argument holds a masked secret, which cannot be restored")
    if "-" in options.input_files(call.words, call.tool):
        notes.append("it reads standard input, which a record does not contain")
    return Prepared(
        situation=Situation(
            label=f"{_name(record)}:{call.number}",
            tool=call.tool,
            program=call.program,
            words=call.ran or call.words,
            cwd=call.cwd,
            environ=environ,
        ),
        response_files=call.response_files,
        masked=tuple(sorted(masked, key=lambda each: each.name)),
        notes=tuple(notes),
    )


def _name(record: Record) -> str:
    """The name of a record's folder; in a matrix, where all records are called the same, also its configuration's."""
    folder = Path(record.folder).absolute()
    return folder.parent.name if copy_of(record) else folder.name


def copy_of(record: Record) -> Path | None:
    """The copy of the project that a record of a matrix was made in. That of a configuration that succeeded is gone."""
    copy = Path(os.path.realpath(record.folder)).parent / calls.COPIED_SOURCE
    try:
        inside = Path(os.path.realpath(record.cwd)).is_relative_to(copy)
    except ValueError:  # a record is anybody's: what it names may be no path here, by its encoding or a null in it
        return None
    return copy if inside else None


def moved_into(prepared: Prepared, copy: Path, record: Record) -> Prepared:
    """A call of a record that was made in another copy of the same project, as it would have been in this one."""
    copied_source = Path(record.folder).absolute().parent / calls.COPIED_SOURCE  # a build may name it by a link
    names = {re.escape(str(each)) for each in (copied_source, copy_of(record)) if each}
    other_copy = re.compile(f"(?:{'|'.join(names)})(?![\\w.-])")
    situation = prepared.situation

    def as_moved(text: str) -> str:
        return other_copy.sub(lambda _: str(copy), text)

    moved = replace(
        situation,
        program=as_moved(situation.program),
        words=tuple(map(as_moved, situation.words)),
        cwd=as_moved(situation.cwd),
        environ={name: as_moved(value) for name, value in situation.environ.items()},
    )
    return replace(prepared, situation=moved)


def _drop_what_passed(environ: dict[str, str]) -> Iterator[str]:
    """What belonged to that moment: the jobserver of a make that has ended, folders for temporary files since gone."""
    for name in _JOBSERVERS:
        if name in environ:
            environ[name] = _JOBSERVER.sub("", environ[name])
    for name in _TEMPORARY:
        if name in environ and not Path(environ[name]).is_dir():
            yield f"{name} is not set: {environ.pop(name)} is gone"


def as_here(record: Record, call: Call, caller: Mapping[str, str]) -> Prepared:
    """A call in the caller's environment, with the compiler of that name that the caller would run."""
    before = as_recorded(record, call, caller)
    environ = dict(caller)
    situation = replace(
        before.situation,
        label="here",
        environ=environ,
        program=_own_program(call, environ) or call.program,
    )
    return Prepared(situation=situation, response_files=call.response_files)


def _own_program(call: Call, environ: Mapping[str, str]) -> str | None:
    """First on PATH, as somebody types it; else where CUDA's variables lead."""
    name = file_name(call.name)
    found = World(environ=environ, cwd=Path.cwd()).which_all(name)
    if found:
        # The same program under another path is not a difference.
        return call.program if _same_file(found[0], call.program) else str(found[0])
    if call.tool == "nvcc":
        roots = (nvcc_in(Path(environ[root])) for root in _ROOTS if environ.get(root))
        places = (environ.get("CUDACXX", ""), *map(str, filter(None, roots)))
        return next((place for place in places if place and os.access(place, os.X_OK)), None)
    return None


def _same_file(one: Path, other: str) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


@contextlib.contextmanager
def ready_to_run(prepared: Prepared, *, scratch: bool) -> Iterator[Ready]:
    """Everything in place to run it; `scratch`: what it writes goes to a folder that is removed afterwards."""
    situation = prepared.situation
    refuse_impossible(situation)
    cwd = Path(situation.cwd)
    if not cwd.is_absolute() or not cwd.is_dir():
        raise UnreadableError(
            cwd,
            "the folder this call ran in no longer exists",
            hint="pip removes its build folders (its --no-clean keeps them); use --directory to run it elsewhere",
        )
    with tempfile.TemporaryDirectory(prefix="cuwheel-replay-") as name:
        if scratch:
            yield _with_outputs_redirected(prepared, Path(name))
            return
        command_words, restored = _with_response_files(situation, prepared.response_files, Path(name))
        yield Ready(command=(situation.program, *command_words), environ=situation.environ, cwd=cwd, restored=restored)


def _with_outputs_redirected(prepared: Prepared, folder: Path) -> Ready:
    """Response files may say where to write: their words are taken in, where a command line can hold them."""
    situation = prepared.situation
    texts = {file.path: file.text for file in prepared.response_files}
    command_words = tuple(words.with_response_files(situation.words, texts))
    restored = tuple(texts)
    if sum(map(len, command_words)) + len(command_words) > _LONGEST_LINE:
        command_words, restored = _with_response_files(situation, prepared.response_files, folder)
    place = folder / "out"
    place.mkdir()
    redirected = options.redirect_outputs(command_words, situation.tool, str(place), situation.program)
    if redirected.leaks:
        raise UsageError(
            f"{file_name(situation.program)} names its output in a way that cuwheel does not know, so it would "
            f"overwrite the build's files",
            hint="replay without --scratch overwrites them; record diff --max-runs 0 only compares",
        )
    for option in options.parse_options(redirected.words, situation.tool):
        if option.name in ("--output-directory", "--keep-dir") and option.value:
            Path(option.value).mkdir(exist_ok=True)
    return Ready(
        command=(situation.program, *redirected.words),
        environ=situation.environ,
        cwd=Path(situation.cwd),
        written=redirected.written,
        restored=restored,
    )


def refuse_impossible(situation: Situation) -> None:
    """A record is anybody's word: not all that can be written there can be run."""
    texts = (situation.program, situation.cwd, *situation.words, *situation.environ, *situation.environ.values())
    if not situation.program or any("\0" in text for text in texts):
        raise MalformedError(situation.label, "its record is damaged: the program name is not valid")
    if any(not name or "=" in name for name in situation.environ):
        raise MalformedError(situation.label, "its record is damaged: a variable name is not valid")


def _with_response_files(
    situation: Situation, files: Sequence[ResponseFile], folder: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where one has changed or vanished since, all are written anew from the record, and the words lead there."""
    changed = [
        file.path for file in files if file.text is not None and _response_text(situation.cwd, file) != file.text
    ]
    if not changed:
        return situation.words, ()
    places = {file.path: str(folder / f"{index}.rsp") for index, file in enumerate(files) if file.text is not None}

    mentioned = re.compile("(?<=@)(" + "|".join(map(re.escape, places)) + r")(?=[\s\"']|$)")

    def redirected(text: str) -> str:
        return mentioned.sub(lambda match: places[match[1]], text)

    for file in files:
        if file.text is not None:
            # A file may name another one of them.
            Path(places[file.path]).write_bytes(redirected(file.text).encode(file.encoding, _errors(file)))
    command_words = []
    for option in options.parse_options(situation.words, situation.tool):
        if option.name == options.RESPONSE:
            command_words.append(redirected(option.words[0]))
        elif option.name == "--options-file" and option.value:
            command_words += ["--options-file", ",".join(places.get(path, path) for path in option.value.split(","))]
        else:
            command_words += option.words
    return tuple(command_words), tuple(changed)


def _response_text(cwd: str, file: ResponseFile) -> str | None:
    try:
        return Path(cwd, file.path).read_bytes().decode(file.encoding, _errors(file))
    except (OSError, UnicodeError):
        return None


def _errors(file: ResponseFile) -> str:
    return "surrogateescape" if file.encoding == "utf-8" else "replace"


def trial_runner(prepared: Prepared, timeout: float) -> Callable[[Situation], Outcome]:
    """For `culprits.find`: runs a situation, writing nothing where the build did, and says how it ended."""

    def run(situation: Situation) -> Outcome:
        with ready_to_run(replace(prepared, situation=situation), scratch=True) as made:
            try:
                done = process.run(made.command, timeout=timeout, check=False, env=made.environ, cwd=made.cwd)
            except ToolTimeoutError:
                return Outcome(status=None, error="out of time", seconds=timeout)
            except ToolError as error:
                return Outcome(status=_NOT_STARTED, error=error.message, sign=error_sign(error.message))
        # A compiler's message may be on either stream, cl's and nvcc's own on the first.
        first = first_error(done.stderr + done.stdout) if done.status else ""
        return Outcome(status=done.status, error=first, sign=error_sign(first), seconds=done.seconds)

    return run


def first_error(output: str) -> str:
    lines = [line.strip() for line in uncoloured(output).splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")[:_LONGEST_ERROR]


def error_sign(error: str) -> str:
    """An error without what differs from run to run: paths and numbers."""
    return " ".join(_PLACES.sub("", error).split())


def same_call(record: Record, call: Call) -> Call | None:
    """The call of another record that did the same job: of the same tool, on the same inputs, or near to it."""
    wanted = {file_name(path) for path in options.input_files(call.words, call.tool)}
    best, likeness = None, 0.0
    for each in record.calls:
        if each.tool != call.tool:
            continue
        inputs = {file_name(path) for path in options.input_files(each.words, each.tool)}
        if not wanted & inputs:
            continue
        same = len(wanted & inputs) / len(wanted | inputs)
        shared = len(set(each.words) & set(call.words)) / max(len(set(each.words) | set(call.words)), 1)
        if same + shared > likeness:
            best, likeness = each, same + shared
    return best


def cargo_origins(record: Record, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that have the value that a .cargo/config.toml of the build's folder sets, and the file."""
    world = World(environ=environ, cwd=Path(record.cwd))
    return {
        variable.name: variable.found_via
        for variable, _ in cargo_variables(world)
        if environ.get(variable.name) == variable.value
    }
