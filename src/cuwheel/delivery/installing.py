"""`cuwheel install`: what `find` puts first, into an environment that is put back as it was where anything fails."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from dataclasses import replace as replace_field  # noqa: TID251 - of its own dataclasses
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.slim import targets
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.delivery import (
    candidates,
    choosing,
    environment_changes,
    fleet_install,
    install_lock,
    pin_files,
    requirements_file,
    signing,
    together,
)
from cuwheel.delivery.choosing import Choice
from cuwheel.delivery.environment_changes import Change, EnvironmentCopy
from cuwheel.delivery.fleet_install import Fleet
from cuwheel.delivery.install_lock import InstallLock, Part
from cuwheel.delivery.together import Settings
from cuwheel.diagnosis import inquiry
from cuwheel.diagnosis.diagnosis import Cause
from cuwheel.errors import CuwheelError, ToolError, UnavailableError, UnreadableError, UsageError
from cuwheel.machine import named, python_environment
from cuwheel.machine.fleet import Machine
from cuwheel.machine.world import World
from cuwheel.network import addresses, venvs
from cuwheel.network.resolver import Release
from cuwheel.network.settings import read_settings
from cuwheel.proving import checks, installation, libraries
from cuwheel.proving.checks import modules_of_files
from cuwheel.proving.outcomes import Result
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import launch, variables
from cuwheel.support import log, masking, process, quoting
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size
from cuwheel.verdicts.alternatives import Pin
from cuwheel.wheel import journal, metadata
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.journal import Pinned
from cuwheel.wheel.metadata import distributions, installed_files, normalised, site_packages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.delivery.candidates import Places
    from cuwheel.delivery.request import InstallRequest
    from cuwheel.delivery.requirements_file import RequirementsFile


# Whether what was installed can be imported: in processes of their own, as `verify` does it.

_ASK_S = 120.0
_GOOD = ("passed", "skipped")


def import_all(
    prefix: Path, interpreter: Path, names: Sequence[str], settings: Mapping[str, str], *, driver: bool
) -> tuple[Result, ...]:
    """`settings`: variables that the packages need.

    `driver`: without one, an import that fails for want of it proves nothing.
    """
    found = [each for name in names for each in _modules_of(prefix, name)]
    return import_modules(prefix, interpreter, found, settings, driver=driver)


def import_modules(
    prefix: Path, interpreter: Path, names: Sequence[str], settings: Mapping[str, str], *, driver: bool
) -> tuple[Result, ...]:
    """The same of modules by their names."""
    found = []
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        environ = variables.clean(os.environ, prefix, Path(folder), is_secret=masking.is_secret)
        environ |= settings
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is put back, is put back as it was
        cut = launch.can_cut()
        for number, module in enumerate(dict.fromkeys(names)):
            check = checks.import_check(module)
            with log.progress(check.name):
                report = runner.run(
                    check.as_dict(),
                    str(interpreter),
                    environ,
                    Path(folder, f"run-{number}"),
                    cut=cut,
                    hide=lambda text: masking.known(text, os.environ),
                )
            result = installation.as_result(report, check)
            found.append(result if driver else libraries.without_driver(result))
    return tuple(found)


def modules_of_editable(prefix: Path, interpreter: Path, name: str) -> tuple[str, ...]:
    """Its files are elsewhere, so the environment's Python is asked: what top_level.txt names, else the module that is
    called like the distribution.
    """
    listed = [
        metadata.read_info_file(each.info, "top_level.txt").split()
        for folder in site_packages(prefix)
        for each in distributions(folder)
        if each.name == normalised(name)
    ]
    wanted = (listed[0] if listed else []) or [normalised(name).replace("-", "_")]
    question = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n)))"
    done = process.run([interpreter, "-I", "-c", question, *wanted], timeout=_ASK_S, check=False)
    return tuple(done.stdout.split())


def failed_imports(results: tuple[Result, ...]) -> tuple[Result, ...]:
    return tuple(each for each in results if each.outcome not in _GOOD)


def _modules_of(prefix: Path, name: str) -> tuple[str, ...]:
    for folder in site_packages(prefix):
        for each in distributions(folder):
            if each.name == normalised(name):
                own = (path for path in installed_files(each.info) if not path.startswith(("../", "/")))
                return modules_of_files(own, each.name, metadata.read_info_file(each.info, "top_level.txt"))
    return ()


# Wheels on their way into an environment, without the device code that its GPUs never load.

_LICENCE = "licence-on-changes"


class Slimmed(Struct, frozen=True, kw_only=True):
    """Bytes of the wheel's file."""

    file: str
    bytes_before: int
    bytes_after: int


