"""Synthetic libraries in few words: a container is a line such as `sm_80 compute_90@8.7`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cuwheel.device_code.contents import Survey
from cuwheel.machine.fleet import Machine
from cuwheel_core.device_code.libraries import (
    Absent,
    Compression,
    Container,
    Cudart,
    DeviceCode,
    Library,
    Platform,
    Registration,
    Symbols,
    Wrapper,
)
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.wheel.metadata import Distribution

SECTIONS = {True: ".nv_fatbin", False: "__nv_relfatbin"}


def library(
    *plain: str,
    linked: tuple[str, ...] = (),
    objects: tuple[str, ...] = (),
    path: str = "pkg/libpkg.so",
    cuda: int | None = 12,
    runtime: bool = True,
    compression: Compression = "lz4",
    platform: str | None = None,
    containers: bool = True,
    symbols: tuple[Symbols | None, ...] = (),
    absent: tuple[Absent, ...] = (),
    **fields: Any,
) -> Library:
    """`plain` containers stand alone; `linked` ones were made from `objects` (of these `symbols`) by a link.

    `absent`: from the first container.
    """
    rows: list[DeviceCode] = []
    found: list[Container] = []
    groups = [(text, True) for text in plain] + [(text, True) for text in linked] + [(text, False) for text in objects]
    for index, (text, is_linked) in enumerate(groups):
        code = []
        for word in text.split():
            row = _row(word, linked=is_linked, compression=compression)
            if row not in rows:
                rows.append(row)
            code.append(rows.index(row))
        found.append(Container(section=SECTIONS[is_linked], offset=index * 4096, size=4096, code=tuple(code)))
    for index, names in enumerate(symbols, len(plain) + len(linked)):
        found[index] = replace(found[index], symbols=names)
    found[:1] = [replace(each, absent=absent) for each in found[:1]]
    after_plain = range(len(plain), len(plain) + len(linked))
    wrappers = tuple(Wrapper(version=2 if index in after_plain else 1, container=index) for index in range(len(groups)))
    values: dict[str, Any] = {
        "path": path,
        "format": "elf",
        "type": "shared",
        "machine": "x86_64",
        "size": 1_000_000,
        "soname": None,
        "needed": (),
        "rpath": (),
        "runpath": (),
        "interpreter": None,
        "glibc": None,
        "glibcxx": None,
        "cxxabi": None,
        "cxx11_abi": None,
        "build_id": None,
        "host_compiler": None,
        "cudart": Cudart(linkage="dynamic", major=cuda, evidence=f"needs libcudart.so.{cuda}") if runtime else None,
        "toolkits": (f"{cuda}.0",) if cuda else (),
        "platform": Platform(name=platform, evidence=f"search path targets/{platform}-linux") if platform else None,  # type: ignore[arg-type]
        "device_linked": bool(linked or objects),
        "device_code": tuple(rows),
        "parts": (),
        "registration": Registration(wrappers=wrappers, module_ids=(), containers=len(found), unnamed=()),
        "containers": tuple(found) if containers else (),
        "entries": (),
        "findings": (),
    }
    return Library(**{**values, **fields})


def _row(word: str, *, linked: bool, compression: Compression) -> DeviceCode:
    arch, _, isa = word.partition("@")
    kind = {"sm": "cubin", "compute": "ptx", "lto": "lto-ir"}[arch.split("_")[0]]
    return DeviceCode(
        kind=kind,  # type: ignore[arg-type]
        arch=Arch.parse(arch),
        section=SECTIONS[linked],
        linked=linked,
        compression=compression,
        ptx_isa=(isa or "8.0") if kind == "ptx" else None,
        count=1,
        bytes=100,
        real_bytes=300,
        debug_count=0,
    )


def survey(
    *libraries: Library,
    name: str | None = "pkg",
    version: str = "1.0",
    tags: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> Survey:
    told = Distribution(name=name, version=version, tags=tags, requires=requires) if name else None
    return Survey(
        target=f"{name}.whl" if name else libraries[0].path,
        kind="wheel" if name else "file",
        size=1,
        distribution=told,
        libraries=libraries,
        findings=(),
    )


def machine(capability: str | None = "9.0", **fields: Any) -> Machine:
    known = Capability.parse(capability) if capability else None
    return Machine(**{"name": capability or "nothing", "capability": known, **fields})
