"""Compiling: each piece once, and the libraries that others are made of. The test cache keeps what was compiled."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cuwheel.device_code.survey import survey
from cuwheel.support import process
from tests.fixtures import cache, toolkits
from tests.gpu import assemble
from tests.gpu.variants import KERNELS, SITES, UnitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.gpu.codes import Part, Piece
    from tests.gpu.variants import Build, Shape, Unit

# To be raised where the same pieces are compiled otherwise: what the cache holds is then made again.
_RECIPE = "1"
SOURCES = Path(__file__).parent / "src"
# The index's releases that tests/fixtures has no use for.
_MORE = {"13.1": "13.1.1", "13.2": "13.2.2", "13.3": "13.3.1"}
_SOURCE: dict[Part, str] = {"a": "part_a.cu", "b": "part_b.cu", "c": "part_a.cu"}
_LINKED: dict[Part, tuple[Part, ...]] = {"linked": ("a", "b"), "linked3": ("a", "b", "c")}
_HOST = ("-Xcompiler", "-fPIC,-Os")
_NO_DEVRT = ("-cudadevrt", "none")
# Raw cubins make room in a library for other containers.
_ROOM = {"12.4": "sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a", "": "sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_120"}
_RAW = {"12.4": (), "": ("--compress-mode=none",)}
# What the linked code adds, so that it is told from objects linked at load, and its second kernel from the first.
_BUILT: dict[Part, int] = {"whole": 11, "second": 22, "third": 33, "a": 44000, "b": 55, "c": 66000}
_LINKED_HELPER, _SECOND_KERNEL = 999, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A library of nvcc's, and where its containers stand, in the order of its shape's parts."""

    data: bytes
    sites: tuple[assemble.Site, ...]


@functools.cache
def toolkit(version: str) -> Path:
    return toolkits._from_index(_MORE[version])() if version in _MORE else toolkits.nvcc(version)


@functools.cache
def cudart(version: str) -> Path:
    """The shared runtime of a toolkit."""
    if version == "12.4":  # Debian's compilers come without
        top = cache.made("cudart-12.4", lambda target: cache.pip_install(target, "nvidia-cuda-runtime-cu12==12.4.127"))
        return top / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
    wanted = f"nvidia-cuda-runtime=={version}.*"
    top = cache.made(f"cudart-{version}", lambda target: cache.pip_install(target, wanted))
    return top / "nvidia" / "cu13" / "lib" / "libcudart.so.13"


def piece(what: Piece, number: int) -> assemble.Entry:
    """One entry, whose kernel writes `number` (times a thousand, if an object adds its own)."""
    made = _cached((*_identity(what), str(number)), lambda work: _compile(what, number, work))
    (entry,) = assemble.entries(made)
    return entry


def markers(what: Piece, number: int) -> dict[str, int]:
    """What the kernels of this piece write; of an object, what it adds."""
    if what.part == "linked":
        return {"mark": 1000 * number + _LINKED_HELPER}
    if what.part == "linked3":
        first = 1000 * number + _LINKED_HELPER
        return {"mark": first, "mark_2": first + _SECOND_KERNEL}
    if what.part == "b":
        return dict.fromkeys(("mark", "mark_2"), number)
    return {KERNELS[what.part]: number * (1000 if what.part in ("a", "c") else 1)}


def template(shape: Shape, version: str) -> Template:
    data = _cached(("template", shape, version), lambda work: _template(shape, version, work))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "template.so"
        path.write_bytes(data)
        (library,) = survey(path, detail="containers").libraries
    # Objects first, what was linked from them last: as the parts are named.
    found = sorted(library.containers, key=lambda each: (each.section == ".nv_fatbin", each.offset))
    if len(found) != len(SITES[shape]):
        raise AssertionError(f"{shape} {version}: {len(found)} containers")
    return Template(data=data, sites=tuple(assemble.Site(offset=each.offset, size=each.size) for each in found))


def library(build: Build, version: str) -> bytes:
    """A library as nvcc makes it."""
    key = ("build", repr(build), version)

    def make(work: Path) -> Path:
        made = _units(build, version, work) if build.units else _objects(build, version, work)
        return _link([*made, *_without_kernels(build, version, work)], build, version, work)

    return _cached(key, make)


