"""The proof that wheels work: looked at, installed apart, imported, tried; or packed for another machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from cuwheel.building import config as configuration
from cuwheel.building.tables import VerifyTable
from cuwheel.device_code.survey import survey
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import UsageError
from cuwheel.facts import packages
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from cuwheel.proving import checks as wheel_checks
from cuwheel.proving import wheel_rules
from cuwheel.proving.checks import VerifyPlan
from cuwheel.proving.outcomes import Installation, Verified, Verify
from cuwheel.support import codec
from cuwheel.support.files import absolute, sha256
from cuwheel.support.finding import finding
from cuwheel.verdicts.loading import loading, profile_of
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code import limits
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.verdicts import drivers
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.proving.request import PackRequest, VerifyRequest
    from cuwheel_core.support.finding import Finding


# Does the wheel have what the CUDA asked for needs: a library to load for it, or libraries of its major?

_FIX_CUDA = "take a release that has it, or build one for this CUDA: cuwheel build --cuda"


def findings_for_cuda(survey: Survey, cuda: str) -> Iterator[Finding]:
    """Where a package has a library for each CUDA, the one that it would load; else the majors of all its libraries."""
    profile = profile_of(survey)
    if profile and profile.loads == "one":
        made_for = sorted(filter(None, (packages.made_for(profile, each.path) for each in survey.libraries)))
        found = loading(survey, Machine(name="any", capability=None, torch_cuda=cuda, jax_cuda=cuda))
        if found.missing or not made_for:
            have = (
                f"those in it are for CUDA {', '.join(sorted(set(made_for), key=versions.key))}"
                if made_for
                else "none at all"
            )
            yield finding("no-library-for-cuda", f"it has no library for CUDA {cuda}: {have}", fix=_FIX_CUDA)
        return
    majors = {each.path: drivers.cuda_major(each) for each in survey.libraries}
    known = {path: major for path, major in majors.items() if major is not None}
    has = sorted(set(known.values()))
    if has and versions.major(cuda) not in has:
        yield finding(
            "no-library-for-cuda",
            f"its libraries are for CUDA {', '.join(map(str, has))}, and none for {cuda}",
            evidence=tuple(f"{path}: CUDA {major}" for path, major in list(known.items())[:5]),
            fix=_FIX_CUDA,
        )


_UNSAFE = "not tried: unpacking it may do harm, see the errors above"


def verify_wheels(request: VerifyRequest) -> Verify:
    """Each wheel by itself: one that cannot be read does not keep the others from being tried."""
    tried = [each for target in request.named for each in _wheels_of(target, request)]

    @functools.cache
    def here() -> Machine:
        """This machine: asking it starts programs, which a look at the files alone does not need."""
        from cuwheel.machine import fleet, probe  # noqa: PLC0415

        return fleet.machines_here(probe.probe())[0]

    found = [_verify_one(request, target, path, wanted, here) for target, path, wanted in tried]
    used = next((where for _, where in found if where), None)
    return Verify(
        wheels=tuple(each for each, _ in found), configuration=str(used) if used else None, dry_run=request.dry_run
    )


def _verify_one(
    request: VerifyRequest, target: str | Path, path: Path, wanted: tuple[str, ...], here: Callable[[], Machine]
) -> tuple[Verified, Path | None]:
    """One wheel, with the Pythons `wanted`; and the configuration that its checks came from."""
    try:
        surveyed = survey(path, detail="containers")
    except MalformedError as error:
        return Verified(
            target=str(target),
            file=path.name,
            name=path.name.partition("-")[0],
            version="",
            size=path.stat().st_size,
            sha256=sha256(path),
            findings=(finding("not-a-wheel", error.problem, fix=error.fixes or None),),
            installations=(),
        ), None
    table, where = _verify_table(request.config, surveyed)
    looked_at = _examine_file(str(target), path, surveyed, request.cuda)
    if request.static:
        return looked_at, where
    with limits.collected() as met:
        checks = wheel_checks.checks_for(table, surveyed, timeout=request.timeout, cuda=request.cuda)
        plan = VerifyPlan(request=request, wheel=path, survey=surveyed, table=table, checks=checks)
        unsafe = wheel_rules.must_not_be_unpacked(looked_at.findings)
        installations = tuple(_installations(plan, wanted, here(), unsafe=unsafe))
    return replace(looked_at, installations=installations, findings=(*looked_at.findings, *met)), where


def pack_wheels(request: PackRequest) -> Verify:
    """One file with the wheels, their checks and what they require."""
    from cuwheel.proving import kit  # noqa: PLC0415 - most wheels are tried here

    paths = [find_wheel(target, request.python) for target in request.named]
    surveys = [survey(path, detail="containers") for path in paths]
    tables = {found.target: _verify_table(request.config, found) for found in surveys}
    extra = [*request.requires, *(each for table, _ in tables.values() for each in table.requires)]

    def checks_of(found: Survey) -> list[dict[str, object]]:
        every = wheel_checks.checks_for(tables[found.target][0], found, timeout=request.timeout)
        return [each.as_dict() for each in wheel_checks.select_checks(every, request.checks)]

    packed = kit.write_kit(request, surveys, checks_of, tuple(dict.fromkeys(extra)))
    shown = (
        _examine_file(str(target), path, found)
        for target, path, found in zip(request.named, paths, surveys, strict=True)
    )
    used = next((where for _, where in tables.values() if where), None)
    return Verify(wheels=tuple(shown), configuration=str(used) if used else None, kit=packed)


def _wheels_of(target: str | Path, request: VerifyRequest) -> Iterator[tuple[str | Path, Path, tuple[str, ...]]]:
    """A wheel, and the Pythons that it is tried with. A release may have a wheel of its own for each of them."""
    asked = [venvs.minor(each) for each in request.python]
    chosen = {each: find_wheel(target, each) for each in dict.fromkeys(asked)}
    for path in dict.fromkeys(chosen.values()):
        yield target, path, tuple(each for each, its in chosen.items() if its == path)
    if not asked:
        yield target, find_wheel(target), ()


def find_wheel(target: str | Path, python: str | None = None) -> Path:
    """A wheel on the disk; `name==version` is downloaded."""
    path = Path(downloaded_if_pinned(target, None, python))
    if path.suffix != ".whl":
        raise UsageError(f"{target} is not a wheel", hint="give a .whl file, or name==version")
    if not path.is_file():
        raise UnreadableError(path, "no such file", hint="give a .whl file, or name==version")
    return absolute(path)


def _verify_table(config: Path | None, surveyed: Survey) -> tuple[VerifyTable, Path | None]:
    """The configuration that was named; else that of the project in this folder, if the wheel is its own."""
    if config is not None:
        found = (
            configuration.find_configuration(config, None, {})
            if config.is_dir()
            else configuration.find_configuration(None, config, {})
        )
        return found.table.verify, found.path
    if surveyed.distribution and is_of_project(Path.cwd(), surveyed.distribution.name):
        found = configuration.find_configuration(Path.cwd(), None, {})
        if "verify" in found.keys:
            return found.table.verify, found.path
    return VerifyTable(), None


def _examine_file(target: str, path: Path, surveyed: Survey, cuda: str | None = None) -> Verified:
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


def _installations(plan: VerifyPlan, wanted: tuple[str, ...], here: Machine, *, unsafe: bool) -> Iterator[Installation]:
    from cuwheel.proving import installation  # noqa: PLC0415 - --static installs nothing

    pythons = wanted or plan.table.python
    request = plan.request
    for chosen in installation.choose_pythons(plan.survey, pythons, here, request.sysroot, offline=request.offline):
        if chosen.python is None:
            yield Installation(python=chosen.version, outcome=chosen.outcome, problem=chosen.problem)
        elif unsafe:
            yield Installation(python=chosen.version, outcome="failed", problem=_UNSAFE)
        elif plan.request.dry_run:
            yield Installation(python=chosen.version, outcome="planned", requirements=plan.listed, planned=plan.checks)
        else:
            yield installation.install_and_check(plan, chosen.python, chosen.emulator)


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
