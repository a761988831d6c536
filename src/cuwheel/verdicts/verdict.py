"""The answer of `cuwheel check`: a verdict for each target on each machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.machine.fleet import Machine
from cuwheel.support.answer import Answer
from cuwheel_core.fix import Fix
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts.choice import CudaError
from cuwheel_core.verdicts.condition import Condition, texts
from cuwheel_core.verdicts.predict import Containers, Outcome, Taken
from cuwheel_core.wheel.tags import parts_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey


# The best first. `unknown` is better than `fails` only where nothing is known to fail.
ORDER: tuple[Outcome, ...] = ("native", "compatible", "jit", "partial", "unknown", "fails")


class LibraryVerdict(Struct, frozen=True, kw_only=True):
    """`loaded`: null where it depends on what is not known. `optional`: the rest works without it. `main`: it is what
    the package is for.

    `rests_on`: the entries that the driver takes. `requires`: what was not known and must hold; `conditions`: that in
    words.
    """

    path: str
    outcome: Outcome
    containers: Containers
    predicted_error: CudaError | None
    loaded: bool | None
    optional: bool
    main: bool
    rests_on: tuple[Taken, ...]
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))


class Verdict(Struct, frozen=True, kw_only=True):
    """`machine` is its name. `requires`: what was not known and must hold; `conditions`: that in words; `by_tag`: the
    first of them, where the wheel's tag states it, so that whoever has the wheel knows.

    `main`: what the libraries come to that the package is for. `summary`: of `partial`, what works and what does not.
    `fixes`: for each obstacle that is left to clear the ways to do that, the best first; none that does not help.
    """

    target: str
    machine: str
    outcome: Outcome
    main: Outcome = "unknown"
    summary: str = ""
    predicted_error: CudaError | None
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()
    by_tag: str = ""
    libraries: tuple[LibraryVerdict, ...]
    findings: tuple[Finding, ...]
    fixes: tuple[tuple[Fix, ...], ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))
        force_setattr(self, "by_tag", next((each.text for each in self.requires if each.id == "wheel-tag"), ""))

    @property
    def requires_beyond_tag(self) -> tuple[Condition, ...]:
        """What whoever has the wheel does not know from its tag."""
        return tuple(each for each in self.requires if each.id != "wheel-tag")

    @property
    def obstacles(self) -> tuple[Finding, ...]:
        """What stands against it, of one that fails or that nobody can tell."""
        if self.outcome not in ("fails", "unknown"):
            return ()
        return tuple(each for each in self.findings if each.severity == "error" or self.outcome == "unknown")

    @property
    def main_part_fails(self) -> bool:
        """It starts, but what it is for does not work."""
        return self.outcome == "partial" and self.main == "fails"

    @property
    def has_no_code(self) -> bool:
        return any(each.rule == "no-device-code" for each in self.findings)


class Target(Struct, frozen=True, kw_only=True):
    """`asked`: in the words of who asked, such as `torch==2.11.0`; `target`: what was read. `name`: what it says it is,
    `archs`: what its device code is for.

    `findings`: about the file itself, on any machine: larger than it may be, for other architectures than it should.
    """

    target: str
    asked: str = ""
    name: str
    size: int = 0
    archs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def targets_of(
    surveys: Sequence[Survey], asked: Sequence[str] = (), findings: Sequence[tuple[Finding, ...]] = ()
) -> tuple[Target, ...]:
    """Each by what it says it is; where several say the same, with the platform. `findings`: about each of them."""
    names = [_name(each) for each in surveys]
    return tuple(
        Target(
            target=each.target,
            asked=words,
            name=f"{name} {_platform(each)}" if names.count(name) > 1 else name,
            size=each.size,
            archs=tuple(sorted({row.arch for library in each.libraries for row in library.device_code})),
            findings=own,
        )
        for each, words, name, own in zip(
            surveys, asked or [each.target for each in surveys], names, findings or [()] * len(names), strict=True
        )
    )


def _name(survey: Survey) -> str:
    distribution = survey.distribution
    return f"{distribution.name} {distribution.version}" if distribution else file_name(survey.target)


def _platform(survey: Survey) -> str:
    distribution = survey.distribution
    return parts_of(distribution.tags[0])[2] if distribution and distribution.tags else survey.target


class Check(Answer, frozen=True, kw_only=True):
    """A verdict for every target on every machine, target by target."""

    schema: Literal["cuwheel.check/1"] = "cuwheel.check/1"
    targets: tuple[Target, ...]
    machines: tuple[Machine, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def succeeded(self) -> bool:
        """False where anything fails anywhere, also the main part alone, or a file is not what it should be."""
        wrong = any(each.severity == "error" for target in self.targets for each in target.findings)
        return not wrong and not any(each.outcome == "fails" or each.main_part_fails for each in self.verdicts)

    @property
    def exit_status(self) -> int | None:
        """One of its own where nothing fails and something is not known; without CUDA code there is nothing to know."""
        undecided = any(each.outcome == "unknown" and not each.has_no_code for each in self.verdicts)
        return EXIT_UNKNOWN if self.succeeded and undecided else None


def worst_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """`unknown` where there is nothing to go by."""
    return max(outcomes, key=ORDER.index, default="unknown")


def best_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """The best of several outcomes. Where one is not known and the others fail, nobody knows that it fails."""
    return min(outcomes, key=ORDER.index, default="unknown")
