"""A wheel that a build backend made, given its name, its description and its guard: beside it, then renamed.

Also what keeps these true afterwards, where code is taken out or put in, and where wheels become one.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import InvalidVersion

from cuwheel.changes.stamp import guard
from cuwheel.changes.stamp.guard import Guard
from cuwheel.device_code import description
from cuwheel.device_code.description import BuildRecord, Description, File, MergedPart, PlannedFor, Tools
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.support import files, limited, system_calls
from cuwheel.support.files import errors_of, sync_folder
from cuwheel.wheel import file
from cuwheel.wheel.edit import Taken, WheelEdit
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.record import Digest
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import gpus, versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support.wording import a_few, first_few
from cuwheel_core.verdicts.predict import Coverage
from cuwheel_core.wheel.tags import platform_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.toolchains.toolchain import Toolchain
    from cuwheel.verdicts.planning.plan import Job
    from cuwheel_core.device_code.libraries import Platform
    from cuwheel_core.wheel.tags import WheelName


_LABEL = re.compile(r"cu\d+", re.ASCII)
_SUFFIX = re.compile(r"[-_.]cu\d+$", re.ASCII | re.IGNORECASE)
_TAG = re.compile(r"(?P<python>[a-z]{2,8}\d{1,4}(?:\.[a-z]{2,8}\d{1,4})*)-(?P<abi>none|abi3)", re.ASCII)
_MODULE = re.compile(r"\.(?:cpython-\d+[^/]*|cp\d+-[^/]*)\.(?:so|pyd)$", re.ASCII)
_STABLE_MODULE = re.compile(r"\.abi3\.(?:so|pyd)$", re.ASCII)


class StampOptions(Struct, frozen=True, kw_only=True):
    """`name`, `version`, `python_tag` (`py3-none`): in place of the wheel's own. `extra_requires`: to add."""

    name: str | None = None
    version: str | None = None
    python_tag: str | None = None
    description: Description
    guard: Guard | None = None
    extra_requires: tuple[str, ...] = ()


def local_version(version: str, cuda: str = "", label: str = "") -> str:
    """`1.2` → `1.2+cu130`; `1.2+ubuntu.1` → `1.2+ubuntu.1.cu130`; another CUDA's label gives way to this one.

    `label`: of this build, before all others, so that a higher number is the newer version: `1.2+42.cu130`.
    """
    try:
        parsed = limited.version(version)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version that can be labelled: {error}", hint="see PEP 440") from error
    before = parsed.local.split(".") if parsed.local else []
    if cuda:
        before = [each for each in before if not _LABEL.fullmatch(each)]
    labels = [label, *before, "cu" + "".join(cuda.split(".")[:2]) if cuda else ""]
    return f"{parsed.public}+{'.'.join(filter(None, labels))}"


def public_version(version: str) -> str:
    """`1.2+cu130` → `1.2`: without the label of a CUDA version, and with every other one."""
    public, plus, local = version.partition("+")
    kept = [each for each in re.split(r"[-_.]", local) if not _LABEL.fullmatch(each)]
    return f"{public}+{'.'.join(kept)}" if plus and kept else public


def suffixed_name(name: str, cuda: str) -> str:
    """`name-cu13`: for the public index, which takes no local versions. A suffix that is there is replaced."""
    return f"{_SUFFIX.sub('', name)}-cu{cuda.split('.', maxsplit=1)[0]}"


def stamp(wheel: Path | WheelFile, to: Path, options: StampOptions) -> Path:
    """The new wheel, in the folder `to`."""
    if isinstance(wheel, Path):
        with WheelFile(wheel) as opened:
            return stamp(opened, to, options)
    must_be_publishable(wheel)
    edit = _edited(wheel, options)
    output = to / str(edit.name)
    with errors_of(output, f"{output} was not written"), files.scratch_beside(to) as folder:
        made = folder / "wheel"
        edit.write(made)
        system_calls.rename_over(made, output)
        sync_folder(to)
    return output


