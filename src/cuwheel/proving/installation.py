"""A wheel in one fresh environment: which Python, the environment made and filled, what `check` says, its checks."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import CuwheelError, UnreadableError
from cuwheel.machine import named, probe
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel.network import venvs
from cuwheel.network.venvs import Python
from cuwheel.proving import checks as choice
from cuwheel.proving import libraries, predictions, stub
from cuwheel.proving.outcomes import Check, Installation, Result
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import gpus, launch, processes
from cuwheel.proving.runner import variables as led
from cuwheel.support import codec, log, masking, scratch
from cuwheel.support.finding import Finding
from cuwheel.tracing import session
from cuwheel.verdicts import matrix, wheel_tags
from cuwheel.wheel import metadata
from cuwheel.wheel.file import unlabelled
from cuwheel.wheel.metadata import distributions, installed_files, site_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Survey
    from cuwheel.proving.checks import Trial
    from cuwheel.verdicts.verdict import Verdict


# Which interpreters a wheel is tried with: those asked for that its tags allow, else one that they name.

_CP = re.compile(r"cp(\d)(\d+)-", re.ASCII)


class PythonChoice(Struct, frozen=True, kw_only=True):
    """`python` None: why the wheel is not tried with this version. It is left out, or nothing else was left either."""

    version: str
    python: Python | None
    problem: str = ""
    outcome: Literal["failed", "skipped"] = "failed"


def choose_pythons(survey: Survey, wanted: Sequence[str], here: Machine) -> tuple[PythonChoice, ...]:
    """One for each version asked for. A wheel that fits some of them is not wrong for the others."""
    versions: list[str | None] = [*dict.fromkeys(wanted)] or [_python_that_fits(survey, here)]
    found = [_python_choice(survey, version, here) for version in versions]
    if any(each.python for each in found):
        found = [replace(each, outcome="skipped") if each.problem.startswith(_UNFIT) else each for each in found]
    return tuple(found)


_UNFIT = "its tags do not allow it: "


def _python_choice(survey: Survey, version: str | None, here: Machine) -> PythonChoice:
    try:
        python = venvs.find_python(version)
    except CuwheelError as error:
        problem = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
        return PythonChoice(version=version or "3", python=None, problem=problem)
    distribution = survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, replace(here, python=python.version)) if distribution else ()
    if found and found[0].problems:
        return PythonChoice(version=python.version, python=None, problem=_UNFIT + " and ".join(found[0].problems))
    return PythonChoice(version=python.version, python=python)


def _python_that_fits(survey: Survey, here: Machine) -> str | None:
    """None for the interpreter that runs cuwheel, if the wheel takes it; else the newest that a tag names."""
    distribution = survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, here) if distribution else ()
    problems = found[0].problems if found else ()
    # Another Python helps only where nothing else is in the way (a wheel for Windows).
    if not problems or not all("Python" in each for each in problems):
        return None
    named = sorted((int(match[1]), int(match[2])) for each in found if (match := _CP.match(each.tag)))
    return ".".join(map(str, named[-1])) if named else None


# A fresh environment for a wheel: made, filled, and the variables that its checks see.

_PATHS = "LD_LIBRARY_PATH"
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_SHOWN = 5
_NOT_OF_PACKAGE = re.compile(r"^(\.\./|/)|\.dist-info/|__pycache__")


class Environment(Struct, frozen=True, kw_only=True):
    """`interpreter`: of the environment at `folder`."""

    folder: Path
    interpreter: Path

    @property
    def site_packages(self) -> tuple[Path, ...]:
        return site_packages(self.folder)


def make_environment(folder: Path, python: Python, trial: Trial, environ: Mapping[str, str]) -> Environment:
    """Raises what the installer says where it cannot. It may see all variables: indexes have logins."""
    interpreter = venvs.make(folder, python)
    request = trial.request
    lines: list[str | Path] = [unlabelled(trial.wheel, folder.with_name("wheel")), *trial.requires]
    for path in request.requirements:
        lines += ["--requirement", path]
    # With an index of one's own at hand (`find_links`), being offline means that one alone.
    venvs.install(
        interpreter,
        lines,
        find_links=request.find_links,
        offline=request.offline,
        sources=request.sources,
        env=led.plain(environ),
    )
    return Environment(folder=folder, interpreter=interpreter)


def environment_variables(
    made: Environment, environ: Mapping[str, str], scratch: Path, *, stub_folder: Path | None, passed: Sequence[str]
) -> dict[str, str]:
    environment = led.clean(environ, made.folder, scratch, passed=passed, is_secret=masking.is_secret)
    if stub_folder is not None and sys.platform != "win32":
        environment[_PATHS] = os.pathsep.join(filter(None, [str(stub_folder), environ.get(_PATHS, "")]))
    return environment


def installed_packages(made: Environment) -> tuple[str, ...]:
    """All that is installed, as name==version."""
    found = (each for folder in made.site_packages for each in distributions(folder))
    return tuple(sorted({f"{each.name}=={each.version}" for each in found}))


def put_stub(made: Environment, folder: Path) -> Path:
    """A stub of libcuda with the functions that the libraries of the environment want; its folder."""
    machine = platform.machine().lower()
    libraries = (path for site in made.site_packages for path in _libraries(site))
    windows = sys.platform == "win32"
    stub.write(folder, stub.names_wanted(libraries), _CPUS.get(machine, machine), windows=windows)
    if windows:  # no variable names folders for it
        line = f"import os; os.add_dll_directory({str(folder)!r})\n"
        (made.site_packages[0] / "_cuwheel_stub.pth").write_text(line, encoding="utf-8")
    return folder


def _libraries(site: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith((".so", ".dll", ".pyd")) or ".so." in name:
                yield Path(folder, name)


def requirement_conflicts(made: Environment, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What `pip check` says. It runs the environment's interpreter, and what packages have put into its start."""
    if found := venvs.conflicts(made.interpreter, env=environ):
        yield Finding(
            rule="requirements-broken",
            severity="error",
            message="pip check: requirements of installed packages are not met",
            evidence=tuple(found[:_SHOWN]),
            fix="correct the requirements in the metadata, or what is installed beside it (--with)",
        )