def ptx(build: Build, version: str) -> bytes:
    """The text alone, as nvcc -ptx writes it."""
    ((part, arch),) = build.objects

    def make(work: Path) -> Path:
        out = work / "out.ptx"
        options = ["-ptx", f"-arch={arch}", *build.options, *_defines(part, _BUILT[part])]
        _nvcc(version, [*options, _SOURCE.get(part, "whole.cu"), "-o", out], SOURCES)
        return out

    return _cached(("ptx", repr(build), version), make)


def built_markers(build: Build) -> list[list[dict[str, int]]]:
    """All entries of a container of nvcc's write the same: what ran is not told, only that it did."""
    numbers = {part: _BUILT[part] for part, _ in build.objects}
    kernels = [KERNELS[part] for part in numbers if part in KERNELS]
    rows = []
    for part, text in build.objects:
        names = [KERNELS[part]] if part in KERNELS else kernels
        rows.append([dict.fromkeys(names, numbers[part])] * len(text.split()))
    if build.linked:
        shared = sum(number for part, number in numbers.items() if part not in KERNELS)
        linked = {KERNELS[part]: number + shared for part, number in numbers.items() if part in KERNELS}
        rows.append([linked] * len(build.linked.split()))
    return rows


def _compile(what: Piece, number: int, work: Path) -> Path:
    out = work / "out.fatbin"
    if what.part not in _LINKED:
        _device(what, what.part, markers(what, number).get(KERNELS.get(what.part, "mark"), number), out)
        return out
    objects = []
    for part in _LINKED[what.part]:
        marker = {"a": 1000 * number, "b": _LINKED_HELPER, "c": 1000 * number + _SECOND_KERNEL}[part]
        objects.append(work / f"{part}.fatbin")
        _device(what, part, marker, objects[-1])
    _nvcc(what.toolkit, ["-dlink", "-fatbin", *_NO_DEVRT, *_gencode(what.arch), *objects, "-o", out], work)
    return out


def _device(what: Piece, part: Part, marker: int, out: Path) -> None:
    options = ["-rdc=true"] if part in _SOURCE else []
    options += ["-G"] if what.debug else []
    command = ["-fatbin", *options, *_defines(part, marker), *_gencode(what.arch)]
    _nvcc(what.toolkit, [*command, _SOURCE.get(part, "whole.cu"), "-o", out], SOURCES)


def _template(shape: Shape, version: str, work: Path) -> Path:
    from tests.gpu.variants import Build

    room = _ROOM.get(version, _ROOM[""])
    parts = [part for part in SITES[shape] if part not in _LINKED]
    build = Build(
        objects=tuple((part, room) for part in parts),
        linked=room if any(part in _LINKED for part in SITES[shape]) else "",
        options=_RAW.get(version, _RAW[""]),
    )
    return _link(_objects(build, version, work), build, version, work)


def _objects(build: Build, version: str, work: Path) -> list[Path]:
    made = []
    for part, text in build.objects:
        options = [*_HOST, *build.options, *(["-rdc=true"] if build.linked and part in _SOURCE else [])]
        made.append(work / f"{part}.o")
        command = [*options, *_defines(part, _BUILT[part]), *_gencode(text), "-c"]
        # A source of its own: two objects of one file would have the same module id.
        source = work / f"{part}.cu"
        shutil.copyfile(SOURCES / _SOURCE.get(part, "whole.cu"), source)
        _nvcc(version, [*command, f"-I{SOURCES}", source, "-o", made[-1]], work)
    if build.linked:
        devrt = [] if build.devrt else _NO_DEVRT
        made.append(work / "linked.o")
        options = [*_HOST, *devrt, *build.link_options]
        parts = [work / f"{part}.o" for part, _ in build.objects if part in _SOURCE]
        _nvcc(version, ["-dlink", *options, *_gencode(build.linked), *parts, "-o", made[-1]], work)
    return made


def _units(build: Build, version: str, work: Path) -> list[Path]:
    """The objects of a mixture, and those of its device links."""
    made = [work / f"u{place}.o" for place in range(len(build.units))]
    for place, unit in enumerate(build.units):
        made[place].write_bytes(unit_object(unit, place, version))
    for place, text in enumerate(build.links):
        out = work / f"linked{place}.o"
        inside = [path for path, unit in zip(made, build.units, strict=False) if unit.link == place]
        devrt = [] if build.devrt else _NO_DEVRT
        options = ["-dlink", *_HOST, *devrt, *build.link_options, *_gencode(text)]
        _nvcc(version, [*options, *inside, "-o", out], work)
        made.append(out)
    return made


