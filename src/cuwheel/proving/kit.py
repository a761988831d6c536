"""The kit: wheels, their checks and predictions in one file, for a machine that has only Python."""

from __future__ import annotations

import os
import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError, MalformedError, UsageError
from cuwheel.proving import foresight, requirements
from cuwheel.proving import probes as device_code
from cuwheel.support import codec, locking, log, system_calls
from cuwheel.support.files import chunks, errors_of, sync_folder
from cuwheel.support.wording import size as in_words
from cuwheel.tracing import preload_library
from cuwheel.version import __version__
from cuwheel.wheel import record
from cuwheel.wheel.zip_writer import Traits, ZipWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.proving.request import PackRequest

SCHEMA: Final = "cuwheel.kit/1"
MANIFEST = "kit.json"
_PACKAGE = "kit"
_PARTS = ("onsite", "runner")
_MODULES = ("__init__.py", "masking.py", "process_groups.py", "scratch.py", "system_calls.py")
_HERE = Path(__file__).parent
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = b"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("error: this kit needs Python 3.9 or later, and this is " + sys.version.split()[0])
import zipfile

try:  # Python imports from a zip without looking at its sums
    with zipfile.ZipFile(sys.argv[0]) as archive:
        for name in archive.namelist():
            if not name.startswith("wheels/"):
                archive.read(name)
except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
    sys.stderr.write("error: the kit was damaged on its way: " + str(error) + "\\nhint: copy it again\\n")
    sys.exit(2)
from kit.support import masking, scratch
from kit.onsite.main import main

