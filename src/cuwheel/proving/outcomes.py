"""What is tried, and what came of it: the answer of `verify`, named as the JSON names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from cuwheel.facts.rows.services import CheckTerms
from cuwheel.support import codec
from cuwheel.support.answer import Answer
from cuwheel.verdicts.verdict import Verdict
from cuwheel_core.support.finding import Finding

CheckKind: TypeAlias = Literal["import", "command", "python"]
Origin: TypeAlias = Literal["wheel", "known", "configuration"]
Outcome: TypeAlias = Literal["passed", "failed", "crashed", "timeout", "memory", "skipped"]


class Check(CheckTerms, frozen=True, kw_only=True):
    """`text`: the module, the words of the command, or the snippet. `memory` in bytes.

    `origin`: the wheel's own modules and libraries, what is known of its package, or a configuration.
    `program`: what must be on PATH, or it is skipped.
    """

    name: str
    kind: CheckKind
    text: str
    origin: Origin
    timeout: float
    memory: int
    program: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The check as the runner takes it: without the origin, lists for tuples."""
        found: dict[str, Any] = codec.builtins(self)
        del found["origin"]
        return found


class Loaded(Struct, frozen=True, kw_only=True):
    """What a check loaded of a library on a GPU, seen as `trace` does: `offsets` of device code in its file.

    `library`: below the environment, or its name alone. `images`: that its code made in memory. `kernels`: launched.
    `compiled`: of how many pieces the driver, its cache empty, had to compile PTX; `compile_ms`: for how long. Null: it
    was not measured.
    """

    library: str
    offsets: tuple[int, ...]
    images: int
    kernels: tuple[str, ...]
    compiled: int | None = None
    compile_ms: float | None = None


class CheckResult(Struct, frozen=True, kw_only=True):
    """What the runner says of a check, here or in a kit.

    `status`: null where it said none. `signal`: that ended it. `memory`: the most that its processes held, in bytes.
    `output`: the beginning and the end of what it printed, of `output_bytes` in all. `file`: that was imported.
    """

    name: str
    kind: CheckKind
    outcome: Outcome
    problem: str = ""
    seconds: float = 0.0
    status: int | None = None
    signal: str = ""
    memory: int = 0
    output: str = ""
    output_bytes: int = 0
    file: str = ""
    version: str = ""
    loaded: tuple[Loaded, ...] = ()

    @property
    def good(self) -> bool:
        return self.outcome in ("passed", "skipped")


class Result(CheckResult, frozen=True, kw_only=True):
    """The result of a check that was run here."""

    origin: Origin


def result_of(answer: Mapping[str, object], check: Check) -> Result:
    """What the runner says of a check, as a value."""
    return codec.convert({**answer, "origin": check.origin}, Result)


class Installation(Struct, frozen=True, kw_only=True):
    """A wheel in one fresh environment, and all that was tried there.

    `outcome`: of the installation itself; `problem`: why it failed or was left out. `packages`: all that is installed,
    as name==version. `stub`: the libcuda of the checks was a stub. `network`: whether checks had one (`cut`: they had
    none). `verdicts`: what `check` says of the wheel for this machine. `contradictions`: where that and what happened
    differ. `folder`: where it was kept, if it was. `emulator`: the program under which it ran, for another processor.
    """

    python: str
    outcome: Literal["passed", "failed", "skipped", "planned"]
    problem: str = ""
    seconds: float = 0.0
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    stub: bool = False
    network: Literal["cut", "open", ""] = ""
    gpus: tuple[str, ...] = ()
    checks: tuple[Result, ...] = ()
    planned: tuple[Check, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    contradictions: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    folder: str = ""
    emulator: str = ""

    @property
    def succeeded(self) -> bool:
        return (
            self.outcome != "failed"
            and all(each.good for each in self.checks)
            and not any(each.severity == "error" for each in (*self.contradictions, *self.findings))
        )


class Verified(Struct, frozen=True, kw_only=True):
    """A wheel: what is wrong with the file, and each environment that it was tried in."""

    target: str
    file: str
    name: str
    version: str
    size: int
    sha256: str
    findings: tuple[Finding, ...]
    installations: tuple[Installation, ...]

    @property
    def succeeded(self) -> bool:
        return all(each.succeeded for each in self.installations) and not any(
            each.severity == "error" for each in self.findings
        )


class Kit(Struct, frozen=True, kw_only=True):
    """What was written to be carried elsewhere."""

    path: str
    size: int
    sha256: str
    checks: int


class Verify(Answer, frozen=True, kw_only=True):
    """Each wheel with what is wrong with the file, and what came of each environment.

    `configuration`: the file that named checks, if there was one.
    """

    schema: Literal["cuwheel.verify/1"] = "cuwheel.verify/1"
    wheels: tuple[Verified, ...]
    configuration: str | None = None
    dry_run: bool = False
    kit: Kit | None = None

    @property
    def succeeded(self) -> bool:
        """False if anything failed. Skipped checks are reported and do not fail."""
        return all(each.succeeded for each in self.wheels)
