"""What options take, and what is wrong with a value in a sentence: argparse types, one for each kind of value.

They raise UsageError; the parser adds the option's name and goes on, so that all bad values are reported at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuwheel.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_DRIVER = re.compile(r"[1-9]\d{2,3}(\.\d{1,3}){0,2}", re.ASCII)
_SHORT = re.compile(r"\d{1,2}(\.\d{1,3})*", re.ASCII)  # of CUDA, Python, glibc: drivers have three digits
_CUDA_TAG = re.compile(r"cu(\d{2})(\d?)", re.ASCII)
_CUDA = re.compile(r"(?:cuda[ _-]*)?v?([1-9]\d?)(?:\.(\d{1,2})(?:\.\d{1,4})*)?", re.ASCII)
_TORCH = re.compile(r"[1-9]\d?(\.\d{1,3}){1,3}([A-Za-z0-9.+_-]{0,60})", re.ASCII)
_PYTHON = re.compile(r"(?:python|cp|py)?-?3\.?(\d{1,2})(\.\d{1,2})?(t?)", re.ASCII)
_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
_GLIBC = re.compile(r"2(\.\d{1,2}){1,2}", re.ASCII)
_L4T = re.compile(r"R?(\d{2}(?:\.\d{1,2}){0,2})", re.ASCII)
_PLATFORM = re.compile(r"any|win32|win_(amd64|arm64|arm32)|(linux|manylinux\w*?|musllinux\w*?|macosx)_\w+", re.ASCII)
CPUS = ("x86_64", "aarch64")
_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "x64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", re.ASCII)
_CMAKE = re.compile(r"[1-9](\.\d{1,3}){1,3}", re.ASCII)
_TOOLKITS = "cuwheel toolkits lists the versions"
_LAST_MINOR = 9  # no CUDA had a tenth minor release
_DRIVER_LEAD = 100  # branches that a driver may be ahead of the tables
_SHOWN = 60
_LONGEST_NAME = 255
_LONGEST_LABEL = 64  # a file name has to hold it


def wrong(text: str, what: str, hint: str = "") -> UsageError:
    """`what`: the kind of value, with its article and an example."""
    return UsageError(f"{shortened(text)!r} is not {what}", hint)


def shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def parts(text: str) -> list[str]:
    """Of a list with commas; a list of nothing but commas is empty, and refused."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise UsageError("it must not be empty")
    return found


def all_parts(texts: Iterable[str]) -> tuple[str, ...]:
    """Of an option that is repeated, or takes a list with commas."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def each(type_: Callable[[str], str]) -> Callable[[str], str]:
    """A list with commas of one kind of value; all that are wrong with it at once."""

    def parse(text: str) -> str:
        found, problems = [], []
        for part in parts(text):
            try:
                found.append(type_(part))
            except UsageError as error:
                problems.append(error)
        if problems:
            raise gathered(problems)
        return ",".join(found)

    return parse


def gathered(problems: Sequence[UsageError]) -> UsageError:
    """One error of several."""
    if len(problems) == 1:
        return problems[0]
    return UsageError("; ".join(map(with_hint, problems)))


def with_hint(problem: UsageError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def guarded(type_: Callable[[str], Any] | None, *, without: object = None) -> Callable[[str], Any]:
    """Any kind of value: never empty, and nothing that ends a name in the system's own functions.

    `without`: what stands for an option that was given without a value, which argparse passes here too.
    """

    def parse(text: str) -> object:
        if not text.strip() and text != without:
            raise UsageError("it must not be empty")
        if "\0" in text:
            raise UsageError("it must not contain a NUL character")
        return type_(text) if type_ else text

    return parse


def driver(text: str) -> str:
    cleaned = text.strip()
    if _SHORT.fullmatch(cleaned):
        raise UsageError(f"{cleaned!r} looks like a CUDA version: give it as --driver-cuda {cleaned}")
    if not _DRIVER.fullmatch(cleaned):
        raise wrong(text, "a driver version, such as 570.86.10", hint="nvidia-smi shows it")
    from cuwheel.facts import toolkits, versions

    newest = max(versions.major(row.driver.linux) for row in toolkits.all_toolkits() if row.driver.linux)
    if versions.major(cleaned) > newest + _DRIVER_LEAD:
        raise UsageError(f"unknown driver {cleaned}: the newest known branch is {newest}")
    return cleaned


def cuda(text: str) -> str:
    """`12.8`, `12.8.1`, `cu128`, `CUDA 12.8`: as `12.8`; a major alone stays one."""
    cleaned = text.strip().lower()
    match = _CUDA_TAG.fullmatch(cleaned) or _CUDA.fullmatch(cleaned)
    if match:
        major, minor = int(match[1]), int(match[2]) if match[2] else None
        _must_exist(major, minor)
        return str(major) if minor is None else f"{major}.{minor}"
    if _DRIVER.fullmatch(cleaned):
        raise UsageError(f"{cleaned!r} looks like a driver version: give it as --driver")
    raise wrong(text, "a CUDA version, such as 12.8 or cu128", hint=_TOOLKITS)


def _must_exist(major: int, minor: int | None) -> None:
    """A version that the tables know, or that is older than they are, or that may come next."""
    from cuwheel.facts import toolkits

    known = [tuple(map(int, row.version.split("."))) for row in toolkits.all_toolkits()]
    shown = str(major) if minor is None else f"{major}.{minor}"
    exists = major < known[0][0] or any(row[0] == major and minor in (None, row[1]) for row in known)
    may_come = known[-1] < (major, minor or 0) and major <= known[-1][0] + 1 and (minor or 0) <= _LAST_MINOR
    if not exists and not may_come:
        newest = max([row for row in known if row[0] == major] or known)
        raise UsageError(f"unknown CUDA version {shown}; the newest known is {newest[0]}.{newest[1]}", hint=_TOOLKITS)


def toolkit(text: str) -> str:
    """A CUDA version that toolkits are known of."""
    cuda(text)
    from cuwheel.facts import toolkits

    try:
        toolkits.find_toolkit(text)
    except UnknownNameError as error:
        raise UsageError(error.message, error.hint or _TOOLKITS) from None
    return text.strip()


def cuda_minor(text: str) -> str:
    found = cuda(text)
    if "." not in found:
        raise UsageError(f"{text.strip()!r} is only a major version: add the minor, such as {found}.8")
    return found


def torch(text: str) -> str:
    cleaned = text.strip()
    if not _TORCH.fullmatch(cleaned):
        raise wrong(text, "a version of torch, such as 2.7.1")
    try:
        return version(cleaned)
    except UsageError:
        raise wrong(text, "a version of torch, such as 2.7.1") from None


def python(text: str) -> str:
    """`3.11`, `3.11.9`, `311`, `cp311`; `3.13t` for one without the GIL."""
    match = _PYTHON.fullmatch(text.strip().lower())
    if not match:
        raise wrong(text, "a version of Python, such as 3.11 (or 3.13t without the GIL)")
    return f"3.{int(match[1])}{match[2] or ''}{match[3]}"


def python_minor(text: str) -> str:
    """Of a Python to build for, which has the GIL."""
    found = python(text)
    if not found[-1].isdigit():
        raise wrong(text, "a version of Python with the GIL, such as 3.11")
    return ".".join(found.split(".")[:2])


def glibc(text: str) -> str:
    cleaned = text.strip()
    if not _GLIBC.fullmatch(cleaned):
        raise wrong(text, "a version of glibc, such as 2.35")
    return cleaned


def cpu(text: str) -> str:
    found = _CPUS.get(text.strip().lower())
    if found is None:
        raise wrong(text, "a processor: x86_64 or aarch64")
    return found


def l4t(text: str) -> str:
    match = _L4T.fullmatch(text.strip().upper())
    if not match:
        raise wrong(text, "a release of L4T, such as 36.4")
    return match[1]


def platform(text: str) -> str:
    """A tag as in a wheel's name."""
    cleaned = text.strip()
    if not _PLATFORM.fullmatch(cleaned):
        raise wrong(text, "a platform tag, such as manylinux_2_28_x86_64 or win_amd64")
    return cleaned


