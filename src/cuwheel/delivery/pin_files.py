"""Settings written where an environment reads them: a marked block of an activation script, an .env file, a systemd
drop-in or a Dockerfile. Written again it changes nothing; taken out, the file is as it was."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.facts import packages
from cuwheel.support import files
from cuwheel.wheel.journal_file import Pinned
from cuwheel.wheel.journal_file import SettingsKind as Kind
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening

KINDS = ("activate", "env-file", "systemd", "dockerfile")
_BEGIN, _END = "# >>> cuwheel pins >>>", "# <<< cuwheel pins <<<"
_LARGEST = 1 << 24
_OWN_VALUE = re.compile(r"[0-9][0-9.]{0,15}", re.ASCII)
_NAME, _VALUE = r"([A-Z][A-Z0-9_]*)", r"([A-Za-z0-9._/:+-]+)"
# How each writes a variable.
_LINES: dict[Kind, str] = {
    "activate": "export {}={}",
    "activate.fish": "set -gx {} {}",
    "activate.csh": "setenv {} {}",
    "env-file": "{}={}",
    "systemd": "Environment={}={}",
    "dockerfile": "ENV {}={}",
}
_READ = {kind: re.compile(line.format(_NAME, _VALUE), re.ASCII) for kind, line in _LINES.items()}
_DEFAULTS = {"env-file": ".env", "dockerfile": "Dockerfile"}


class Place(Struct, frozen=True, kw_only=True):
    """`path` is empty for an environment's own activation scripts."""

    kind: Kind
    path: str = ""


def parse_place(text: str) -> Place:
    """`activate`, or `env-file=PATH` and so on."""
    kind, _, path = text.partition("=")
    if kind not in KINDS:
        raise UsageError(f"{text[:60]!r} is not a place for settings", hint=f"one of {', '.join(KINDS)}; with =PATH")
    if kind == "activate":
        if path:
            raise UsageError("activate takes no path: it means the scripts of the environment", hint="--env FOLDER")
        return Place(kind="activate")
    path = path or _DEFAULTS.get(kind, "")
    if not path:
        raise UsageError(
            "a systemd drop-in needs its folder",
            hint="systemd=/etc/systemd/system/NAME.service.d, or systemd=FILE.conf",
        )
    found = Path(path)
    if kind == "systemd" and found.suffix != ".conf":
        found /= "cuwheel.conf"
    return Place(kind=kind, path=str(found))  # type: ignore[arg-type]


def pending_settings(places: tuple[Place, ...], prefix: Path, settings: Mapping[str, str | None]) -> tuple[Pinned, ...]:
    """The files that have to be changed so that they say this; None for a variable that is to go."""
    found = []
    for each in dict.fromkeys(target for place_ in places for target in _targets(place_, prefix)):
        path = Path(each.path)
        text = _read(path)
        before = None if text is None else _settings(text, each.kind, path)
        if _updated(before or {}, settings) != (before or {}):
            ended = not text or text.endswith("\n")
            found.append(Pinned(kind=each.kind, path=str(path), before=before, made=text is None, ended=ended))
    return tuple(found)


def _targets(places: Place, prefix: Path) -> Iterator[Place]:
    """Yields the files to write: of an environment the scripts of its shells, or the one that conda reads."""
    if places.kind != "activate":
        yield Place(kind=places.kind, path=str(files.absolute(Path(places.path).expanduser())))
        return
    if (prefix / "conda-meta").is_dir():
        yield Place(kind="activate", path=str(prefix / "etc/conda/activate.d/cuwheel.sh"))
        return
    scripts: tuple[Kind, ...] = ("activate", "activate.fish", "activate.csh")
    existing = [each for each in scripts if (prefix / "bin" / each).is_file()]
    if not existing:
        raise UnreadableError(
            prefix, "has no activation script", hint="another place for the settings: --pin env-file=.env"
        )
    yield from (Place(kind=each, path=str(prefix / "bin" / each)) for each in existing)


