"""What can be surveyed, behind one protocol: a wheel, a folder, a file, an installed distribution."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code import description
from cuwheel.device_code.description import Description
from cuwheel.errors import NetworkError, NotInstalledError
from cuwheel.support.files import read_if_present
from cuwheel.support.finding import finding
from cuwheel.wheel import slim_note, variant
from cuwheel.wheel.variant import Variant
from cuwheel_core.device_code.items import FileItem, Item, ZipItem, may_be_binary
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.opening import head
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import Distribution, distributions, site_packages
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from cuwheel.wheel.file import WheelFile


_PYTHON_LIMIT = 1 << 20

SUFFIXES = (".whl", ".so", ".dll", ".pyd")  # a name that ends so is a path, never what is installed


class Texts(Struct, frozen=True):
    """The Python of a target. `names`: of its files. `read`: None where one cannot be read."""

    names: tuple[str, ...]
    read: Callable[[str], str | None]


NO_TEXTS = Texts(names=(), read=lambda _: None)


class Source(Struct, frozen=True):
    target: str
    kind: Literal["wheel", "folder", "file", "distribution"]
    size: int
    items: tuple[Item, ...]  # those that may be binaries
    distribution: Distribution | None = None
    findings: tuple[Finding, ...] = ()
    texts: Texts = NO_TEXTS
    variant: Variant | None = None
    description: Description | None = None
    close: Callable[[], None] = lambda: None


def find_source(target: str | Path, *, env: Path | None = None) -> Source:
    """The target as the user wrote it: a path that exists, else the name of what is installed.

    With `env`, a bare name is always what is installed there.
    """
    path = Path(target)
    is_path = len(path.parts) != 1 or path.suffix in SUFFIXES
    if (env is None or is_path) and _kind(path) == "folder":
        return _folder(path)
    if (env is None or is_path) and _kind(path) == "file":
        return _wheel(path) if path.suffix == ".whl" else _file(path)
    if is_path:
        named = WheelName.parse(path.name)
        hint = f"{named.name}=={named.version} is downloaded from your index" if named else ""
        raise UnreadableError(path, "no such file or folder", hint=hint)
    return installed_source(str(target), env=env)


def installed_source(name: str, *, env: Path | None = None) -> Source:
    """A distribution of this environment, or of the one at `env`, as its RECORD lists it."""
    return _installed(installed_info(name, env=env))


def installed_info(name: str, *, env: Path | None = None) -> Path:
    """The dist-info folder of an installed distribution."""
    places = list(_site_packages(env))
    wanted = normalised(name)
    for place in places:
        for each in distributions(place):
            if each.name == wanted:
                return each.info
    raise NotInstalledError(name, env or sys.prefix)


def _kind(path: Path) -> Literal["folder", "file"] | None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):  # a pipe would make us wait for ever
        raise UnreadableError(path, "is neither a file nor a folder")
    return "file"


def _wheel(path: Path) -> Source:
    from cuwheel.wheel.file import WheelFile  # noqa: PLC0415 - zipfile costs 15 ms

    wheel = WheelFile(path)
    return replace(source_of_wheel(wheel), close=wheel.close)


def source_of_wheel(wheel: WheelFile) -> Source:
    """A wheel that is open already, and stays so."""
    distribution = wheel.distribution  # first: reading METADATA is what finds it damaged
    findings = list(wheel.zip.findings)
    missing = [each for each in ("METADATA", "RECORD") if wheel.info + each not in wheel.members]
    if missing:
        findings.append(_incomplete(wheel.path.name, f"no {missing[0]}"))
    is_variant, unclear = _variant(wheel)
    described, undescribed = description.read_or_finding(lambda: description.of_wheel(wheel))
    return Source(
        target=str(wheel.path),
        kind="wheel",
        size=wheel.size,
        distribution=distribution,
        items=tuple(ZipItem(wheel.zip, each) for each in wheel.members.values() if may_be_binary(each.name)),
        findings=(*findings, *unclear, *_cut_wheel(wheel), *undescribed),
        texts=Texts(names=tuple(wheel.members), read=wheel.text),
        variant=is_variant,
        description=described,
    )


def _variant(wheel: WheelFile) -> tuple[Variant | None, tuple[Finding, ...]]:
    """What it says it is a variant for. One that cannot be understood is a finding, and not the end."""
    try:
        return variant.of_wheel(wheel), ()
    except (NetworkError, UnreadableError):
        raise
    except CuwheelError as error:
        unreadable = finding("variant-unreadable", error.message)
        return None, (unreadable,)


def _file(path: Path) -> Source:
    item = FileItem(str(path), path.stat().st_size, path)
    owner = metadata.owner_of_file(path.absolute())
    cut = cut_to_workload([owner.info]) if owner else ()
    return Source(target=str(path), kind="file", size=item.size, items=(item,), findings=cut)


def _folder(path: Path) -> Source:
    found = _items(path, _walk(path))
    found["findings"] = (*found["findings"], *cut_to_workload(each.info for each in distributions(path)))  # type: ignore[misc]
    return Source(target=str(path), kind="folder", **found)  # type: ignore[arg-type]


def _cut_wheel(wheel: WheelFile) -> tuple[Finding, ...]:
    name = wheel.info + slim_note.SLIM_NOTE
    traced = slim_note.workload_commands(wheel.text(name)) if name in wheel.members else None
    return (slim_note.cut_to_workload([wheel.distribution.name], traced),) if traced is not None else ()


def cut_to_workload(infos: Iterable[Path]) -> tuple[Finding, ...]:
    """Where distributions were cut to a workload, one finding for all of them."""
    marks: dict[str, tuple[str, ...]] = {}
    for info in infos:
        try:
            traced = slim_note.workload_commands(
                read_if_present(info / slim_note.SLIM_NOTE, slim_note.SLIM_NOTE_LIMIT, "a note")
            )
        except CuwheelError:
            continue
        if traced is not None:
            marks[info.name.partition("-")[0]] = traced
    words = dict.fromkeys(word for each in marks.values() for word in each)
    return (slim_note.cut_to_workload(marks, words),) if marks else ()


def _installed(info: Path) -> Source:
    texts = {name: metadata.read_info_file(info, name) for name in ("METADATA", "WHEEL", "RECORD")}
    root = info.parent
    recorded = tuple(metadata.recorded_files(texts["RECORD"]))
    found = _items(root, (root / each for each in (*recorded, *_added(info, recorded))))
    if not texts["RECORD"]:
        found["findings"] = (_incomplete(info.name, "no RECORD, so its files are not known"),)
    described, unclear = description.read_or_finding(lambda: description.of_folder(info))
    found["findings"] = (*found["findings"], *cut_to_workload([info]), *unclear)  # type: ignore[misc]
    return Source(
        target=info.name.removesuffix(".dist-info"),
        kind="distribution",
        distribution=metadata.from_texts(texts["METADATA"], texts["WHEEL"]),
        description=described,
        **found,  # type: ignore[arg-type]
    )


def _added(info: Path, recorded: Iterable[str]) -> list[str]:
    """What somebody put beside a distribution's libraries after it was installed, such as a second name for one."""
    listed = {each.replace("\\", "/") for each in recorded}
    binaries = (each for each in listed if may_be_binary(each) and ".dist-info/" not in each)
    folders = sorted({each.rpartition("/")[0] for each in binaries if not each.startswith(("..", "/"))} - {""})
    found = {f"{folder}/{name}" for folder in folders for name in _names(info.parent / folder)} - listed
    found = {each for each in found if may_be_binary(each) and (info.parent / each).is_file()}
    others = (each.info for each in distributions(info.parent) if found and each.info != info)
    return sorted(found.difference(*map(metadata.installed_files, others)))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def _items(root: Path, files: Iterable[Path]) -> dict[str, object]:
    """Links to one file are one library, unless it has another name than a version (`lib.so`, `lib.so.1`): then
    somebody gave it that name for those who load it by that.
    """
    items, findings, total = [], [], 0
    seen: dict[tuple[int, int], set[str]] = {}
    python: dict[str, Path] = {}
    for file in files:
        try:
            status = file.stat()
        except (OSError, ValueError) as error:
            findings.append(finding("unreadable", f"{file} cannot be read: {error}"))
            continue
        names = seen.setdefault((status.st_dev, status.st_ino), set())
        stem = file.name.partition(".")[0]
        if not stat.S_ISREG(status.st_mode) or stem in names:
            continue
        total += 0 if names else status.st_size
        names.add(stem)
        if may_be_binary(file.name):
            items.append(FileItem(os.path.relpath(file, root).replace(os.sep, "/"), status.st_size, file))
        elif file.suffix == ".py" and status.st_size <= _PYTHON_LIMIT:
            python[os.path.relpath(file, root).replace(os.sep, "/")] = file
    texts = Texts(names=tuple(python), read=lambda name: head(python[name], _PYTHON_LIMIT))
    return {"size": total, "items": tuple(items), "findings": tuple(findings), "texts": texts}


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            yield Path(folder, name)


def _site_packages(env: Path | None) -> Iterator[Path]:
    if env is None:
        yield from (Path(each) for each in sys.path if each and Path(each).is_dir())
        return
    yield from (env, *site_packages(env))


def _incomplete(name: str, what: str) -> Finding:
    return finding("wheel-incomplete", f"{name} has {what}")
