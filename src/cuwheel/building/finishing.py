"""From a backend's wheel to the one in the output folder: name and description, repair, the gate, its place."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cuwheel.building import gate, jobs
from cuwheel.building.recording import reader
from cuwheel.building.values import GateRequest, JobResult, MadeWheel, Phase, Problem
from cuwheel.changes.repair import deciding, execution
from cuwheel.changes.repair.decision import Wish as RepairWish
from cuwheel.changes.stamp import described, guard, guard_call, stamp
from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel.facts import versions
from cuwheel.support import files, log, masking, system_calls
from cuwheel.support.finding import Finding
from cuwheel.wheel import file
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.building.recording.calls import Record
    from cuwheel.building.values import BuildContext, Built, GateResult, Job, Outcome
    from cuwheel.device_code.libraries import Survey

T = TypeVar("T")


class Placed:
    """The wheels in the output folder, by name, each with the job that made it. Jobs may end at the same time."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._lock = threading.Lock()

    def claim(self, wheel: str, job: str) -> None:
        with self._lock:
            other = self._jobs.setdefault(wheel, job)
        if other != job:
            raise MalformedError(
                wheel, f"{other} made a wheel with the same name", hint="--naming local gives each its own name"
            )


def begun(job: Job, outcome: Outcome) -> JobResult:
    """A job of which no more is known than was decided."""
    return JobResult(id=job.id, python=job.python, plan=job.plan, outcome=outcome, job=job, findings=job.notes)


def finished(order: BuildContext, job: Job, built: Built, placed: Placed) -> JobResult:
    """What became of a job, and its wheel where it belongs."""
    result = replace(
        begun(job, "failed"),
        built=built,
        record=record_of(built),
        phases=built.phases,
        seconds=built.seconds,
        findings=(*job.notes, *_about_cache(built), *built.findings),
        problem=built.problem,
    )
    if built.problem:
        return result
    work = _Finishing(order, result, job, built)
    try:
        return work.through(placed)
    except CuwheelError as error:
        problem = Problem(phase=work.phase, what=error.message, hint=error.hint)
        return replace(result, phases=(*result.phases, *work.phases), problem=problem)


def _about_cache(built: Built) -> Iterator[Finding]:
    if built.cached and built.cached.problem:
        yield Finding(
            rule="no-compiler-cache", severity="warning", message=f"built without the cache: {built.cached.problem}"
        )


def record_of(built: Built) -> Record | None:
    """What was recorded of its compiler calls, if anything."""
    if not built.record:
        return None
    try:
        return reader.read_record(Path(built.record))
    except CuwheelError as error:
        log.debug("the record cannot be read: %s", error)
        return None


