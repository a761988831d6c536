"""A wheel into an environment, without pip: each file checked against RECORD as it is written."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Optional

_CHUNK = 1 << 20
_TEXT = 1 << 24
_SCRIPT = """#!{python}
import re, sys
from {module} import {first}
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit({call}())
"""
# Windows starts no script by its first line.
_STARTER = '@"%~dp0python.exe" "%~dp0{script}-script.py" %*\n'
_ENTRY = re.compile(r"([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?")
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


class InstallError(Exception):
    """The wheel is not sound."""


class Place(NamedTuple):
    """Where the parts of a wheel go."""

    site: Path
    scripts: Path
    data: Path
    headers: Path
    python: str


def install(wheel: IO[bytes], place: Place) -> None:
    """Raises InstallError, and leaves what it wrote until then: the environment is of no use any more."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _info(archive)
            listed = _record(archive, info)
            for member in archive.infolist():
                if not member.is_dir():
                    _put(archive, member, place, info, listed)
            missing = [name for name in listed if name not in archive.NameToInfo]
            if missing:
                raise InstallError(f"RECORD lists {missing[0]}, which is not in the wheel")
            _entry_points(archive, info, place)
        (place.site / info / "INSTALLER").write_text("cuwheel\n", encoding="ascii")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, KeyError) as error:
        raise InstallError(f"it cannot be unpacked: {error}") from error


def _info(archive: zipfile.ZipFile) -> str:
    found = {name.split("/")[0] for name in archive.namelist() if name.split("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise InstallError(f"it has {len(found)} dist-info folders")
    return found.pop()


def _record(archive: zipfile.ZipFile, info: str) -> dict[str, str]:
    rows = csv.reader(io.StringIO(_text(archive, f"{info}/RECORD")))
    return {row[0]: (row[1] if len(row) > 1 else "") for row in rows if row}


def _text(archive: zipfile.ZipFile, name: str) -> str:
    if archive.getinfo(name).file_size > _TEXT:
        raise InstallError(f"{name} is too large")
    return archive.read(name).decode("utf-8")


def _put(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Place, info: str, listed: dict[str, str]) -> None:
    name = member.filename
    path, script = destination(name, place)
    exempt = name in [f"{info}/{each}" for each in ("RECORD", *_SIGNATURES)]
    if name not in listed and not exempt:
        raise InstallError(f"{name} is not in RECORD")
    _must_be_its_own(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, path.open("wb") as target:
        first = source.read(len(b"#!python")) if script else b""
        hasher = _hasher(listed.get(name, ""))
        if hasher:
            hasher.update(first)
        target.write(b"#!" + place.python.encode() if first == b"#!python" else first)
        while True:
            chunk = source.read(_CHUNK)
            if not chunk:
                break
            if hasher:
                hasher.update(chunk)
            target.write(chunk)
    if hasher and not exempt and _written(hasher) != listed[name].partition("=")[2].rstrip("="):
        raise InstallError(f"{name} does not match RECORD")
    if script or member.external_attr >> 16 & stat.S_IXUSR:
        path.chmod(0o755)


def _must_be_its_own(path: Path) -> None:
    """`bin/python` is a link to the machine's own interpreter: what is written there is written to that."""
    if path.is_symlink():
        raise InstallError(f"{path.name} would replace the environment's own")


def _hasher(listed: str) -> Optional["hashlib._Hash"]:
    kind = listed.partition("=")[0]
    if not kind:
        return None
    if kind not in ("sha256", "sha384", "sha512"):
        raise InstallError(f"RECORD uses {kind}, which is not allowed")
    return hashlib.new(kind)


def _written(hasher: "hashlib._Hash") -> str:
    return base64.urlsafe_b64encode(hasher.digest()).decode().rstrip("=")


def destination(name: str, place: Place) -> tuple[Path, bool]:
    """Where a member goes, and whether it is a script."""
    parts = name.split("/")
    drives = parts if os.name == "nt" else parts[:1]
    if name.startswith(("/", "\\")) or ".." in parts or "\\" in name or "" in parts or ":" in "".join(drives):
        raise InstallError(f"{name!r} leads out of the folder it would be installed to")
    if not parts[0].endswith(".data"):
        return place.site.joinpath(*parts), False
    schemes = {
        "purelib": place.site,
        "platlib": place.site,
        "scripts": place.scripts,
        "data": place.data,
        "headers": place.headers,
    }
    if len(parts) < 3 or parts[1] not in schemes:  # noqa: PLR2004 - folder, scheme, file
        raise InstallError(f"{name!r} cannot be installed into an environment")
    return schemes[parts[1]].joinpath(*parts[2:]), parts[1] == "scripts"


def _entry_points(archive: zipfile.ZipFile, info: str, place: Place) -> None:
    name = f"{info}/entry_points.txt"
    if name not in archive.NameToInfo:
        return
    for script, module, attribute in _scripts(_text(archive, name)):
        path = place.scripts / (f"{script}-script.py" if os.name == "nt" else script)
        if os.name == "nt":
            starter = place.scripts / f"{script}.cmd"
            _must_be_its_own(starter)
            starter.write_text(_STARTER.format(script=script), encoding="utf-8")
        _must_be_its_own(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        first = attribute.split(".")[0]
        text = _SCRIPT.format(python=place.python, module=module, first=first, call=attribute)
        path.write_text(text, encoding="utf-8")  # as Python reads it, whatever the code page
        os.chmod(path, 0o755)  # noqa: PTH101, S103 - a script


def _scripts(text: str) -> Iterator[tuple[str, str, str]]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise InstallError(f"entry_points.txt cannot be read: {str(error).splitlines()[0]}") from error
    for group in ("console_scripts", "gui_scripts"):
        for script, target in parser.items(group) if parser.has_section(group) else ():
            match = _ENTRY.fullmatch(target.strip())
            if match and re.fullmatch(r"[\w.-]+", script) and script not in (".", ".."):
                yield script, match[1], match[2]
