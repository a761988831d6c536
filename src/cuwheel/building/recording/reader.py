"""A record's folder, read, and the call of it that `RECORD:N` means.

Records may come from anybody: cut lines, garbage and other people's paths are expected."""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cuwheel.building.recording import calls
from cuwheel.building.recording.calls import (
    CALLS_FILE,
    COMMAND_OUTPUT_FILE,
    ENVIRONMENT_FILE,
    HEAD_FILE,
    RECORD_FOLDERS,
    SCHEMA,
    Call,
    CallState,
    InnerProgram,
    Record,
    ResponseFile,
    ToolKind,
    parse_phases,
    phases_inside,
)
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.support import masking, quoting
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded, opening
from cuwheel_core.support.wording import uncoloured

MAX_HEAD = 64 << 20
MAX_LINE = 64 << 20  # of a call with a hundred thousand arguments
MAX_CALLS = 1_000_000
MAX_OUTPUT = 64 << 20
MAX_PHASES = 1 << 20
MAX_TAIL = 1 << 20  # shims keep half of it
_KINDS: dict[str, ToolKind] = {"nvcc": "nvcc", "compiler": "compiler", "linker": "linker", "cache": "cache"}
_SECOND = 1e9
_CODE_PAGE = re.compile(r"cp\d{3,5}")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)


def read_record(folder: Path | str) -> Record:
    folder = Path(folder)
    head = _read_head(folder)
    environment = _strings(_read_json(folder / ENVIRONMENT_FILE, MAX_HEAD))
    masked = head.get("masked") is not False
    reading = _Reading(folder, masked=masked)
    reading.read()
    return Record(
        folder=str(folder),
        command=tuple(_texts(head.get("command"))),
        cwd=_text(head.get("cwd")),
        began=_text(head.get("began")),
        seconds=reading.seconds,
        status=reading.status,
        environment=environment,
        masked=masked,
        system=_text(head.get("system", "")),
        way=_text(head.get("way", "")),
        encoding=_known_encoding(head.get("encoding")),
        calls=tuple(reading.calls()),
        damaged=reading.damaged,
    )


def read_output(record: Record, call: Call, limit: int = MAX_OUTPUT) -> tuple[str, str]:
    """What a call printed. Where both streams went to one place, all of it is in the first, in its order."""
    folder = Path(record.folder)
    out, err = (_read_kept(folder, name, limit, record.encoding) for name in (call.stdout, call.stderr))
    return (masking.text(out), masking.text(err)) if record.masked else (out, err)


def read_command_output(record: Record) -> str:
    """The end of what the recorded command itself printed, without colours; nothing where that was not kept."""
    text = _read_kept(Path(record.folder), COMMAND_OUTPUT_FILE, MAX_TAIL, record.encoding)
    return uncoloured(masking.text(text) if record.masked else text)


def read_printed(record: Record, call: Call, limit: int = MAX_OUTPUT) -> str:
    """Both streams as one text to read: errors first come to stderr, what they are about is often on stdout."""
    out, err = read_output(record, call, limit)
    return uncoloured(out + ("\n" if out and err and not out.endswith("\n") else "") + err)


def _read_kept(folder: Path, name: str, limit: int, encoding: str = "utf-8") -> str:
    """Only a plain file of the record's own folder: a name in a record is anybody's word.

    `encoding`: of what is not UTF-8, as compilers on Windows print their messages.
    """
    if not name:
        return ""
    parts = name.split("/")
    if len(parts) != 2 or parts[0] not in RECORD_FOLDERS or parts[1] in ("", ".", ".."):  # noqa: PLR2004
        return ""
    try:
        with opening.open_plain(folder / parts[0] / parts[1], opening.NOT_A_LINK) as file:
            data = opening.read_up_to(file, limit)
    except (OSError, ValueError):
        return ""
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode()
    return data.decode(encoding, errors="replace")


def _known_encoding(value: object) -> str:
    """A code page of Windows that Python knows; anything else in a record is not taken for one."""
    if isinstance(value, str) and _CODE_PAGE.fullmatch(value):
        with contextlib.suppress(LookupError):
            return codecs.lookup(value).name
    return "utf-8"


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / HEAD_FILE
    if not path.is_file():
        raise UnreadableError(
            folder, "is not a record: it has no record.json", hint="make one with: cuwheel record -- COMMAND"
        )
    head = _read_json(path, MAX_HEAD)
    schema = _text(head.get("schema"))
    if not schema.startswith("cuwheel.calls/"):
        raise MalformedError(path, "is not a valid record.json", hint="make a record with: cuwheel record -- COMMAND")
    if schema != SCHEMA:
        raise NewerSchemaError(path, schema, SCHEMA)
    return head


