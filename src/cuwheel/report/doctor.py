"""`cuwheel doctor`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, findings_section
from cuwheel.report.tables import Facts, Row
from cuwheel_core.support import printable, wording

if TYPE_CHECKING:
    from cuwheel.machine.profile import Fact, MachineProfile, VisualStudio
    from cuwheel.verdicts.examination import Doctor


def document(answer: Doctor, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(_verdict(answer)), Facts(tuple(_rows(answer.machine, verbose=verbose)))]
    if verbose:
        steps = tuple(Row(step.fact, f"{step.tried}: {step.outcome}") for step in answer.machine.trail)
        blocks += [Heading("Looked for"), Facts(steps)]
    if answer.needs:
        needs = tuple(Row("yes" if need.met else "NO", need.need, need.reason) for need in answer.needs)
        blocks += [Heading("Needs"), Facts(needs)]
    return Document("cuwheel doctor", (*blocks, *findings_section(answer.findings)))


def _verdict(answer: Doctor) -> str:
    """What most people want to know: can CUDA be used here, and is anything wrong."""
    machine = answer.machine
    gpus = [gpu.name for gpu in machine.gpus]
    what = f"This machine has {'no GPU' if not gpus else wording.a_few(list(dict.fromkeys(gpus)), 2)}"
    if answer.machine.gpus and machine.driver.version is None:
        what += " and no driver"
    counts = {kind: sum(each.severity == kind for each in answer.findings) for kind in ("error", "warning")}
    told = [wording.counted(count, kind) for kind, count in counts.items() if count]
    unmet = sum(not need.met for need in answer.needs)
    told += [f"{unmet} of {wording.counted(len(answer.needs), 'need')} not met"] if unmet else []
    return f"{what}; " + (", ".join(told) if told else "nothing is wrong with it")


def _rows(machine: MachineProfile, *, verbose: bool) -> Iterator[Row]:
    yield Row("system", _system(machine), _system_origin(machine) if verbose else "")
    yield Row("GPU", _gpus(machine), machine.driver.found_via if verbose else "")
    yield Row("driver", _driver(machine))
    yield from _several(
        "toolkit",
        [(f"{t.version}  {t.root}{'' if t.nvcc else ' (no nvcc)'}", t.found_via) for t in machine.toolkits],
        verbose=verbose,
    )
    yield from _several(
        "compiler",
        [(f"{c.kind} {c.version}  {c.path}", c.found_via) for c in machine.compilers],
        verbose=verbose,
    )
    yield from _several(
        "Visual Studio", [(_studio(each), (each.found_via,)) for each in machine.visual_studios], verbose=verbose
    )
    yield from _several("tool", [(f"{t.name} {t.version}", (t.path,)) for t in machine.tools], verbose=verbose)
    if python := machine.python:
        yield Row("Python", f"{python.version}  {python.prefix}", python.found_via if verbose else "")
    yield from _several(
        "package",
        [(_framework(machine, f.name), (f.found_via,)) for f in machine.frameworks],
        verbose=verbose,
    )
    yield from _several(
        "variable", [(f"{v.name}={v.value}", (v.found_via,)) for v in machine.variables], verbose=verbose
    )


def _several(name: str, items: list[tuple[str, tuple[str, ...]]], *, verbose: bool) -> Iterator[Row]:
    """One row each, the name on the first alone."""
    if not items and name in ("toolkit", "compiler"):
        yield Row(name, "none found")
    for index, (value, ways) in enumerate(items):
        yield Row(name if index == 0 else "", value, ", ".join(ways) if verbose else "")


def _system_facts(machine: MachineProfile) -> Iterator[tuple[str, Fact | None]]:
    system = machine.system
    yield "{}", system.distribution or system.os
    yield "{}", system.cpu
    yield "glibc {}", system.glibc
    yield "GLIBCXX_{}", system.glibcxx
    yield "L4T {}", system.l4t
    yield "JetPack {}", system.jetpack
    yield "WSL {}", system.wsl
    yield "in a container ({})", system.container


def _system(machine: MachineProfile) -> str:
    return ", ".join(form.format(fact.value) for form, fact in _system_facts(machine) if fact)


def _system_origin(machine: MachineProfile) -> str:
    return ", ".join(dict.fromkeys(fact.found_via for _, fact in _system_facts(machine) if fact))


def _gpus(machine: MachineProfile) -> str:
    counts: dict[str, int] = {}
    for gpu in machine.gpus:
        memory = f", {gpu.memory / 2**30:.0f} GiB" if gpu.memory else ""
        shown = f"{gpu.name}, capability {gpu.capability or 'not known'}{memory}"
        counts[shown] = counts.get(shown, 0) + 1
    lines = (f"{count} × {shown}" if count > 1 else shown for shown, count in counts.items())
    return printable.Lines(lines) or "none found"


def _driver(machine: MachineProfile) -> str:
    driver = machine.driver
    if driver.version is None:
        return "none found"
    return f"{driver.version}, CUDA {driver.cuda}" if driver.cuda else driver.version


def _studio(found: VisualStudio) -> str:
    cuda = f"CUDA {', '.join(found.cuda)}" if found.cuda else "no CUDA"
    return f"{found.name}{f' {found.version}' if found.version else ''}  ({cuda} in its projects)"


def _framework(machine: MachineProfile, name: str) -> str:
    framework = machine.framework(name)
    assert framework is not None  # noqa: S101 - asked only for those there are
    cuda = f"CUDA {framework.cuda}" if framework.cuda else "no CUDA"
    if framework.libraries:
        cuda = "CUDA " + ", ".join(framework.libraries)
    return f"{name} {framework.version}  ({cuda})"
