"""`cuwheel install`: what `find` puts first, into an environment that is put back as it was where anything fails.

Here it is decided what would change; `applying` carries it out. A lock for a fleet is `fleet_install`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery import candidates, choosing, environment_changes
from cuwheel.delivery.best_candidate import search_for
from cuwheel.delivery.choosing import PackageSettings, answer_of_choices
from cuwheel.delivery.environment_changes import InstallPlan
from cuwheel.delivery.install_answer import initial_answer
from cuwheel.errors import ToolError, UnavailableError, UsageError
from cuwheel.machine import fleet
from cuwheel.network import addresses, venvs
from cuwheel.network.settings import read_settings
from cuwheel.support import log, quoting
from cuwheel.verdicts.pins import Pin
from cuwheel.wheel import journal_file
from cuwheel_core.errors import UnreadableError
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.best_candidate import Choice, Search
    from cuwheel.delivery.environment_changes import Place
    from cuwheel.delivery.install_answer import Install
    from cuwheel.delivery.request import InstallRequest
    from cuwheel.delivery.requirements_file import RequirementsFile
    from cuwheel.wheel.journal_file import Pinned


def install(request: InstallRequest) -> Install:
    """One package, all of a requirements file, or the part of a lock that is for this machine; or the lock itself."""
    if request.lock or (request.locked and request.download):
        from cuwheel.delivery import fleet_install  # noqa: PLC0415 - few write a lock

        return fleet_install.write_or_download(request)
    place = environment_changes.locate_environment(request.env)
    if request.dry_run and (name := place.copy.interrupted()):
        raise UnreadableError(
            place.prefix,
            f"an install of {name} was interrupted here, and a dry run puts nothing back",
            hint=quoting.here(["cuwheel", "install", "--undo", "--env", str(place.prefix)]),
        )
    with nullcontext() if request.dry_run else journal_file.locked(place.prefix):
        recovered, findings = ("", ()) if request.dry_run else place.copy.recover()
        if recovered:
            log.warning("an earlier install of %s was interrupted: the environment was restored", recovered)
        decided = _from_lock(request, place) if request.locked else _from_indexes(request, place)
        if isinstance(decided, InstallPlan):
            from cuwheel.delivery import applying  # noqa: PLC0415 - what tries and imports, which a dry run does not

            done = applying.apply_plan(decided, place)
        else:
            done = decided
    return replace(done, dry_run=request.dry_run, recovered=recovered, findings=(*findings, *done.findings))


def undo_install(env: Path | None) -> Install:
    place = environment_changes.locate_environment(env)
    with journal_file.locked(place.prefix):
        before = environment_changes.installed_versions(place.prefix)
        name, findings = place.copy.recover()
        if not name:
            name, findings = place.copy.undo()
        changes = environment_changes.changes_between(before, environment_changes.installed_versions(place.prefix))
    return initial_answer(name, place.prefix, changes=changes, findings=findings, written=True, undone=True)


def _from_lock(request: InstallRequest, place: Place) -> Install | InstallPlan:
    """This machine's part: no index is asked, and no file taken that is not the lock's."""
    from cuwheel.delivery import fleet_install, lock_files  # noqa: PLC0415 - most install by name

    lock = lock_files.read_lock(request.locked or Path())
    machines = fleet.machines_asked_for(request.on, request.refine, env=place.prefix)
    part = lock_files.part_for(lock, machines)
    installed = environment_changes.installed_versions(place.prefix)
    releases, missing = [], []
    for each in part.files:
        if installed.get(each.name) != each.version:
            found = fleet_install.found_in(each, request.find_links)
            releases.append(replace(each, url=found.as_uri()) if found else each)
            local = addresses.local_path(releases[-1].url)
            if not local.is_file() if local else request.no_index:
                missing.append(each.file)
    if missing:
        raise UnavailableError(
            f"{len(missing)} files of the lock are in none of the folders: {missing[0]}",
            hint="cuwheel install --locked --download FOLDER, where there is a network",
        )
    pins = tuple(Pin.of_lock(name, value) for name, value in part.pins.items())
    packages = lock_files.packages_of(part)
    plan = InstallPlan(
        answer=initial_answer(", ".join(part.packages), place.prefix, packages, machines=machines),
        network=read_settings(),
        names=tuple(part.packages),
        machines=machines,
        releases=tuple(releases),
        settings=PackageSettings(pins=pins, variables=dict(part.pins)),
    )
    return _if_allowed(request, place, plan, installed, None)


def _from_indexes(request: InstallRequest, place: Place) -> Install | InstallPlan:
    """A package that is named, or all that a file lists."""
    if request.requirements is None:
        with search_for(request, place.prefix) as search:
            choice = choosing.choose(search, request, request.requirement)
            return _from_choices(request, search, place, (replace(choice, wanted=request.wanted),))
    from cuwheel.delivery import requirements_file  # noqa: PLC0415 - most install by name

    listed = requirements_file.read_requirements(request.requirements, venvs.version_of(place.interpreter))
    request = listed.applied(request)
    name = Path(listed.path).name
    with search_for(request, place.prefix) as search:
        found = choosing.choose_together(search, request, listed.named)
        if found.problem:
            return answer_of_choices(name, place.prefix, found.choices, problem=found.problem)
        try:
            return _from_choices(request, search, place, found.choices, listed)
        except ToolError as error:
            problem = environment_changes.conflict_in(error.output) or error.message
            return answer_of_choices(name, place.prefix, found.choices, problem=problem)


def _from_choices(
    request: InstallRequest,
    search: Search,
    place: Place,
    choices: tuple[Choice, ...],
    listed: RequirementsFile | None = None,
) -> Install | InstallPlan:
    name = Path(listed.path).name if listed else choices[0].name
    if not all(each.is_made for each in choices):
        return answer_of_choices(name, place.prefix, choices)
    installed = environment_changes.installed_versions(place.prefix)
    releases = environment_changes.plan_releases(place.interpreter, choices, search, installed, listed)
    new = {normalised(each.name) for each in releases} - installed.keys()
    with_torch = choosing.with_required_torch(search, request, choices, new)
    if with_torch != choices:
        choices = with_torch
        releases = environment_changes.plan_releases(place.interpreter, choices, search, installed)
    settings = choosing.settings_for(choices, releases)
    if settings.problems:
        choices = tuple(
            replace(each, taken=None, build=None, fallback=None, why=why)
            if (why := settings.problems.get(each.name))
            else each
            for each in choices
        )
        return answer_of_choices(name, place.prefix, choices)
    plan = InstallPlan(
        answer=answer_of_choices(name, place.prefix, choices),
        network=search.session.settings,
        names=tuple(each.name for each in choices),
        machines=choices[0].machines if choices else (),
        choices=choices,
        releases=releases,
        settings=settings,
    )
    return _if_allowed(request, place, plan, installed, search)


def _if_allowed(
    request: InstallRequest, place: Place, plan: InstallPlan, installed: Mapping[str, str], search: Search | None
) -> Install | InstallPlan:
    """The plan with all that would change, where nothing speaks against it; else the answer that says what does.

    `search`: where the files were found; None for those of a lock.
    """
    releases = plan.releases
    own = {each.name: each.taken.candidate.index for each in plan.choices if each.taken}
    # `find` keeps the rule of one index for a name; installers may not.
    others = [each for each in releases if search and normalised(each.name) not in own]
    origins = own | (candidates.origins(others, search.places, search.session) if search and others else {})
    after = {**installed, **{normalised(each.name): each.version for each in releases}}
    changing = environment_changes.changes_between(installed, after)
    changes = tuple(replace(each, index=origins.get(each.name, "")) for each in changing)
    allowed = {*plan.names, *map(normalised, request.allow), *environment_changes.unclaimed_installers(place.prefix)}
    refused = tuple(each for each in changes if each.from_ is not None and each.name not in allowed)
    changed = [f"--{name}" for name, asked in (("slim", request.slim), ("compile", request.compile)) if asked]
    if changed and (unknown := [each.name for each in plan.machines if each.capability is None]):
        raise UsageError(
            f"{changed[0]} needs a GPU, and that of {', '.join(unknown)} is not known", hint="name it: --on h100"
        )
    pinned: tuple[Pinned, ...] = ()
    if request.pin:
        from cuwheel.delivery import pin_files  # noqa: PLC0415 - few write settings

        pin_places = tuple(map(pin_files.parse_place, request.pin))
        pinned = pin_files.pending_settings(pin_places, place.prefix, plan.settings.variables)
    answer = replace(
        plan.answer,
        changes=changes,
        refused=refused,
        allowing=(*request.words_with_allow, "--allow", ",".join((*request.allow, *(each.name for each in refused))))
        if refused
        else (),
        pins=plan.settings.needed,
        pinned=tuple(each.path for each in pinned),
        findings=choosing.setting_findings(plan.settings, written=bool(pinned)),
    )
    if request.signers:
        places = (
            search.places
            if search
            else candidates.configured_places(
                plan.network, indexes=request.indexes, find_links=request.find_links, no_index=request.no_index
            )
        )
        from cuwheel.delivery import signatures  # noqa: PLC0415 - where signatures are demanded alone

        listed = [ruling.candidate for each in plan.choices for ruling in each.rulings]
        if unsigned := signatures.problem_of_origin(releases, places.known, request.signers, listed):
            return replace(answer, problem=unsigned)
    if refused or request.dry_run or not (releases or pinned):
        return answer
    return replace(
        plan,
        answer=answer,
        pinned=pinned,
        slim_for=plan.machines if request.slim else (),
        compile_for=plan.machines if request.compile else (),
        allowed=tuple(map(normalised, request.allow)),
    )