def must_be_publishable(wheel: WheelFile) -> None:
    """What is stamped is going to be published: nothing of it may be in doubt."""
    wheel.must_be_sound("stamped")
    problem = ""
    if signed := wheel.signatures:
        problem = f"it is signed ({', '.join(signed)}), and changing the wheel would break the signature"
    elif wheel.unlisted:
        problem = f"its RECORD and its files do not match: {a_few(sorted(wheel.unlisted), 3)}"
    elif wrong := wheel.wrong_hashes():
        problem = f"these files do not match RECORD: {a_few(wrong, 3)}"
    if problem:
        raise MalformedError(wheel.path, f"not stamped: {problem}", hint="build the wheel again")


def _edited(wheel: WheelFile, options: StampOptions) -> WheelEdit:
    edit = WheelEdit(wheel)
    if options.name or options.version:
        edit.rename(name=options.name, version=options.version)
    if options.extra_requires:
        edit.require(options.extra_requires)
    if options.python_tag:
        tag_must_fit(wheel.members, options.python_tag)
        python, abi = tag_parts(options.python_tag)
        edit.retag(python=python, abi=abi)
    edit.add(wheel.info + description.NAME, description.encoded(options.description))
    if options.guard:
        # The guard next to the `__init__.py` of its package, and its call in it.
        folder = package_folder(edit.wheel.members, options.guard.package)
        edit.add(f"{folder}{guard.FILE}", guard.guard_source(options.guard).encode())
        if options.guard.inject:
            init = f"{folder}__init__.py"
            edit.add(init, guard.with_call(edit.wheel.read(init), init))
    return edit


def tag_parts(tag: str) -> tuple[str, str]:
    """`py3-none` → its two parts.

    setuptools tags every wheel with a library for the Python that built it. Where the library is loaded with ctypes
    (bitsandbytes), it serves all of them, and its publisher says so: `py3-none`.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise UsageError(f"python-tag = {tag!r}: not a Python and an ABI", hint='such as "py3-none" or "cp310-abi3"')
    return match["python"], match["abi"]


def tag_must_fit(members: Iterable[str], tag: str) -> None:
    """A module of one Python's own ABI serves no other, whatever the tag says."""
    stable = tag_parts(tag)[1] == "abi3"
    bound = sorted(each for each in members if _MODULE.search(each) or (not stable and _STABLE_MODULE.search(each)))
    if bound:
        raise UsageError(
            f"python-tag = {tag!r}: {bound[0]} is an extension module for CPython",
            hint="leave python-tag out: the build backend knows",
        )


def package_folder(members: Collection[str], package: str) -> str:
    """Where the package's files are in the wheel, with a slash at the end."""
    if folder := file.package_folder(members, package):
        return folder
    tops = ", ".join(file.top_packages(members)) or "none"
    raise UsageError(
        f"[tool.cuwheel.guard] package = {package!r}: the wheel has no such package", hint=f"its packages: {tops}"
    )


# The description of a wheel that was just built, from what it was built with and what is in it.


def describe(
    found: Survey,
    job: Job,
    toolchain: Toolchain,
    *,
    sources: str,
    python: str | None = None,
    requires: Sequence[str] = (),
    build: BuildRecord | None = None,
    conditions: Mapping[str, tuple[str, ...]] | None = None,
    built_for: Platform | None = None,
) -> Description:
    """`found`: the wheel, with its containers. `sources`: SHA-256 of the tree that was built.

    `conditions`: on which it runs on machines of the plan, by their names. `built_for`: servers or Jetson.
    """
    toolkit, compiler = toolchain.toolkit, toolchain.host_compiler
    archives = (File(file=each.file, sha256=each.sha256) for each in toolkit.archives)
    tools = Tools(
        provider=toolkit.provider,
        release=toolkit.release,
        nvcc=toolkit.version,
        platform=toolkit.platform,
        host_compiler=f"{compiler.kind} {compiler.version}" if compiler else None,
        arm64=built_for.name if built_for else None,
        archives=tuple(sorted(archives, key=lambda each: each.file)),
    )
    return Description(
        cuda=job.cuda,
        archs=job.archs,
        ptx=job.ptx,
        coverage=coverage_of_wheel(found),
        plan=tuple(
            PlannedFor(
                machine=each.machine,
                capability=each.capability,
                how=each.how,
                by=each.by,
                conditions=(conditions or {}).get(each.machine, ()),
            )
            for each in job.coverage
        ),
        toolchain=tools,
        sources=sources,
        python=python,
        requires=tuple(requires),
        build=build,
    )


