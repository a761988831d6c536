"""A wheel in one fresh environment: which Python, the environment made and filled, what `check` says, its checks."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.machine import fleet, probe
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel.network import venvs
from cuwheel.network.venvs import Python
from cuwheel.proving import checks as wheel_checks
from cuwheel.proving import emulation, libraries, predictions, stub
from cuwheel.proving.emulation import Emulator
from cuwheel.proving.outcomes import Check, Installation, Result, result_of
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import child
from cuwheel.support import log, masking, quoting, scratch
from cuwheel.support.finding import finding
from cuwheel.tracing import session
from cuwheel.verdicts import wheel_tags
from cuwheel.verdicts.judge import judge_all
from cuwheel.wheel.file import unlabelled
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.wheel.metadata import distributions, installed_files, site_packages
from cuwheel_core.wheel.tags import normalised, processor_name, python_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.proving.checks import VerifyPlan
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.support.finding import Finding


# Which interpreters a wheel is tried with: those asked for that its tags allow, else one that they name.


class PythonChoice(Struct, frozen=True, kw_only=True):
    """`python` None: why the wheel is not tried with this version. It is left out, or nothing else was left either.

    `emulator`: what runs it, where the wheel is for another processor.
    """

    version: str
    python: Python | None
    emulator: Emulator | None = None
    problem: str = ""
    outcome: Literal["failed", "skipped"] = "failed"


def choose_pythons(
    survey: Survey, wanted: Sequence[str], here: Machine, sysroot: Path | None = None, *, offline: bool = False
) -> tuple[PythonChoice, ...]:
    """One for each version asked for. A wheel that fits some of them is not wrong for the others."""
    cpu = emulation.foreign_processor(survey, here)
    there = replace(here, cpu=cpu, glibc=None) if cpu else here
    brought = cpu and not sysroot  # then one is chosen by the tags
    versions: list[str | None] = [*dict.fromkeys(wanted)] or [None if brought else _python_that_fits(survey, there)]
    found = [_python_choice(survey, version, here, cpu, sysroot, offline=offline) for version in versions]
    if any(each.python for each in found):
        found = [replace(each, outcome="skipped") if each.problem.startswith(_UNFIT) else each for each in found]
    return tuple(found)


_UNFIT = "its tags do not allow it: "


def _python_choice(
    survey: Survey, version: str | None, here: Machine, cpu: str | None, sysroot: Path | None, *, offline: bool
) -> PythonChoice:
    """`cpu`: the wheel's, where it is not this machine's."""
    try:
        tags = survey.distribution.tags if survey.distribution else ()
        emulator = emulation.find_emulator(cpu, sysroot, version, tags, offline=offline) if cpu else None
        python = emulator.python if emulator else venvs.find_python(version)
    except CuwheelError as error:
        problem = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
        return PythonChoice(version=version or "3", python=None, problem=problem)
    distribution = survey.distribution
    there = emulator.machine(here) if emulator else replace(here, python=python.version)
    found = wheel_tags.fits_on_machine(distribution.tags, there) if distribution else ()
    if found and found[0].problems:
        return PythonChoice(version=python.version, python=None, problem=_UNFIT + " and ".join(found[0].problems))
    return PythonChoice(version=python.version, python=python, emulator=emulator)


def _python_that_fits(survey: Survey, here: Machine) -> str | None:
    """Names the newest Python that a tag takes, where nothing but this one's version is in the way; else None."""
    distribution = survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, here) if distribution else ()
    problems = found[0].problems if found else ()
    # Another Python helps only where nothing else is in the way (a wheel for Windows).
    if not problems or not all("Python" in each for each in problems):
        return None
    named = [tag for each in found if (tag := python_of(each.tag)) and tag.kind == "cp" and tag.minor is not None]
    return max(named).version if named else None


# A fresh environment for the wheel: made, filled, and its checks run in it.

_PATHS = "LD_LIBRARY_PATH"
_SHOWN = 5
_NOT_OF_PACKAGE = re.compile(r"^(\.\./|/)|\.dist-info/|__pycache__")
_OUTPUT_LINES = 20
_PREFIX = "cuwheel-verify-"


class Environment(Struct, frozen=True, kw_only=True):
    """`interpreter`: of the environment at `folder`; it may be one for another processor, under an `emulator`."""

    folder: Path
    interpreter: Path
    emulator: Emulator | None = None

    @property
    def site_packages(self) -> tuple[Path, ...]:
        return site_packages(self.folder)