sys.exit(main(masking, scratch))
"""
_FIRST_DAY = 0x21  # 1980-01-01, the earliest that a zip can say
_FILE_MODE, _UNIX = 0o100644 << 16, 3
# Python's own importer of zip files reads no larger ones, before 3.14.
_MOST = (1 << 32) - (1 << 24)


class PackedFile(Struct, frozen=True, kw_only=True):
    """`member`: its name in the kit."""

    file: str
    sha256: str
    size: int
    member: str


class PackedWheel(Struct, frozen=True, kw_only=True):
    file: str
    sha256: str
    size: int
    member: str
    name: str
    version: str
    requirements: tuple[PackedFile, ...]
    checks: tuple[dict[str, Any], ...]
    rows: tuple[foresight.Row, ...]
    newer_gpus: tuple[foresight.Row, ...]
    follows: str | None
    override: str | None
    groups: dict[str, int]
    probes: tuple[device_code.Probe, ...]
    answers: tuple[tuple[device_code.Answers, ...], ...]


class Manifest(Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    tool: str = f"cuwheel {__version__}"
    system: bool
    signs: dict[str, tuple[str, ...]]
    wheels: tuple[PackedWheel, ...]


class Packed(Struct, frozen=True, kw_only=True):
    """The kit that was written."""

    path: str
    size: int
    sha256: str
    wheels: tuple[PackedWheel, ...]


def pack(
    request: PackRequest,
    wheels: Sequence[Path],
    checks_of: Callable[[Survey], Sequence[Mapping[str, Any]]],
    extra: Sequence[str] = (),
) -> Packed:
    """`wheels`: those of the request, on the disk. `checks_of`: the checks of one, as the runner takes them.

    `extra`: what is required beside them. The same input gives the same bytes.
    """
    to = request.to / "kit.pyz" if request.to.is_dir() else request.to
    with errors_of(to, f"{to} was not written"), locking.scratch(to.parent) as folder:
        files: dict[str, Path] = {}
        packed = tuple(_wheel(each, checks_of, partial(_required, request, extra, folder), files) for each in wheels)
        total = sum(each.stat().st_size for each in files.values())
        if total > _MOST:
            raise UsageError(
                f"the kit would be {in_words(total)} large, but Python cannot import from a zip file above "
                f"{in_words(_MOST)}",
                hint="leave the requirements out and use the machine's own packages: --system-site-packages",
            )
        made = folder / "kit"
        _write(made, Manifest(system=request.system, signs=_signs(), wheels=packed), files)
        made.chmod(0o755)
        digest = record.digest_of(made)
        system_calls.rename_over(made, to)
        sync_folder(to.parent)
    return Packed(path=str(to), size=digest.size, sha256=digest.sha256, wheels=packed)


def _wheel(
    path: Path,
    checks_of: Callable[[Survey], Sequence[Mapping[str, Any]]],
    required: Callable[[Path], Sequence[Path]],
    files: dict[str, Path],
) -> PackedWheel:
    found = survey(path, detail="containers")
    if found.kind != "wheel" or found.distribution is None:
        raise UsageError(f"{path} is not a wheel, and only wheels can be packed", hint="give a .whl file")
    if bad := [each.message for each in found.findings if each.severity == "error"]:
        raise MalformedError(path, f"not packed: {bad[0]}", hint="download the wheel again")
    with log.progress(f"predicting {path.name}"):
        foretold, asked = foresight.foresee(found), device_code.of(found)
    file = _file(path, files)
    return PackedWheel(
        file=file.file,
        sha256=file.sha256,
        size=file.size,
        member=file.member,
        name=found.distribution.name,
        version=found.distribution.version,
        requirements=tuple(_file(each, files) for each in required(path)),
        checks=tuple(codec.builtins(dict(each)) for each in checks_of(found)),
        rows=foretold.rows,
        newer_gpus=foretold.newer_gpus,
        follows=foretold.follows,
        override=foretold.override,
        groups=foretold.groups,
        probes=asked.probes,
        answers=asked.lists,
    )


def _required(request: PackRequest, extra: Sequence[str], folder: Path, path: Path) -> tuple[Path, ...]:
    if not request.requirements:
        return ()
    return requirements.download(
        path,
        folder,
        extra=extra,
        python=request.python,
        find_links=request.find_links,
        offline=request.offline,
    )


def _file(path: Path, files: dict[str, Path]) -> PackedFile:
    """What several wheels require is in the kit once."""
    digest = record.digest_of(path)
    member = f"wheels/{digest.sha256[:16]}/{path.name}"
    files[member] = path
    return PackedFile(file=path.name, sha256=digest.sha256, size=digest.size, member=member)


def _write(made: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    """Stored, not compressed: wheels are so already, and other versions of zlib give other bytes."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    with made.open("wb") as file, ThreadPoolExecutor(1) as pool:
        file.write(_SHEBANG)
        writer = ZipWriter(file, pool, 0)
        texts = {"__main__.py": _MAIN, f"{_PACKAGE}/__init__.py": b"", **_sources()}
        texts[MANIFEST] = codec.indented(manifest, order="deterministic")
        texts |= _tracers()
        for name, data in sorted(texts.items()):
            writer.add(_traits(name), (data,), len(data))
        for name, path in sorted(files.items()):
            writer.add(_traits(name), chunks(path), path.stat().st_size)
        writer.finish()
        file.flush()
        os.fsync(file.fileno())


def _signs() -> dict[str, tuple[str, ...]]:
    return {str(code): texts for code, texts in foresight.SIGNS.items()}


def _sources() -> dict[str, bytes]:
    """The part of this package that works with nothing but Python."""
    support = Path(system_calls.__file__).parent
    modules = {f"{_PACKAGE}/support/{name}": (support / name).read_bytes() for name in _MODULES}
    return modules | {
        f"{_PACKAGE}/{part}/{path.relative_to(_HERE / part).as_posix()}": path.read_bytes()
        for part in _PARTS
        for path in (_HERE / part).rglob("*.py")
    }


def _tracers() -> dict[str, bytes]:
    """The library that sees what is loaded on a GPU, for each processor that there is one for, or none."""
    found = {path.name: path.read_bytes() for path in preload_library.all_shipped()}
    if not found:
        try:
            made = preload_library.path(os.environ)
        except CuwheelError as error:
            log.debug("the kit has no tracer: %s", error.message)
        else:
            found[f"trace-{platform.machine()}.so"] = made.read_bytes()
    return found


def _traits(name: str) -> Traits:
    return Traits(name=name, time=0, date=_FIRST_DAY, external_attr=_FILE_MODE, create_system=_UNIX)