class SlimmedReleases(Struct, frozen=True, kw_only=True):
    """`releases`: the same, those that were cut as files of this machine."""

    releases: tuple[Release, ...]
    slimmed: tuple[Slimmed, ...]
    findings: tuple[Finding, ...]


def must_know_gpus(machines: Sequence[Machine]) -> None:
    if unknown := [each.name for each in machines if each.capability is None]:
        raise UsageError(
            f"--slim needs a GPU, and that of {', '.join(unknown)} is not known", hint="name it: --on h100"
        )


def slim_releases(releases: Sequence[Release], machines: Sequence[Machine], scratch: Path) -> SlimmedReleases:
    """Version and file name stay: RECORD and a note in the wheel say what was cut."""
    made: list[Release] = []
    slimmed: list[Slimmed] = []
    findings: list[Finding] = []
    for release in releases:
        path = environment_changes.on_disk(release, scratch)
        with WheelFile(path) as wheel:
            version = wheel.distribution.version
        asked = SlimRequest(path, machines=list(machines), output=scratch / "slimmed", version=version)
        with log.progress(f"slimming {path.name}"):
            done = targets.slim(asked).outcome
        findings += [each for each in done.findings if each.severity == "error" or each.rule == _LICENCE]
        if not done.written or done.output is None or done.wheel is None:
            made.append(replace_field(release, url=path.as_uri()))
            continue
        log.info("%s: %s, was %s", path.name, size(done.wheel.bytes_after), size(done.wheel.bytes_before))
        new = Path(done.output)
        made.append(
            replace_field(release, url=new.absolute().as_uri(), file=new.name, sha256=None, size=done.wheel.bytes_after)
        )
        slimmed.append(
            Slimmed(file=release.file, bytes_before=done.wheel.bytes_before, bytes_after=done.wheel.bytes_after)
        )
    return SlimmedReleases(releases=tuple(made), slimmed=tuple(slimmed), findings=tuple(dict.fromkeys(findings)))


_MANAGED = "lib/python3*/EXTERNALLY-MANAGED"  # PEP 668


class EditablePlan(Struct, frozen=True, kw_only=True):
    """`commands`: what is run, for a shell, with the variables that matter."""

    folder: str
    cuda: str
    archs: tuple[str, ...]
    toolkit: str
    compiler: str
    commands: tuple[str, ...]


class Installed(Struct, frozen=True, kw_only=True):
    """What became of it. `refused`: changes that nobody allowed. `problem`: why the environment was put back.

    `names`: the packages that were asked for. `fleet`: what `lock`, a file, was written from. `part`: of a lock, what
    was installed. `settings`: what has to be set, and `pinned` the files that say so. `written`: the environment is
    another one than before. `recovered`: what a run that was killed had begun. `editable`: what was installed is the
    folder of a project.
    """

    name: str
    prefix: str
    choices: tuple[Choice, ...] = ()
    machines: tuple[Machine, ...] = ()
    names: tuple[str, ...] = ()
    fleet: Fleet | None = None
    part: Part | None = None
    lock: str | None = None
    downloaded: tuple[str, ...] = ()
    settings: Settings = Settings()
    pinned: tuple[Pinned, ...] = ()
    slimmed: tuple[Slimmed, ...] = ()
    editable: EditablePlan | None = None
    changes: tuple[Change, ...] = ()
    refused: tuple[Change, ...] = ()
    checks: tuple[Result, ...] = ()
    causes: tuple[Cause, ...] = ()
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    recovered: str = ""
    written: bool = False
    rolled_back: bool = False
    undone: bool = False