def coverage_of_wheel(found: Survey) -> Coverage:
    """Which GPUs the whole wheel serves, all that is loaded together counted."""
    from cuwheel.verdicts.judge import judge_all  # noqa: PLC0415 - wheels without a description are changed too

    known = gpus.current_capabilities()
    devices = [*known, Capability(known[-1].major + 1, 0)]
    verdicts = judge_all(found, [Machine(name=each, capability=each) for each in devices])
    *how, future = [(device, verdict.outcome) for device, verdict in zip(devices, verdicts, strict=True)]
    return Coverage(
        native=tuple(device for device, outcome in how if outcome in ("native", "compatible")),
        jit=tuple(device for device, outcome in how if outcome == "jit"),
        partial=tuple(device for device, outcome in how if outcome == "partial"),
        future=future[1] == "jit",
    )


# What a wheel of ours says of itself, made true again after code was taken out of it or put into it.

_INSTEAD = "INSTEAD = "


def restamp(made: Path, name: str, *, added: Sequence[Arch] = ()) -> Path:
    """`made`: a wheel whose file is not called so yet; `name`: what it will be called. The wheel to go on with.

    `added`: architectures that it has got.
    """
    path = made.with_name(name)
    system_calls.rename_over(made, path)
    with WheelFile(path) as wheel:
        before = None
        with contextlib.suppress(CuwheelError):  # one that cannot be understood is left as it is
            before = description.of_wheel(wheel)
        if before is None:
            return path
        found = survey_wheel(wheel, detail="containers")
        present = {row.arch for library in found.libraries for row in library.device_code}
        after = replace(
            before,
            archs=_listed(before.archs, [each for each in added if each.kind == "sm"], present),
            ptx=_listed(before.ptx, [each for each in added if each.kind == "compute"], present),
            coverage=coverage_of_wheel(found),
        )
        options = StampOptions(description=after, guard=guard_of(wheel, found))
        try:
            return stamp(wheel, made.parent / "stamped", options)
        except MalformedError:  # somebody has changed it since: its RECORD was wrong before
            return path


def _listed(before: Sequence[str], added: Sequence[Arch], present: set[Arch]) -> tuple[str, ...]:
    """Those that it has, in order."""
    wanted = {each for each in present if each in before or each in added}
    return tuple(map(str, sorted(wanted, key=lambda each: (each.capability, each.suffix))))


def guard_of(wheel: WheelFile, found: Survey) -> guard.Guard | None:
    """The guard that a wheel has, for what is in it now."""
    name = next((each for each in wheel.members if each.endswith(f"/{guard.FILE}")), None)
    text = wheel.text(name) if name else None
    place = file.installed_path(name) if name else None
    if place is None or text is None:
        return None
    package = place.rpartition("/")[0].replace("/", ".")
    return guard.guard_for(found, package, message=_message(text))


def _message(text: str) -> str:
    """What the package wanted said, from the guard that is there."""
    for line in text.splitlines():
        if line.startswith(_INSTEAD):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return str(ast.literal_eval(line.removeprefix(_INSTEAD)))
    return ""


# Wheels of several CUDA versions that differ in added libraries alone, as one that has them all.

_SHOWN = 5
_OWN = ("RECORD", "WHEEL", description.NAME)  # written anew


class _Opened(Struct, frozen=True, kw_only=True):
    wheel: WheelFile
    digests: dict[str, Digest]
    description: Description

    @property
    def label(self) -> str:
        return f"the wheel for CUDA {self.description.cuda}"

    @property
    def name(self) -> WheelName:
        assert self.wheel.name is not None  # noqa: S101 - it is sound
        return self.wheel.name

    @property
    def promise(self) -> tuple[bool, tuple[int, ...]]:
        """How much its tags promise, the least first: a plain linux tag promises nothing."""
        found = [platform_of(each).glibc for each in self.name.platforms]
        known = [versions.key(each) for each in found if each]
        return not known, min(known, default=())

    def is_common(self, name: str) -> bool:
        """Whether it must be the same in all of them. The guard goes by what is in the whole wheel."""
        own = name.removeprefix(self.wheel.info) if name.startswith(self.wheel.info) else ""
        return own not in _OWN and name.rpartition("/")[2] != guard.FILE


