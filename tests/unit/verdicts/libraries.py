"""Libraries made up for rules to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel_core.device_code.libraries import Container, DeviceCode, Library, Part, Registration, Wrapper
from cuwheel_core.facts.arch import Arch

if TYPE_CHECKING:
    from collections.abc import Sequence


def code(arch: str, *, linked: bool = True, **changes: Any) -> DeviceCode:
    kind = {"sm": "cubin", "compute": "ptx", "lto": "lto-ir"}[arch.partition("_")[0]]
    values: dict[str, Any] = {
        "kind": kind,
        "arch": Arch.parse(arch),
        "section": ".nv_fatbin" if linked else "__nv_relfatbin",
        "linked": linked,
        "compression": "zstd",
        "ptx_isa": "9.0" if kind == "ptx" else None,
        "count": 1,
        "bytes": 1000,
        "real_bytes": 3000,
        "debug_count": 0,
    }
    return DeviceCode(**values | changes)


def library(*containers: Sequence[DeviceCode], path: str = "lib/libmine.so", **changes: Any) -> Library:
    """A library of these containers. Equal entries are one row, as a survey would have it."""
    rows = tuple(dict.fromkeys(each for container in containers for each in container))
    size = 10_000 + sum(row.bytes for row in rows)
    values: dict[str, Any] = {
        "path": path,
        "format": "elf",
        "type": "shared",
        "machine": "x86_64",
        "size": size,
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
        "cudart": None,
        "toolkits": (),
        "platform": None,
        "device_linked": False,
        "device_code": rows,
        "parts": (Part(name="host code", arch=None, bytes=size),),
        "registration": Registration(
            wrappers=tuple(Wrapper(version=1, container=index) for index in range(len(containers))),
            module_ids=(),
            containers=len(containers),
            unnamed=(),
        ),
        "containers": tuple(
            Container(section=".nv_fatbin", offset=0, size=0, code=tuple(rows.index(each) for each in container))
            for container in containers
        ),
        "entries": (),
        "findings": (),
    }
    return Library(**values | changes)