def install_and_check(plan: VerifyPlan, python: Python, emulator: Emulator | None = None) -> Installation:
    """Always ends with a value, whatever the wheel does; what it leaves behind is removed unless `keep` is set."""
    if emulator:  # a program on PATH is this machine's, and no proof of the wheel
        slower = 1 if plan.request.timeout else emulation.SLOWER
        own = (replace(each, timeout=each.timeout * slower) for each in plan.checks if not each.program)
        plan = replace(plan, checks=tuple(own))
    keep = plan.request.keep
    with _scratch_folder(keep=keep) as folder:
        began = time.monotonic()
        name = emulator.words if emulator else ""
        tried = Installation(python=python.version, outcome="passed", requirements=plan.listed, emulator=name)
        try:
            interpreter = emulator.make_environment(folder / "env") if emulator else venvs.make(folder / "env", python)
            made = Environment(folder=folder / "env", interpreter=interpreter, emulator=emulator)
            _fill_environment(made, plan, child.with_mark(os.environ, folder.name))
        except CuwheelError as error:
            lines = masking.known(error.message, os.environ).splitlines()
            shown = lines if len(lines) <= _OUTPUT_LINES else [lines[0], "…", *lines[-_OUTPUT_LINES:]]
            tried = replace(tried, outcome="failed", problem="\n".join(shown), seconds=_since(began))
        else:
            tried = _check_environment(replace(tried, seconds=_since(began)), plan, made, folder)
    return replace(tried, folder=str(folder / "env") if keep else "")


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


@contextlib.contextmanager
def _scratch_folder(*, keep: bool) -> Iterator[Path]:
    """What a run that was killed left is cleared away first: its folders, and its processes by their mark."""
    with contextlib.ExitStack() as stack:
        try:
            temporary = Path(tempfile.gettempdir())
            made = stack.enter_context(scratch.folder(temporary, _PREFIX, child.end_marked, keep=keep))
        except OSError as error:
            raise UnreadableError.from_os(error, hint="choose where the environments are made with TMPDIR") from error
        yield made


def _fill_environment(made: Environment, plan: VerifyPlan, environ: Mapping[str, str]) -> None:
    """Raises what the installer says where it cannot. It may see all variables: indexes have logins."""
    request = plan.request
    lines: list[str | Path] = [unlabelled(plan.wheel, made.folder.with_name("wheel")), *plan.requires]
    # With an index of one's own at hand (`find_links`), being offline means that one alone.
    venvs.install(
        made.interpreter,
        lines,
        find_links=request.find_links,
        offline=request.offline,
        sources=request.sources,
        env=runner.without_python_variables(environ),
    )


def _check_environment(tried: Installation, plan: VerifyPlan, made: Environment, folder: Path) -> Installation:
    """The same with what `check` says of this machine, what became of the checks, and where the two differ."""
    survey, request = plan.survey, plan.request
    profile = probe.probe(made.folder)
    machines = fleet.machines_here(profile, Refinement(torch_cuda=request.cuda, jax_cuda=request.cuda))
    emulator = made.emulator
    if emulator:  # which sees no GPU of this machine, nor its driver
        machines = (emulator.machine(machines[0]),)
    driver = profile.driver.version is not None and not emulator
    stubbed = plan.stub and not driver
    marked = child.with_mark(os.environ, folder.name)
    environ = runner.confined_variables(
        marked, made.folder, folder, passed=request.pass_env, is_secret=masking.is_secret
    )
    if stubbed:
        stub_folder = _put_stub(made, folder / "stub")
        if sys.platform != "win32":
            environ[_PATHS] = os.pathsep.join(filter(None, [str(stub_folder), marked.get(_PATHS, "")]))
    cut = not request.network and child.can_cut_network()
    gpus = () if emulator else runner.visible_capabilities(str(made.interpreter), environ, cut=cut)
    verdicts = judge_all(survey, machines)
    foreseen = predictions.host_problems(survey, machines[0])
    checks, skipped = _with_libraries(plan, machines[0])
    raw = _run_checks(checks, made, environ, folder, gpus, cut=cut)
    loading = [each for each in raw if each.name == libraries.LIBRARIES_CHECK]
    attempts = [each for result in loading for each in libraries.load_attempts(result)]
    needed = libraries.needed_on_windows(survey)
    context = libraries.LoadingContext(foreseen=foreseen, driver=driver or stubbed, gpu=bool(gpus), needed=needed)
    results = [_judged_here(each, made, context) for each in raw]
    conflicts = venvs.conflicts(made.interpreter, env=environ)  # runs what packages have put into Python's start
    broken = "pip check: requirements of installed packages are not met"
    installed = (each for site in made.site_packages for each in distributions(site))
    return replace(
        tried,
        packages=tuple(sorted({f"{each.name}=={each.version}" for each in installed})),
        stub=stubbed,
        network="cut" if cut else "open",
        gpus=gpus,
        checks=(*results, *skipped),
        verdicts=verdicts,
        contradictions=(
            *predictions.contradicted_on_gpu(verdicts, checks, results),
            *predictions.contradicted_imports(verdicts, results),
            *predictions.contradicted_libraries(foreseen, attempts),
        ),
        findings=(
            *([_under_emulator(emulator, plan)] if emulator else []),
            *([finding("requirements-broken", broken, evidence=tuple(conflicts[:_SHOWN]))] if conflicts else []),
            *_foreseen_failures(verdicts, machines),
            *_shared_files(made, survey.distribution.name if survey.distribution else ""),
            *libraries.loading_findings(attempts, context),
        ),
    )


