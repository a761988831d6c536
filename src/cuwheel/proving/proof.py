"""A proof that a kit wrote on another machine, taken back: somebody's file, so everything in it is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.machine.profile import each_string
from cuwheel.proving import predictions
from cuwheel.proving.onsite import compare
from cuwheel.proving.outcomes import CheckResult
from cuwheel.support import codec, files
from cuwheel.support.answer import Answer
from cuwheel.support.finding import finding
from cuwheel.wheel import record
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import printable
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.choice import CudaError
from cuwheel_core.verdicts.predict import Outcome as Predicted

SCHEMA: Final = "cuwheel.proof/1"
# `open`: no check could tell. `none`: nothing was predicted.
Agreement: TypeAlias = Literal["agreed", "contradicted", "open", "none"]
_CLAIMS: dict[Agreement, int] = {"contradicted": 0, "none": 1, "open": 1, "agreed": 2}
_LIMIT = 1 << 26
_HINT = "write one with: python3 kit.pyz"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class ProofGpu(Struct, frozen=True, kw_only=True):
    name: str
    capability: str
    memory: int


class ProofMachine(Struct, frozen=True, kw_only=True):
    """`gpus`: as CUDA sees them; `smi_gpus`: as nvidia-smi lists them. `driver_status`: what cuInit gave."""

    os: str
    distribution: str
    kernel: str
    cpu: str
    glibc: str | None
    python: str
    implementation: str
    driver: str | None
    driver_cuda: str | None
    driver_status: int | None
    gpus: tuple[ProofGpu, ...]
    smi_gpus: tuple[str, ...]
    variables: dict[str, str]


class ProofPrediction(Struct, frozen=True, kw_only=True):
    """`framework_cuda`: of the framework that decides which libraries are loaded (`follows`)."""

    capability: str
    driver_cuda: str | None
    follows: str | None
    framework_cuda: str | None
    outcome: Predicted
    error: CudaError | None
    conditions: tuple[str, ...]


class ProofCheck(CheckResult, frozen=True, kw_only=True):
    """`left`: processes that it left running."""

    gpu: bool
    left: tuple[str, ...]


class PackedFile(Struct, frozen=True, kw_only=True):
    """`member`: its name in the kit."""

    file: str
    sha256: str
    size: int
    member: str = ""


class Probed(Struct, frozen=True, kw_only=True):
    """Pieces of device code given to the driver. `compared`: for how many of them its answer was predicted."""

    loaded: int
    refused: int
    compared: int
    against: tuple[str, ...]


class ProofWheel(Struct, frozen=True, kw_only=True):
    """`problem`: why it was not installed. `why`: what its agreement rests on."""

    file: str
    sha256: str
    size: int
    name: str
    version: str
    requirements: tuple[PackedFile, ...]
    problem: str
    frameworks: dict[str, tuple[str | None, str | None]]
    prediction: ProofPrediction | None
    probed: Probed
    agreement: Agreement
    why: str
    checks: tuple[ProofCheck, ...]
    seconds: float

    @property
    def succeeded(self) -> bool:
        """A wheel that fails as predicted is not a success, nor is one that nothing was tried of."""
        passed = bool(self.checks) and all(each.good for each in self.checks)
        fails = self.prediction is not None and self.prediction.outcome == "fails"
        return not self.problem and passed and not fails and self.agreement != "contradicted"


class Proof(Answer, frozen=True, kw_only=True):
    """`findings`: about the proof itself. `network`: whether the checks had a network, if known."""

    schema: Literal["cuwheel.proof/1"] = SCHEMA
    tool: str
    began: str
    seconds: float
    machine: ProofMachine
    wheels: tuple[ProofWheel, ...]
    network: Literal["cut", "open", ""] = ""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded by its checks, and not by what it says of itself."""
        sound = not any(each.severity == "error" for each in self.findings)
        return sound and bool(self.wheels) and all(each.succeeded for each in self.wheels)


