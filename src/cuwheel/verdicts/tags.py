"""Do a wheel's tags allow it on a machine: Python, ABI, operating system, processor, C library."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts import versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.machine.fleet import Machine

# What the old names of manylinux stand for (PEP 600).
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(.+)", re.ASCII)
_INTERPRETER = re.compile(r"(cp|py|pp)(\d)(\d*)", re.ASCII)
_NO_GIL = " without the GIL"
_WINDOWS_CPUS = {"win_amd64": "x86_64", "win_arm64": "aarch64", "win32": "i686"}


class Platform(Struct, frozen=True, kw_only=True):
    os: str | None = None
    cpu: str | None = None
    glibc: str | None = None


class Fit(Struct, frozen=True, kw_only=True):
    """`problems`: why this tag cannot be; `conditions`: what must hold where the machine does not say."""

    tag: str
    problems: tuple[str, ...]
    conditions: tuple[str, ...]


def fits(tags: Iterable[str], machine: Machine) -> tuple[Fit, ...]:
    """Of each tag whether it fits, the best first: fewest problems, then fewest conditions."""
    found = [_fit(tag, machine) for tag in tags]
    return tuple(sorted(found, key=lambda each: (len(each.problems), len(each.conditions))))


def _fit(tag: str, machine: Machine) -> Fit:
    python, abi, platform = ([*tag.split("-"), "", "", ""])[:3]
    problems: list[str] = []
    conditions: list[str] = []
    wanted = platform_of(platform)
    reasons = (
        (_python_problem(python, abi, machine), _python_words(python, abi)),
        (_differs("the operating system", machine.os, wanted.os), _capital(wanted.os)),
        (_differs("the processor", machine.cpu, wanted.cpu), wanted.cpu),
        (_glibc_problem(machine.glibc, wanted.glibc), f"glibc {wanted.glibc} or later" if wanted.glibc else None),
    )
    known = (machine.python, machine.os, machine.cpu, machine.glibc)
    for (problem, condition), value in zip(reasons, known, strict=True):
        if problem:
            problems.append(problem)
        elif condition and value is None:
            conditions.append(condition)
    if wanted.os is None and platform != "any":
        problems.append(f"{platform} is not a platform that cuwheel knows")
    return Fit(tag=tag, problems=tuple(problems), conditions=tuple(conditions))


def platform_of(platform: str) -> Platform:
    if platform in _WINDOWS_CPUS:
        return Platform(os="windows", cpu=_WINDOWS_CPUS[platform])
    if match := _MANYLINUX.fullmatch(platform):
        return Platform(os="linux", cpu=match[3], glibc=f"{match[1]}.{match[2]}")
    name, _, cpu = platform.partition("_")
    if name in _LEGACY:
        return Platform(os="linux", cpu=cpu, glibc=_LEGACY[name])
    return Platform(os="linux", cpu=cpu) if name == "linux" else Platform()


def _differs(what: str, has: str | None, wants: str | None) -> str | None:
    return f"{what} is {has}, not {wants}" if has and wants and has != wants else None


def _glibc_problem(has: str | None, wants: str | None) -> str | None:
    if has and wants and not versions.at_least(has, wants):
        return f"glibc is {has}, older than {wants}"
    return None


def _python_problem(python: str, abi: str, machine: Machine) -> str | None:
    has, match = machine.python, _INTERPRETER.fullmatch(python)
    if has is None or match is None:
        return None
    wanted = f"{match[2]}.{match[3]}" if match[3] else match[2]
    if (problem := _gil_problem(python, abi, machine)) is not None:
        return problem
    newer_too = abi == "abi3" or match[1] == "py"
    same = versions.minor(has) == wanted if "." in wanted else versions.major(has) == int(wanted)
    if same or (newer_too and versions.major(has) == int(match[2]) and versions.at_least(has, wanted)):
        return None
    words = _python_words(python, abi) or wanted
    return f"Python is {versions.minor(has)}, not {words.removeprefix('Python ')}"


def _gil_problem(python: str, abi: str, machine: Machine) -> str | None:
    """Extension modules are for a Python with the GIL or for one without; `abi3` is for the former."""
    if abi == "none":
        return None
    without = _is_without_gil(abi)
    if without == machine.free_threaded:
        return None
    words = _python_words(python, abi) or python
    return f"Python is {versions.minor(machine.python or '')}{_NO_GIL if machine.free_threaded else ''}, not " + (
        words.removeprefix("Python ") + ("" if without else " with the GIL")
    )


def without_gil(tags: Iterable[str]) -> str | None:
    """The Python that these tags are for, in words, if it is one without the GIL alone."""
    found = [tag.split("-") for tag in tags]
    only = all(len(each) > 1 and _is_without_gil(each[1]) for each in found)
    return _python_words(found[0][0], found[0][1]) if found and only else None


def _is_without_gil(abi: str) -> bool:
    return abi[:2] == "cp" and abi.endswith("t")


def _python_words(python: str, abi: str) -> str | None:
    match = _INTERPRETER.fullmatch(python)
    if match is None or not match[3]:
        return None  # py3: any that one meets
    implementation = "PyPy" if match[1] == "pp" else "Python"
    later = " or later" if abi == "abi3" or match[1] == "py" else ""
    threads = _NO_GIL if _is_without_gil(abi) else ""
    return f"{implementation} {match[2]}.{match[3]}{later}{threads}"


def _capital(os: str | None) -> str | None:
    return os.capitalize() if os else None


def words(fit: Fit) -> Iterator[str]:
    """The conditions of a tag as one sentence."""
    if fit.conditions:
        yield f"{', '.join(fit.conditions)} (tag {fit.tag})"