def merge_wheels(wheels: Sequence[Path], to: Path) -> Path:
    """The new wheel, in the folder `to`. Raises with every difference that is not an added file."""
    with ExitStack() as stack:
        opened = [_open(each, stack) for each in wheels]
        if conflicts := list(dict.fromkeys(_conflicts(opened))):
            raise MalformedError(
                " and ".join(each.label for each in opened),
                ("cannot be one:", *(f"  {each}" for each in conflicts)),
                hint="only libraries named after their CUDA can be merged; to get separate wheels: --set naming=local",
            )
        platforms = max(opened, key=lambda each: each.promise).name.platforms
        name = str(opened[0].name._replace(platform=".".join(platforms)))
        to.mkdir(parents=True, exist_ok=True)
        with errors_of(to / name, f"{to / name} was not written"), files.scratch_beside(to) as folder:
            made = folder / name
            _write_merged(opened, platforms, made)
            with WheelFile(made) as merged:
                found = survey_wheel(merged, detail="containers")
                descriptions = [each.description for each in opened]
                described = replace(
                    descriptions[0],
                    cuda=", ".join(each.cuda for each in descriptions),
                    archs=tuple(dict.fromkeys(arch for each in descriptions for arch in each.archs)),
                    ptx=tuple(dict.fromkeys(arch for each in descriptions for arch in each.ptx)),
                    coverage=coverage_of_wheel(found),
                    plan=(),
                    toolchain=None,
                    merged=tuple(
                        MergedPart(cuda=each.cuda, archs=each.archs, ptx=each.ptx, toolchain=each.toolchain)
                        for each in descriptions
                    ),
                )
                options = StampOptions(description=described, guard=guard_of(merged, found))
                return stamp(merged, to, options)


def _open(path: Path, stack: ExitStack) -> _Opened:
    wheel = stack.enter_context(WheelFile(path))
    must_be_publishable(wheel)
    own_description = description.of_wheel(wheel)
    if own_description is None:
        raise MalformedError(path, "was not built by cuwheel: it has no description", hint="cuwheel build SOURCE")
    return _Opened(
        wheel=wheel, digests={each: wheel.digest(each) for each in wheel.members}, description=own_description
    )


def _conflicts(opened: Sequence[_Opened]) -> Iterator[str]:
    for first, other in combinations(opened, 2):
        for what, field in (("name", "name"), ("version", "version"), ("Python tag", "python"), ("ABI", "abi")):
            one, two = getattr(first.name, field), getattr(other.name, field)
            if one != two:
                yield f"the {what} is {one} in {first.label}, {two} in {other.label}"
        machines = [{platform_of(each).cpu for each in it.name.platforms} for it in (first, other)]
        if machines[0] != machines[1]:
            yield f"the platform is {first.name.platform} in {first.label}, {other.name.platform} in {other.label}"
        common = first.digests.keys() & other.digests.keys()
        differing = sorted(
            each for each in common if first.is_common(each) and (first.digests[each] != other.digests[each])
        )
        where = f"in {first.label} and in {other.label}"
        words = [f"{name} is {where}, and not the same{_why(first, other, name)}" for name in differing[:_SHOWN]]
        yield from (*words, *first_few(differing[_SHOWN:], 0, more="more files"))


def _why(one: _Opened, other: _Opened, name: str) -> str:
    """The lines in which METADATA differs; nothing for other files."""
    if name != f"{one.wheel.info}METADATA":
        return ""
    lines = [set((each.wheel.metadata or "").splitlines()) for each in (one, other)]
    return ": " + "; ".join(sorted(lines[0] ^ lines[1])[:_SHOWN])


def _write_merged(opened: Sequence[_Opened], platforms: Sequence[str], made: Path) -> None:
    """Each file once, from the first that has it, as it is compressed there."""
    first = opened[0]
    edit = WheelEdit(first.wheel)
    edit.retag(platforms=platforms)
    members = set(first.wheel.members)
    for each in opened[1:]:
        for name in each.wheel.members:
            if name not in members:
                members.add(name)
                edit.add(name, Taken(each.wheel, name))
    edit.write(made)
