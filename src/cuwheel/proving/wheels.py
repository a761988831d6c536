"""The proof that wheels work: looked at, installed apart, imported, tried; or packed for another machine."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import config as configuration
from cuwheel.building.tables import VerifyTable
from cuwheel.device_code import limits
from cuwheel.device_code.survey import survey
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import MalformedError, UnreadableError, UsageError
from cuwheel.facts import packages, versions
from cuwheel.machine import named, probe
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from cuwheel.proving import checks as choice
from cuwheel.proving import installation, kit, wheel_rules
from cuwheel.proving.checks import Trial
from cuwheel.proving.outcomes import Installation, Verified
from cuwheel.support import codec
from cuwheel.support.files import sha256
from cuwheel.support.finding import Finding
from cuwheel.verdicts import drivers
from cuwheel.verdicts.loading import loading, profile_of
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.device_code.libraries import Survey
    from cuwheel.proving.request import PackRequest, VerifyRequest


# Does the wheel have what the CUDA asked for needs: a library to load for it, or libraries of its major?

_FIX_CUDA = "take a release that has it, or build one for this CUDA: cuwheel build --cuda"


def findings_for_cuda(survey: Survey, cuda: str) -> Iterator[Finding]:
    """Where a package has a library for each CUDA, the one that it would load; else the majors of all its libraries."""
    profile = profile_of(survey)
    if profile and profile.loads == "one":
        there = sorted(filter(None, (packages.made_for(profile, each.path) for each in survey.libraries)))
        found = loading(survey, Machine(name="any", capability=None, torch_cuda=cuda, jax_cuda=cuda))
        if found.missing or not there:
            have = (
                f"those in it are for CUDA {', '.join(sorted(set(there), key=versions.key))}"
                if there
                else "none at all"
            )
            yield Finding(
                rule="no-library-for-cuda",
                severity="error",
                message=f"it has no library for CUDA {cuda}: {have}",
                fix=_FIX_CUDA,
            )
        return
    majors = {each.path: drivers.cuda_major(each) for each in survey.libraries}
    known = {path: major for path, major in majors.items() if major is not None}
    has = sorted(set(known.values()))
    if has and versions.major(cuda) not in has:
        yield Finding(
            rule="no-library-for-cuda",
            severity="error",
            message=f"its libraries are for CUDA {', '.join(map(str, has))}, and none for {cuda}",
            evidence=tuple(f"{path}: CUDA {major}" for path, major in list(known.items())[:5]),
            fix=_FIX_CUDA,
        )


_UNSAFE = "not tried: unpacking it may do harm, see the errors above"


class Proven(Struct, frozen=True, kw_only=True):
    """`configuration`: the file that named checks, if there was one. `kit`: what was packed."""

    wheels: tuple[Verified, ...]
    configuration: Path | None
    kit: kit.Packed | None = None


def verify(request: VerifyRequest) -> Proven:
    """Each wheel by itself: one that cannot be read does not keep the others from being tried."""
    tried = [each for target in request.named for each in _with_pythons(target, request)]
    here = functools.cache(
        lambda: named.machines_here(probe.probe())[0]
    )  # starts programs: not for a wheel as a file alone
    found = [_verified(request, target, path, wanted, here) for target, path, wanted in tried]
    used = next((where for _, where in found if where), None)
    return Proven(wheels=tuple(each for each, _ in found), configuration=used)


def _verified(
    request: VerifyRequest, target: str | Path, path: Path, wanted: tuple[str, ...], here: Callable[[], Machine]
) -> tuple[Verified, Path | None]:
    """One wheel, with the Pythons `wanted`; and the configuration that its checks came from."""
    try:
        surveyed = survey(path, detail="containers")
    except MalformedError as error:
        return _unread(str(target), path, error), None
    table, where = _table(request.config, surveyed)
    looked_at = _looked_at(str(target), path, surveyed, request.cuda)
    if request.static:
        return looked_at, where
    with limits.collected() as met:
        checks = choice.checks_for(table, surveyed, known=request.known, timeout=request.timeout, cuda=request.cuda)
        trial = Trial(request=request, wheel=path, survey=surveyed, table=table, checks=checks)
        unsafe = wheel_rules.must_not_be_unpacked(looked_at.findings)
        installations = tuple(_installations(trial, wanted, here(), unsafe=unsafe))
    return replace(looked_at, installations=installations, findings=(*looked_at.findings, *met)), where


def pack(request: PackRequest) -> Proven:
    """One file with the wheels, their checks and what they require."""
    paths = [_find_wheel(target, request.platform, request.python) for target in request.named]
    tables = {str(path): _table(request.config, survey(path)) for path in paths}
    extra = [*request.requires, *(each for table, _ in tables.values() for each in table.requires)]

    def checks_of(surveyed: Survey) -> list[dict[str, object]]:
        every = choice.checks_for(tables[surveyed.target][0], surveyed, known=request.known, timeout=request.timeout)
        return [each.as_dict() for each in choice.select_checks(every, request.checks)]

    packed = kit.write_kit(request, paths, checks_of, tuple(dict.fromkeys(extra)))
    shown = (
        _looked_at(str(target), path, survey(path, detail="containers"))
        for target, path in zip(request.named, paths, strict=True)
    )
    used = next((where for _, where in tables.values() if where), None)
    return Proven(wheels=tuple(shown), configuration=used, kit=packed)


def wheel_on_disk(target: str | Path) -> Path:
    """A wheel on the disk, or `name==version`."""
    return _find_wheel(target, None)


def _with_pythons(target: str | Path, request: VerifyRequest) -> Iterator[tuple[str | Path, Path, tuple[str, ...]]]:
    """A wheel, and the Pythons that it is tried with. A release may have a wheel of its own for each of them."""
    asked = [venvs.minor(each) for each in request.python]
    chosen = {each: _find_wheel(target, request.platform, each) for each in dict.fromkeys(asked)}
    for path in dict.fromkeys(chosen.values()):
        yield target, path, tuple(each for each, its in chosen.items() if its == path)
    if not asked:
        yield target, _find_wheel(target, request.platform), ()


def _find_wheel(target: str | Path, platform: str | None, python: str | None = None) -> Path:
    path = Path(downloaded_if_pinned(target, platform, python))
    if path.suffix != ".whl":
        raise UsageError(f"{target} is not a wheel", hint="give a .whl file, or name==version")
    if not path.is_file():
        raise UnreadableError(path, "no such file")
    return path.absolute()


def _table(config: Path | None, surveyed: Survey) -> tuple[VerifyTable, Path | None]:
    """The configuration that was named; else that of the project in this folder, if the wheel is its own."""
    if config is not None:
        found = configuration.find(config, None, {}) if config.is_dir() else configuration.find(None, config, {})
        return found.table.verify, found.path
    if surveyed.distribution and is_of_project(Path.cwd(), surveyed.distribution.name):
        found = configuration.find(Path.cwd(), None, {})
        if "verify" in found.keys:
            return found.table.verify, found.path
    return VerifyTable(), None


def _unread(target: str, path: Path, error: MalformedError) -> Verified:
    finding = Finding(
        rule="not-a-wheel", severity="error", message=error.problem, fix=error.hint or "build it or download it again"
    )
    return Verified(
        target=target,
        file=path.name,
        name=path.name.partition("-")[0],
        version="",
        size=path.stat().st_size,
        sha256=sha256(path),
        findings=(finding,),
        installations=(),
    )


def _looked_at(target: str, path: Path, surveyed: Survey, cuda: str | None = None) -> Verified:
    """The wheel as a file."""
    release = surveyed.distribution
    with WheelFile(path) as wheel:
        found = wheel_rules.examine(WheelSubject(wheel=wheel, survey=surveyed))
    return Verified(
        target=target,
        file=path.name,
        name=release.name if release else path.stem,
        version=release.version if release else "",
        size=surveyed.size,
        sha256=sha256(path),
        findings=(*(findings_for_cuda(surveyed, cuda) if cuda else ()), *found),
        installations=(),
    )


def _installations(trial: Trial, wanted: tuple[str, ...], here: Machine, *, unsafe: bool) -> Iterator[Installation]:
    for chosen in installation.choose_pythons(trial.survey, wanted or trial.table.python, here):
        if chosen.python is None:
            yield Installation(python=chosen.version, outcome=chosen.outcome, problem=chosen.problem)
        elif unsafe:
            yield Installation(python=chosen.version, outcome="failed", problem=_UNSAFE)
        elif trial.request.dry_run:
            yield Installation(
                python=chosen.version, outcome="planned", requirements=trial.listed, planned=trial.checks
            )
        else:
            yield installation.install_and_check(trial, chosen.python)


def is_of_project(folder: Path, name: str) -> bool:
    """Whether a wheel is that of the project in a folder, whose configuration is then meant without being named.

    By the name in pyproject.toml; a project that says none is taken at its word where it has a cuwheel.toml.
    """
    try:
        data = codec.read_toml(folder / "pyproject.toml")
    except FileNotFoundError:
        return (folder / "cuwheel.toml").is_file()
    except (OSError, msgspec.DecodeError):
        return False
    project = data.get("project")
    named = project.get("name") if isinstance(project, dict) else None
    if isinstance(named, str):
        # A build may put its CUDA behind the name: foo-cu13.
        return normalised(name) == normalised(named) or normalised(name).startswith(f"{normalised(named)}-cu")
    return (folder / "cuwheel.toml").is_file()
