"""The proof that wheels work: looked at, installed apart, imported, tried."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.api.binaries import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.tables import VerifyTable
    from cuwheel.errors import MalformedError
    from cuwheel.inspection.values import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.report.proof import Proof
    from cuwheel.report.verify import Verify
    from cuwheel.verifying.values import Check, Installation, Verified

_UNSAFE = "not tried: unpacking it may do harm, see the errors of the file"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What all wheels of a call have in common."""

    pythons: tuple[str, ...]
    patterns: tuple[str, ...]
    stub: bool
    requires: tuple[str, ...]
    requirements: tuple[Path, ...]
    find_links: tuple[Path, ...]
    offline: bool
    timeout: float | None
    keep: bool
    known: bool
    cuda: str | None
    static: bool
    dry_run: bool
    pass_env: tuple[str, ...]
    network: bool
    sources: bool


def verify(  # noqa: PLR0913 - one keyword for each wish
    *wheels: str | Path,
    config: Path | None = None,
    python: Sequence[str] = (),
    checks: Sequence[str] = (),
    stub: bool = False,
    requires: Sequence[str] = (),
    requirements: Sequence[Path] = (),
    find_links: Sequence[Path] = (),
    offline: bool = False,
    timeout: float | None = None,
    keep: bool = False,
    known: bool = True,
    cuda: str | None = None,
    static: bool = False,
    dry_run: bool = False,
    platform: str | None = None,
    pass_env: Sequence[str] = (),
    network: bool = False,
    sources: bool = False,
) -> Verify:
    """Install each wheel into fresh environments and try it there; `name==version` is downloaded.

    This runs the code of the wheel and of what it requires. `pass_env`: variables that it sees beside those of GPUs,
    language and processors. `network`: let it use the network. `sources`: build requirements that come as source, which
    runs their code with all variables.

    `python`: of `name==version` the wheel for each of them. `config`: the file, or the folder of the project, that
    names checks. `requires`: installed beside the wheel. `cuda`: that the wheel is to serve. `static`: nothing is
    installed.
    """
    from cuwheel.errors import MalformedError, UsageError
    from cuwheel.inspection.survey import survey
    from cuwheel.machine import named, probe
    from cuwheel.report.verify import Verify
    from cuwheel.verifying import serving

    if not wheels:
        raise UsageError("there is no wheel to verify", hint="cuwheel verify dist/*.whl")
    work = _Work(
        pythons=tuple(python),
        patterns=tuple(checks),
        stub=stub,
        requires=tuple(requires),
        requirements=tuple(requirements),
        find_links=tuple(find_links),
        offline=offline,
        timeout=timeout,
        keep=keep,
        known=known,
        cuda=serving.version(cuda),
        static=static,
        dry_run=dry_run,
        pass_env=tuple(pass_env),
        network=network,
        sources=sources,
    )
    tried = [each for target in wheels for each in _tried(target, platform, work)]
    here = named.here(probe.probe())[0]
    found = []
    used: Path | None = None
    for target, path, its in tried:
        try:
            surveyed = survey(path, detail="containers")
        except MalformedError as error:  # the others are still to be tried
            found.append(_unread(str(target), path, error))
            continue
        table, where = _table(config, surveyed)
        used = used or where
        found.append(_verified(str(target), path, surveyed, table, its, here))
    return Verify(wheels=tuple(found), configuration=str(used) if used else None, dry_run=dry_run)


def verify_pack(  # noqa: PLR0913 - one keyword for each wish
    *wheels: str | Path,
    to: Path,
    config: Path | None = None,
    checks: Sequence[str] = (),
    requires: Sequence[str] = (),
    requirements: bool = False,
    system: bool = False,
    python: str | None = None,
    find_links: Sequence[Path] = (),
    offline: bool = False,
    timeout: float | None = None,
    known: bool = True,
    platform: str | None = None,
) -> Verify:
    """One file with the wheels and their checks, to be run on a machine that has nothing but Python.

    `requirements`: what the wheels require is in it too, and `requires` beside it. `system`: let them see the packages
    that the machine has.
    """
    from cuwheel.inspection.survey import survey
    from cuwheel.report.verify import Kit, Verify
    from cuwheel.verifying import kit
    from cuwheel.verifying.checks import chosen, of

    paths = [_wheel(target, platform, python) for target in wheels]
    tables = {str(path): _table(config, survey(path)) for path in paths}
    extra = tuple(dict.fromkeys([*requires, *(each for table, _ in tables.values() for each in table.requires)]))

    def checks_of(surveyed: Survey) -> list[dict[str, object]]:
        every = of(tables[surveyed.target][0], surveyed, known=known, timeout=timeout)
        return [each.as_dict() for each in chosen(every, checks)]

    wish = kit.Wish(
        requirements=requirements,
        extra=extra if requirements else (),
        system=system,
        python=python,
        find_links=tuple(find_links),
        offline=offline,
    )
    packed = kit.pack(paths, checks_of, to, wish)
    shown = [_verified_file(str(target), path, survey(path)) for target, path in zip(wheels, paths, strict=True)]
    count = sum(len(each.checks) for each in packed.wheels)
    made = Kit(path=packed.path, size=packed.size, sha256=packed.sha256, checks=count)
    used = next((where for _, where in tables.values() if where), None)
    return Verify(wheels=tuple(shown), configuration=str(used) if used else None, kit=made)