def cmake(text: str) -> str:
    cleaned = text.strip()
    if not _CMAKE.fullmatch(cleaned):
        raise wrong(text, "a version of CMake, such as 3.28", hint="cmake --version")
    return cleaned


def label(text: str) -> str:
    """What stands behind the `+` of a version."""
    from cuwheel.building.tables import VERSION_LABEL

    if not VERSION_LABEL.fullmatch(text) or len(text) > _LONGEST_LABEL:
        raise wrong(text, "a label of a version: lower-case letters, digits and dots, such as 42.1 or g12ab34c")
    return text


def version(text: str) -> str:
    """Of a package, as PEP 440 has it."""
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        raise wrong(text, "a version, such as 1.2+local") from None
    return text


def requirement(text: str) -> str:
    from packaging.requirements import InvalidRequirement

    from cuwheel.wheel.requirements import checked

    try:
        checked(text)
    except InvalidRequirement as error:
        raise wrong(text, f"a requirement, such as torch==2.7.1: {str(error).splitlines()[0]}") from None
    return text


def package(text: str) -> str:
    """A name, perhaps with versions."""
    from cuwheel.delivery import candidates

    candidates.parse_requirement(text)
    return text


def distribution(text: str) -> str:
    """The bare name of a package."""
    if not _DISTRIBUTION.fullmatch(text):
        raise wrong(text, "the name of a package, such as torch")
    return text


def variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise wrong(text, "a variable name, such as MODEL_FOLDER")
    return text


def assignment(text: str) -> str:
    """A variable and its value."""
    name, equals, _ = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise wrong(text, "NAME=VALUE, such as USE_CUDA=1")
    return text


def bench_setting(text: str) -> str:
    """A variable, an environment, a wheel, or a version of a package."""
    from pathlib import Path

    try:
        there = Path(text).is_dir() or (text.endswith(".whl") and Path(text).is_file())
    except OSError:  # too long for a name
        there = False
    name, equals, _ = text.partition("=")
    if not there and not (equals and (_VARIABLE.fullmatch(name) or "==" in text)):
        raise wrong(text, "NAME=VALUE, an environment's folder, a wheel or name==version")
    if "==" in text and not there:
        requirement(text)
    return text


def choice_of_axis(text: str) -> str:
    """An axis of trials, and the name of one of its values."""
    axis, equals, value = text.partition("=")
    if not equals or not axis.strip() or not value.strip():
        raise wrong(text, "AXIS=VALUE, such as start=cold")
    return text


def setting(text: str) -> str:
    """A key of a build backend, and its value: keys may have dots and hyphens."""
    if not text.partition("=")[0].strip() or "=" not in text:
        raise wrong(text, "KEY=VALUE, such as cmake.define.USE_CUDA=ON")
    return text


def soname(text: str) -> str:
    """What a library is called, or a pattern of it: never a path."""
    if "/" in text or len(text) > _LONGEST_NAME:
        raise wrong(text, "a library name, such as 'libmpi.so.*'")
    return text


def image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise wrong(text, "the name of a container image, such as nvidia/cuda:13.0.2-devel-ubuntu24.04")
    return text


def cluster(text: str) -> str:
    from cuwheel.clusters import target

    target.parse(text)
    return text
