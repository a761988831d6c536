"""The kit: wheels, what they require, their checks and predictions in one file, for a machine that has only Python."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from packaging.tags import sys_tags

from cuwheel.errors import MissingExtraError, ToolError, UsageError
from cuwheel.network import addresses, venvs
from cuwheel.proving import predictions
from cuwheel.proving.outcomes import Kit
from cuwheel.proving.proof import PackedFile
from cuwheel.support import codec, files, log, system_calls
from cuwheel.support.files import chunks, errors_of, scratch_beside, sync_folder
from cuwheel.tracing import session
from cuwheel.version import __version__
from cuwheel.wheel import record, requirements
from cuwheel.wheel.file import WheelFile, unlabelled
from cuwheel.wheel.zip_writer import Traits, ZipWriter
from cuwheel_core.device_code import limits
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.support import opening
from cuwheel_core.support.wording import size as in_words
from cuwheel_core.verdicts.choice import Code, Loader, choose, loadable_code
from cuwheel_core.wheel.tags import WheelName, linux_platforms, parts_of, platform_of, python_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.proving.request import PackRequest
    from cuwheel_core.device_code.libraries import Container, DeviceCode, Library


# Pieces of device code for a driver to load, each with its predicted answer: proof without a kernel call.
#
# A container is handed to the driver as the CUDA runtime would hand it. What it answers depends on the architectures in
# it alone, so that of thousands of containers with the same list a few are asked.

_ALIKE = 4  # of containers of a library with the same list
_MOST_PROBES = 256
_LARGEST = 1 << 26


class Answer(Struct, frozen=True, kw_only=True):
    """The error from the driver of this CUDA on, 0 for none."""

    driver: str
    code: int


class Answers(Struct, frozen=True, kw_only=True):
    capability: str
    steps: tuple[Answer, ...]


class Probe(Struct, frozen=True, kw_only=True):
    """Bytes of a file of the wheel. `holds`: the architectures; `answers`: an index into the lists of answers."""

    path: str
    offset: int
    size: int
    holds: str
    answers: int


class Probes(Struct, frozen=True, kw_only=True):
    lists: tuple[tuple[Answers, ...], ...] = ()
    probes: tuple[Probe, ...] = ()


def probes_of(found: Survey) -> Probes:
    """Needs the containers of the libraries."""
    lists: dict[tuple[tuple[Code, ...], str], int] = {}
    chosen: list[Probe] = []
    for library in found.libraries:
        if library.format not in ("elf", "pe") or library.type == "relocatable":
            continue
        for container, codes in _few(library):
            key = (codes, _floor(library))
            index = lists.setdefault(key, len(lists))
            holds = ", ".join(str(code.arch) for code in codes)
            chosen.append(
                Probe(path=library.path, offset=container.offset, size=container.size, holds=holds, answers=index)
            )
    answers = tuple(tuple(_answers(codes, floor)) for codes, floor in lists)
    return Probes(
        lists=answers,
        probes=tuple(
            limits.first(chosen, _MOST_PROBES, "containers are tried with the driver", "the rest are not tried")
        ),
    )


def _few(library: Library) -> Iterator[tuple[Container, tuple[Code, ...]]]:
    """Registered containers that a driver loads as they are, the smallest of each list."""
    named = {each.container for each in library.registration.wrappers}
    alike: dict[tuple[int, ...], list[Container]] = {}
    for index, container in enumerate(library.containers):
        fitting = FATBIN_SECTIONS.get(container.section, False) and container.size <= _LARGEST
        if container.code and index in named and fitting:
            alike.setdefault(container.code, []).append(container)
    for code, containers in alike.items():
        codes = _codes([library.device_code[index] for index in code])
        if codes:
            yield from ((each, codes) for each in sorted(containers, key=lambda each: each.size)[:_ALIKE])


def _codes(rows: Sequence[DeviceCode]) -> tuple[Code, ...]:
    """Empty where it holds something whose answer cannot be predicted."""
    found = [loadable_code(row) if row.linked else None for row in rows]
    return () if None in found else tuple(each for each in found if each)


def _floor(library: Library) -> str:
    """The CUDA below which nothing is predicted: a driver of an earlier major, or one that cannot unpack it."""
    runs = [toolkits.oldest_running(each) for each in library.toolkits]
    # Told for Linux alone; as a CUDA version it is that of any system.
    zstd = toolkits.zstd_floor("linux") if any(row.compression == "zstd" for row in library.device_code) else None
    came_with = toolkits.driver_cuda(zstd) if zstd else None
    return max([*runs, *([came_with.version] if came_with else [])], key=versions.key, default="0")


def _answers(codes: Sequence[Code], floor: str) -> Iterator[Answers]:
    rows = [row for row in toolkits.all_releases() if versions.at_least(row.version, floor)]
    for capability in gpus.current_capabilities():
        steps: list[Answer] = []
        for row in rows:
            choice = choose(codes, Loader(capability=capability, ptx_isa=row.ptx_isa))
            code = choice.error.code if choice.error else 0
            if not steps or steps[-1].code != code:
                steps.append(Answer(driver=row.version, code=code))
        yield Answers(capability=str(capability), steps=tuple(steps))


# What a wheel requires, as wheels in a folder: resolved and downloaded for the machine that the kit goes to.

_DOWNLOAD_S = 3600.0
_NEWEST_GLIBC = 39  # minor of glibc 2 that manylinux tags name
_PACE = "--disable-pip-version-check", "--no-input", "--progress-bar", "off"


def download_requirements(
    wheel: Path,
    folder: Path,
    *,
    extra: Sequence[str] = (),
    python: str | None = None,
    find_links: Sequence[Path] = (),
    offline: bool = False,
) -> tuple[Path, ...]:
    """Downloads what a wheel requires, as wheels only: on the machine nothing can be built."""
    place = folder / files.sha256_of(str(wheel).encode())[:12]
    place.mkdir()
    wheel = unlabelled(wheel, place / "plain")
    _refuse_addresses(wheel)
    options = ["--only-binary", ":all:", "--dest", str(place), *_target(wheel, python)]
    options += [word for each in find_links for word in ("--find-links", str(each))]
    options += ["--no-index"] if offline else []
    with log.progress(f"downloading what {wheel.name} requires"):
        try:
            asked = [*_pip(offline=offline), "download", *_PACE, *options, str(wheel), *extra]
            venvs.ask_installer(asked, timeout=_DOWNLOAD_S)
        except ToolError as error:
            hint = "leave out --required kit and use the packages of that machine: --required there"
            raise ToolError(error.command, "could not get the requirements as wheels", error.output, hint) from error
    found = sorted(each for each in place.iterdir() if each.suffix == ".whl" and each.name != wheel.name)
    for each in found:
        _refuse_addresses(each)
    return tuple(found)


def _refuse_addresses(wheel: Path) -> None:
    """What a wheel requires by an address comes from no index of the user's, and may be a source."""
    with WheelFile(wheel) as opened:
        requires = opened.distribution.requires
    for each in filter(None, map(requirements.parse, requires)):
        if each.url and requirements.holds(each):
            raise venvs.SourceRefusedError(f"{wheel.name} requires {each.name} @ {addresses.plain(each.url)}")