def verify_read(proof: Path, *wheels: str | Path) -> Proof:
    """The proof that a kit wrote elsewhere; of `wheels`, if they are said, whether it is theirs."""
    from cuwheel.verifying import proof as stage

    return stage.read(proof, [_wheel(target, None) for target in wheels])


def _tried(target: str | Path, platform: str | None, work: _Work) -> Iterator[tuple[str | Path, Path, _Work]]:
    """A wheel, and the Pythons that it is tried with. A release may have a wheel of its own for each of them."""
    from dataclasses import replace

    from cuwheel.venvs import minor

    asked = [minor(each) for each in work.pythons]
    chosen = {each: _wheel(target, platform, each) for each in dict.fromkeys(asked)}
    for path in dict.fromkeys(chosen.values()):
        yield target, path, replace(work, pythons=tuple(each for each, its in chosen.items() if its == path))
    if not asked:
        yield target, _wheel(target, platform), work


def _wheel(target: str | Path, platform: str | None, python: str | None = None) -> Path:
    from cuwheel.errors import UnreadableError, UsageError

    path = Path(on_disk(target, platform, python))
    if path.suffix != ".whl":
        raise UsageError(f"{target} is no wheel", hint="give a .whl file, or name==version")
    if not path.is_file():
        raise UnreadableError(path, "no such file")
    return path.absolute()


def _table(config: Path | None, surveyed: Survey) -> tuple[VerifyTable, Path | None]:
    """The configuration that was named; else that of the project in this folder, if the wheel is its own."""
    from cuwheel.building import config as configuration

    if config is not None:
        found = configuration.find(config, None, {}) if config.is_dir() else configuration.find(None, config, {})
        return found.table.verify, found.path
    from cuwheel.building.tables import VerifyTable
    from cuwheel.verifying import project

    if surveyed.distribution and project.is_of(Path.cwd(), surveyed.distribution.name):
        found = configuration.find(Path.cwd(), None, {})
        if "verify" in found.keys:
            return found.table.verify, found.path
    return VerifyTable(), None


def _unread(target: str, path: Path, error: MalformedError) -> Verified:
    from cuwheel.files import sha256
    from cuwheel.finding import Finding
    from cuwheel.verifying.values import Verified

    finding = Finding(
        rule="not-a-wheel", severity="error", message=error.problem, fix=error.hint or "build it or download it again"
    )
    size = path.stat().st_size
    return Verified(
        target=target,
        file=path.name,
        name=path.name.partition("-")[0],
        version="",
        size=size,
        sha256=sha256(path),
        findings=(finding,),
        installations=(),
    )


def _verified_file(target: str, path: Path, surveyed: Survey, cuda: str | None = None) -> Verified:
    """The wheel as a file."""
    from cuwheel.compat.wheel_subject import Subject
    from cuwheel.files import sha256
    from cuwheel.verifying import serving, wheel_rules
    from cuwheel.verifying.values import Verified
    from cuwheel.wheel.file import WheelFile

    told = surveyed.distribution
    with WheelFile(path) as wheel:
        found = wheel_rules.examine(Subject(wheel=wheel, survey=surveyed))
    return Verified(
        target=target,
        file=path.name,
        name=told.name if told else path.stem,
        version=told.version if told else "",
        size=surveyed.size,
        sha256=sha256(path),
        findings=(
            *(serving.examine(surveyed, cuda) if cuda else ()),
            *found,
        ),
        installations=(),
    )


def _verified(target: str, path: Path, surveyed: Survey, table: VerifyTable, work: _Work, here: Machine) -> Verified:
    from dataclasses import replace

    from cuwheel.verifying import checks as stage
    from cuwheel.verifying import wheel_rules

    shown = _verified_file(target, path, surveyed, work.cuda)
    if work.static:
        return shown
    checks = stage.of(table, surveyed, known=work.known, timeout=work.timeout)
    tried = _installations(path, surveyed, table, checks, work, here, unsafe=wheel_rules.unsafe(shown.findings))
    return replace(shown, installations=tuple(tried))


def _installations(
    path: Path,
    surveyed: Survey,
    table: VerifyTable,
    checks: tuple[Check, ...],
    work: _Work,
    here: Machine,
    *,
    unsafe: bool,
) -> list[Installation]:
    from cuwheel.verifying import pythons as stage
    from cuwheel.verifying.environment import Wanted
    from cuwheel.verifying.installation import Wish, attempt
    from cuwheel.verifying.values import Installation

    wanted = Wanted(
        wheel=path,
        requires=(*table.requires, *work.requires),
        requirements=work.requirements,
        find_links=work.find_links,
        offline=work.offline,
        sources=work.sources,
    )
    wish = Wish(
        checks=checks,
        patterns=work.patterns,
        stub=work.stub or table.stub,
        keep=work.keep,
        cuda=work.cuda,
        timeout=work.timeout,
        pass_env=work.pass_env,
        network=work.network,
    )
    found = []
    for choice in stage.choose(surveyed, work.pythons or table.python, here):
        if choice.python is None:
            found.append(Installation(python=choice.version, outcome=choice.outcome, problem=choice.problem))
        elif unsafe:
            found.append(Installation(python=choice.version, outcome="failed", problem=_UNSAFE))
        elif work.dry_run:
            planned = Installation(python=choice.version, outcome="planned", requirements=wanted.listed, planned=checks)
            found.append(planned)
        else:
            found.append(attempt(surveyed, choice.python, wanted, wish))
    return found
