"""Do the tags say what the file is: the Python, the processor, the C library that it needs?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cuwheel.facts import versions
from cuwheel.facts.tables import tables
from cuwheel.machine.fleet import Machine
from cuwheel.support.units import first_few
from cuwheel.verdicts import tags
from cuwheel.verdicts.loading import is_loadable, loading
from cuwheel.verdicts.rule import Found, rule
from cuwheel.wheel.metadata import fields
from cuwheel.wheel.name import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Library
    from cuwheel.facts.rows.manylinux import ManylinuxPolicy
    from cuwheel.support.finding import Severity
    from cuwheel.verdicts.wheel_subject import Subject

_SOURCE = "platform compatibility tags, packaging.python.org/specifications; PEP 600"
# foo.cpython-312-x86_64-linux-gnu.so, foo.cpython-313t-…, foo.abi3.so, foo.cp312-win_amd64.pyd
_EXTENSION = re.compile(r"\.(?:cpython-(\d)(\d+)(t?)-[^.]*\.so|cp(\d)(\d+)(t?)-[^.]*\.pyd)$", re.ASCII)
_MUSL = re.compile(r"musllinux_\d+_\d+_(.+)", re.ASCII)
_CXX_LIBRARY = re.compile(r"(?:^|/)libstdc\+\+[^/]*\.so", re.ASCII)
_CP = re.compile(r"cp(\d)(\d+)", re.ASCII)


def _named(subject: Subject) -> tuple[str, ...]:
    """The tags of the file name, expanded; none if it is not the name of a wheel."""
    try:
        return tuple(str(tag) for tag in parse_wheel_filename(plain_name(subject.file))[3])
    except InvalidWheelFilename:
        return ()


def _written_tags(subject: Subject) -> tuple[str, ...]:
    """Those of the WHEEL file, where each line may be a set in short."""
    found = []
    for key, value in fields(subject.wheel.wheel or ""):
        if key == "tag" and value.count("-") == 2:  # noqa: PLR2004
            python, abi, platform = value.split("-")
            found += [f"{a}-{b}-{c}" for a in python.split(".") for b in abi.split(".") for c in platform.split(".")]
    return tuple(dict.fromkeys(found))


@rule(
    "file-name",
    severity="error",
    why="name-version-python-abi-platform.whl: installers choose by it and refuse other names.",
    source=_SOURCE,
    fix="restore the name it was built with",
)
def name_of_file(subject: Subject) -> Iterator[Found]:
    try:
        parse_wheel_filename(plain_name(subject.file))
    except InvalidWheelFilename as error:
        yield Found(message=f"its file name is not that of a wheel: {str(error)[:200]}")


@rule(
    "tags-differ",
    severity="error",
    why="The tags in the WHEEL file must match the file name. Renaming a wheel to make it install breaks this.",
    source=_SOURCE,
    fix="python -m wheel tags …   (rewrites both)",
)
def tags_differ(subject: Subject) -> Iterator[Found]:
    named, written = set(_named(subject)), set(_written_tags(subject))
    if not named or subject.wheel.wheel is None or named == written:
        return
    yield Found(
        severity="warning" if _alike(named) == _alike(written) else None,
        message="the tags of the file name are not those of its WHEEL file",
        evidence=(
            *(f"only in the file name: {each}" for each in first_few(sorted(named - written))),
            *(f"only in WHEEL: {each}" for each in first_few(sorted(written - named))),
        ),
    )


def _alike(listed: set[str]) -> set[tuple[str, str | None, str | None]]:
    """But for the C library: linux renamed to manylinux is common, and whether that is true is asked elsewhere."""
    parts = [each.rpartition("-") for each in listed]
    return {(front, tags.platform_of(back).os, tags.platform_of(back).cpu) for front, _, back in parts}


@rule(
    "tag-without-platform",
    severity="error",
    why="""A wheel with the tag `any` is installed on every system and processor; with a library in it, it fails on all
    but one.""",
    source="PEP 425",
    fix="tell the backend that it is not pure (setuptools: Distribution.has_ext_modules; hatchling: pure_python)",
)
def without_platform(subject: Subject) -> Iterator[Found]:
    libraries = _machine_code(subject)
    if "any" in _platforms(subject) and libraries:
        yield Found(
            message="its tag says any platform, but it contains machine code",
            evidence=first_few(sorted(f"{each.path}: {each.machine}" for each in libraries)),
        )


def _platforms(subject: Subject) -> set[str]:
    return {tag.rpartition("-")[2] for tag in _named(subject)}


def _machine_code(subject: Subject) -> list[Library]:
    return [each for each in subject.survey.libraries if is_loadable(each) and each.format in ("elf", "pe")]


@rule(
    "tag-processor",
    severity="error",
    why="Machine code is for one processor and one system; an installer goes by the tag alone.",
    source=_SOURCE,
    fix="build it on, or for, the platform that its tag names",
)
def processor(subject: Subject) -> Iterator[Found]:
    """A wheel may hold code for several platforms: each library needs a tag, and each tag a library."""
    platforms, libraries = sorted(_platforms(subject) - {"any"}), _machine_code(subject)
    if not platforms or not libraries:
        return
    strangers = [each for each in libraries if all(_foreign(each, platform) for platform in platforms)]
    empty = [platform for platform in platforms if all(_foreign(each, platform) for each in libraries)]
    if strangers or empty:
        wrong = strangers or libraries
        yield Found(
            message=f"its tag is for {', '.join(empty or platforms)}, but it contains code for something else",
            evidence=first_few(sorted(f"{each.path}: {each.format.upper()} for {each.machine}" for each in wrong)),
        )


def _foreign(library: Library, platform: str) -> bool:
    wanted = tags.platform_of(platform)
    if platform.startswith("macosx_"):
        return True
    if match := _MUSL.fullmatch(platform):  # what asks for versions of glibc does not load with musl
        return library.format != "elf" or library.machine != match[1] or library.glibc is not None
    system = {"elf": "linux", "pe": "windows"}[library.format]
    return bool((wanted.cpu and library.machine != wanted.cpu) or (wanted.os and system != wanted.os))


@rule(
    "tag-glibc",
    severity="error",
    why="""manylinux_X_Y promises to load with glibc X.Y. A library that needs a newer one fails at import on exactly
    those systems that the tag allows.""",
    source=_SOURCE,
    fix="cuwheel repair WHEEL   (or build it in the image of the policy)",
)
def glibc(subject: Subject) -> Iterator[Found]:
    lowest = _promised_glibc(subject)
    if lowest is None:
        return
    wanting = [each for each in subject.survey.libraries if each.glibc and not versions.at_least(lowest, each.glibc)]
    for libraries, what, severity in _by_gravity(subject, wanting):
        most = max((each.glibc or "" for each in libraries), key=versions.key)
        yield Found(
            message=f"its tag promises glibc {lowest}, and {what} {most}",
            evidence=first_few(sorted(f"{each.path}: GLIBC_{each.glibc}" for each in libraries)),
            severity=severity,
        )


def _promised_glibc(subject: Subject) -> str | None:
    promised = [tags.platform_of(platform).glibc for platform in _platforms(subject)]
    return min((each for each in promised if each), key=versions.key, default=None)


def _by_gravity(subject: Subject, wanting: list[Library]) -> Iterator[tuple[list[Library], str, Severity]]:
    ours = _for_cuda(subject)
    kinds: tuple[tuple[list[Library], str, Severity], ...] = (
        ([each for each in wanting if each.path in ours], "it needs", "error"),
        ([each for each in wanting if each.path not in ours], "libraries in it, none for CUDA, need", "warning"),
    )
    return (each for each in kinds if each[0])


@rule(
    "tag-libstdcxx",
    severity="error",
    why="""A manylinux tag also promises that the libstdc++ of such a system is new enough. A library that needs a newer
    one fails at import: version `GLIBCXX_3.4.29' not found.""",
    source="auditwheel's policies; PEP 600",
    fix="cuwheel repair WHEEL   (or build it in the image of the policy, or with -static-libstdc++)",
)
def libstdcxx(subject: Subject) -> Iterator[Found]:
    lowest = _promised_glibc(subject)
    policy = tables().manylinux.policy_of(lowest) if lowest else None
    if policy is None or any(_CXX_LIBRARY.search(path) for path in subject.wheel.sizes):
        return  # a wheel that brings its own libstdc++ asks the system for none
    wanting = [each for each in subject.survey.libraries if any(_newer_cxx(each, policy))]
    for libraries, what, severity in _by_gravity(subject, wanting):
        yield Found(
            message=f"its tag promises GLIBCXX_{policy.glibcxx} and CXXABI_{policy.cxxabi}, and {what} newer ones",
            evidence=first_few(sorted(f"{each.path}: {', '.join(_newer_cxx(each, policy))}" for each in libraries)),
            severity=severity,
        )


def _newer_cxx(library: Library, policy: ManylinuxPolicy) -> Iterator[str]:
    """Above what the policy promises, as the loader names them."""
    if library.glibcxx and not versions.at_least(policy.glibcxx, library.glibcxx):
        yield f"GLIBCXX_{library.glibcxx}"
    if library.cxxabi and not versions.at_least(policy.cxxabi, library.cxxabi):
        yield f"CXXABI_{library.cxxabi}"


def _for_cuda(subject: Subject) -> set[str]:
    """Without those of a package that are for other kinds of machine (ROCm, XPU), if it is one that we know."""
    found = loading(subject.survey, Machine(name="any", capability=None))
    return {*found.always, *(path for each in found.candidates for path in each.paths)}


@rule(
    "tag-plain-linux",
    severity="note",
    why="linux_x86_64 promises nothing about the C library; public indexes refuse it.",
    source=_SOURCE,
    fix="cuwheel repair WHEEL",
)
def plain_linux(subject: Subject) -> Iterator[Found]:
    plain = [tag for tag in _named(subject) if tag.rpartition("-")[2].startswith("linux_")]
    if plain:
        yield Found(
            message="its platform tag is plain linux: fine locally, but public indexes refuse it", evidence=(plain[0],)
        )


@rule(
    "tag-extension",
    severity="error",
    why="""An extension module carries its Python in its suffix (.cpython-312-…), and another Python does not see it. A
    wheel installed for a Python that none of its modules support cannot be imported there.""",
    source="PEP 3149; importlib.machinery.EXTENSION_SUFFIXES",
    fix="build it for each Python that its tags name, or for the stable ABI",
)
def extension(subject: Subject) -> Iterator[Found]:
    modules: dict[str, set[str]] = {}
    for path in subject.wheel.sizes:
        if match := _EXTENSION.search(path):
            made_for = "cp" + "".join(part or "" for part in match.groups())
            modules.setdefault(path[: match.start()], set()).add(made_for)
    if not modules or not _named(subject):
        return
    for tag in sorted({tag.rpartition("-")[0] for tag in _named(subject)}):
        python, abi = tag.split("-")
        wrong = [name for name, made in modules.items() if not _importable(python, abi, made)]
        if wrong:
            has = sorted({each for name in wrong for each in modules[name]})
            yield Found(
                message=f"its tag {tag} does not match the Python its modules are for ({', '.join(has)})",
                evidence=first_few(sorted(wrong)),
            )


def _importable(python: str, abi: str, made: set[str]) -> bool:
    if abi == "abi3" or not _CP.fullmatch(python):
        return False  # later Pythons are promised too, and they do not see it
    return python + ("t" if abi.endswith("t") else "") in made


@rule(
    "requires-python",
    severity="error",
    why="Installers check Requires-Python before the tags: a wheel for a Python that it excludes is never installed.",
    source="core metadata, packaging.python.org/specifications",
    fix="build for the Pythons that requires-python names",
)
def requires_python(subject: Subject) -> Iterator[Found]:
    wanted = dict(fields(subject.wheel.metadata or "")).get("requires-python")
    if not wanted:
        return
    try:
        allowed = SpecifierSet(wanted)
    except InvalidSpecifier:
        return  # the rules of metadata say that
    pythons = {tag.partition("-")[0] for tag in _named(subject)}
    matches = {each: _CP.fullmatch(each) for each in pythons}
    # The last patch release that there can be: `>3.11.2` allows some of 3.11.
    refused = [each for each, match in matches.items() if match and f"{match[1]}.{match[2]}.99" not in allowed]
    if refused:
        yield Found(message=f"it is tagged {', '.join(sorted(refused))} and requires Python {wanted}")


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