def _pip(*, offline: bool) -> list[str]:
    """Any pip that is here, else the one that uv brings."""
    if found := venvs.pip():
        return found
    tool = venvs.uv()
    if tool is None:
        raise MissingExtraError(["uv"], "packing requirements", "build")
    words = ["--offline"] if offline else []
    return [tool, *words, "tool", "run", "--from", "pip", "python", *venvs.PIP_WITHOUT_PROGRAMS]


def _target(wheel: Path, python: str | None) -> Iterator[str]:
    """Options for the wheel's own Python and platform, where they are not those of this machine."""
    here = "{}.{}".format(*sys.version_info)
    named = WheelName.parse(wheel.name)
    wanted = python or _only_python(named) or here
    platforms = set(named.platforms if named else ()) - {"any"}
    if wanted == here and (not platforms or platforms & {tag.platform for tag in sys_tags()}):
        return
    yield from ("--python-version", wanted, "--implementation", "cp")
    for abi in (f"cp{wanted.replace('.', '')}", "abi3", "none"):
        yield from ("--abi", abi)
    windows = sorted(each for each in platforms if platform_of(each).os == "windows")
    cpu = min((cpu for each in platforms if (cpu := platform_of(each).cpu)), default="x86_64")
    # pip takes a platform as it is spelt, older ones not included.
    for name in windows or linux_platforms(cpu, _NEWEST_GLIBC):
        yield from ("--platform", name)


def _only_python(name: WheelName | None) -> str | None:
    """The only Python that the wheel is for, if there is one."""
    found = {python_of(tag) for tag in (name.tags if name else ()) if parts_of(tag)[1].startswith("cp")}
    only = found.pop() if len(found) == 1 else None
    return only.version if only and only.kind == "cp" and only.minor is not None else None


SCHEMA: Final = "cuwheel.kit/1"
MANIFEST = "kit.json"
_PACKAGE = "kit"
_PARTS = ("onsite", "runner")
_MODULES = ("__init__.py", "masking.py", "process_groups.py", "scratch.py", "system_calls.py")
# Of the core, under their own names.
_OF_CORE = ("support/opening.py", "support/patterns.py", "support/printable.py", "wheel/tags.py")
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
    sys.stderr.write("error: the kit was damaged on its way: " + ascii(str(error))[1:-1] + "\\nhint: copy it again\\n")
    sys.exit(2)
from kit.support import masking, scratch
from kit.onsite.main import main