def _under_emulator(emulator: Emulator, plan: VerifyPlan) -> Finding:
    return finding(
        "tried-under-emulator",
        f"it is for {emulator.cpu}: it was tried under {emulator.words}, with Python {emulator.python.version} and "
        f"glibc {emulator.glibc} of {emulator.sysroot}. Nothing of it ran on a GPU",
        fix=quoting.here(["cuwheel", "verify", str(plan.wheel), "--pack", "kit.pyz"]),
    )


def _put_stub(made: Environment, folder: Path) -> Path:
    """A stub of libcuda with the functions that the libraries of the environment want; its folder."""
    machine = made.emulator.cpu if made.emulator else processor_name(platform.machine())
    libraries = (
        Path(place, name)
        for site in made.site_packages
        for place, _, names in os.walk(site)
        for name in names
        if name.endswith((".so", ".dll", ".pyd")) or ".so." in name
    )
    windows = sys.platform == "win32"
    stub.write_stub(folder, stub.names_wanted(libraries), machine, windows=windows)
    if windows:  # no variable names folders for it
        line = f"import os; os.add_dll_directory({str(folder)!r})\n"
        (made.site_packages[0] / "_cuwheel_stub.pth").write_text(line, encoding="utf-8")
    return folder


def _with_libraries(plan: VerifyPlan, machine: Machine) -> tuple[tuple[Check, ...], tuple[Result, ...]]:
    """The check of the libraries after the imports, or a result that says why there is no check."""
    imports = [each.text for each in plan.checks if each.kind == "import"]
    timeout = plan.request.timeout or wheel_checks.TIMEOUT_S
    own, why = libraries.loading_check(plan.survey, machine, imports, timeout=timeout, memory=wheel_checks.MEMORY)
    place = len([each for each in plan.checks if each.origin == "wheel"])
    every = (*plan.checks[:place], *([own] if own else []), *plan.checks[place:])
    left_out = Result(name=libraries.LIBRARIES_CHECK, kind="python", origin="wheel", outcome="skipped", problem=why)
    if plan.request.checks:
        return wheel_checks.select_checks(every, plan.request.checks), ()
    return every, (left_out,) if why else ()


def _run_checks(
    checks: Sequence[Check],
    made: Environment,
    environ: Mapping[str, str],
    folder: Path,
    gpus: Sequence[str],
    *,
    cut: bool,
) -> list[Result]:
    """Where there is a GPU, what they load on it is seen, too; they go on without that where it cannot be had."""
    tracer = None
    if gpus:
        try:
            tracer = str(session.preload_path(os.environ))
        except CuwheelError as error:
            log.debug("not traced: %s", error.message)
    results = []
    with log.progress("checking", len(checks)) as progress:
        for number, check in enumerate(checks):
            progress.show(check.name)
            result = runner.run_check(
                check.as_dict(),
                str(made.interpreter),
                environ,
                folder / f"run-{number}",
                capabilities=gpus,
                cut=cut,
                hide=lambda text: masking.known(text, os.environ),
                tracer=tracer,
            )
            results.append(result_of(result, check))
            progress.advance(1)
    return results


def _judged_here(result: Result, made: Environment, context: libraries.LoadingContext) -> Result:
    """Adds what the runner cannot know: where a module came from, and why libraries did not load."""
    if result.name == libraries.LIBRARIES_CHECK:
        return libraries.judge_loading(result, context)
    # A module of Python's own, or one that something else put before it, may have the same name.
    imported = result.file if result.origin == "wheel" and result.outcome == "passed" else ""
    if imported and not Path(imported).resolve().is_relative_to(made.folder.resolve()):
        return replace(result, outcome="failed", problem=f"the imported module is not from the wheel: {imported}")
    return result if context.driver else libraries.hint_at_driver(result, wants_nvcuda=context.wants_nvcuda)


def _foreseen_failures(verdicts: Sequence[Verdict], machines: Sequence[Machine]) -> list[Finding]:
    """Without a GPU a verdict is about nothing that could happen here, but for a library that a variable asks for."""
    found = []
    for verdict, machine in zip(verdicts, machines, strict=True):
        for each in verdict.findings:
            asked = machine.capability or (machine.loads and each.rule == "no-library-to-load")
            if each.severity == "error" and asked:
                found.append(each)
    return list(dict.fromkeys(found))


def _shared_files(made: Environment, name: str) -> Iterator[Finding]:
    """Files of the wheel that another distribution of the environment brings too: one overwrites the other."""
    own: set[str] = set()
    others: dict[str, str] = {}
    for folder in made.site_packages:
        for distribution, _, info in distributions(folder):
            files = {each for each in installed_files(info) if not _NOT_OF_PACKAGE.search(each)}
            if distribution == normalised(name):
                own |= files
            else:
                others |= dict.fromkeys(files, distribution)
    both = sorted(own & others.keys())
    if both:
        yield finding(
            "files-of-two-distributions",
            f"{len(both)} of its files are also in {', '.join(sorted({others[each] for each in both}))}",
            evidence=tuple(both[:_SHOWN]),
        )