def unit_object(unit: Unit, place: int, version: str) -> bytes:
    """Compiled once for all mixtures that have it in the same place."""

    def make(work: Path) -> Path:
        source, out = work / f"unit{place}.cu", work / "out.o"  # a source of its own: a module id of its own
        shutil.copyfile(SOURCES / "unit.cu", source)
        kind = get_args(UnitKind).index(unit.kind) + 1
        defines = [f"-DKIND={kind}", f"-DNAME=u{place}", f"-DMARK={11 * (place + 1)}", f"-DOLDEST={unit.oldest}0"]
        options = [*_HOST, *unit.options, *(["-rdc=true"] if unit.link is not None else []), *_gencode(unit.archs)]
        _nvcc(version, [*options, *defines, f"-I{SOURCES}", "-c", source, "-o", out], work)
        return out

    return _cached(("unit", repr(unit), str(place), version), make)


def _link(objects: Sequence[Path], build: Build, version: str, work: Path) -> Path:
    out = work / "out.so"
    if build.link_arch:
        return _link_by_nvcc(objects, build, version, work)
    libraries: list[str | Path] = [cudart(version)]
    if build.cudart == "static":
        libraries = [toolkit(version) / "lib" / "libcudart_static.a", "-lrt", "-lpthread", "-ldl"]
    if build.devrt:
        libraries.insert(0, toolkit(version) / "lib" / "libcudadevrt.a")
    kind = [] if build.program else ["-shared"]
    process.run(["g++", *kind, "-s", "-Wl,--build-id=none", *objects, *libraries, "-o", out], timeout=300)
    return out


def _link_by_nvcc(objects: Sequence[Path], build: Build, version: str, work: Path) -> Path:
    """As most people do: with a device link of nothing, for the architecture that nvcc was given."""
    out = work / "out.so"
    kind = [] if build.program else ["-shared"]
    options = [*kind, f"-arch={build.link_arch}", "-cudart", build.cudart, "-Xlinker", "-s,--build-id=none"]
    _nvcc(version, [*options, *objects, "-o", out], work)
    return out


def _without_kernels(build: Build, version: str, work: Path) -> Iterator[Path]:
    """Source files without a kernel, one for each list, and the main function of a program."""
    sources = [(f"nothing{index}", _gencode(text), "") for index, text in enumerate(build.nothing)]
    if build.program:
        sources.append(("main", [], _main(build.asked or [KERNELS[part] for part, _ in build.objects])))
    for name, gencode, text in sources:
        source = work / f"{name}.cu"
        source.write_text(text or f'extern "C" int {name}() {{ return 0; }}\n')
        out = work / f"{name}.o"
        _nvcc(version, [*_HOST, *gencode, "-c", source, "-o", out], work)
        yield out


def _main(kernels: Iterable[str]) -> str:
    """A line for each kernel: its name, the step that failed, the result of that step, the number it wrote."""
    lines = ["#include <cstdio>"]
    calls = []
    for kernel in kernels:
        lines.append(f'extern "C" int run_{kernel}(int *);')
        calls.append(f"  {{ int out[6] = {{0}}; int step = run_{kernel}(out);")
        calls.append(f'    std::printf("{kernel} %d %d %d\\n", step, out[step], out[0]); std::fflush(stdout); }}')
    return "\n".join([*lines, "int main() {", *calls, "  return 0;", "}", ""])


def _nvcc(version: str, arguments: Sequence[str | Path], folder: Path) -> None:
    top = toolkit(version)
    env = {**os.environ, "PATH": f"{top / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    process.run([top / "bin" / "nvcc", *arguments], timeout=300, env=env, cwd=folder)


def _gencode(text: str) -> list[str]:
    words = []
    for code in text.split():
        words += ["-gencode", f"arch=compute_{code.split('_')[1]},code={code}"]
    return words


def _defines(part: Part, marker: int) -> list[str]:
    return [f"-DMARK={marker}", f"-DNAME={KERNELS.get(part, 'mark')}"]


def _identity(what: Piece) -> tuple[str, ...]:
    return (what.part, what.arch, what.toolkit, str(what.copy), str(what.debug))


@functools.cache
def _sources() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))


def _cached(key: tuple[str, ...], make: Callable[[Path], Path]) -> bytes:
    digest = hashlib.sha256("\n".join((*key, _RECIPE)).encode() + _sources()).hexdigest()[:32]
    path = cache.folder() / "gpu" / digest
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as name:
            make(Path(name)).rename(path)
    return path.read_bytes()