def write_settings(pinned: Pinned, settings: Mapping[str, str | None]) -> None:
    _rewrite(pinned, _updated(pinned.before or {}, settings))


def must_be_ours(pinned: Pinned, journal: Path) -> None:
    """A journal names any file: it may put back what cuwheel itself sets there, and no more."""
    path = Path(pinned.path)
    text = _read(path)
    settings = (_settings(text, pinned.kind, path) or {}) if text is not None else None
    for name, value in (pinned.before or {}).items():
        own = name in packages.choosing_variables() and _OWN_VALUE.fullmatch(value)
        if not own and settings is not None and settings.get(name) != value:
            raise MalformedError(
                journal,
                f"would set {name[:60]} in {path}, which cuwheel does not set; nothing was changed",
                hint=f"if you changed that line of {path} yourself, change it back first",
            )


def restore_settings(pinned: Pinned) -> None:
    """The block as it was. A file that somebody removed meanwhile stays so.

    Variables that are not cuwheel's own stay as the file has them, whatever the journal says.
    """
    path = Path(pinned.path)
    text = _read(path)
    if text is None or _parts(text, path) is None:
        return
    known = packages.choosing_variables()
    others = {name: value for name, value in (_settings(text, pinned.kind, path) or {}).items() if name not in known}
    own = {name: value for name, value in (pinned.before or {}).items() if name in known}
    _rewrite(pinned, {**others, **own}, ended=pinned.ended)
    if pinned.made and not (_read(path) or "").strip():
        path.unlink(missing_ok=True)


def _updated(before: Mapping[str, str], settings: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **settings}
    return {name: value for name, value in sorted(merged.items()) if value is not None}


def _rewrite(pinned: Pinned, settings: Mapping[str, str], *, ended: bool = True) -> None:
    path = Path(os.path.realpath(pinned.path))
    old = _read(path)
    parts = _parts(old or "", path)
    outside = parts[0] + parts[2] if parts else old or ""
    block = _block(pinned.kind, settings)
    if block and outside and not outside.endswith("\n"):
        outside += "\n"
    new = outside + block if ended or block else outside.removesuffix("\n")
    if new == old:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, path.parent) from error
    with files.replacing(path, durable=True) as file:
        file.write(new.encode("utf-8", "surrogateescape"))
        if old is not None:
            shutil.copymode(path, file.name)


def _block(kind: Kind, settings: Mapping[str, str]) -> str:
    if not settings:
        return ""
    lines = [_line(kind, name, value) for name, value in sorted(settings.items())]
    head = ["[Service]"] if kind == "systemd" else []
    return "".join(f"{line}\n" for line in (_BEGIN, *head, *lines, _END))


def _line(kind: Kind, name: str, value: str) -> str:
    line = _LINES[kind].format(name, value)
    if not _READ[kind].fullmatch(line):  # of a journal that somebody wrote into
        raise MalformedError(name[:60], "is not a variable with a plain value")
    return line


def _read(path: Path) -> str | None:
    """Reads a file of settings; None where there is no such file."""
    try:
        with path.open("rb") as file:
            data = opening.read_up_to(file, _LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    if len(data) > _LARGEST:
        raise UnreadableError(path, f"has more than {_LARGEST:,} bytes: not a file for settings")
    return data.decode("utf-8", "surrogateescape")


def _parts(text: str, path: Path) -> tuple[str, str, str] | None:
    """What is before the block, in it, and after it."""
    head, mark, rest = text.partition(f"{_BEGIN}\n")
    if not mark:
        return None
    inside, mark, tail = rest.partition(f"{_END}\n")
    if not mark:
        raise MalformedError(path, "has the first line of cuwheel's pins and not the last", hint="remove both lines")
    return head, inside, tail


def _settings(text: str, kind: Kind, path: Path) -> dict[str, str] | None:
    found = _parts(text, path)
    if found is None:
        return None
    matches = (_READ[kind].fullmatch(line) for line in found[1].splitlines())
    return {match[1]: match[2] for match in matches if match}
