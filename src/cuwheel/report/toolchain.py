"""`cuwheel toolchain`: the answer and its document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

from cuwheel.machine.profile import Attempt
from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Amount, Facts, Row, Table, figure, short, table
from cuwheel.support import quoting
from cuwheel.support.answer import Answer
from cuwheel.toolchains import lock, toolchain
from cuwheel.toolchains import toolchain as toolchains
from cuwheel.toolchains.provide import Decision, Verification
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Installed, Recipe, Setting
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import counted, size

if TYPE_CHECKING:
    from cuwheel.toolchains.store import Store

Action: TypeAlias = Literal["install", "list", "env", "remove", "verify", "fetch"]


class Toolchain(Answer, frozen=True, kw_only=True):
    """What was done, or with `--dry-run` would be: `recipe` is that plan, `toolkits` what is there."""

    schema: Literal["cuwheel.toolchain/1"] = "cuwheel.toolchain/1"
    action: Action
    cache: str
    toolkits: tuple[Installed, ...] = ()
    recipe: Recipe | None = None
    host_compiler: HostCompiler | None = None
    settings: tuple[Setting, ...] = ()
    lines: tuple[str, ...] = ()
    verification: Verification | None = None
    fetched: tuple[str, ...] = ()
    lock: str | None = None
    freed: int | None = None
    trail: tuple[Attempt, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.verification is None or self.verification.succeeded


def foreseen(decision: Decision) -> Toolchain:
    """What an installation would do."""
    chosen = decision.chosen
    return Toolchain(
        action="install",
        cache=str(decision.around.store.folder),
        toolkits=() if isinstance(chosen, Recipe) else (chosen,),
        recipe=chosen if isinstance(chosen, Recipe) else None,
        trail=decision.trail,
    )


def ready(action: Action, made: toolchains.Toolchain, store: Store) -> Toolchain:
    return Toolchain(
        action=action,
        cache=str(store.folder),
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        trail=made.trail,
        findings=() if action == "env" else toolchain.examine_toolchain(made),
    )


def fetched(recipe: Recipe, files: Sequence[Path], to: Path, store: Store) -> Toolchain:
    """`files`: the archives that are now in the folder `to`."""
    names = tuple(path.name for path in files)
    return Toolchain(action="fetch", cache=str(store.folder), recipe=recipe, fetched=names, lock=str(to / lock.NAME))


def document(answer: Toolchain, *, verbose: bool) -> Document:
    blocks = list(_BLOCKS[answer.action](answer))
    if answer.findings:
        blocks.append(Findings(answer.findings))
    if verbose and answer.trail:
        blocks.append(Heading("Providers"))
        blocks.append(Facts(tuple(Row(each.tried, each.outcome) for each in answer.trail)))
    return Document("cuwheel toolchain", tuple(blocks))


def _install(answer: Toolchain) -> Iterator[Block]:
    if answer.recipe:
        yield Heading(f"CUDA {answer.recipe.release} from {answer.recipe.provider}: {_would(answer.recipe)}")
        if answer.recipe.place:
            yield Paragraph(f"It is already there: {answer.recipe.place}")
        if answer.recipe.archives:
            yield _archives(answer.recipe.archives)
        if answer.recipe.commands:
            yield Paragraph("These commands would run:")
            yield Verbatim(tuple(map(quoting.here, answer.recipe.commands)))
    for toolkit in answer.toolkits:
        yield Heading(f"CUDA {_release(toolkit)} is ready")
        yield Facts(tuple(_facts(toolkit, answer)))
        if not toolkit.prefix:
            words = [
                "cuwheel",
                "toolchain",
                "env",
                toolkit.cuda,
                *(["--cpu", toolkit.target] if toolkit.target else ()),
            ]
            yield Paragraph(f"Use it: {quoting.evaluate(words, quoting.shell_here())}")
    if answer.lock:
        yield Paragraph(f"Written to {answer.lock}.")


def _would(recipe: Recipe) -> str:
    if not recipe.archives:
        return "nothing was done (--dry-run)"
    total = sum(each.size or 0 for each in recipe.archives)
    least = "" if all(each.size for each in recipe.archives) else "at least "
    amount = f", {least}{size(total)}," if total else ""
    return f"{counted(len(recipe.archives), 'file')}{amount} would be downloaded (--dry-run)"


def _facts(toolkit: Installed, answer: Toolchain) -> Iterator[Row]:
    yield Row("root", toolkit.root, origin=toolkit.found_via)
    yield Row("nvcc", toolkit.version)
    yield Row("provider", toolkit.provider)
    yield Row("parts", " ".join(toolkit.components))
    if toolkit.target:
        about = f", glibc {answer.host_compiler.glibc}" if answer.host_compiler and answer.host_compiler.glibc else ""
        yield Row("compiles for", f"{toolkit.target}{about}")
    if compiler := answer.host_compiler:
        yield Row("host compiler", f"{compiler.kind} {compiler.version}, {compiler.path}", origin=compiler.found_via)
    if toolkit.prefix:
        yield Row("run inside", " ".join(toolkit.prefix))
    yield Row("identity", toolkit.identity[:12])
    if toolkit.size:
        yield Row("size", size(toolkit.size))


def _archives(archives: Sequence[Archive]) -> Table:
    rows = (
        (
            each.name,
            each.version,
            Amount(size(each.size) if each.size else "?", each.size or 0),
            each.sha256[:12],
        )
        for each in archives
    )
    return table(("file", "version", figure("size"), short("sha256")), rows)


def _list(answer: Toolchain) -> Iterator[Block]:
    if not answer.toolkits:
        yield Paragraph("cuwheel has installed no toolkit (cuwheel doctor shows those of the system).")
        yield Paragraph("Install one: cuwheel toolchain install 13.0")
        return
    yield table(
        (short("CUDA"), short("from"), figure("size"), "with", short("identity")),
        (
            (_release(each), each.provider, Amount(size(each.size), each.size), _extras(each), each.identity[:12])
            for each in answer.toolkits
        ),
    )
    yield Paragraph(f"In {answer.cache}: {size(sum(each.size for each in answer.toolkits))}.")


def _release(toolkit: Installed) -> str:
    release = ".".join(toolkit.release.split(".")[:3])
    return f"{release} for {toolkit.target}" if toolkit.target else release


def _extras(toolkit: Installed) -> str:
    base = {"nvcc", "cudart", "cccl", "nvvm"}
    return " ".join(each for each in toolkit.components if each not in base) or "–"


def _env(answer: Toolchain) -> Iterator[Block]:
    yield Verbatim(answer.lines)


def _remove(answer: Toolchain) -> Iterator[Block]:
    for toolkit in answer.toolkits:
        yield Paragraph(f"CUDA {_release(toolkit)} from {toolkit.provider} ({toolkit.identity[:12]}) was removed.")
    if answer.toolkits or answer.freed:
        yield Paragraph(f"{size(answer.freed or 0)} freed.")
    else:
        yield Paragraph("There was nothing to remove (cuwheel toolchain list shows what cuwheel has installed).")


def _verify(answer: Toolchain) -> Iterator[Block]:
    if found := answer.verification:
        yield Heading(found.words)
        yield Facts(tuple(Row(each.name, each.outcome, origin=each.evidence) for each in found.checks))
    yield from _install(answer)


def _fetch(answer: Toolchain) -> Iterator[Block]:
    if answer.recipe:
        total = sum(each.size or 0 for each in answer.recipe.archives)
        files = counted(len(answer.fetched), "file")
        yield Heading(f"CUDA {answer.recipe.release} from {answer.recipe.provider}: {files}, {size(total)}")
        yield _archives(answer.recipe.archives)
    if answer.lock:
        folder = str(PurePath(answer.lock).parent)
        yield Paragraph("Copy the folder to the other machine and install from it, without a network:")
        cuda = answer.recipe.cuda if answer.recipe else "VERSION"
        yield Verbatim((quoting.here(["cuwheel", "toolchain", "install", cuda, "--locked", folder]),))


_BLOCKS = {
    "install": _install,
    "list": _list,
    "env": _env,
    "remove": _remove,
    "verify": _verify,
    "fetch": _fetch,
}
