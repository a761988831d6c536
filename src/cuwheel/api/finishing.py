"""From a backend's wheel to the one in the output folder: name and description, repair, the gate, its place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel import repairing as repair
    from cuwheel.api.building_steps import Steps
    from cuwheel.building.gate import Result
    from cuwheel.building.values import Built, Job, Phase
    from cuwheel.finding import Finding
    from cuwheel.inspection.values import Survey
    from cuwheel.recording.values import Record
    from cuwheel.report import build as answers
    from cuwheel.stamping import guard

T = TypeVar("T")


class Finishing:
    """Each step makes a new file, and the last one is a rename: nothing half-done is ever in the output folder."""

    def __init__(self, steps: Steps, job: Job, built: Built, record: Record | None) -> None:
        self.steps, self.job, self.built, self.record = steps, job, built, record
        self.phases: list[Phase] = []
        self.phase = ""
        self.findings: list[Finding] = []

    def through(self, told: answers.Job) -> answers.Job:
        import shutil
        from dataclasses import replace

        from cuwheel.errors import UnreadableError
        from cuwheel.files import sha256
        from cuwheel.report.build_made import wheel_of

        output = self.steps.options.output
        scratch = output / f".cuwheel-{self.job.folder.name}"  # ours alone: the job's folder is held
        try:
            shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
            scratch.mkdir(parents=True)
            wheel = self._timed("stamp", lambda: self._stamped(Path(self.built.wheel), scratch / "stamp"))
            wheel = self._timed("repair", lambda: self._repaired(wheel, scratch / "repair"))
            found, result = self._timed("gate", lambda: self._gate(wheel))
            good_place = self.job.folder / "part" if self.steps.table.merge else output
            place = self._placed(wheel, good_place if result.succeeded else self.job.folder / "refused")
        except OSError as error:
            raise UnreadableError.from_os(error, output, hint="free some space, or --output elsewhere") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        planned = (*self.job.plan.archs, *self.job.plan.ptx)
        good: answers.Outcome = "resumed" if self.built.resumed else "built"
        return replace(
            told,
            outcome=good if result.succeeded else "refused",
            phases=(*told.phases, *self.phases),
            seconds=told.seconds + sum(each.seconds for each in self.phases),
            wheel=wheel_of(replace(found, target=str(place)), sha256(place), planned),
            listed=result.listed,
            findings=(*told.findings, *self.findings, *result.findings),
        )

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        from cuwheel.building.values import Phase

        self.phase = name
        began = time.monotonic()
        try:
            return step()
        finally:
            before = self.built.seconds + sum(each.seconds for each in self.phases)
            self.phases.append(Phase(name=name, began=before, seconds=time.monotonic() - began))

    def _stamped(self, wheel: Path, to: Path) -> Path:
        from cuwheel import masking
        from cuwheel.inspection.survey import survey
        from cuwheel.stamping import described, stamp

        to.mkdir()
        table, job = self.steps.table, self.job
        found = survey(str(wheel), detail="containers")
        said = found.distribution
        name = said.name if said else self.steps.project.name
        version = said.version if said else self.steps.project.version
        new_name = stamp.suffixed_name(name, job.cuda) if table.naming == "suffix" else None
        new_version = stamp.local_version(version, job.cuda) if table.naming == "local" else None
        guarding = self._guard(found, f"{new_name or name} {new_version or version}")
        about = described.describe(
            found,
            job.plan,
            job.toolchain,
            sources=self.steps.tree.sha256,
            python=job.interpreter.version if job.interpreter else job.python,
            requires=tuple(map(masking.text, job.requires)),  # an address may have a login, and wheels are public
        )
        wish = stamp.Wish(
            name=new_name, version=new_version, python_tag=table.python_tag, description=about, guard=guarding
        )
        return stamp.stamp(wheel, to, wish)

    def _guard(self, found: Survey, whole: str) -> guard.Wish | None:
        """`whole`: the wheel's name and version as they will be."""
        from cuwheel.stamping import guard, guard_call, stamp
        from cuwheel.wheel import places
        from cuwheel.wheel.file import WheelFile

        table = self.steps.table.guard
        if not table.package and not table.inject:
            return None
        with WheelFile(Path(found.target)) as wheel:
            holding = [places.installed_path(each.path) or "" for each in found.libraries if each.device_code]
            named = found.distribution.name if found.distribution else ""
            package = table.package or guard_call.package_of(places.packages(wheel.members), named, holding)
            init = wheel.text(f"{stamp.package_folder(wheel.members, package)}__init__.py") or ""
        if about := guard.injected(init, package) if table.inject else guard.uncalled(init, package):
            self.findings.append(about)
        return guard.of(found, package, message=table.message, wheel=whole, inject=table.inject)

    def _repaired(self, wheel: Path, to: Path) -> Path:
        """Asked for, it must succeed. Else it is done where it can be: a wheel for this system alone is one too.

        A manylinux tag that a backend wrote stays if it holds; one that does not is put right.
        """
        from dataclasses import replace

        from cuwheel import repairing as repair
        from cuwheel.errors import MalformedError

        table = self.steps.table.repair
        platform = wheel.name.rpartition("-")[2]
        if table.enabled is False or (table.enabled is None and not platform.startswith(("linux_", "manylinux"))):
            return wheel
        decision = repair.decide(wheel, self._repair_wish())
        if table.enabled is None and not platform.startswith("linux_") and "tag" not in decision.changes:
            return wheel
        if decision.refused and table.enabled:
            told = "; ".join(each.message for each in decision.findings if each.severity == "error")
            raise MalformedError(wheel.name, f"cannot be repaired: {told}", hint="cuwheel repair WHEEL --dry-run")
        if decision.refused:
            self.findings += [
                replace(each, severity="warning") if each.severity == "error" else each for each in decision.findings
            ]
            return wheel
        to.mkdir()
        done = repair.carry_out(decision, to)
        self.findings += [*decision.findings, *done.findings]
        return done.path

    def _repair_wish(self) -> repair.Wish:
        from cuwheel import repairing as repair

        table, toolchain = self.steps.table.repair, self.job.toolchain
        root = Path(toolchain.root)
        folders = () if toolchain.prefix else tuple(each for each in (root / "lib64", root / "lib") if each.is_dir())
        return repair.Wish(
            policy=table.policy,
            exclude=table.exclude,
            requires=table.requires,
            cuda_major=int(self.job.cuda.split(".")[0]),
            libraries=folders,
        )

    def _gate(self, wheel: Path) -> tuple[Survey, Result]:
        from cuwheel.building import gate
        from cuwheel.inspection.survey import survey

        job, steps = self.job, self.steps
        found = survey(str(wheel), detail="containers")
        wanted = gate.Wanted(
            archs=job.plan.archs,
            ptx=job.plan.ptx,
            cuda=job.cuda,
            table=steps.table.gate,
            places=(str(job.folder), str(steps.tree.folder), str(steps.store.folder)),
            toolkit_root="" if job.toolchain.prefix and not job.toolchain.toolkit.archives else job.toolchain.root,
            record=self.record,
        )
        return found, gate.examine(found, wanted)

    def _placed(self, wheel: Path, folder: Path) -> Path:
        """A rename within the output folder; a copy beside and a rename where it is refused and stays with its job."""
        from cuwheel import files
        from cuwheel.errors import MalformedError

        folder.mkdir(parents=True, exist_ok=True)
        place = folder / wheel.name
        if folder == self.steps.options.output:
            other = self.steps.placed.setdefault(wheel.name, self.job.id)
            if other != self.job.id:
                raise MalformedError(
                    wheel.name, f"{other} made a wheel of the same name", hint="--naming local gives each its own"
                )
            wheel.chmod(0o644)
            return wheel.replace(place)
        return files.copy(wheel, place)