def shared_files(made: Environment, name: str) -> Iterator[Finding]:
    """Files of the wheel that another distribution of the environment brings too: one overwrites the other."""
    own: set[str] = set()
    others: dict[str, str] = {}
    for folder in made.site_packages:
        for distribution, _, info in distributions(folder):
            files = {each for each in installed_files(info) if not _NOT_OF_PACKAGE.search(each)}
            if distribution == metadata.normalised(name):
                own |= files
            else:
                others |= dict.fromkeys(files, distribution)
    both = sorted(own & others.keys())
    if both:
        yield Finding(
            rule="files-of-two-distributions",
            severity="warning",
            message=f"{len(both)} of its files are also in {', '.join(sorted({others[each] for each in both}))}",
            evidence=tuple(both[:_SHOWN]),
            fix="only one package should have them: uninstalling one breaks the other",
        )


_OUTPUT_LINES = 20
_PREFIX = "cuwheel-verify-"


def install_and_check(trial: Trial, python: Python) -> Installation:
    """Always ends with a value, whatever the wheel does; what it leaves behind is removed unless `keep` is set."""
    keep = trial.request.keep
    with _scratch_folder(keep=keep) as folder:
        found = _make_and_check(trial, python, folder)
    return replace(found, folder=str(folder / "env") if keep else "")


@contextlib.contextmanager
def _scratch_folder(*, keep: bool) -> Iterator[Path]:
    """What a run that was killed left is cleared away first: its folders, and its processes by their mark."""
    with contextlib.ExitStack() as stack:
        try:
            beside = Path(tempfile.gettempdir())
            made = stack.enter_context(scratch.folder(beside, _PREFIX, processes.end_marked, keep=keep))
        except OSError as error:
            raise UnreadableError.from_os(error, hint="choose where the environments are made with TMPDIR") from error
        yield made


def _make_and_check(trial: Trial, python: Python, folder: Path) -> Installation:
    began = time.monotonic()
    try:
        made = make_environment(folder / "env", python, trial, processes.marked(os.environ, folder.name))
    except CuwheelError as error:
        return Installation(
            python=python.version,
            outcome="failed",
            problem=_shortened(masking.known(error.message, os.environ)),
            seconds=round(time.monotonic() - began, 3),
            requirements=trial.listed,
        )
    installed = round(time.monotonic() - began, 3)
    tried = _check_environment(trial, made, folder)
    return replace(
        tried,
        python=python.version,
        seconds=installed,
        requirements=trial.listed,
        packages=installed_packages(made),
    )