def read_proof(path: Path, wheels: Sequence[Path] = ()) -> Proof:
    """`wheels`: files that the proof is expected to be of."""
    return _against(parse_proof(files.read_limited(path, _LIMIT, "a proof"), str(path)), wheels)


def parse_proof(data: bytes, name: str) -> Proof:
    """Raises where it is not one, whatever it is."""
    found = codec.parse(data, dict[str, object], name, "a proof", schema=SCHEMA, hint=_HINT)
    found = {
        key: each_string(value, printable.line if key == "machine" else printable.text) for key, value in found.items()
    }
    claimed = found.pop("succeeded", None)
    found.pop("findings", None)
    problems: list[str] = []
    proof = codec.convert_or_list_problems(found, Proof, "proof", problems)
    if proof:
        problems += _wrong(proof)
    if proof is None or problems:
        shown = "; ".join(each[:200] for each in problems[:3])
        raise MalformedError(name, f"is not a proof: {shown}", hint=_HINT)
    judged = tuple(_judged(each, proof.machine) for each in proof.wheels)
    forged = [finding for before, now in zip(proof.wheels, judged, strict=True) for finding in _forged(before, now)]
    proof = replace(proof, wheels=judged, findings=tuple(forged))
    if claimed is True and not proof.succeeded:
        proof = replace(
            proof,
            findings=(
                *proof.findings,
                finding(
                    "proof-inconsistent", "the proof says that everything passed, but its own checks say otherwise"
                ),
            ),
        )
    return proof


def _wrong(proof: Proof) -> Iterator[str]:
    hashes = {each.file: each.sha256 for wheel in proof.wheels for each in wheel.requirements}
    hashes |= {each.file: each.sha256 for each in proof.wheels}
    yield from (f"{file} has no SHA-256" for file, digest in hashes.items() if not _SHA256.fullmatch(digest))
    for gpu in proof.machine.gpus:
        if not re.fullmatch(r"\d{1,3}\.\d{1,2}", gpu.capability, re.ASCII):
            yield f"{gpu.capability!r} is not a compute capability"


def _judged(wheel: ProofWheel, machine: ProofMachine) -> ProofWheel:
    """What its checks say of its prediction, worked out again."""
    if wheel.problem:
        return replace(wheel, agreement="none")
    signs = {str(code): texts for code, texts in predictions.SIGNS.items()}
    agreement, why = compare.agreement(
        codec.builtins(wheel.prediction),
        codec.builtins(wheel.checks),
        codec.builtins(wheel.probed),
        signs,
        machine.variables,
    )
    return replace(wheel, agreement=agreement, why=why)


def _forged(before: ProofWheel, now: ProofWheel) -> Iterator[Finding]:
    """To claim more than the checks say is an error; to claim less is a warning."""
    if before.agreement != now.agreement:
        yield finding(
            "proof-inconsistent",
            f"{before.file}: the proof says the prediction is {before.agreement!r}, but its checks say "
            f"{now.agreement!r}",
            severity="error" if _CLAIMS[before.agreement] > _CLAIMS[now.agreement] else "warning",
        )


def _against(proof: Proof, wheels: Sequence[Path]) -> Proof:
    """Is it the proof of these files, byte for byte?"""
    proven = {each.sha256: each for each in proof.wheels}
    problems = []
    for path in wheels:
        try:
            digest = record.digest_of(path).sha256
        except OSError as error:
            raise UnreadableError.from_os(error, path) from error
        if digest not in proven:
            same = next((each for each in proof.wheels if each.file == path.name), None)
            problems.append(
                finding(
                    "proof-of-another",
                    f"the proof is not about {path.name}"
                    + (": it is about another file with the same name" if same else ""),
                    evidence=(f"here: sha256 {digest}", *([f"proven: sha256 {same.sha256}"] if same else [])),
                )
            )
    return replace(proof, findings=(*proof.findings, *problems))