sys.exit(main(masking, scratch))
"""
_FIRST_DAY = 0x21  # 1980-01-01, the earliest that a zip can say
_FILE_MODE, _UNIX = 0o100644 << 16, 3
# Python's own importer of zip files reads no larger ones, before 3.14.
_LARGEST_KIT = (1 << 32) - (1 << 24)


class PackedWheel(PackedFile, frozen=True, kw_only=True):
    name: str
    version: str
    requirements: tuple[PackedFile, ...]
    checks: tuple[dict[str, Any], ...]
    rows: tuple[predictions.Row, ...]
    newer_gpus: tuple[predictions.Row, ...]
    follows: str | None
    override: str | None
    groups: dict[str, int]
    probes: tuple[Probe, ...]
    answers: tuple[tuple[Answers, ...], ...]


class Manifest(Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    tool: str = f"cuwheel {__version__}"
    system: bool
    signs: dict[str, tuple[str, ...]]
    wheels: tuple[PackedWheel, ...]


def write_kit(
    request: PackRequest,
    wheels: Sequence[Survey],
    checks_of: Callable[[Survey], Sequence[Mapping[str, Any]]],
    extra: Sequence[str] = (),
) -> Kit:
    """`wheels`: those of the request, with their containers. `checks_of`: the checks of one, as the runner takes them.

    `extra`: what is required beside them. The same input gives the same bytes.
    """
    to = request.to / "kit.pyz" if request.to.is_dir() else request.to
    with errors_of(to, f"{to} was not written"), scratch_beside(to.parent) as folder:
        files: dict[str, Path] = {}
        packed = tuple(_packed(request, each, checks_of(each), extra, folder, files) for each in wheels)
        total = sum(each.stat().st_size for each in files.values())
        if total > _LARGEST_KIT:
            raise UsageError(
                f"the kit would be {in_words(total)} large, but Python cannot import from a zip file above "
                f"{in_words(_LARGEST_KIT)}",
                hint="leave the requirements out and use the machine's own packages: --required there",
            )
        made = folder / "kit"
        signs = {str(code): texts for code, texts in predictions.SIGNS.items()}
        _write(made, Manifest(system=request.system, signs=signs, wheels=packed), files)
        made.chmod(0o755)
        digest = record.digest_of(made)
        system_calls.rename_over(made, to)
        sync_folder(to.parent)
    count = sum(len(each.checks) for each in packed)
    return Kit(path=str(to), size=digest.size, sha256=digest.sha256, checks=count)


def _packed(
    request: PackRequest,
    found: Survey,
    checks: Sequence[Mapping[str, Any]],
    extra: Sequence[str],
    folder: Path,
    files: dict[str, Path],
) -> PackedWheel:
    """`files`: what goes into the kit, by its name there."""
    path = Path(found.target)
    if found.kind != "wheel" or found.distribution is None:
        raise UsageError(f"{path} is not a wheel, and only wheels can be packed", hint="give a .whl file")
    if bad := [each.message for each in found.findings if each.severity == "error"]:
        raise MalformedError(path, f"not packed: {bad[0]}", hint="download the wheel again")
    with log.progress(f"predicting {path.name}"):
        foretold, asked = predictions.predict_everywhere(found), probes_of(found)
    required: Sequence[Path] = ()
    if request.requirements:
        required = download_requirements(
            path,
            folder,
            extra=extra,
            python=request.python,
            find_links=request.find_links,
            offline=request.offline,
        )
    return PackedWheel(
        **asdict(_file(path, files)),
        **asdict(foretold),
        name=found.distribution.name,
        version=found.distribution.version,
        requirements=tuple(_file(each, files) for each in required),
        checks=tuple(codec.builtins(dict(each)) for each in checks),
        probes=asked.probes,
        answers=asked.lists,
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


def _sources() -> dict[str, bytes]:
    """The part of this package that works with nothing but Python."""
    support = Path(system_calls.__file__).parent
    core = Path(opening.__file__).parents[1]
    packages = {Path(core.name, name).parent for name in _OF_CORE} | {Path(core.name)}
    return {
        **{f"{_PACKAGE}/support/{name}": (support / name).read_bytes() for name in _MODULES},
        **{f"{core.name}/{name}": (core / name).read_bytes() for name in _OF_CORE},
        **{(package / "__init__.py").as_posix(): b"" for package in packages},
    } | {
        f"{_PACKAGE}/{part}/{path.relative_to(_HERE / part).as_posix()}": path.read_bytes()
        for part in _PARTS
        for path in (_HERE / part).rglob("*.py")
    }


def _tracers() -> dict[str, bytes]:
    """The library that sees what is loaded on a GPU, for each processor that there is one for, or none."""
    found = {name: path.read_bytes() for name, path in session.shipped().items()}
    if not found:
        try:
            made = session.preload_path(os.environ)
        except CuwheelError as error:
            log.debug("the kit has no tracer: %s", error.message)
        else:
            found[f"trace-{platform.machine()}.so"] = made.read_bytes()
    return found


def _traits(name: str) -> Traits:
    return Traits(name=name, time=0, date=_FIRST_DAY, external_attr=_FILE_MODE, create_system=_UNIX)
