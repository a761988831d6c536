"""Whether the tables that ship are consistent: all mistakes of all files, so that an edit is put right in one go.

At run time they are read as they are: checking them took as long as most answers.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.facts.rows.cuda_errors import Errors
from cuwheel.facts.rows.packages import Manylinux, Packages, Torch
from cuwheel.facts.rows.services import Checks, Ci, Indexes, Variants
from cuwheel.facts.rows.toolchains import CMake, Toolchains
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.facts.rows.cuda_libraries import Libraries, Package
from cuwheel_core.facts.rows.gpus import Architecture, Architectures, GpuDrivers, Gpus, squashed
from cuwheel_core.facts.rows.toolkits import Release, Toolkit, Toolkits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel_core.facts.rows.common import Source

Known = dict[str, Architecture]


def problems(*folders: Path) -> tuple[str, ...]:
    """Of all tables in these folders; none where they may ship."""
    found: list[str] = []
    places = {
        name: next((each / name for each in folders if (each / name).exists()), folders[0] / name) for name in TABLES
    }
    files = {name: _decoded(places[name], type_, found) for name, (type_, _) in TABLES.items()}
    architectures = files["architectures.toml"]
    known = {row.capability: row for row in architectures.architecture} if architectures else None
    for name, (_, check) in TABLES.items():
        if files[name] is not None:
            found += (f"{name}: {each}" for each in check(files[name], known))
    return tuple(found)


def _decoded(path: Path, type_: type[Any], found: list[str]) -> Any:  # noqa: ANN401 - a table
    try:
        data = msgspec.toml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        found.append(f"{path.name}: {error}")
        return None
    return codec.convert_or_list_problems(data, type_, path.name, found)


def _source_problems(known: dict[str, Source], *kinds: Iterable[object]) -> Iterator[str]:
    """Rows of any kind: each names a source, and each source it names is there."""
    for rows in kinds:
        for row in rows:
            named: tuple[str, ...] = getattr(row, "source")  # noqa: B009 - every row has one, of no common type
            label = next(iter(_labels(row)))
            if not named:
                yield f"{label} has no source"
            yield from (f"{label}: unknown source {each!r}" for each in named if each not in known)


def _labels(row: object) -> Iterator[str]:
    for name in ("version", "name", "names", "capability", "spelling", "glibc", "major", "package", "capabilities"):
        if hasattr(row, name):
            yield f"{name} {getattr(row, name)!r}"
    yield type(row).__name__


def _repeated(what: str, values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield f"{what} {value!r} is there more than once"
        seen.add(value)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        return str(parse(text)).endswith(text)
    except CuwheelError:
        return False


def _architecture_problems(file: Architectures, _known: Known | None) -> Iterator[str]:
    rows = file.architecture
    yield from _source_problems(file.sources, rows)
    known = [row.capability for row in rows]
    yield from _repeated("capability", known)
    for row in rows:
        others = [*row.family, *([row.renamed_to] if row.renamed_to else [])]
        yield from (f"{row.capability} refers to unknown {other!r}" for other in others if other not in known)
        if row.family and row.capability not in row.family:
            yield f"{row.capability} is not in its own family"


def _gpu_problems(file: Gpus, known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.group, file.ambiguous, file.borrowed)
    names = [name for group in file.group for name in group.names]
    others = [*file.aliases, *(each.name for each in file.ambiguous)]
    yield from _repeated("GPU", [squashed(name) for name in [*names, *others]])
    meant = [*file.aliases.values(), *file.vgpu.boards.values(), *(each for row in file.borrowed for each in row.names)]
    yield from (f"alias of unknown GPU {target!r}" for target in meant if target not in names)
    for pattern in (*file.normalisation.ignore, *file.normalisation.glued, file.vgpu.profile):
        yield from _pattern_problems(pattern)
    strange = {*file.chips.values()} - {*(known or file.chips.values())}
    yield from (f"chips of unknown capability {each!r}" for each in sorted(strange))
    for group in file.group:
        if known is not None and group.capability not in known:
            yield f"{group.names[:1]}: no architecture {group.capability!r}"
        elif known is not None and bool(group.tegra) != known[group.capability].tegra:
            yield f"{group.names[:1]}: a tegra chip and a Tegra capability go together"


def _gpu_driver_problems(file: GpuDrivers, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.support, file.listed, file.host)
    yield from _repeated("capability", [each for row in file.support for each in row.capabilities])
    yield from _repeated("PCI ids that begin with", [each for row in file.support for each in row.pci])
    yield from _repeated("listed GPU", [each for row in file.listed for each in row.names])
    yield from _repeated("host of", [each for row in file.host for each in row.names])
    for row in file.support:
        if (row.last is None) != (row.dropped is None):
            yield f"{row.capabilities}: the last branch and the one after it go together"
        bounds = [each for each in (row.first, row.last, row.dropped) if each]
        if bounds != sorted(set(bounds), key=versions.key):
            yield f"{row.capabilities}: {', '.join(bounds)} is no order of branches"
    for listed in file.listed:
        if list(listed.since) != sorted(listed.since, key=versions.key):
            yield f"{listed.names[:1]}: {', '.join(listed.since)} is no order of releases"


def _library_problems(file: Libraries, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.package)
    yield from _repeated("package", [f"{row.name} {row.measured_release or ''}" for row in file.package])
    for row in file.package:
        names = [*row.sonames, *row.dlls]
        yield from _repeated(f"{row.name}:", names)
        if row.cuda is not None and not row.folder:
            yield f"{row.name} has no folder"
        if row.measured_release and not row.covers(row.measured_release):
            yield f"{row.name}: {row.measured_release} is not a release of the row"
        yield from (
            f"{row.name}: 'only' names {each!r}, which it does not have" for each in row.only if each not in names
        )
    for older, newer in _same_package(file):
        if older.below is None or newer.since is None or versions.key(older.below) > versions.key(newer.since):
            yield f"{older.name}: the releases of its rows overlap"


def _same_package(file: Libraries) -> Iterator[tuple[Package, Package]]:
    """Rows of one package, each with that of the next later releases."""
    for name in dict.fromkeys(row.name for row in file.package):
        rows = [row for row in file.package if row.name == name]
        yield from pairwise(sorted(rows, key=lambda row: versions.key(row.since or "0")))


def _errors_problems(file: Errors, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.error)
    yield from _repeated("error", (str(row.code) for row in file.error))


def _manylinux_problems(file: Manylinux, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.policy)
    for older, newer in pairwise(file.policy):
        for name in ("glibc", "glibcxx", "cxxabi"):
            if versions.key(getattr(older, name)) > versions.key(getattr(newer, name)):
                yield f"glibc {newer.glibc}: {name} goes back from the row before"


def _package_problems(file: Packages, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.profile, file.framework, (file.system,))
    yield from _repeated("package", [f"{name} {row.since or ''}".strip() for row in file.profile for name in row.names])
    for row in file.profile:
        yield from _pattern_problems(row.pattern)
        if (row.loads == "one") != bool(row.pattern and row.follows and row.picks):
            yield f"{row.names[:1]}: a pattern, a framework to follow and how it picks go with loads = 'one'"
    for newer, older in pairwise(file.profile):
        if newer.names == older.names and versions.key(newer.since or "0") <= versions.key(older.since or "0"):
            yield f"{newer.names[:1]}: since {newer.since} stands before {older.since}: the newest is first"


def _check_problems(file: Checks, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.check)
    yield from _repeated("check", [row.name for row in file.check])
    for row in file.check:
        if (row.command is None) == (row.python is None):
            yield f"{row.name} has either a command or a snippet"
        if not row.packages or any(each != each.lower() or "_" in each for each in row.packages):
            yield f"{row.name}: packages are named as an index normalises them"


def _pattern_problems(pattern: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"pattern {pattern!r}: {error}"


def _toolkit_problems(file: Toolkits, known: Known | None) -> Iterator[str]:
    drivers = (file.zstd_fat_binaries, file.forward_compatibility, file.arm64)
    yield from _source_problems(
        file.sources, file.earlier, file.toolkit, file.minor_compatibility, file.glibc_clash, drivers
    )
    rows = file.toolkit
    releases = (*file.earlier, *rows)
    yield from _order_problems(releases, rows)
    yield from _repeated("minor compatibility of CUDA", [str(row.major) for row in file.minor_compatibility])
    floors = {row.major for row in file.minor_compatibility}
    for major in sorted({row.major for row in rows} - floors):
        yield f"no minor-compatibility floor for CUDA {major}"
    for major in sorted({row.major for row in file.earlier} & floors):
        yield f"CUDA {major} has a minor-compatibility floor and a release before the first toolkit"
    yield from _jetson_problems(file)
    listed = {row.version for row in rows}
    for clash in file.glibc_clash:
        if clash.last_broken not in listed:
            yield f"glibc {clash.glibc}: unknown toolkit {clash.last_broken!r}"
    for row in releases:
        yield from (f"{row.version}: {each}" for each in _architecture_list_problems(row.architectures, known))


def _jetson_problems(file: Toolkits) -> Iterator[str]:
    yield from _source_problems(file.sources, file.arm64.joined, file.jetson)
    for row_before, row_after in pairwise(file.jetson):
        if versions.key(row_before.l4t) >= versions.key(row_after.l4t):
            yield f"L4T {row_after.l4t} stands after {row_before.l4t}"
        if versions.key(row_before.cuda) > versions.key(row_after.cuda):
            yield f"L4T {row_after.l4t}: CUDA {row_after.cuda} is older than that of {row_before.l4t}"
    jetpacks = {row.l4t: row.jetpack for row in file.jetson}
    for joined in file.arm64.joined:
        if jetpacks.get(joined.l4t) != joined.jetpack:
            yield f"{joined.capability} joins with L4T {joined.l4t}, which is not JetPack {joined.jetpack}"


def _toolchain_problems(file: Toolchains, _known: Known | None) -> Iterator[str]:
    places = (file.index, file.redist, file.conda, file.container, file.releases)
    yield from _source_problems(file.sources, file.component, file.group, file.debian, places)
    names = [row.name for row in file.component]
    yield from _repeated("component", [*names, *(row.name for row in file.group)])
    for group in file.group:
        yield from (f"{group.name}: unknown component {each!r}" for each in group.components if each not in names)
    yield from _repeated("Debian's CUDA", [row.cuda for row in file.debian])
    latest = {versions.minor(each): each for each in file.releases.latest}
    yield from _repeated("a release of CUDA", [versions.minor(each) for each in file.releases.latest])
    for provider, releases in file.releases.earlier.items():
        yield from _repeated(f"a release of CUDA of {provider}", [versions.minor(each) for each in releases])
        for each in releases:
            if not versions.key(each) < versions.key(latest.get(versions.minor(each), "0")):
                yield f"{provider}: {each} is not before the last release of {versions.minor(each)}"
    for row in file.component:
        yield from (f"{row.name}: unknown component {each!r}" for each in row.beside if each not in names)
        if bool(row.index) == bool(row.package):
            yield f"{row.name} is either an extra of {file.index.package} or a package"


def _torch_problems(file: Torch, known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.change, file.name)
    yield from _repeated("name", [f"{row.name.lower()} {row.since or ''}" for row in file.name])
    numbers = []
    for text in (each for row in file.change for each in row.adds):
        if _parses_as_torch(text):
            numbers.append(Arch.parse(text).number)
        else:
            yield f"{text!r} is no architecture"
    yield from _architecture_list_problems(tuple(numbers), known)
    taken: set[str] = set()
    for older, newer in pairwise(file.change):
        if versions.key(older.since) >= versions.key(newer.since):
            yield f"{newer.since} stands after {older.since}"
    for change in file.change:
        yield from (f"{change.since} drops {each!r}, which is not in the list" for each in {*change.drops} - taken)
        taken = taken - {*change.drops} | {*change.adds}
        for row in file.name:
            if (row.since or file.change[0].since) == change.since:
                strangers = [each for each in row.means.removesuffix("+PTX").split(";") if each not in taken]
                yield from (f"{row.name} means {each!r}, which is not in the list" for each in strangers)


def _parses_as_torch(text: str) -> bool:
    """`9.0a`: with the point."""
    return "." in text and _parses(Capability.parse, text.rstrip("af"))


def _order_problems(releases: Sequence[Release], toolkits: Sequence[Toolkit]) -> Iterator[str]:
    """Oldest first, and nothing goes back: neither drivers nor PTX nor compilers."""
    columns: dict[str, list[tuple[str, str | None]]] = {
        "driver on Linux": [(row.version, row.driver.linux) for row in releases],
        "driver on Windows": [(row.version, row.driver.windows) for row in releases],
        "PTX ISA": [(row.version, row.ptx_isa) for row in releases],
        "gcc": [(row.version, str(row.host_compilers.gcc_max or "") or None) for row in toolkits],
        "clang": [(row.version, str(row.host_compilers.clang_max or "") or None) for row in toolkits],
    }
    for older, newer in pairwise(releases):
        if versions.key(older.version) >= versions.key(newer.version):
            yield f"{newer.version} stands after {older.version}"
    for what, column in columns.items():
        present = [(version, value) for version, value in column if value is not None]
        for (_, before), (version, value) in pairwise(present):
            if versions.key(before) > versions.key(value):
                yield f"{version}: {what} {value} is older than {before} of the release before"


def _architecture_list_problems(numbers: tuple[str, ...], known: Known | None) -> Iterator[str]:
    yield from _repeated("architecture", numbers)
    for number in numbers:
        if not _parses(Arch.parse, number):
            yield f"{number!r} is no architecture"
            continue
        arch = Arch.parse(number)
        row = known.get(str(arch.capability)) if known is not None else None
        if known is not None and row is None:
            yield f"sm_{number} has an unknown capability"
        elif row is not None and arch.suffix == "f" and not row.family:
            yield f"sm_{number} has no family in architectures.toml"


def _cmake_problems(file: CMake, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, file.spelling)


def _ci_problems(table: Ci, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(table.sources, table.action, table.runner)
    for each in table.action:
        if not re.fullmatch(r"[0-9a-f]{40}", each.commit):
            yield f"{each.name}: {each.commit!r} is not a commit"
    names = [each.name for each in table.action]
    yield from (f"{name} is there twice" for name in {each for each in names if names.count(each) > 1})


def _index_problems(file: Indexes, _known: Known | None) -> Iterator[str]:
    yield from _source_problems(file.sources, (file.public,))


def _variant_problems(table: Variants, known: Known | None) -> Iterator[str]:
    yield from _source_problems(table.sources, [table.provider])
    for label, (first, last) in (
        ("cuda_majors", table.provider.cuda_majors),
        ("capability_majors", table.provider.capability_majors),
    ):
        if first > last:
            yield f"{label}: {first} is after {last}"
    if known and not any(Capability.parse(each).major == table.provider.capability_majors[1] for each in known):
        yield f"capability_majors: no capability has the major {table.provider.capability_majors[1]}"


# Every file of the folder, what it is read into, and what must hold of its rows.
TABLES: dict[str, tuple[type[Any], Callable[[Any, Known | None], Iterator[str]]]] = {
    "architectures.toml": (Architectures, _architecture_problems),
    "checks.toml": (Checks, _check_problems),
    "ci.toml": (Ci, _ci_problems),
    "cmake.toml": (CMake, _cmake_problems),
    "gpu_drivers.toml": (GpuDrivers, _gpu_driver_problems),
    "gpus.toml": (Gpus, _gpu_problems),
    "indexes.toml": (Indexes, _index_problems),
    "libraries.toml": (Libraries, _library_problems),
    "errors.toml": (Errors, _errors_problems),
    "manylinux.toml": (Manylinux, _manylinux_problems),
    "packages.toml": (Packages, _package_problems),
    "toolchains.toml": (Toolchains, _toolchain_problems),
    "toolkits.toml": (Toolkits, _toolkit_problems),
    "torch.toml": (Torch, _torch_problems),
    "variants.toml": (Variants, _variant_problems),
}