class _Finishing:
    """Each step makes a new file, and the last one is a rename: nothing half-done is ever in the output folder."""

    def __init__(self, order: BuildContext, result: JobResult, job: Job, built: Built) -> None:
        self.order, self.result, self.job, self.built = order, result, job, built
        self.phases: list[Phase] = []
        self.phase = ""
        self.findings: list[Finding] = []

    def through(self, placed: Placed) -> JobResult:
        output = self.order.request.output
        scratch = output / f".cuwheel-{self.job.folder.name}"  # ours alone: the job's folder is held
        try:
            shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
            scratch.mkdir(parents=True)
            wheel = self._timed("stamp", lambda: self._stamped(Path(self.built.wheel), scratch / "stamp"))
            wheel = self._timed("repair", lambda: self._repaired(wheel, scratch / "repair"))
            found, passed = self._timed("gate", lambda: self._gate(wheel))
            good_place = self.job.folder / "part" if self.order.table.merge else output
            place = self._placed(wheel, good_place if passed.succeeded else self.job.folder / "refused", placed)
        except OSError as error:
            raise UnreadableError.from_os(error, output, hint="free some space, or use another --output") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        planned = (*self.job.plan.archs, *self.job.plan.ptx)
        good: Outcome = "resumed" if self.built.resumed else "built"
        return replace(
            self.result,
            outcome=good if passed.succeeded else "refused",
            phases=(*self.result.phases, *self.phases),
            seconds=self.result.seconds + sum(each.seconds for each in self.phases),
            wheel=MadeWheel(survey=replace(found, target=str(place)), sha256=files.sha256(place), planned=planned),
            listed=passed.listed,
            findings=(*self.result.findings, *self.findings, *passed.findings),
        )

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        self.phase = name
        began = time.monotonic()
        try:
            return step()
        finally:
            before = self.built.seconds + sum(each.seconds for each in self.phases)
            self.phases.append(Phase(name=name, began=before, seconds=time.monotonic() - began))

    def _stamped(self, wheel: Path, to: Path) -> Path:
        to.mkdir()
        table, job = self.order.table, self.job
        found = survey(str(wheel), detail="containers")
        release = found.distribution
        name = release.name if release else self.order.project.name
        version = release.version if release else self.order.project.version
        new_name = stamp.suffixed_name(name, job.cuda) if table.naming == "suffix" else None
        new_version = None
        if table.naming == "local" or table.label:
            new_version = stamp.local_version(version, job.cuda if table.naming == "local" else "", table.label)
        guarding = self._guard(found, f"{new_name or name} {new_version or version}")
        about = described.describe(
            found,
            job.plan,
            job.toolchain,
            sources=self.order.tree.sha256,
            python=job.interpreter.version if job.interpreter else job.python,
            requires=tuple(map(masking.text, job.requires)),  # an address may have a login, and wheels are public
            build=jobs.build_record(job, self.built.others),
        )
        wish = stamp.Wish(
            name=new_name, version=new_version, python_tag=table.python_tag, description=about, guard=guarding
        )
        return stamp.stamp(wheel, to, wish)

    def _guard(self, found: Survey, whole: str) -> guard.Wish | None:
        """`whole`: the wheel's name and version as they will be."""
        table = self.order.table.guard
        if not table.package and not table.inject:
            return None
        with WheelFile(Path(found.target)) as wheel:
            holding = [file.installed_path(each.path) or "" for each in found.libraries if each.device_code]
            named = found.distribution.name if found.distribution else ""
            package = table.package or guard_call.package_of(file.top_packages(wheel.members), named, holding)
            init = wheel.text(f"{stamp.package_folder(wheel.members, package)}__init__.py") or ""
        if about := guard.call_finding(init, package, inject=table.inject):
            self.findings.append(about)
        return guard.of(found, package, message=table.message, wheel=whole, inject=table.inject)

    def _repaired(self, wheel: Path, to: Path) -> Path:
        """Asked for, it must succeed. Else it is done where it can be: a wheel for this system alone is one too.

        A manylinux tag that a backend wrote stays if it holds; one that does not is put right.
        """
        table = self.order.table.repair
        platform = wheel.name.rpartition("-")[2]
        known = platform.startswith(("linux_", "manylinux", "win_"))
        if table.enabled is False or (table.enabled is None and not known):
            return wheel
        decision = deciding.decide(wheel, self._repair_wish())
        if table.enabled is None and platform.startswith("manylinux") and "tag" not in decision.changes:
            return wheel
        if decision.refused and table.enabled:
            problems = "; ".join(each.message for each in decision.findings if each.severity == "error")
            raise MalformedError(wheel.name, f"cannot be repaired: {problems}", hint="cuwheel repair WHEEL --dry-run")
        if decision.refused:
            self.findings += [
                replace(each, severity="warning") if each.severity == "error" else each for each in decision.findings
            ]
            return wheel
        to.mkdir()
        done = execution.execute(decision, to)
        self.findings += [*decision.findings, *done.findings]
        return done.path

    def _repair_wish(self) -> RepairWish:
        table, toolchain = self.order.table.repair, self.job.toolchain
        root = Path(toolchain.root)
        places = () if toolchain.prefix else (root / "lib64", root / "lib", root / "bin")
        return RepairWish(
            policy=table.policy,
            exclude=table.exclude,
            requires=table.requires,
            cuda_major=int(self.job.cuda.split(".")[0]),
            cuda=versions.minor(self.job.cuda),
            libraries=tuple(each for each in places if each.is_dir()),
        )

    def _gate(self, wheel: Path) -> tuple[Survey, GateResult]:
        job, order = self.job, self.order
        found = survey(str(wheel), detail="containers")
        wanted = GateRequest(
            archs=job.plan.archs,
            ptx=job.plan.ptx,
            cuda=job.cuda,
            table=order.table.gate,
            places=(str(job.folder), str(order.tree.folder), str(order.store.folder)),
            toolkit_root="" if job.toolchain.prefix and not job.toolchain.toolkit.archives else job.toolchain.root,
            record=self.result.record,
        )
        return found, gate.examine(found, wanted)

    def _placed(self, wheel: Path, folder: Path, placed: Placed) -> Path:
        """A rename within the output folder; a copy beside and a rename where it is refused and stays with its job."""
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / wheel.name
        if folder == self.order.request.output:
            placed.claim(wheel.name, self.job.id)
            wheel.chmod(0o644)
            return system_calls.rename_over(wheel, place)
        return files.copy(wheel, place)
