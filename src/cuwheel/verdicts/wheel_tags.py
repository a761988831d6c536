"""Do a wheel's tags allow it on a machine, and do they say what the file is: Python, system, processor, C library."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from cuwheel.device_code.contents import Survey
from cuwheel.facts.tables import tables
from cuwheel.machine import fleet
from cuwheel.machine.fleet import Machine
from cuwheel.support import limited
from cuwheel.support.finding import finding
from cuwheel.verdicts.loading import is_loadable, loading
from cuwheel_core.facts import versions
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import first_few
from cuwheel_core.verdicts.condition import Condition, condition
from cuwheel_core.wheel.metadata import fields
from cuwheel_core.wheel.tags import expanded, manylinux, parts_of, plain_name, platform_of, python_of, windows_platform

if TYPE_CHECKING:
    from cuwheel.facts.rows.packages import ManylinuxPolicy
    from cuwheel.wheel.file import WheelFile  # noqa: TC004 - never decoded, and it takes long to import
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.finding import Finding, Severity


# Do a wheel's tags allow it on a machine: Python, ABI, operating system, processor, C library.

_USUAL_GLIBC = "2.28"  # of manylinux_2_28, which current wheels are for
_NO_GIL = " without the GIL"
_SYSTEM_NAMES = {"linux": "Linux", "windows": "Windows"}


def platform_to_ask_for(machine: Machine) -> str:
    """The tag by which pip and uv are asked for wheels of another machine, whose system and processor are known."""
    if machine.os == "windows":
        return windows_platform(machine.cpu or "")
    return manylinux(versions.minor(machine.glibc or _USUAL_GLIBC), machine.cpu or "")


def place_to_ask_for(machines: Iterable[Machine]) -> tuple[str | None, str | None]:
    """Platform and Python of a wheel for these machines: None for what is as here, or not the same on all of them."""
    placed = [fleet.with_platform(each) for each in machines]
    systems = {(each.os, each.cpu) for each in placed}
    pythons = {versions.minor(each.python) for each in placed if each.python and not each.free_threaded}
    here = fleet.with_platform(Machine(name="", capability=None))
    strange = len(systems) == 1 and systems != {(here.os, here.cpu)}
    python = pythons.pop() if len(pythons) == 1 else None
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return platform_to_ask_for(placed[0]) if strange else None, None if python == own else python


class Fit(Struct, frozen=True, kw_only=True):
    """`problems`: why this tag cannot be; `conditions`: what must hold where the machine does not say."""

    tag: str
    problems: tuple[str, ...]
    conditions: tuple[Condition, ...]


def fits_on_machine(tags: Iterable[str], machine: Machine) -> tuple[Fit, ...]:
    """Tells of each tag whether it fits, the best first: fewest problems, then fewest conditions."""
    found = [_fit(tag, machine) for tag in tags]
    return tuple(sorted(found, key=lambda each: (len(each.problems), len(each.conditions))))


def _fit(tag: str, machine: Machine) -> Fit:
    python, abi, platform = parts_of(tag)
    problems: list[str] = []
    conditions: list[Condition] = []
    wanted = platform_of(platform)
    if wanted.os not in _SYSTEM_NAMES:  # where there is no CUDA the processor does not matter
        wanted = wanted._replace(cpu=None)
    reasons = (
        (_python_problem(python, abi, machine), condition("python", python=_python_words(python, abi) or "")),
        (
            _differs("the operating system", machine.os, wanted.os),
            condition("system", system=(wanted.os or "").capitalize()),
        ),
        (_differs("the processor", machine.cpu, wanted.cpu), condition("processor", cpu=wanted.cpu or "")),
        (_glibc_problem(machine.glibc, wanted.glibc), condition("glibc", glibc=wanted.glibc or "")),
    )
    known = (machine.python, machine.os, machine.cpu, machine.glibc)
    for (problem, asked), value in zip(reasons, known, strict=True):
        if problem:
            problems.append(problem)
        elif asked.text and value is None:
            conditions.append(asked)
    if wanted.os is None and platform != "any":
        problems.append(f"{platform} is not a platform that cuwheel knows")
    return Fit(tag=tag, problems=tuple(problems), conditions=tuple(conditions))


def _differs(what: str, has: str | None, wants: str | None) -> str | None:
    return f"{what} is {has}, not {wants}" if has and wants and has != wants else None


def _glibc_problem(has: str | None, wants: str | None) -> str | None:
    if has and wants and not versions.at_least(has, wants):
        return f"glibc is {has}, older than {wants}"
    return None


def _python_problem(python: str, abi: str, machine: Machine) -> str | None:
    has, wanted = machine.python, python_of(python)
    if has is None or wanted is None:
        return None
    if (problem := _gil_problem(python, abi, machine)) is not None:
        return problem
    newer_too = abi == "abi3" or wanted.kind == "py"
    same = wanted.minor is None or versions.minor(has) == wanted.version
    if versions.major(has) == wanted.major and (same or (newer_too and versions.at_least(has, wanted.version))):
        return None
    words = _python_words(python, abi) or wanted.version
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
    found = [parts_of(tag)[:2] for tag in tags]
    return _python_words(*found[0]) if found and all(_is_without_gil(abi) for _, abi in found) else None


def _is_without_gil(abi: str) -> bool:
    return abi[:2] == "cp" and abi.endswith("t")


def _python_words(python: str, abi: str) -> str | None:
    wanted = python_of(python)
    if wanted is None or wanted.minor is None:
        return None  # py3: any that one meets
    implementation = "PyPy" if wanted.kind == "pp" else "Python"
    later = " or later" if abi == "abi3" or wanted.kind == "py" else ""
    threads = _NO_GIL if _is_without_gil(abi) else ""
    return f"{implementation} {wanted.version}{later}{threads}"


def tag_condition(tags: Iterable[str], machine: Machine) -> Condition | None:
    """What the best of the tags asks of what is not known of the machine, as one condition; None: nothing."""
    best = next(iter(fits_on_machine(tags, machine)), None)
    if best is None or not best.conditions:
        return None
    asked = {name: value for each in best.conditions for name, value in asdict(each.parts).items() if value}
    return condition("wheel-tag", tag=best.tag, **asked)


# What the rules look at, and words that they share.


class WheelSubject(Struct, frozen=True, kw_only=True):
    wheel: WheelFile
    survey: Survey

    @property
    def file(self) -> str:
        return self.wheel.path.name


def one_or_many(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"


_SOURCE = "platform compatibility tags, packaging.python.org/specifications; PEP 600"
# foo.cpython-312-x86_64-linux-gnu.so, foo.cpython-313t-…, foo.abi3.so, foo.cp312-win_amd64.pyd
_EXTENSION = lazy_pattern(r"\.(?:cpython-(\d)(\d+)(t?)-[^.]*\.so|cp(\d)(\d+)(t?)-[^.]*\.pyd)$", re.ASCII)
_CXX_LIBRARY = lazy_pattern(r"(?:^|/)libstdc\+\+[^/]*\.so", re.ASCII)


def _named(subject: WheelSubject) -> tuple[str, ...]:
    """The tags of the file name, expanded; none if it is not the name of a wheel."""
    return subject.wheel.name.tags if subject.wheel.name else ()


def _written_tags(subject: WheelSubject) -> tuple[str, ...]:
    """Those of the WHEEL file, where each line may be a set in short."""
    written = (value for key, value in fields(subject.wheel.wheel or "") if key == "tag" and value.count("-") == 2)  # noqa: PLR2004
    return tuple(dict.fromkeys(tag for value in written for tag in expanded(*parts_of(value))))


def name_of_file(subject: WheelSubject) -> Iterator[Finding]:
    from packaging.utils import InvalidWheelFilename  # noqa: PLC0415 - of wheels alone

    try:
        limited.wheel_file(plain_name(subject.file))
    except InvalidWheelFilename as error:
        yield finding("file-name", f"its file name is not that of a wheel: {str(error)[:200]}")


def tags_differ(subject: WheelSubject) -> Iterator[Finding]:
    named, written = set(_named(subject)), set(_written_tags(subject))
    if not named or subject.wheel.wheel is None or named == written:
        return
    yield finding(
        "tags-differ",
        "the tags of the file name are not those of its WHEEL file",
        evidence=(
            *(f"only in the file name: {each}" for each in first_few(sorted(named - written))),
            *(f"only in WHEEL: {each}" for each in first_few(sorted(written - named))),
        ),
        severity="warning" if _alike(named) == _alike(written) else None,
    )


def _alike(listed: set[str]) -> set[tuple[str, str, str | None, str | None]]:
    """But for the C library: linux renamed to manylinux is common, and whether that is true is asked elsewhere."""
    return {(*parts_of(each)[:2], platform_of(each).os, platform_of(each).cpu) for each in listed}


def without_platform(subject: WheelSubject) -> Iterator[Finding]:
    libraries = _machine_code(subject)
    if "any" in _platforms(subject) and libraries:
        yield finding(
            "tag-without-platform",
            "its tag says any platform, but it contains machine code",
            evidence=first_few(sorted(f"{each.path}: {each.machine}" for each in libraries)),
        )


def _platforms(subject: WheelSubject) -> set[str]:
    return {parts_of(tag)[2] for tag in _named(subject)}


def _machine_code(subject: WheelSubject) -> list[Library]:
    return [each for each in subject.survey.libraries if is_loadable(each) and each.format in ("elf", "pe")]


def processor(subject: WheelSubject) -> Iterator[Finding]:
    """A wheel may hold code for several platforms: each library needs a tag, and each tag a library."""
    platforms, libraries = sorted(_platforms(subject) - {"any"}), _machine_code(subject)
    if not platforms or not libraries:
        return
    strangers = [each for each in libraries if all(_foreign(each, platform) for platform in platforms)]
    empty = [platform for platform in platforms if all(_foreign(each, platform) for each in libraries)]
    if strangers or empty:
        wrong = strangers or libraries
        yield finding(
            "tag-processor",
            f"its tag is for {', '.join(empty or platforms)}, but it contains code for something else",
            evidence=first_few(sorted(f"{each.path}: {each.format.upper()} for {each.machine}" for each in wrong)),
        )


def _foreign(library: Library, platform: str) -> bool:
    wanted = platform_of(platform)
    if wanted.musl:  # what asks for versions of glibc does not load with it
        return library.format != "elf" or library.machine != wanted.cpu or library.glibc is not None
    system = {"elf": "linux", "pe": "windows"}[library.format]
    return bool((wanted.cpu and library.machine != wanted.cpu) or (wanted.os and system != wanted.os))


def glibc(subject: WheelSubject) -> Iterator[Finding]:
    lowest = _promised_glibc(subject)
    if lowest is None:
        return
    wanting = [each for each in subject.survey.libraries if each.glibc and not versions.at_least(lowest, each.glibc)]
    for libraries, what, severity in _by_gravity(subject, wanting):
        most = max((each.glibc or "" for each in libraries), key=versions.key)
        yield finding(
            "tag-glibc",
            f"its tag promises glibc {lowest}, and {what} {most}",
            evidence=first_few(sorted(f"{each.path}: GLIBC_{each.glibc}" for each in libraries)),
            severity=severity,
        )


def _promised_glibc(subject: WheelSubject) -> str | None:
    promised = [platform_of(platform).glibc for platform in _platforms(subject)]
    return min((each for each in promised if each), key=versions.key, default=None)


def _by_gravity(subject: WheelSubject, wanting: list[Library]) -> Iterator[tuple[list[Library], str, Severity]]:
    # Without those of a package that are for other kinds of machine (ROCm, XPU), if it is one that we know.
    found = loading(subject.survey, Machine(name="any", capability=None))
    ours = {*found.always, *(path for each in found.candidates for path in each.paths)}
    kinds: tuple[tuple[list[Library], str, Severity], ...] = (
        ([each for each in wanting if each.path in ours], "it needs", "error"),
        ([each for each in wanting if each.path not in ours], "libraries in it, none for CUDA, need", "warning"),
    )
    return (each for each in kinds if each[0])


def libstdcxx(subject: WheelSubject) -> Iterator[Finding]:
    lowest = _promised_glibc(subject)
    policy = tables().manylinux.policy_of(lowest) if lowest else None
    if policy is None or any(_CXX_LIBRARY.search(path) for path in subject.wheel.sizes):
        return  # a wheel that brings its own libstdc++ asks the system for none
    wanting = [each for each in subject.survey.libraries if any(_newer_cxx(each, policy))]
    for libraries, what, severity in _by_gravity(subject, wanting):
        yield finding(
            "tag-libstdcxx",
            f"its tag promises GLIBCXX_{policy.glibcxx} and CXXABI_{policy.cxxabi}, and {what} newer ones",
            evidence=first_few(sorted(f"{each.path}: {', '.join(_newer_cxx(each, policy))}" for each in libraries)),
            severity=severity,
        )


def _newer_cxx(library: Library, policy: ManylinuxPolicy) -> Iterator[str]:
    """Above what the policy promises, as the loader names them."""
    if library.glibcxx and not versions.at_least(policy.glibcxx, library.glibcxx):
        yield f"GLIBCXX_{library.glibcxx}"
    if library.cxxabi and not versions.at_least(policy.cxxabi, library.cxxabi):
        yield f"CXXABI_{library.cxxabi}"


def plain_linux(subject: WheelSubject) -> Iterator[Finding]:
    plain = [tag for tag in _named(subject) if parts_of(tag)[2].startswith("linux_")]
    if plain:
        yield finding(
            "tag-plain-linux",
            "its platform tag is plain linux: fine locally, but public indexes refuse it",
            evidence=(plain[0],),
        )


def extension(subject: WheelSubject) -> Iterator[Finding]:
    modules: dict[str, set[str]] = {}
    for path in subject.wheel.sizes:
        if match := _EXTENSION.search(path):
            made_for = "cp" + "".join(part or "" for part in match.groups())
            modules.setdefault(path[: match.start()], set()).add(made_for)
    if not modules or not _named(subject):
        return
    for python, abi in sorted({parts_of(tag)[:2] for tag in _named(subject)}):
        wrong = [name for name, made in modules.items() if not _importable(python, abi, made)]
        if wrong:
            has = sorted({each for name in wrong for each in modules[name]})
            yield finding(
                "tag-extension",
                f"its tag {python}-{abi} does not match the Python its modules are for ({', '.join(has)})",
                evidence=first_few(sorted(wrong)),
            )


def _cpython(python: str) -> str | None:
    """The minor version of CPython that a tag is for, `3.12`; None where it is for another one, or for several."""
    found = python_of(python)
    return found.version if found and found.kind == "cp" and found.minor is not None else None


def _importable(python: str, abi: str, made: set[str]) -> bool:
    if abi == "abi3" or not _cpython(python):
        return False  # later Pythons are promised too, and they do not see it
    return python + ("t" if abi.endswith("t") else "") in made


def requires_python(subject: WheelSubject) -> Iterator[Finding]:
    from packaging.specifiers import InvalidSpecifier  # noqa: PLC0415 - of wheels alone

    wanted = dict(fields(subject.wheel.metadata or "")).get("requires-python")
    if not wanted:
        return
    try:
        allowed = limited.specifiers(wanted)
    except InvalidSpecifier:
        return  # the rules of metadata say that
    pythons = {parts_of(tag)[0] for tag in _named(subject)}
    versions_of = {each: _cpython(each) for each in pythons}
    # The last patch release that there can be: `>3.11.2` allows some of 3.11.
    refused = [each for each, version in versions_of.items() if version and f"{version}.99" not in allowed]
    if refused:
        yield finding("requires-python", f"it is tagged {', '.join(sorted(refused))} and requires Python {wanted}")


RULES = (
    name_of_file,
    tags_differ,
    without_platform,
    processor,
    glibc,
    libstdcxx,
    plain_linux,
    extension,
    requires_python,
)
