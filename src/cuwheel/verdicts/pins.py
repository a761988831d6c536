"""The setting with which a package loads the library that runs on a machine, where it would load another by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.verdicts import loading
from cuwheel.verdicts.judge import Judge
from cuwheel.verdicts.verdict import ORDER, worst_outcome
from cuwheel_core.facts import versions
from cuwheel_core.verdicts import drivers

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey, TorchExports
    from cuwheel.facts.rows.packages import PackageProfile
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.verdicts.predict import Outcome


class Pin(Struct, frozen=True, kw_only=True):
    """`cuda`: that of the library which the package then loads. `must`: without it the package does not run.

    `link`: the command that would do instead, in the package's folder.
    """

    package: str
    variable: str
    value: str
    cuda: str
    why: str
    must: bool
    link: str = ""

    @classmethod
    def of_lock(cls, variable: str, value: str) -> Pin:
        return cls(package="", variable=variable, value=value, cuda="", why="the lock says so", must=True)

    @property
    def setting(self) -> str:
        return f"{self.variable}={self.value}"

    def on(self, machine: Machine) -> Machine:
        """The machine with this setting."""
        return _with_variable(machine, self.variable, self.value)


def loading_variable(survey: Survey) -> str | None:
    """The variable by which somebody chooses what the package loads."""
    profile = loading.profile_of(survey)
    return profile.override if profile else None


def needed_pin(survey: Survey, machines: Sequence[Machine], torch: TorchExports | None = None) -> Pin | None:
    """The setting for all of these machines; None where the package does right by itself, or nothing would help.

    It is needed where what the package loads does not run, or not as well as another of its libraries. Where its
    library is for a newer CUDA than the driver, one that the driver was made for is taken: the newer one rests on
    minor-version compatibility, which leaves out PTX and linking at load.
    """
    profile = loading.profile_of(survey)
    follows = {loading.framework_cuda(profile, each) for each in machines} if profile else set()
    cuda = follows.pop() if len(follows) == 1 else None
    if profile is None or profile.override is None or cuda is None:
        return None
    trial = _Trial(profile, survey, machines, torch)
    same = [each for each in trial.there if versions.major(each) == versions.major(cuda)]
    best = min(same, key=lambda each: trial.place(each, cuda), default=None)
    plain = packages.best_version(profile, trial.there, cuda)
    if best is None or trial.outcome(best) == "fails":
        return None
    by_itself = trial.outcome(None) if plain else "fails"
    is_set = any(each.loads_by(profile.override) not in (None, loading.digits(best)) for each in machines)
    if best == plain and not (is_set and trial.outcome_as_set() != by_itself):
        return None
    return Pin(
        package=survey.distribution.name if survey.distribution else "",
        variable=profile.override,
        value=loading.digits(best),
        cuda=best,
        why=trial.why(plain, cuda, best),
        must=ORDER.index(by_itself) > ORDER.index(trial.outcome(best)),
        link=loading.link(trial.there[best][0], best, cuda, machines[0]) if best != plain else "",
    )


class _Trial:
    """Each library of a package on all machines."""

    def __init__(
        self, profile: PackageProfile, survey: Survey, machines: Sequence[Machine], torch: TorchExports | None
    ) -> None:
        self._profile, self._machines = profile, machines
        self._judge = Judge(survey, torch)
        self.there: Mapping[str, tuple[str, ...]] = loading.by_cuda(
            profile, [each.path for each in survey.libraries if loading.is_loadable(each)], machines[0]
        )
        known = [cuda for each in machines if (cuda := drivers.cuda_of_driver(each, each.os or "linux"))]
        self._driver = min(known, key=versions.key, default=None)

    def outcome(self, cuda: str | None) -> Outcome:
        """The outcome with the variable naming this library; None: without the variable."""
        value = loading.digits(cuda) if cuda else None
        override = self._profile.override or ""
        return worst_outcome(self._judge.on(_with_variable(each, override, value)).outcome for each in self._machines)

    def outcome_as_set(self) -> Outcome:
        return worst_outcome(self._judge.on(each).outcome for each in self._machines)

    def beyond(self, cuda: str) -> bool:
        """Whether a library is for a newer CUDA than the driver."""
        return self._driver is not None and not versions.at_least(self._driver, cuda)

    def place(self, cuda: str, wanted: str) -> tuple[object, ...]:
        """The lowest is the best: what runs best, within the driver, nearest below the framework's CUDA."""
        key = versions.key(cuda)
        lower = versions.at_least(wanted, cuda)
        near = tuple(-each if lower else each for each in (*key, 0, 0)[:2])  # 12.0 has no second part
        return ORDER.index(self.outcome(cuda)), self.beyond(cuda), not lower, near

    def why(self, plain: str | None, wanted: str, best: str) -> str:
        follows = self._profile.follows
        if plain is None:
            return f"{follows} is built for CUDA {wanted}, and the package has no library for that"
        if best == plain:
            return "the variable is set to a library that does not run here"
        if ORDER.index(self.outcome(plain)) > ORDER.index(self.outcome(best)):
            return f"its library for CUDA {plain}, which it would load, does not run as well here"
        return f"its library for CUDA {plain}, which it would load, is newer than the driver, made for {self._driver}"


def _with_variable(machine: Machine, variable: str, value: str | None) -> Machine:
    others = tuple(each for each in machine.loads if not each.startswith(f"{variable}="))
    return replace(machine, loads=(*others, f"{variable}={value}") if value is not None else others)
