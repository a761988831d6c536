"""The reverse of a plan: a list that somebody else wrote, word by word, and what it covers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.facts import architectures, toolkits, torch
from cuwheel.facts.arch import Arch
from cuwheel.facts.spellings import table
from cuwheel.facts.tables import tables
from cuwheel.verdicts import predict
from cuwheel.verdicts.choice import Code, Device, choose, serves
from cuwheel.verdicts.planning import serving
from cuwheel.verdicts.planning.plan import OnMachine, Reading, Word
from cuwheel.verdicts.planning.planner import reach_in_words, torch_release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.facts.spellings.row import ArchList, ListWord, Row
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.choice import Choice
    from cuwheel.verdicts.planning.serving import Kind

_KINDS = {"sm": "machine code", "compute": "PTX", "lto": "LTO-IR"}


def explain(
    text: str,
    machines: Sequence[Machine] = (),
    *,
    spelling: str | None = None,
    toolkit: Toolkit | None = None,
) -> Reading:
    """What a list means and covers; for each machine, how it serves it. `toolkit`: the one that builds it."""
    if not text.strip(" ;,"):
        raise UsageError("the list to read is empty", hint='cuwheel plan --read "8.0;9.0+PTX"')
    name = spelling or guess(text)
    rules = table.BY_NAME[name]
    release = torch_release(machines)
    found = rules.read(text, release)
    cubins = [arch for arch in found.archs if arch.kind != "compute"]
    ptx = [arch for arch in found.archs if arch.kind == "compute"]
    return Reading(
        text=text,
        spelling=name,
        guessed=spelling is None,
        words=tuple(_word(word, rules) for word in found.words),
        archs=tuple(cubins),
        ptx=tuple(ptx),
        unknown=found.unknown,
        open=found.open,
        reach=reach_in_words(found.archs) if found.archs or not found.open else "what it covers is not known",
        missed=_missed(found.archs),
        machines=tuple(_on(machine, found.archs, toolkit) for machine in machines),
        toolkits=_toolkits(found.archs),
        notes=tuple(_notes(text, name, found, toolkit, release)) if found.archs or found.open else (),
    )


def guess(text: str) -> str:
    """Whose spelling it looks like."""
    for name, look in table.GUESSES:
        if look.search(text):
            return name
    return "torch" if any(torch.list_named(word) for word in re.split(r"[;,\s]+", text)) else "cmake"


def _word(word: ListWord, rules: Row) -> Word:
    if word.resolved_by_build:
        meaning = f"{rules.owner} resolves it when it sees the toolkit or the GPU"
    elif not word.archs:
        meaning = f"nothing known to {rules.owner}"
    else:
        meaning = " and ".join(_code(word.archs, kind) for kind in dict.fromkeys(arch.kind for arch in word.archs))
    return Word(word=word.text, archs=tuple(word.archs), meaning=meaning)


def _code(archs: Sequence[Arch], kind: str) -> str:
    scopes = {"": "", "a": " (this capability alone)", "f": " (its family)"}
    named = ", ".join(f"{arch}{scopes[arch.suffix]}" for arch in archs if arch.kind == kind)
    return f"{_KINDS[kind]} {named}"


def _missed(archs: Sequence[Arch]) -> str:
    absent = [each for each in architectures.current_capabilities() if not any(serves(arch, each) for arch in archs)]
    return predict.capability_ranges(map(str, absent))


def _toolkits(archs: Sequence[Arch]) -> str:
    able = [row for row in toolkits.all_toolkits() if all(row.supports(arch) for arch in archs)]
    return toolkits.span(able) if able and archs else ""


def _torch_notes(found: ArchList, release: str | None) -> Iterator[str]:
    """What that PyTorch refuses, or the newest where it is not known; and what not every release takes."""
    for arch in dict.fromkeys(Arch(each.capability, each.suffix) for each in found.archs):
        taken = torch.taken_by(arch)
        only = f"; torch {taken} accepts it" if taken else ""
        if not torch.takes(arch, release):
            yield f"PyTorch{f' {release}' if release else ''} refuses {torch.spelled(arch)}{only}"
        elif release is None and not torch.takes(arch, tables().torch.change[0].since):
            yield f"{torch.spelled(arch)} needs torch {taken}"


def _notes(text: str, name: str, found: ArchList, toolkit: Toolkit | None, release: str | None) -> Iterator[str]:
    if toolkit and (beyond := [arch.number for arch in found.archs if not toolkit.supports(arch)]):
        yield f"CUDA {toolkit.version} cannot compile {', '.join(dict.fromkeys(beyond))}: nvcc fails"
    if found.open:
        yield "it also covers what the build system resolves itself"
    strange = [str(arch) for arch in found.archs if not toolkits.toolkits_supporting(arch)]
    if strange:
        yield f"no known toolkit compiles {', '.join(strange)}"
    elif not toolkit and not _toolkits(found.archs) and found.archs:
        yield "no single toolkit compiles all of it: its oldest architecture was dropped before its newest appeared"
    if name == "torch":
        yield from _torch_notes(found, release)
    if name == "cargo":
        yield "whether it becomes machine code, PTX or both is the build script's choice"
    if name == "bitsandbytes":
        yield "bitsandbytes always adds PTX for the highest"
    others = [each for each in ("bitsandbytes", "cargo") if name == "cmake" and _differs(text, each, found)]
    for other in others:
        read = table.BY_NAME[other].read(text)
        rules = table.BY_NAME[other]
        yield f"as {rules.variable} of {rules.owner} it is {', '.join(map(str, read.archs))} (--as {other})"


def _differs(text: str, name: str, found: ArchList) -> bool:
    """Whether the same text is also a list of that spelling, and another one."""
    read = table.BY_NAME[name].read(text)
    return bool(read.archs) and not read.unknown and set(read.archs) != set(found.archs)


def _on(machine: Machine, archs: Sequence[Arch], toolkit: Toolkit | None) -> OnMachine:
    kind = serving.kind_of(machine)
    if kind is None:
        return OnMachine(
            machine=machine.name,
            count=machine.count,
            capability=None,
            how="none",
            by=None,
            explanation=serving.NO_GPU,
        )
    isa = toolkit.ptx_isa if toolkit else None
    code = [Code(arch=arch, ptx_isa=isa if arch.kind == "compute" else None) for arch in archs]
    choice = choose(code, Device(capability=kind.capability, ptx_isa=_known_isa(kind), jit=kind.jit))
    arch = archs[choice.entry] if choice.entry is not None else None
    return OnMachine(
        machine=machine.name,
        count=machine.count,
        capability=kind.capability,
        how=choice.how,
        by=arch if arch and choice.how != "none" else None,
        explanation=_explanation(kind, arch, choice),
        conditions=tuple(_conditions(kind, arch, choice, toolkit)),
        notes=tuple(_tegra_notes(kind, toolkit, choice)),
    )


def _known_isa(kind: Kind) -> str | None:
    """The newest PTX that the driver is known to compile; None where that is open."""
    known = serving.rows_of(kind.driver.compiles_surely)
    return known[-1].ptx_isa if known and kind.driver.compiles == kind.driver.compiles_surely else None


def _explanation(kind: Kind, arch: Arch | None, choice: Choice) -> str:
    if choice.how == "native":
        return f"{kind.capability} is served by {arch}, its own architecture"
    if choice.how == "compatible":
        rule = (
            "'f' code runs on its family" if arch and arch.suffix else "machine code runs on later minors of its major"
        )
        return f"{kind.capability} is served by {arch}: {rule}"
    if choice.how == "jit":
        return f"{kind.capability} is served by {arch}: the driver compiles this PTX when it is first used"
    error = f"{choice.error.name}, {choice.error.code}" if choice.error else "no error is known"
    if arch:
        return f"{kind.capability} would use {arch}, but its driver cannot compile it ({error})"
    return f"nothing in the list runs on {kind.capability} ({error})"


def _conditions(kind: Kind, arch: Arch | None, choice: Choice, toolkit: Toolkit | None) -> Iterator[str]:
    if arch is None or choice.how == "none":
        return
    if toolkit:
        yield from serving.serving_conditions(kind, toolkit, arch)
        return
    if arch.kind == "sm":
        yield from serving.across_tegra_conditions(arch, kind.capability)
    elif choice.how == "jit":
        yield "the driver is at least as new as the toolkit that writes the PTX"


def _tegra_notes(kind: Kind, toolkit: Toolkit | None, choice: Choice) -> Iterator[str]:
    """A list that serves a Jetson is rarely what is wrong there."""
    if kind.tegra and (toolkit is None or not toolkits.one_arm64(toolkit)):
        since = tables().toolkits.arm64.one_distribution_since
        fits = choice.how != "none"
        yield (
            f"the list is not the {'' if fits else 'only '}problem on a Jetson: L4T is{'' if fits else ' one too'}. "
            f"Below CUDA {since} arm64 has two toolkits, and a wheel built for SBSA servers fails on L4T with 'named "
            "symbol not found' although its code fits. Build on the Jetson (or with its toolkit, "
            "targets/aarch64-linux), or use wheels made for L4T"
        )
