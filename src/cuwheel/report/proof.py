"""`cuwheel verify --read`: the document of a proof, and of those of a fleet. What hardware contradicts comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.proving.runner import loaded
from cuwheel.report.document import Block, Document, Heading, Paragraph, findings_section, last_lines
from cuwheel.report.tables import Facts, Row, Table, figure, short, table
from cuwheel.support import codec
from cuwheel_core.support.wording import size

if TYPE_CHECKING:
    from cuwheel.proving.on_cluster import Proofs
    from cuwheel.proving.outcomes import CheckResult
    from cuwheel.proving.proof import Proof, ProofMachine, ProofWheel

_LINES = 12
_AGREEMENTS = {
    "contradicted": "hardware contradicts the prediction",
    "agreed": "hardware agrees with the prediction",
    "open": "hardware leaves the prediction open",
    "none": "nothing was predicted",
}


def document(answer: Proof, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    against = [each for each in answer.wheels if each.agreement == "contradicted"]
    if against:
        blocks.append(Heading("Predictions that hardware contradicts"))
        blocks += [Paragraph(f"{each.file}: {each.why}") for each in against]
    blocks += findings_section(answer.findings, "The proof itself")
    network = {"cut": "checks had no network", "open": "checks could use it", "": "not known whether checks had one"}
    facts = (*_machine(answer.machine), Row("network", network[answer.network]))
    blocks += [Heading("The machine"), Facts(facts)]
    for wheel in sorted(answer.wheels, key=lambda each: list(_AGREEMENTS).index(each.agreement)):
        blocks += _wheel(wheel, verbose=verbose)
    outcomes = [each.outcome for wheel in answer.wheels for each in wheel.checks]
    counts = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
    counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    missing = [each for wheel in answer.wheels for each in wheel.checks if each.gpu and each.outcome == "skipped"]
    proven = "nothing failed, but what needs a GPU was not tried" if missing else "proven"
    verdict = proven if answer.succeeded else "not proven"
    blocks.append(Paragraph(f"{verdict}: {counted}" if counted else verdict))
    return Document(f"cuwheel verify: proof of {answer.began}", tuple(blocks))


def _machine(machine: ProofMachine) -> Iterator[Row]:
    for gpu in machine.gpus:
        yield Row("GPU", f"{gpu.name}, compute capability {gpu.capability}, {size(gpu.memory)}")
    if not machine.gpus:
        status = f"; cuInit gave {machine.driver_status}" if machine.driver_status else ""
        listed = f" (nvidia-smi lists {', '.join(machine.smi_gpus)}{status})" if machine.smi_gpus else status
        yield Row("GPU", f"none that CUDA sees{listed}")
    cuda = f" (CUDA {machine.driver_cuda})" if machine.driver_cuda else ""
    yield Row("driver", f"{machine.driver or 'not known'}{cuda}")
    libc = f", glibc {machine.glibc}" if machine.glibc else ""
    yield Row("system", f"{machine.distribution or machine.os}, {machine.cpu}{libc}, Python {machine.python}")
    for name, value in machine.variables.items():
        yield Row(name, value)


def _wheel(wheel: ProofWheel, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{wheel.name} {wheel.version} ({size(wheel.size)})")
    rows = [Row("file", wheel.file), Row("sha256", wheel.sha256)]
    if wheel.requirements:
        rows.append(Row("with", ", ".join(each.file for each in wheel.requirements)))
    if wheel.problem:
        rows.append(Row("not installed", wheel.problem))
    if found := wheel.prediction:
        error = f", {found.error.name} ({found.error.code})" if found.error else ""
        follows = f" with {found.follows} for CUDA {found.framework_cuda}" if found.framework_cuda else ""
        rows.append(Row("predicted", f"{found.outcome}{error} on {found.capability}{follows}"))
    if wheel.agreement != "none":
        rows.append(Row("hardware", f"{_AGREEMENTS[wheel.agreement]}: {wheel.why}"))
    rows += loaded_rows(wheel.checks)
    yield Facts(tuple(rows))
    if wheel.checks:
        yield _checks(wheel)
    for each in wheel.checks:
        if each.output and (verbose or not each.good):
            yield Paragraph(f"{each.name} printed:")
            yield last_lines(each.output, None if verbose else _LINES)


def loaded_rows(checks: Sequence[CheckResult]) -> list[Row]:
    """What checks really loaded on the GPU, all together, and what the driver had to compile for it."""
    found = loaded.merge_loaded({"loaded": codec.builtins(each.loaded)} for each in checks)
    rows = [Row("loaded" if not number else "", line) for number, line in enumerate(loaded.loaded_in_words(found))]
    words = loaded.compiling_in_words(found)
    return [*rows, Row("driver compiled", words)] if words else rows


def _checks(wheel: ProofWheel) -> Table:
    columns = ("check", short("where"), short("outcome"), figure("time"), "why")
    rows = (
        (
            each.name,
            "GPU" if each.gpu else "",
            each.outcome,
            "" if each.outcome == "skipped" else f"{each.seconds:.1f} s",
            each.problem,
        )
        for each in wheel.checks
    )
    return table(columns, rows)


def of_proofs(answer: Proofs, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    for each in answer.proofs:
        blocks.append(Heading(f"compute capability {each.gpu}" + (f", on {each.worker}" if each.worker else "")))
        if each.proof is None:
            blocks.append(Paragraph(f"not tried: {each.problem}"))
            continue
        blocks += document(each.proof, verbose=verbose).blocks
        blocks.append(Paragraph(f"cuwheel verify --read {each.file}"))
    good = sum(each.succeeded for each in answer.proofs)
    blocks.append(Paragraph(f"proven on {good} of {len(answer.proofs)} kinds of GPU"))
    return Document("cuwheel verify: proofs of a fleet", tuple(blocks))