class Place(Struct, frozen=True, kw_only=True):
    prefix: Path
    interpreter: Path
    copy: EnvironmentCopy


def install(request: InstallRequest) -> Installed:
    """One package, all of a requirements file, or the part of a lock that is for this machine; or the lock itself."""
    if request.lock:
        return _lock(request, request.lock)
    if request.locked and request.download:
        lock = install_lock.read(request.locked)
        files = fleet_install.download(lock, request.download, request.find_links)
        return Installed(name=request.locked.name, prefix="", downloaded=files)
    place = place_of(request.env)
    if request.dry_run and (name := place.copy.interrupted()):
        raise UnreadableError(
            place.prefix,
            f"an install of {name} was interrupted here, and a dry run puts nothing back",
            hint=quoting.here(["cuwheel", "install", "--undo", "--env", str(place.prefix)]),
        )
    with nullcontext() if request.dry_run else journal.locked(place.prefix):
        recovered, findings = ("", ()) if request.dry_run else place.copy.recover()
        if recovered:
            log.warning("an earlier install of %s was interrupted: the environment was restored", recovered)
        if request.locked:
            done = _from_lock(request, place, install_lock.read(request.locked))
        elif request.requirements:
            done = _from_requirements_file(request, place, request.requirements)
        else:
            done = _from_choices(request, place, (choosing.choose(request, request.wanted, place.prefix),))
    return replace(done, recovered=recovered, findings=(*findings, *done.findings))


def undo(env: Path | None) -> Installed:
    place = place_of(env)
    with journal.locked(place.prefix):
        before = environment_changes.installed_versions(place.prefix)
        name, findings = place.copy.recover()
        if not name:
            name, findings = place.copy.undo()
        changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
    return Installed(name=name, prefix=str(place.prefix), changes=changes, findings=findings, written=True, undone=True)


def place_of(env: Path | None) -> Place:
    python, folders = python_environment.locate(World.here(), env)
    prefix = Path(python.prefix).resolve()  # the active one may be named by a link as well
    interpreter = venvs.interpreter(prefix)
    if not folders or not interpreter.exists():
        raise UnreadableError(prefix, "is not a Python environment", hint="python -m venv .venv, then --env .venv")
    if not (prefix / "pyvenv.cfg").is_file() and any(prefix.glob(_MANAGED)):
        raise UnreadableError(
            prefix,
            "is managed by the system: its own package manager installs there, and pip and uv refuse to",
            hint="python3 -m venv .venv, then --env .venv",
        )
    return Place(prefix=prefix, interpreter=interpreter, copy=EnvironmentCopy(prefix))


def _lock(request: InstallRequest, fleet: Path) -> Installed:
    """What a fleet installs, written down; nothing where a machine is not served, or in a dry run."""
    found = fleet_install.resolve(request, fleet)
    path = request.output or Path(install_lock.NAME)
    start = Installed(name=request.wanted or fleet.name, prefix="", fleet=found)
    if found.lock is None or request.dry_run:
        return start
    install_lock.write(path, found.lock)
    done = fleet_install.download(found.lock, request.download, request.find_links) if request.download else ()
    return replace(start, lock=str(path), downloaded=done, written=True)


def _from_lock(request: InstallRequest, place: Place, lock: InstallLock) -> Installed:
    """This machine's part: no index is asked, and no file taken that is not the lock's."""
    machines = named.machines_asked_for(request.on, request.refine, env=place.prefix, gpus=request.gpus)
    part = install_lock.part_for(lock, machines)
    there = environment_changes.installed_versions(place.prefix)
    wanted = [each for each in part.files if there.get(each.name) != each.version]
    found = {each.file: fleet_install.found_in(each, request.find_links) for each in wanted}
    releases = tuple(environment_changes.locked_release(each, found[each.file]) for each in wanted)
    missing = [each.file for each in releases if not _can_be_had(each, offline=request.no_index)]
    if missing:
        raise UnavailableError(
            f"{len(missing)} files of the lock are in none of the folders: {missing[0]}",
            hint="cuwheel install --locked --download FOLDER, where there is a network",
        )
    settings = Settings(
        pins=tuple(Pin.of_lock(name, value) for name, value in part.pins.items()), variables=dict(part.pins)
    )
    names = tuple(part.packages)
    start = Installed(name=", ".join(names), prefix=str(place.prefix), part=part, machines=machines, names=names)
    return _apply_if_allowed(request, place, replace(start, settings=settings), releases, there)