def _read_json(path: Path, limit: int) -> dict[str, Any]:
    try:
        with opening.open_plain(path) as file:
            value = json.loads(opening.read_up_to(file, limit))
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(path, "is damaged: it is not JSON", hint="record the build again") from error
    return value if isinstance(value, dict) else {}


class _Reading:
    """The lines of the calls, gathered by the id of the call that they are about."""

    def __init__(self, folder: Path, *, masked: bool) -> None:
        self._folder, self._masked = folder, masked
        self._begun: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._hits: dict[str, bool] = {}
        self._inner: dict[str, list[dict[str, Any]]] = {}
        self._inner_count = 0
        self._refused: list[dict[str, Any]] = []
        self.damaged = 0
        self.status: int | None = None
        self.seconds: float | None = None

    def read(self) -> None:
        try:
            with opening.open_plain(self._folder / CALLS_FILE) as file:
                for line in _lines(file):
                    self._heed(line)
        except OSError as error:
            raise UnreadableError.from_os(error, self._folder / CALLS_FILE) from error

    def _heed(self, line: bytes | None) -> None:
        try:
            event = json.loads(line or b"")
            kind, id_ = event["event"], event.get("id", "")
            if len(self._begun) + len(self._refused) >= MAX_CALLS or not isinstance(id_, str):
                self.damaged += 1
            elif kind == "start":
                self._begun.setdefault(id_, event)
            elif kind == "end":
                self._ended.setdefault(id_, event)
            elif kind == "not-started":
                self._refused.append(event)
            elif kind == "inner" and self._inner_count < MAX_CALLS:
                self._inner.setdefault(id_, []).append(event)
                self._inner_count += 1
            elif kind == "cache":
                self._hits[id_] = event["hit"] is True
            elif kind == "finish":
                self.status, self.seconds = _integer(event.get("status")), _seconds(event.get("ended"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.damaged += 1

    def calls(self) -> Iterator[Call]:
        begun = [*self._begun.values(), *self._not_found()]
        begun.sort(key=lambda event: (_seconds(event.get("began")) or 0.0, _text(event.get("id"))))
        for number, event in enumerate(begun, 1):
            yield self._call(number, event)

    def _not_found(self) -> Iterator[dict[str, Any]]:
        """Some callers try each folder of PATH in turn: such a search is one call, which failed for its best reason."""
        last: dict[tuple[object, ...], dict[str, Any]] = {}
        for event in self._refused:
            search = (_integer(event.get("pid")), _text(event.get("name")), repr(event.get("words")))
            if search not in last or _integer(last[search].get("errno")) in _NOT_THERE:
                last[search] = event
        ran = {(_integer(event.get("pid")), _text(event.get("name"))) for event in self._begun.values()}
        for key, event in last.items():
            if key[:2] not in ran:
                yield event

    def _call(self, number: int, event: dict[str, Any]) -> Call:
        id_ = _text(event.get("id"))
        end = self._ended.get(id_, {})
        refused = _integer(event.get("errno") if event["event"] == "not-started" else end.get("errno"))
        status, signal_ = _integer(end.get("status")), _integer(end.get("signal"))
        began = _seconds(event.get("began")) or 0.0
        cwd = self._text_of(event.get("cwd"))
        program = self._text_of(event.get("program"))
        kind = _text(event.get("tool"))
        timed = _text(event.get("phases"))
        inner = tuple(self._inner_of(id_))
        return Call(
            number=number,
            id=id_,
            tool=_KINDS.get(kind, "compiler"),
            name=_text(event.get("name")),
            program=program if event.get("searched") is True else quoting.join_foreign_paths(cwd, program),
            words=self._words(event.get("words")),
            ran=tuple(map(self._text_of, _texts(event.get("ran")))),
            cwd=cwd,
            parent=self._text_of(event.get("parent")),
            changed=self._variables(event.get("changed")),
            unset=tuple(_texts(event.get("unset"))),
            began=began,
            ended=_seconds(end.get("ended")) if end else began if refused else None,
            state=_state(status, signal_, refused),
            status=status,
            signal=signal_,
            problem=_problem(event, refused),
            stdout=_text(event.get("stdout")),
            stderr=_text(event.get("stderr")),
            response_files=tuple(self._response_files(event.get("response_files"))),
            phases=tuple(parse_phases(_read_kept(self._folder, timed, MAX_PHASES))) if timed else phases_inside(inner),
            inner=inner,
            cache_hit=self._hit(id_, kind),
            memory=_integer(end.get("memory")),
        )

    def _text_of(self, value: object) -> str:
        return masking.text(_text(value)) if self._masked else _text(value)

    def _words(self, value: object) -> tuple[str, ...]:
        found = tuple(map(_text, _texts(value)))
        return tuple(masking.words(found)) if self._masked else found

    def _variables(self, value: object) -> dict[str, str]:
        found = _strings(value)
        return masking.variables(found) if self._masked else found

    def _response_files(self, value: object) -> Iterator[ResponseFile]:
        for each in value if isinstance(value, list) else []:
            if isinstance(each, dict) and isinstance(each.get("path"), str):
                text = each.get("text")
                yield ResponseFile(
                    path=self._text_of(each["path"]),
                    text=self._response(text) if isinstance(text, str) else None,
                    encoding="utf-16" if each.get("encoding") == "utf-16" else "utf-8",
                )

    def _response(self, value: str) -> str:
        return masking.response_file(value) if self._masked else value

    def _inner_of(self, id_: str) -> Iterator[InnerProgram]:
        for event in self._inner.get(id_, ()):
            yield InnerProgram(
                name=_text(event.get("name")),
                program=self._text_of(event.get("program")),
                words=self._words(event.get("words")),
                began=_seconds(event.get("began")) or 0.0,
                ended=_seconds(event.get("ended")) or 0.0,
                status=_integer(event.get("status")) or 0,
            )

    def _hit(self, id_: str, kind: str) -> bool | None:
        if id_ in self._hits or kind != "cache":
            return self._hits.get(id_)
        text = _read_kept(self._folder, f"cache/{id_}.txt", MAX_PHASES)
        if not text:
            return None
        return "direct_cache_hit" in text or "preprocessed_cache_hit" in text


def _lines(file: Any) -> Iterator[bytes | None]:  # noqa: ANN401 - a binary file
    """Lines that end; None for one that is cut, or too long to be read."""
    while line := file.readline(MAX_LINE):
        if line.endswith(b"\n"):
            yield line
            continue
        yield None
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)


def _state(status: int | None, signal_: int | None, refused: int | None) -> CallState:
    if refused:
        return "not-started"
    if signal_ is not None:
        return "signalled"
    return "started" if status is None else "failed" if status else "succeeded"


def _problem(event: dict[str, Any], refused: int | None) -> str:
    if not refused:
        return ""
    reason = os.strerror(refused) if abs(refused) < 1 << 31 else f"error {refused}"
    return f"{reason} (in any folder of PATH)" if event.get("searched") is True else reason


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(name, str) and isinstance(text, str)}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _seconds(value: object) -> float | None:
    number = _integer(value)
    return None if number is None else number / _SECOND