def _check_environment(trial: Trial, made: Environment, folder: Path) -> Installation:
    survey, request = trial.survey, trial.request
    profile = probe.probe(made.folder)
    machines = named.machines_here(profile, Refinement(torch_cuda=request.cuda, jax_cuda=request.cuda))
    driver = profile.driver.version is not None
    stubbed = trial.stub and not driver
    environ = environment_variables(
        made,
        processes.marked(os.environ, folder.name),
        folder,
        stub_folder=put_stub(made, folder / "stub") if stubbed else None,
        passed=request.pass_env,
    )
    cut = not request.network and launch.can_cut()
    there = gpus.seen(str(made.interpreter), environ, cut=cut)
    verdicts = matrix.judge_all(survey, machines)
    foreseen = predictions.host_problems(survey, machines[0])
    checks, skipped = _with_libraries(trial, machines[0])
    raw = _run_checks(
        checks, made, _CheckPlace(environ=environ, folder=folder, gpus=there, cut=cut, tracer=_tracer(there))
    )
    loader = [each for each in raw if each.name == libraries.NAME]
    seen = [each for result in loader for each in libraries.loaded(result)]
    needed = libraries.needed_on_windows(survey)
    scene = libraries.Scene(foreseen=foreseen, driver=driver or stubbed, gpu=bool(there), needed=needed)
    results = [_with_origins(each, made, scene) for each in raw]
    return Installation(
        python="",
        outcome="passed",
        stub=stubbed,
        network="cut" if cut else "open",
        gpus=there,
        checks=(*results, *skipped),
        verdicts=verdicts,
        contradictions=(
            *predictions.contradicted_on_gpu(verdicts, checks, results),
            *predictions.contradicted_imports(verdicts, results),
            *predictions.contradicted_libraries(foreseen, seen),
        ),
        findings=(
            *requirement_conflicts(made, environ),
            *_foreseen_failures(verdicts, machines),
            *shared_files(made, survey.distribution.name if survey.distribution else ""),
            *(finding for result in loader for finding in libraries.findings(result, scene)),
        ),
    )


def _with_origins(result: Result, made: Environment, scene: libraries.Scene) -> Result:
    if result.name == libraries.NAME:
        return libraries.judged(result, scene)
    # A module of Python's own, or one that something else put before it, may have the same name.
    imported = result.file if result.origin == "wheel" and result.outcome == "passed" else ""
    if imported and not Path(imported).resolve().is_relative_to(made.folder.resolve()):
        return replace(result, outcome="failed", problem=f"the imported module is not from the wheel: {imported}")
    return result if scene.driver else libraries.without_driver(result, wants_nvcuda=scene.wants_nvcuda)


def _with_libraries(trial: Trial, machine: Machine) -> tuple[tuple[Check, ...], tuple[Result, ...]]:
    """The check of the libraries after the imports, or a result that says why there is no check."""
    imports = [each.text for each in trial.checks if each.kind == "import"]
    timeout = trial.request.timeout or choice.TIMEOUT_S
    own, why = libraries.check_for(trial.survey, machine, imports, timeout=timeout, memory=choice.MEMORY)
    place = len([each for each in trial.checks if each.origin == "wheel"])
    every = (*trial.checks[:place], *([own] if own else []), *trial.checks[place:])
    left_out = Result(name=libraries.NAME, kind="python", origin="wheel", outcome="skipped", problem=why)
    if trial.request.checks:
        return choice.select_checks(every, trial.request.checks), ()
    return every, (left_out,) if why else ()


class _CheckPlace(Struct, frozen=True, kw_only=True):
    """Where and how checks run."""

    environ: Mapping[str, str]
    folder: Path
    gpus: Sequence[str]
    cut: bool
    tracer: str | None = None


def _tracer(there: Sequence[str]) -> str | None:
    """Where there is a GPU, what sees the code that is loaded on it. Checks go on without it where it cannot be had."""
    if not there:
        return None
    try:
        return str(session.preload_path(os.environ))
    except CuwheelError as error:
        log.debug("not traced: %s", error.message)
        return None


def _run_checks(checks: Sequence[Check], made: Environment, place: _CheckPlace) -> list[Result]:
    results = []
    with log.progress("checking", len(checks)) as progress:
        for number, check in enumerate(checks):
            progress.show(check.name)
            result = runner.run(
                check.as_dict(),
                str(made.interpreter),
                place.environ,
                place.folder / f"run-{number}",
                capabilities=place.gpus,
                cut=place.cut,
                hide=lambda text: masking.known(text, os.environ),
                tracer=place.tracer,
            )
            results.append(as_result(result, check))
            progress.advance(1)
    return results


def as_result(answer: Mapping[str, object], check: Check) -> Result:
    """What the runner says, as a value."""
    return codec.convert({**answer, "origin": check.origin}, Result)


def _foreseen_failures(verdicts: Sequence[Verdict], machines: Sequence[Machine]) -> list[Finding]:
    """Without a GPU a verdict is about nothing that could happen here, but for a library that a variable asks for."""
    found = []
    for verdict, machine in zip(verdicts, machines, strict=True):
        for finding in verdict.findings:
            asked = machine.capability or (machine.loads and finding.rule == "no-library-to-load")
            if finding.severity == "error" and asked:
                found.append(finding)
    return list(dict.fromkeys(found))


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= _OUTPUT_LINES else [lines[0], "…", *lines[-_OUTPUT_LINES:]])