def _can_be_had(release: Release, *, offline: bool) -> bool:
    local = addresses.local_path(release.url)
    return local.is_file() if local else not offline


def _from_requirements_file(request: InstallRequest, place: Place, path: Path) -> Installed:
    listed = requirements_file.read(path, venvs.version_of(place.interpreter))
    request = listed.applied(request)
    found = together.choose_together(request, listed.named, place.prefix)
    if found.problem:
        return Installed(name=path.name, prefix=str(place.prefix), choices=found.choices, problem=found.problem)
    try:
        return _from_choices(request, place, found.choices, listed)
    except ToolError as error:
        problem = environment_changes.conflict_in(error.output) or error.message
        return Installed(name=path.name, prefix=str(place.prefix), choices=found.choices, problem=problem)


def _from_choices(
    request: InstallRequest, place: Place, choices: tuple[Choice, ...], listed: RequirementsFile | None = None
) -> Installed:
    name = Path(listed.path).name if listed else choices[0].name
    start = Installed(name=name, prefix=str(place.prefix), choices=choices)
    if not all(each.is_made for each in choices):
        return start
    there = environment_changes.installed_versions(place.prefix)
    releases = environment_changes.plan_releases(place.interpreter, choices, request, there, listed)
    new = {normalised(each.name) for each in releases} - there.keys()
    with_torch = together.with_required_torch(request, choices, new, place.prefix)
    if with_torch != choices:
        choices, start = with_torch, replace(start, choices=with_torch)
        releases = environment_changes.plan_releases(place.interpreter, choices, request, there)
    settings = together.settings_for(choices, releases)
    if settings.problems:
        return replace(start, choices=tuple(_refused(each, settings) for each in choices))
    machines = choices[0].found.machines if choices else ()
    start = replace(start, settings=settings, machines=machines, names=tuple(each.name for each in choices))
    return _apply_if_allowed(request, place, start, releases, there)


def _apply_if_allowed(
    request: InstallRequest, place: Place, start: Installed, releases: tuple[Release, ...], there: Mapping[str, str]
) -> Installed:
    """What changes is shown, and done where nothing speaks against it."""
    after = {**there, **{normalised(each.name): each.version for each in releases}}
    index_of = {} if start.part else _origins(request, start.choices, releases)
    changes = tuple(
        replace(each, index=index_of.get(each.name, "")) for each in environment_changes.changes_between(there, after)
    )
    allowed = {*start.names, *map(normalised, request.allow)}
    refused = tuple(each for each in changes if each.from_ is not None and each.name not in allowed)
    slim_for = start.machines if request.slim else ()
    must_know_gpus(slim_for)
    places = tuple(map(pin_files.place, request.pin))
    pinned = pin_files.pending(places, place.prefix, start.settings.variables) if places else ()
    planned = replace(start, changes=changes, refused=refused, pinned=pinned)
    if request.signers and (unsigned := _unsigned(request, start.choices, releases, request.signers)):
        return replace(planned, problem=unsigned)
    if refused or request.dry_run or not (releases or pinned):
        return planned
    return _apply_or_restore(planned, place, releases, slim_for)


def _with_place(request: InstallRequest) -> Places:
    return candidates.configured_places(
        read_settings(), indexes=request.indexes, find_links=request.find_links, no_index=request.no_index
    )


def _origins(request: InstallRequest, choices: Sequence[Choice], releases: Sequence[Release]) -> dict[str, str]:
    """Where each file is from. `find` keeps the rule of one index for a name; installers may not."""
    own = {each.name: each.ruling.candidate.index for each in choices if each.ruling}
    others = [each for each in releases if normalised(each.name) not in own]
    return own | (candidates.origins(others, _with_place(request)) if others else {})