# `RECORD` and `RECORD:N`: which call of which record is meant.


def split_target(target: str | Path) -> tuple[str, int | None]:
    """`RECORD:N`: a folder's own name may end so too, and goes first."""
    text = str(target)
    folder, colon, number = text.rpartition(":")
    if colon and folder and number.isascii() and number.isdecimal() and not Path(text).is_dir():
        return folder, bounded.digits(number)
    return text, None


def read_target(target: str | Path) -> tuple[Record, int | None]:
    folder, number = split_target(target)
    return read_record(Path(folder)), number


def chosen_call(record: Record, number: int | None) -> Call | None:
    """The call of that number; without one, the first that failed and mattered."""
    return numbered_call(record, number) if number is not None else calls.first_failure(record)


def require_call(record: Record, number: int | None) -> Call:
    if call := chosen_call(record, number):
        return call
    numbers = f":1 to :{len(record.calls)}" if record.calls else "none"
    raise UsageError(f"no call of {record.folder} failed; choose one to run ({numbers})", hint=listing_command(record))


def numbered_call(record: Record, number: int) -> Call:
    found = next((call for call in record.calls if call.number == number), None)
    if found is None:
        count = len(record.calls)
        raise UsageError(f"{record.folder} has no call {number}: it has {count}", hint=listing_command(record))
    return found


def listing_command(record: Record) -> str:
    return quoting.here(("cuwheel", "record", "replay", record.folder, "--list"))
