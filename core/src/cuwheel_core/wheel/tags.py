"""Names of projects and of wheels, platform tags and processors: everything that their spelling says is known here.

A new platform tag is a line of `platform_of`, and a new processor a row of the table. Nothing but the standard library
of Python 3.9: this also travels in the kit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product
from typing import NamedTuple

from cuwheel_core.support.patterns import lazy_pattern

# Projects.

_SEPARATORS = lazy_pattern(r"[-_.]+")


def normalised(name: str) -> str:
    """The name of a project as indexes have it: names are of one project if they are equal after this (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()


# Wheels.

_SUFFIX = ".whl"
_FEWEST, _MOST = 5, 7


class WheelName(NamedTuple):
    """`name-version(-build)?-python-abi-platform(-variant)?.whl`, every part as it is spelt there.

    `python`, `abi` and `platform` may be several, joined by dots. `variant`: the label of PEP 825.
    """

    name: str
    version: str
    python: str
    abi: str
    platform: str
    build: str | None = None
    variant: str | None = None

    @classmethod
    def parse(cls, file_name: str) -> WheelName | None:
        """Parses the name of a wheel; None if it is not one."""
        parts = file_name[: -len(_SUFFIX)].split("-")
        if not file_name.endswith(_SUFFIX) or not _FEWEST <= len(parts) <= _MOST or not all(parts):
            return None
        name, version, *rest = parts
        # A build number begins with a digit, and no tag for Pythons does.
        build = rest.pop(0) if len(rest) > _FEWEST - 2 and rest[0][0].isdigit() else None
        if len(rest) not in (_FEWEST - 2, _FEWEST - 1):
            return None
        python, abi, platform, *variant = rest
        return cls(name, version, python, abi, platform, build, variant[0] if variant else None)

    def __str__(self) -> str:
        parts = (self.name, self.version, self.build, self.python, self.abi, self.platform, self.variant)
        return "-".join(part for part in parts if part) + _SUFFIX

    @property
    def project(self) -> str:
        """The project's name as indexes have it."""
        return normalised(self.name)

    @property
    def release(self) -> str:
        """The version as packages write it: in the name of a file `_` stands for a hyphen."""
        return self.version.replace("_", "-")

    @property
    def plain(self) -> WheelName:
        """The name without the label of a variant, which most tools do not know."""
        return self._replace(variant=None)

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(self.platform.split("."))

    @property
    def tags(self) -> tuple[str, ...]:
        """Each combination, as installers compare them: `cp312-cp312-manylinux_2_17_x86_64` and so on."""
        return expanded(self.python, self.abi, self.platform)


def plain_name(file_name: str) -> str:
    """The name of a wheel's file without the label of a variant; anything else as it is."""
    name = WheelName.parse(file_name)
    return str(name.plain) if name and name.variant else file_name


def release_of_file(file_name: str) -> str:
    """`torch 2.11.0` of a wheel's file name, which may be longer than a line; another file as it is called."""
    name = WheelName.parse(file_name)
    return f"{name.name} {name.version}" if name else file_name


# Tags: `python-abi-platform`.


_MOST_TAGS = 1000  # of one wheel: real ones have some ten, and three lists in one name make a product


def expanded(python: str, abi: str, platform: str) -> tuple[str, ...]:
    """Each combination of what may be several, joined by dots."""
    combinations = product(*(part.lower().split(".") for part in (python, abi, platform)))
    return tuple(map("-".join, islice(combinations, _MOST_TAGS)))


def parts_of(tag: str) -> tuple[str, str, str]:
    """Python, ABI and platform of a tag; what it lacks is empty."""
    python, abi, platform = [*tag.split("-", 2), "", ""][:3]
    return python, abi, platform


class PythonTag(NamedTuple):
    """`kind`: `cp` of CPython, `pp` of PyPy, `py` of any; without a minor version any of the major one."""

    kind: str
    major: int
    minor: int | None

    @property
    def version(self) -> str:
        return str(self.major) if self.minor is None else f"{self.major}.{self.minor}"


_PYTHON = lazy_pattern(r"(cp|py|pp)(\d)(\d{0,3})", re.ASCII)


def python_of(tag: str) -> PythonTag | None:
    """The interpreter of a tag's first part, or of a whole tag; None for another one than CPython and PyPy."""
    match = _PYTHON.fullmatch(tag.partition("-")[0])
    return PythonTag(match[1], int(match[2]), int(match[3]) if match[3] else None) if match else None


# Processors, by the name that platform tags for Linux have: it is the one that all of cuwheel uses.


class Processor(NamedTuple):
    """`elf`, `pe`: the number of the machine in the header of such a file. `windows`: how Windows names it, and so the
    markers of requirements; `windows_tag`: the platform tag of wheels for it. `others`: how else it is called.
    `cuda`: whether NVIDIA makes CUDA for it.
    """

    name: str
    elf: int
    pe: int | None = None
    windows: str = ""
    windows_tag: str = ""
    debian: str = ""
    others: tuple[str, ...] = ()
    cuda: bool = False


_ROWS = (
    Processor("x86_64", 62, 0x8664, "AMD64", "win_amd64", "amd64", ("x64", "x86-64"), cuda=True),
    Processor("aarch64", 183, 0xAA64, "ARM64", "win_arm64", "arm64", cuda=True),
    Processor("i686", 3, 0x14C, "x86", "win32", "i386", ("i486", "i586")),
    Processor("armv7l", 40, 0x1C4, "ARM", "win_arm32", "armhf"),
    Processor("ppc64le", 21, debian="ppc64el"),
    Processor("s390x", 22, debian="s390x"),
    Processor("riscv64", 243, debian="riscv64"),
)
PROCESSORS = {row.name: row for row in _ROWS}
OF_CUDA = tuple(row.name for row in _ROWS if row.cuda)
_SPELLINGS = {
    spelling.lower(): row.name
    for row in _ROWS
    for spelling in (row.name, row.windows, row.debian, *row.others)
    if spelling
}
_OF_WINDOWS = {row.windows_tag: row.name for row in _ROWS if row.windows_tag}


def processor_name(spelling: str) -> str:
    """The processor as wheels for Linux name it: `x86_64` for `AMD64`. One that is not known stays as it is called."""
    return _SPELLINGS.get(spelling.lower(), spelling.lower())


def machine_name(system: str | None, cpu: str) -> str:
    """The processor as Python calls it on such a system, and so the markers of requirements (`platform_machine`)."""
    row = PROCESSORS.get(cpu)
    return row.windows if row and row.windows and system == "windows" else cpu


# Platforms: the system, the processor and the C library that the last part of a tag stands for.

# The glibc that the old names of manylinux stand for (PEP 600). packaging has the same, for its own use alone.
_LEGACY_MANYLINUX = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_OLDEST_MANYLINUX = 5  # minor of glibc 2
# Lengths have limits, so that whoever counts with such a number need not look at it first.
_OF_LIBC = lazy_pattern(r"(many|musl)linux_(\d{1,4})_(\d{1,4})_(\w+)", re.ASCII)
_OF_LINUX = lazy_pattern(r"(linux|manylinux\d+)_(\w+)", re.ASCII)
_OF_APPLE = lazy_pattern(r"macosx_\d+_\d+_(\w+)", re.ASCII)
_WITHOUT_CUDA = {"macosx": "macOS", "ios": "iOS", "android": "Android"}
MACOS, MUSL = _WITHOUT_CUDA["macosx"], "Linux with musl"


class Platform(NamedTuple):
    """`os`: linux, windows, or one without CUDA in words. `glibc`, `musl`: the oldest version of that C library."""

    os: str | None = None
    cpu: str | None = None
    glibc: str | None = None
    musl: str | None = None


def platform_of(tag: str) -> Platform:
    """What a platform tag, or a whole tag that ends in one, stands for; of `any` and strange ones nothing is known."""
    platform = tag.rpartition("-")[2]
    if platform in _OF_WINDOWS:
        return Platform("windows", _OF_WINDOWS[platform])
    if match := _OF_LIBC.fullmatch(platform):
        libc, version, cpu = match[1], f"{match[2]}.{match[3]}", match[4]
        return Platform("linux", cpu, glibc=version) if libc == "many" else Platform(MUSL, cpu, musl=version)
    if (match := _OF_LINUX.fullmatch(platform)) and match[1] in ("linux", *_LEGACY_MANYLINUX):
        return Platform("linux", match[2], glibc=_LEGACY_MANYLINUX.get(match[1]))
    if match := _OF_APPLE.fullmatch(platform):  # or for several: universal2
        return Platform(MACOS, cpu if (cpu := processor_name(match[1])) in PROCESSORS else None)
    return Platform(_WITHOUT_CUDA.get(platform.partition("_")[0]))


def manylinux(glibc: str, cpu: str) -> str:
    """The platform tag for this glibc (`2.28`) or later."""
    return f"manylinux_{glibc.replace('.', '_')}_{cpu}"


def windows_platform(cpu: str) -> str:
    row = PROCESSORS.get(cpu)
    return (row and row.windows_tag) or f"win_{cpu}"


def linux_platforms(cpu: str, newest: int) -> Iterator[str]:
    """What an installer takes where glibc is 2.`newest`, the best first; also by their old names."""
    for minor in range(newest, _OLDEST_MANYLINUX - 1, -1):
        yield manylinux(f"2.{minor}", cpu)
        yield from (f"{name}_{cpu}" for name, glibc in _LEGACY_MANYLINUX.items() if glibc == f"2.{minor}")
    yield f"linux_{cpu}"