def _unsigned(request: InstallRequest, choices: Sequence[Choice], releases: Sequence[Release], signers: Path) -> str:
    where = _with_place(request)
    listed = [ruling.candidate for each in choices for ruling in each.found.rulings]
    return signing.problem_of(releases, (*where.own, *where.indexes), signers, listed)


def _refused(choice: Choice, settings: Settings) -> Choice:
    why = settings.problems.get(choice.name)
    return replace(choice, ruling=None, build=None, fallback=None, why=why) if why else choice


def _apply_or_restore(
    planned: Installed, place: Place, releases: tuple[Release, ...], slim_for: tuple[Machine, ...]
) -> Installed:
    """Whatever happens in between, Ctrl-C too, leaves the environment as it was."""
    broken = set(venvs.conflicts(place.interpreter))
    total = sum(each.size or 0 for each in releases)
    if releases:
        named = ", ".join(f"{each.name} {each.version}" for each in releases)
        log.info("installing %s%s", named, f" ({size(total)})" if total else "")
    place.copy.begin(planned.name, planned.pinned)
    try:
        done = _apply_and_import(planned, place, releases, slim_for)
        if done.problem:
            return replace(done, rolled_back=True, findings=(*done.findings, *place.copy.restore()))
    except BaseException:
        place.copy.restore()
        raise
    place.copy.finish()
    news = broken_requirements(set(venvs.conflicts(place.interpreter)) - broken)
    return replace(done, written=True, findings=(*done.findings, *news))


def _apply_and_import(
    planned: Installed, place: Place, releases: tuple[Release, ...], slim_for: tuple[Machine, ...]
) -> Installed:
    try:
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
            releases, contradicted = _read_first(planned.choices, releases, place.prefix, Path(scratch))
            if contradicted:
                return replace(planned, findings=contradicted, problem=contradicted[0].message)
            if slim_for:
                cut = slim_releases(releases, slim_for, Path(scratch))
                releases = cut.releases
                planned = replace(planned, slimmed=cut.slimmed, findings=cut.findings)
            if releases:
                environment_changes.install_releases(place.interpreter, releases, Path(scratch))
                place.copy.must_keep_out()
                environment_changes.hide_origins(place.prefix, releases)
        for each in planned.pinned:
            pin_files.write(each, planned.settings.variables)
    except ToolError as error:
        printed = error.output or error.message
        return replace(planned, problem=error.message, causes=inquiry.causes(printed))
    except CuwheelError as error:
        return replace(planned, problem=error.message)
    settings, driver = planned.settings.needed, any(each.driver for each in planned.machines)
    checks = import_all(place.prefix, place.interpreter, planned.names, settings, driver=driver)
    bad = failed_imports(checks)
    if not bad:
        return replace(planned, checks=checks)
    causes = inquiry.causes("\n".join(f"{each.output}\n{each.problem}" for each in bad))
    return replace(planned, checks=checks, causes=causes, problem=f"{bad[0].name}: {bad[0].problem or bad[0].outcome}")


def _read_first(
    choices: Sequence[Choice], releases: Sequence[Release], prefix: Path, scratch: Path
) -> tuple[tuple[Release, ...], tuple[Finding, ...]]:
    """The files that were chosen by facts, here and read; and what they contradict."""
    own = {each.name: each for each in choices if each.ruling and each.ruling.origin != "wheel"}
    here: list[Release] = []
    findings: list[Finding] = []
    for release in releases:
        choice = own.get(normalised(release.name))
        if choice is None:
            here.append(release)
            continue
        path = environment_changes.on_disk(release, scratch)
        here.append(with_fields(release, url=path.absolute().as_uri()))
        findings += filter(None, [choosing.disagreement(choice, path, prefix)])
    return tuple(here), tuple(findings)


def broken_requirements(problems: set[str]) -> tuple[Finding, ...]:
    if not problems:
        return ()
    return (
        Finding(
            rule="requirements-broken",
            severity="warning",
            message="requirements of installed packages are no longer met",
            evidence=tuple(sorted(problems)),
            fix="cuwheel install --undo, or install what they require",
        ),
    )
