"""A wheel into a fresh environment, without pip: its tags, the environment, each file checked against RECORD."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import importlib
import io
import os
import platform
import re
import shutil
import site
import stat
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple, Optional

from cuwheel_core.wheel.tags import WheelName, platform_of, python_of

from ..runner import checks as runner
from .machine import cpu_name, glibc

# Whether this interpreter may install a wheel, by the tags in its file name.


def why_not_installable(file_name: str) -> str:
    """Why the wheel cannot be installed here; empty where it can. Any of its tags will do."""
    name = WheelName.parse(file_name)
    if name is None:
        return f"{file_name} is not the name of a wheel"
    interpreter = [_python_problem(python, abi) for python in name.python.split(".") for abi in name.abi.split(".")]
    if all(interpreter):
        return interpreter[0]
    machine = [_platform_problem(each) for each in name.platforms]
    return machine[0] if all(machine) else ""


def _python_problem(python: str, abi: str) -> str:
    here = sys.version_info[:2]
    wanted = python_of(python)
    if wanted is None:
        return f"it is for the interpreter {python}"
    kind, major, minor = wanted.kind, wanted.major, wanted.minor or 0
    words = f"it is for Python {wanted.version} ({abi}), and this is {here[0]}.{here[1]}"
    words += " without the GIL" if _free_threaded() else ""
    if kind == "pp" or (kind == "cp" and sys.implementation.name != "cpython"):
        return f"it is for another Python implementation than {sys.implementation.name}"
    if abi not in ("none", "abi3") and abi.endswith("t") != _free_threaded():
        return words
    if abi == "abi3" and _free_threaded():
        return words
    newer_too = kind == "py" or abi == "abi3"
    same = here[0] == major and (here[1] == minor or (kind == "py" and wanted.minor is None))
    return "" if same or (newer_too and here[0] == major and here[1] >= minor) else words


def _free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _platform_problem(name: str) -> str:
    if name == "any":
        return ""
    system, cpu, libc, wanted = platform.system().lower(), cpu_name(), glibc(), platform_of(name)
    if (wanted.os, wanted.cpu) != (system, cpu):
        return f"it is for {f'linux_{wanted.cpu}' if wanted.os == 'linux' else name}, and this is {system}_{cpu}"
    if wanted.glibc and libc < tuple(map(int, wanted.glibc.split("."))):
        has = ".".join(map(str, libc)) if libc > (0, 0) else "no glibc"
        return f"it needs glibc {wanted.glibc}, but this machine has {has}"
    return ""


# An environment in a folder of its own, made without pip.

LIBRARIES = "nvidia"  # the folder of all its packages
_SYSTEM = importlib.import_module(f"{__name__.partition('.')[0]}.support.system_calls")  # of cuwheel, or of the kit


class Place(NamedTuple):
    """Where the parts of a wheel go."""

    site: Path
    scripts: Path
    data: Path
    headers: Path
    python: str


class Environment(NamedTuple):
    python: str
    place: Place
    environ: dict[str, str]


def make_environment(
    folder: Path,
    environ: Mapping[str, str],
    *,
    system: bool,
    passed: Iterable[str] = (),
    is_secret: Callable[[str], bool] = lambda _: False,
) -> Environment:
    """`system`: see what is installed beside the Python that runs this, its own environment's packages included.

    `passed`: variables that the checks see beside those that all of them see.
    """
    _create(folder)
    place = _place(folder)
    place.site.mkdir(parents=True, exist_ok=True)
    if system:
        # Not the option of venv: that means the Python below, and not the environment that was asked to run this.
        lines = [f"import site; site.addsitedir({str(each)!a})\n" for each in own_package_folders()]
        (place.site / "_beside.pth").write_text("".join(lines), encoding="ascii")
    return Environment(
        place.python,
        place,
        runner.confined_variables(environ, folder, folder.parent, passed=passed, is_secret=is_secret),
    )


def _create(folder: Path) -> None:
    try:
        import venv  # noqa: PLC0415 - not every Python has it
    except ImportError:
        if os.name != "nt":
            raise OSError("this Python has no module venv: install it (on Debian python3-venv)") from None
        _copy_small_python(folder)
    else:
        venv.EnvBuilder(symlinks=os.name != "nt", with_pip=False).create(folder)


def _copy_small_python(folder: Path) -> None:
    """Python's embeddable package for Windows: a folder with everything in it, and without venv."""
    home = Path(sys.base_prefix)
    scripts = folder / "Scripts"
    scripts.mkdir(parents=True)
    shutil.copyfile(sys.executable, scripts / "python.exe")
    for each in (*home.glob("*.dll"), *home.glob("python*.zip")):  # the standard library is looked for beside it
        shutil.copyfile(each, scripts / each.name)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")


def _place(folder: Path) -> Place:
    if os.name == "nt":
        scripts = folder / "Scripts"
        return Place(folder / "Lib" / "site-packages", scripts, folder, folder / "Include", str(scripts / "python.exe"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        version += "t"
    packages, scripts = folder / "lib" / version / "site-packages", folder / "bin"
    return Place(packages, scripts, folder, folder / "include" / "site" / version, str(scripts / "python"))


def link_libraries(packages: Path) -> None:
    """NVIDIA's packages of the Python that runs this, where repaired wheels look for them: beside themselves.

    After the wheels: what they bring themselves comes first, and nothing is installed through a link.
    """
    place = packages / LIBRARIES
    found = next((path for each in own_package_folders() if (path := Path(each, LIBRARIES)).is_dir()), None)
    if found and not place.exists():
        _SYSTEM.link_folder(found, place)


def own_package_folders() -> list[str]:
    """The package folders of the Python that runs this; also where it was started without them (-S, -I)."""
    paths = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    paths += [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    return [each for each in dict.fromkeys(paths) if Path(each).is_dir()]


# The wheel itself, each file checked against RECORD as it is written.

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


def install_wheel(wheel: IO[bytes], place: Place) -> None:
    """Raises InstallError, and leaves what it wrote until then: the environment is of no use any more."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = {name.split("/")[0] for name in archive.namelist() if name.split("/")[0].endswith(".dist-info")}
            if len(found) != 1:
                raise InstallError(f"it has {len(found)} dist-info folders")
            info = found.pop()
            rows = csv.reader(io.StringIO(_text(archive, f"{info}/RECORD")))
            listed = {row[0]: (row[1] if len(row) > 1 else "") for row in rows if row}
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
