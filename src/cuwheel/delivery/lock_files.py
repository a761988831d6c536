"""Locks: for each kind of machine the very files that it installs, with their hashes, as every tool reads them.

A lock is `pylock.<machine>.toml` (PEP 751), which pip and uv install, with a table `[tool.cuwheel]`: the GPU, how each
package runs there and why, and what has to be set. It is written on one machine and read on others: nothing in it is
believed that could lead out of a folder, and no file is taken whose hash is another.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery.install_answer import Package
from cuwheel.errors import NewerSchemaError, UnavailableError
from cuwheel.network import addresses
from cuwheel.network.resolver import Release
from cuwheel.support import codec, files
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.wheel.tags import machine_name

if TYPE_CHECKING:
    from packaging.pylock import Package as Package751

    from cuwheel.delivery.request import LockFormat
    from cuwheel.machine.fleet import Machine

TABLE = "cuwheel.lock/1"  # of [tool.cuwheel]
_LARGEST = 1 << 26
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=[A-Za-z0-9._-]+", re.ASCII)
_PYLOCK = re.compile(r"pylock\.[^.]+\.toml")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_AGAIN = "write it anew: cuwheel install NAME --lock-for fleet.toml"
_WRITE = "write one: cuwheel install NAME --lock-for fleet.toml"
_SCHEMES = ("https://", "http://", "file://")


class LockPart(Struct, frozen=True, kw_only=True):
    """One kind of machine: what is known of it, and what is installed there. Null: it does not matter.

    `driver`, `glibc`: the oldest that will do. `packages`: those that the lock is for, and how they run; `why`: by what
    code. `files`: they and all that they require.
    """

    machines: tuple[str, ...]
    capability: str
    os: str
    cpu: str
    python: str
    glibc: str | None
    driver: str | None
    packages: dict[str, str]
    fallback: str | None
    pins: dict[str, str]
    files: tuple[Release, ...]
    why: dict[str, str] = {}


class InstallLock(Struct, frozen=True, kw_only=True):
    wanted: tuple[str, ...]
    parts: tuple[LockPart, ...]


# Written.


def write_locks(folder: Path, lock: InstallLock, formats: Sequence[LockFormat] = ("pylock",)) -> tuple[Path, ...]:
    """For each kind of machine a file in each format; a lock names the files of `folder` relative to itself."""
    with files.errors_of(folder, "name another folder: -o FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
    texts: dict[Path, bytes] = {}
    for name, part in zip(_names(lock), lock.parts, strict=True):
        for each in dict.fromkeys(formats):
            pattern, text_of = _FORMATS[each]
            texts[folder / pattern.format(name)] = text_of(lock, part, folder).encode()
    # All are written before one has its name: of a fleet's locks none is new while another is old.
    with contextlib.ExitStack() as names:
        for path, text in texts.items():
            if files.read_if_present(path, _LARGEST, "a lock") != text:
                file = names.enter_context(files.replacing(path, durable=True))
                file.write(text)
                file.flush()
    return tuple(texts)


def _names(lock: InstallLock) -> Iterator[str]:
    """After the first machine of each kind: `rack-1`. A dot would end the name of a lock."""
    seen: Counter[str] = Counter()
    for part in lock.parts:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", part.machines[0]).strip("-").lower()[:60] or "machine"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _pylock(lock: InstallLock, part: LockPart, folder: Path) -> str:
    from packaging.pylock import Pylock  # noqa: PLC0415 - few write a lock

    cpu = machine_name(part.os, part.cpu)
    system = "win32" if part.os == "windows" else "linux"
    made = {
        "lock-version": "1.0",
        "environments": [f"sys_platform == '{system}' and platform_machine == '{cpu}'"],
        "requires-python": f"=={part.python}.*",
        "created-by": "cuwheel",
        "packages": [_package(each, folder) for each in sorted(part.files, key=attrgetter("name"))],
        "tool": {"cuwheel": {"schema": TABLE, "wanted": list(lock.wanted), **_table(part)}},
    }
    checked = Pylock.from_dict(made)
    return "".join(f"{line}\n" for line in _toml(checked.to_dict()))


def _table(part: LockPart) -> dict[str, object]:
    """What a lock cannot say otherwise: the machine, how the packages run there and why, what has to be set."""
    names = ("capability", "os", "cpu", "python", "glibc", "driver", "fallback")
    known = {name: value for name in names if (value := getattr(part, name)) is not None}
    tables = {name: value for name in ("packages", "why", "pins") if (value := getattr(part, name))}
    return {"machines": list(part.machines), **known, **tables}


def _package(release: Release, folder: Path) -> dict[str, object]:
    wheel: dict[str, object] = {"name": release.file, **_address(release, folder)}
    wheel |= {"size": release.size} if release.size else {}
    wheel["hashes"] = {"sha256": release.sha256}
    index = {"index": release.index} if release.index.startswith(_SCHEMES) else {}
    return {"name": release.name, "version": release.version, **index, "wheels": [wheel]}


def _address(release: Release, folder: Path) -> dict[str, object]:
    """Files beside the lock stay beside it when the folder is copied or served from elsewhere."""
    local = addresses.local_path(release.url)
    root = files.absolute(folder)
    if local and local.is_relative_to(root):
        return {"path": local.relative_to(root).as_posix()}
    return {"url": files.absolute(local).as_uri() if local else release.url}


def _requirements(_lock: InstallLock, part: LockPart, folder: Path) -> str:
    """For `pip install -r` and `uv pip install -r`: each file by its address and hash, and nothing else."""
    lines = [f"# for {', '.join(part.machines)}: {part.capability}, Python {part.python}; written by cuwheel"]
    lines += [f"# {name}={value}" for name, value in part.pins.items()]
    for each in sorted(part.files, key=attrgetter("name")):
        found = _address(each, folder)
        where = f"./{found['path']}" if "path" in found else f"{each.name} @ {found['url']}"
        lines.append(f"{where} --hash=sha256:{each.sha256}")
    return "\n".join(lines) + "\n"


def _uv_sources(_lock: InstallLock, part: LockPart, folder: Path) -> str:
    """For a pyproject.toml: where uv takes each package from. It holds for those that the project itself names."""
    lines = [f"# for {', '.join(part.machines)}: {part.capability}, Python {part.python}; written by cuwheel"]
    lines.append("[tool.uv.sources]")
    for each in sorted(part.files, key=attrgetter("name")):
        ((kind, where),) = _address(each, folder).items()
        lines.append(f"{each.name} = {{ {kind} = {_toml_value(where)} }}")
    return "\n".join(lines) + "\n"


_FORMATS: dict[LockFormat, tuple[str, Callable[[InstallLock, LockPart, Path], str]]] = {
    "pylock": ("pylock.{}.toml", _pylock),
    "requirements": ("requirements.{}.txt", _requirements),
    "uv": ("uv-sources.{}.toml", _uv_sources),
}


def _toml(table: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[str]:
    """A table of a lock: plain values first, then tables, then lists of tables."""
    nested = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    listed = {name: value for name, value in table.items() if isinstance(value, list) and _is_tables(value)}
    for name, value in table.items():
        if name not in nested and name not in listed:
            yield f"{_toml_key(name)} = {_toml_value(value)}"
    for name, value in nested.items():
        if any(not isinstance(each, Mapping) for each in value.values()):
            yield ""
            yield f"[{'.'.join(map(_toml_key, (*path, name)))}]"
        yield from _toml(value, (*path, name))
    for name, rows in listed.items():
        for row in rows:
            yield ""
            yield f"[[{'.'.join(map(_toml_key, (*path, name)))}]]"
            yield from (f"{_toml_key(key)} = {_toml_value(value)}" for key, value in row.items())


def _is_tables(value: Sequence[object]) -> bool:
    return bool(value) and all(isinstance(each, Mapping) for each in value)


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml_key(name)} = {_toml_value(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# Read.


def read_lock(path: Path) -> InstallLock:
    """A lock, or all locks of a folder. Raises where it contradicts itself."""
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if _PYLOCK.fullmatch(each.name))
        if not found:
            raise UnreadableError(path, "has no lock: no pylock.MACHINE.toml", hint=_WRITE)
        parts = [_read_pylock(each) for each in found]
        ours = [each for each in parts if each]
        if not ours:
            raise MalformedError(found[0], "is not a lock of cuwheel: it has no table [tool.cuwheel]", hint=_AGAIN)
        return InstallLock(
            wanted=tuple(dict.fromkeys(name for each in ours for name in each.wanted)),
            parts=tuple(part for each in ours for part in each.parts),
        )
    if (one := _read_pylock(path)) is None:
        raise MalformedError(path, "is not a lock of cuwheel: it has no table [tool.cuwheel]", hint=_AGAIN)
    return one


def _read_pylock(path: Path) -> InstallLock | None:
    """Reads a pylock file; None for a lock of another tool, which says nothing of a GPU."""
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415

    data = files.read_limited(path, _LARGEST, "a lock", hint=_WRITE)
    try:
        table = codec.parse_toml(data)
        found = Pylock.from_dict(table)
        own = (found.tool or {}).get("cuwheel")
        if not isinstance(own, Mapping):
            return None
        if codec.is_newer(str(own.get("schema", "")), TABLE):
            raise NewerSchemaError(path, str(own["schema"])[:80], TABLE)
        releases = tuple(_release(each, path.parent) for each in found.packages)
        known = {name: value for name, value in own.items() if name not in ("schema", "wanted")}
        usual: dict[str, object] = {"glibc": None, "driver": None, "fallback": None, "pins": {}, "packages": {}}
        part = codec.convert({**usual, **known, "files": ()}, LockPart)
        wanted = codec.convert(own.get("wanted", []), tuple[str, ...])
    except (PylockValidationError, ValueError) as error:  # also of msgspec and of the decoding
        raise MalformedError(path, f"is not a lock: {error}", hint=_AGAIN) from error
    return _checked(InstallLock(wanted=wanted, parts=(replace(part, files=releases),)), path)


def _release(package: Package751, folder: Path) -> Release:
    """The one wheel that the lock has of a package. Raises ValueError where there is not exactly one."""
    wheels = tuple(package.wheels or ())
    if len(wheels) != 1:
        raise ValueError(f"{package.name} has {len(wheels)} wheels, and must have one")
    wheel = wheels[0]
    name = wheel.name or addresses.file_name(wheel.url or wheel.path or "")
    url = wheel.url or (files.absolute(folder) / (wheel.path or "")).as_uri()
    return Release(
        name=package.name,
        version=str(package.version),
        file=name,
        url=addresses.plain(url),
        sha256=wheel.hashes.get("sha256"),
        size=wheel.size,
        index=package.index or "",
    )


def _checked(found: InstallLock, path: Path) -> InstallLock:
    if problems := list(dict.fromkeys(_problems(found))):
        raise MalformedError(path, "; ".join(problems[:3]), hint=_AGAIN)
    return found


def _problems(lock: InstallLock) -> Iterator[str]:
    """Names and hashes become paths, addresses and variables."""
    if not lock.parts:
        yield "it is for no machine"
    for part in lock.parts:
        for each in part.files:
            name = each.file[:80]
            if not addresses.is_file_name(each.file) or not each.file.endswith(".whl"):
                yield f"{name!r} is not the name of a wheel"
            if not _SHA256.fullmatch(each.sha256 or ""):
                yield f"{name!r} has no sha256"
            if not each.url.startswith(_SCHEMES):
                yield f"{name!r} has no address"
        yield from (
            f"{name[:40]!r} is not a setting"
            for name, value in part.pins.items()
            if not _VARIABLE.fullmatch(f"{name}={value}")
        )


def part_for(lock: InstallLock, machines: Sequence[Machine]) -> LockPart:
    """The part of a lock for these machines, which are the GPUs of one; an error says how near the others are."""
    fitting = [[part for part in lock.parts if not list(_differences(part, each))] for each in machines]
    hashes = [[{file.sha256 for file in part.files} for part in each] for each in fitting]
    common = [
        part for part, own in zip(fitting[0], hashes[0], strict=True) if all(own in others for others in hashes[1:])
    ]
    if common:
        return max(common, key=lambda part: (versions.key(part.driver or "0"), versions.key(part.glibc or "0")))
    lines = []
    for part in lock.parts:
        reasons = dict.fromkeys(reason for each in machines for reason in _differences(part, each))
        lines.append(f"{', '.join(part.machines[:3])}: {'; '.join(reasons) or 'other files for another of its GPUs'}")
    raise UnavailableError(
        f"the lock has no part for this machine ({'; '.join(lines[:6])})",
        hint="add it to the fleet file and lock again: cuwheel install NAME --lock-for fleet.toml",
    )


def _differences(part: LockPart, machine: Machine) -> Iterator[str]:
    """Why a part is not for a machine. What is not known of the machine is no reason."""
    exact = (
        ("GPU", part.capability, machine.capability),
        ("system", part.os, machine.os),
        ("CPU", part.cpu, machine.cpu),
    )
    for what, wanted, has in exact:
        if has is not None and str(has) != wanted:
            yield f"its {what} is {wanted}, here it is {has}"
    if machine.python and versions.minor(machine.python) != part.python:
        yield f"it is for Python {part.python}, here it is {versions.minor(machine.python)}"
    for what, least, own in (("glibc", part.glibc, machine.glibc), ("driver", part.driver, machine.driver)):
        if least and own and not versions.at_least(own, least):
            yield f"it needs {what} {least}, here it is {own}"


def all_files(lock: InstallLock) -> tuple[Release, ...]:
    """Each once. Two files of one name and different content cannot lie in one folder."""
    found: dict[str, Release] = {}
    for part in lock.parts:
        for each in part.files:
            known = found.setdefault(each.file, each)
            if known.sha256 != each.sha256:
                raise MalformedError(each.file, "is in the lock with two different hashes")
    return tuple(found.values())


def packages_of(part: LockPart) -> tuple[Package, ...]:
    """The packages that a part of a lock names."""
    known = {each.name: each for each in part.files}
    return tuple(
        Package(
            name=name,
            wanted=name,
            version=known[name].version if name in known else None,
            file=known[name].file if name in known else None,
            outcome="unknown",
            fallback=None,
            why="the lock says so",
            passed=(),
            build=None,
        )
        for name in part.packages
    )
