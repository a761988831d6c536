"""`graft --compile`: machine code made of the PTX that a file holds. Otherwise as with a donor: all is decided before
anything is written, written beside, read again. A wheel, a library; a folder or an environment by `slim`'s journal.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes import in_place
from cuwheel.changes.binaries import compiling, rewrite
from cuwheel.changes.binaries.compiling import Aim, Compilation, Compiled
from cuwheel.changes.binaries.plan import AddedCode, Reason, why_untouchable
from cuwheel.changes.graft.answer import (
    GRAFT_NOTE,
    CompiledCode,
    GraftedLibrary,
    Reached,
    answer_of,
    note_of_distribution,
)
from cuwheel.changes.graft.decide import Decision
from cuwheel.changes.graft.request import GraftRequest
from cuwheel.changes.graft.subject import CodeFile, Held, Subject
from cuwheel.changes.graft.writing import labelled, must_be_intact, write_library, write_wheel
from cuwheel.device_code.survey import survey, survey_wheel
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import UsageError
from cuwheel.support import files, quoting, system_calls
from cuwheel.support.finding import finding
from cuwheel.wheel import journal, journal_file, record
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, output_of
from cuwheel.wheel.journal_file import Header
from cuwheel_core.device_code import fatbin
from cuwheel_core.device_code.libraries import Entry, Library
from cuwheel_core.device_code.library import read_library
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import gpus
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts.choice import Loader, choose, loadable_code
from cuwheel_core.verdicts.predict import GOOD, reach_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cuwheel.changes.graft.answer import Graft
    from cuwheel.changes.in_place import Layout
    from cuwheel.machine.fleet import Machine
    from cuwheel.wheel.record import Digest
    from cuwheel_core.facts.arch import Arch

# What is left of PTX as it is stored, once it is machine code that is stored the same way: catboost's for sm_90.
_SHARE_OF_PTX = 0.3
# Files that are nothing but device code, and why those of a package stay as they are.
_BARE = {
    "ptx": Reason(
        "bare-ptx",
        "whoever opens this file of PTX expects text",
        "make a fat binary of it, and let the package open that: cuwheel graft FILE.ptx --compile GPUS -o FILE.fatbin",
    ),
    "fatbin": Reason(
        "bare-fatbin",
        "the package may link this fat binary with other code, and linked code cannot be linked again",
        "if the package only loads it, compile it by itself: cuwheel graft FILE.fatbin --compile GPUS -o FOLDER",
    ),
}


class Plan(Struct, frozen=True, kw_only=True):
    """`wanted`: what is to be compiled; `libraries`: those that get it. `untouched`: why some stays as it is.

    `incomplete`: those of the libraries in which the driver has something left to compile.
    """

    request: GraftRequest
    aims: tuple[Aim, ...]
    libraries: tuple[Library, ...]
    wanted: tuple[Compilation, ...]
    untouched: tuple[Finding, ...]
    incomplete: frozenset[str]

    @property
    def seconds(self) -> tuple[float, float] | None:
        """What compiling takes of one core, at least and at most."""
        held = sum(each.bytes for each in self.wanted)
        return gpus.seconds_to_compile(held) if held else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Also why nothing is done, where nothing is."""
        if self.wanted:
            return self.untouched
        names = a_few([each.name for each in self.aims])
        words = (
            f"nothing has to be compiled for {names}: there is machine code that runs, or no PTX that could be compiled"
        )
        return self.untouched if self.refused else (*self.untouched, finding("compile-nothing", words))

    @property
    def refused(self) -> bool:
        """Nothing can be done, though the driver has to compile."""
        return not self.wanted and any(each.severity != "note" for each in self.untouched)

    @property
    def expected(self) -> tuple[GraftedLibrary, ...]:
        """Estimates."""
        return tuple(self._expected(each) for each in self.libraries)

    def _expected(self, library: Library) -> GraftedLibrary:
        own = [each for each in self.wanted if each.library == library.path]
        sizes: dict[Arch, list[int]] = {}
        for each in own:
            sizes.setdefault(each.arch, []).append(_about(each))
        return GraftedLibrary(
            path=library.path,
            bytes_before=library.size,
            bytes_after=library.size + sum(map(sum, sizes.values())),
            containers=len({each.container for each in own}),
            added=_added(sizes),
            proof=None,
        )

    def answer(self, base: Path, made: Making | None = None, undo: str | None = None, **known: Any) -> Graft:  # noqa: ANN401 - of answer_of
        """What was made of it; without that what would be, or why nothing is."""
        planned = made is None and bool(self.wanted)
        known = {"findings": made.findings if made else self.findings, **known}
        known |= {"libraries": self.expected} if planned else {}
        return replace(
            answer_of(self.request, base, refused=self.refused or bool(made and not made.compiled), **known),
            compiled=made.rows if made else self.rows(),
            reached=tuple(made.reached) if made else (),
            seconds=self.seconds,
            undo=undo,
        )

    def rows(self) -> tuple[CompiledCode, ...]:
        return tuple(_row(each, each.cuda) for each in self.wanted)

    @property
    def entries(self) -> dict[str, tuple[Entry, ...]]:
        """What each library will have more; sizes are estimates."""
        return {
            library.path: tuple(
                replace(
                    each.ptx,
                    container=each.container,
                    section=library.containers[each.container].section,
                    kind="cubin",
                    arch=each.arch,
                    linked=each.ptx.linked or bool(each.objects),
                    ptx_isa=None,
                    bytes=_about(each),
                )
                for each in self.wanted
                if each.library == library.path
            )
            for library in self.libraries
        }


def _about(what: Compilation) -> int:
    """The bytes of what is made, roughly; of a link those of all its objects."""
    parts = [each.entry for each in what.objects] or [what.ptx]
    return round(sum(each.bytes * (1 if each.kind == "cubin" else _SHARE_OF_PTX) for each in parts))


def _added(sizes: Mapping[Arch, Sequence[int]]) -> tuple[AddedCode, ...]:
    return tuple(AddedCode(kind="cubin", arch=arch, count=len(each), bytes=sum(each)) for arch, each in sizes.items())


def _row(what: Compilation, ptxas: str, *, kept: bool = False) -> CompiledCode:
    return CompiledCode(
        library=what.library, container=what.container, arch=what.arch, source=what.ptx.arch, ptxas=ptxas, kept=kept
    )


def compile_ahead(request: GraftRequest, machines: Sequence[Machine] = ()) -> Graft:
    """`graft --compile` from its request to its answer. `machines`: what `compile` names, where that is known."""
    aims = compiling.aims_of(machines or request.compile, request.env)
    if request.env:
        only = [str(each) for each in (request.base, *request.named) if str(each)]
        return _in_place(in_place.layout_of_environment(request.env), request, aims, only)
    base = Path(downloaded_if_pinned(request.base))
    if base.is_dir():
        return _folder(base, request, aims)
    if not base.is_file():
        raise UnreadableError(base, "no such file or folder", hint="cuwheel graft WHEEL --compile sm_90 -o OUT")
    if request.output is None and not request.dry_run:
        raise UsageError("a single file is not changed in place", hint="choose where the result goes: -o FOLDER")
    if base.suffix == ".whl":
        return _wheel(base, request, aims)
    found = survey(base, detail="entries").libraries[0]
    return _single(base, replace(found, path=str(base)), request, aims)


def plan_of(libraries: Sequence[Library], request: GraftRequest, aims: tuple[Aim, ...], *, alone: bool = False) -> Plan:
    """Pure, from surveys with every entry. `alone`: a file by itself, not one of a package."""
    cuda = next(iter(request.cuda or ()), None)
    wanted: list[Compilation] = []
    untouched: list[Finding] = []
    growing = []
    incomplete = set()
    for library in libraries:
        found = compiling.what_to_compile(library, aims, cuda)
        reason = why_untouchable(library, drop_signature=request.drop_signature) if found.wanted else None
        if reason and reason.rule == "not-linked" and library.format in _BARE:
            reason = None if alone else _BARE[library.format]
        if reason:
            words = f"{file_name(library.path)} stays as before: {reason.words}"
            untouched.append(finding("compile-unsupported", words, fix=reason.fix))
            continue
        untouched += found.untouched
        incomplete |= {library.path} if found.untouched else set()
        wanted += found.wanted
        growing += [library] if found.wanted else []
    untouched += _without_ptx([each for each in libraries if each not in growing], aims)
    return Plan(
        request=request,
        aims=aims,
        libraries=tuple(growing),
        wanted=tuple(wanted),
        untouched=tuple(untouched),
        incomplete=frozenset(incomplete),
    )


def _without_ptx(libraries: Sequence[Library], aims: Sequence[Aim]) -> Iterator[Finding]:
    """Where nothing runs on a GPU, nor could be compiled for it."""
    for aim in aims:
        device = Loader(capability=aim.capability)
        failing = [each for each in libraries if reach_of(each).by_code(device).outcome == "fails"]
        partly = [file_name(each.path) for each in failing if _has_code_for(each, device)]
        if none := [name for each in failing if (name := file_name(each.path)) not in partly]:
            yield finding("compile-no-ptx", f"{a_few(none)}: neither machine code nor PTX fits {aim.name}")
        if partly:
            words = f"some objects of the device link have neither machine code nor PTX that fits {aim.name}"
            yield finding("compile-no-ptx", f"{a_few(partly)}: {words}, and nothing links the others alone")


def _has_code_for(library: Library, device: Loader) -> bool:
    """Whether anything in it fits, though not enough to run."""
    codes = (loadable_code(each) for each in library.entries)
    return any(code and choose([code], device).entry is not None for code in codes)


# From a plan to what is put into libraries.


class Making(Struct, kw_only=True):
    """`compiled`: what went into a library, or goes. `incomplete`: as in the plan, and where something failed.

    `decisions`: of the libraries that get something. `reached`: of each, once it was written.
    """

    plan: Plan
    compiled: list[Compiled]
    findings: tuple[Finding, ...]
    incomplete: frozenset[str]
    decisions: list[Decision] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)

    @property
    def rows(self) -> tuple[CompiledCode, ...]:
        return tuple(_row(each.what, each.ptxas, kept=each.kept) for each in self.compiled)

    def must_reach(self, path: str, written: Path) -> None:
        """The new library, read as `check` reads it: the driver has nothing to compile for these GPUs any more."""
        before = next(each for each in self.plan.libraries if each.path == path)
        after = surveyed(written)
        for aim in self.plan.aims:
            was, now = (reach_of(each).by_code(aim.device) for each in (before, after))
            if now.containers.jit and now.basis != "relocatable" and path not in self.incomplete:
                words = f"the driver would still compile {now.containers.jit} containers for {aim.name}"
                raise MalformedError(path, words)
            if now.outcome in ("fails", "partial") and was.outcome in GOOD:
                raise MalformedError(path, f"it would no longer run on {aim.name}")
            self.reached.append(Reached(library=path, machine=aim.name, before=was.outcome, after=now.outcome))


def _compile_planned(plan: Plan, read: Callable[[str, Entry], bytes], folder: Path) -> Making:
    done = compiling.compile_all(plan.wanted, read, folder)
    failed = {what.library: each for what, each in done.items() if isinstance(each, Finding)}
    return Making(
        plan=plan,
        compiled=[each for each in done.values() if isinstance(each, Compiled)],
        findings=(*plan.untouched, *(each for each in done.values() if isinstance(each, Finding))),
        incomplete=plan.incomplete.union(failed),
    )


def surveyed(path: Path) -> Library:
    buffer = FileBuffer(path)
    try:
        return read_library(buffer, detail="entries")
    finally:
        buffer.close()


@contextmanager
def machine_code(plan: Plan, place_of: Callable[[str], Path], folder: Path) -> Iterator[Making]:
    """Everything compiled. `place_of`: where a library can be read. `folder`: for scratch files."""
    with ExitStack() as stack:
        stack.enter_context(compiling.cache_in_use())
        subjects = {
            each.path: stack.enter_context(
                Subject(place_of(each.path), each.path, drop_signature=plan.request.drop_signature)
            )
            for each in plan.libraries
        }
        made = _compile_planned(plan, lambda name, entry: _content(subjects[name], entry), folder)
        for number, library in enumerate(plan.libraries):
            name, subject = library.path, subjects[library.path]
            own = [each for each in made.compiled if each.what.library == name]
            try:
                if own:
                    decided = stack.enter_context(_decision(subject, own, library, folder / f"{number}.fatbin"))
                    made.decisions.append(decided)
            except MalformedError as error:
                words = f"{file_name(name)} stays as before: {error.problem}"
                made.findings += (finding("compile-unsupported", words),)
        names = {each.base.name for each in made.decisions}
        made.compiled = [each for each in made.compiled if each.what.library in names]
        yield made


def _content(file: CodeFile, entry: Entry) -> bytes:
    if entry.kind == "lto-ir":
        return fatbin.container_of(file.buffer.read(entry.offset, entry.header_size + entry.bytes))
    return file.payload(entry)


@contextmanager
def _decision(subject: Subject, made: Sequence[Compiled], library: Library, place: Path) -> Iterator[Decision]:
    """The machine code of one library as a fat binary of its own: put before its PTX; of a link, behind the others."""
    numbers = {each.offset: number for number, each in enumerate(subject.walk.containers)}
    by_container: dict[int, list[Compiled]] = {}
    for each in made:
        by_container.setdefault(numbers[library.containers[each.what.container].offset], []).append(each)
    with place.open("wb") as file:
        for same in by_container.values():
            entries = b"".join(compiling.entry_of(each.cubin(), each.what.arch, each.what.like) for each in same)
            file.write(fatbin.container_of(entries))
    with CodeFile(FileBuffer(place), subject.name) as donor:
        walk = fatbin.Walk(donor.buffer)
        walk.section("", 0, donor.buffer.size, linked=True)
        entries_of = iter(walk.entries())
        added: list[Held] = []
        containers: dict[int, tuple[Held, ...]] = {}
        for (number, same), container in zip(by_container.items(), walk.containers, strict=True):
            held = list(subject.held[number])
            for each, raw in zip(same, container.entries, strict=True):
                added.append(Held(donor, raw, next(entries_of)))
                at = next((at for at, one in enumerate(held) if one.raw.offset == each.what.ptx.offset), len(held))
                held.insert(at, added[-1])
            containers[number] = tuple(held)
        decided = Decision(subject, containers, tuple(added), None, (), refused=False)
        rewrite.draft_grown(subject.buffer, decided.contents, None, drop_signature=subject.drop_signature)
        yield decided


# A library, a wheel.


def _single(base: Path, library: Library, request: GraftRequest, aims: tuple[Aim, ...]) -> Graft:
    """A library, a fat binary; of a file of PTX the fat binary beside it: cuModuleLoad loads the one as the other."""
    if request.version:
        raise UsageError("--version is for wheels")
    text = library.format == "ptx"
    target = files.output_of(base.with_suffix(".fatbin") if text else base, request.output or Path())
    if request.output and target.exists() and target.samefile(base):
        raise UsageError(f"{target} is the input", hint="choose another place with -o")
    if text:
        library = replace(library, entries=(replace(library.entries[0], flags=compiling.PLAIN_FLAGS),))
    plan = plan_of([library], request, aims, alone=True)
    if not plan.wanted or request.dry_run:
        return plan.answer(base, outputs=[target] if plan.wanted else [])
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.errors_of(target, f"{target} was not written"),
        files.scratch_beside(target.parent) as folder,
    ):
        place = folder / "new"
        made, row = (_write_bare if library.format in _BARE else _write_grown)(plan, base, place)
        if row is None:
            return plan.answer(base, made)
        shutil.copymode(base, place)
        system_calls.rename_over(place, target)
    return plan.answer(base, made, libraries=(row,), outputs=[target], written=True)


def _write_grown(plan: Plan, base: Path, place: Path) -> tuple[Making, GraftedLibrary | None]:
    with machine_code(plan, lambda _: base, place.parent) as made:
        rows = [each.library(write_library(each, place, made.must_reach)) for each in made.decisions]
        return made, next(iter(rows), None)


def _write_bare(plan: Plan, base: Path, place: Path) -> tuple[Making, GraftedLibrary | None]:
    """A fat binary: what the file holds, PTX as text too, and before each piece of PTX what was made of it."""
    (library,) = plan.libraries
    with compiling.cache_in_use(), CodeFile(FileBuffer(base), library.path) as file:
        made = _compile_planned(plan, lambda _, entry: _content(file, entry), place.parent)
        new = [(each.what, compiling.entry_of(each.cubin(), each.what.arch, each.what.like)) for each in made.compiled]
        if not new:
            return made, None
        containers: dict[int | None, list[bytes]] = {}
        for old in library.entries:
            stored = file.buffer.read(old.offset, old.header_size + old.bytes)
            whole = compiling.text_entry(stored, old) if library.format == "ptx" else stored
            containers.setdefault(old.container, []).extend(
                [*(entry for what, entry in new if what.ptx.offset == old.offset), whole]
            )
    place.write_bytes(b"".join(fatbin.container_of(b"".join(entries)) for entries in containers.values()))
    made.must_reach(library.path, place)
    sizes: dict[Arch, list[int]] = {}
    for what, entry in new:
        sizes.setdefault(what.arch, []).append(len(entry))
    return made, GraftedLibrary(
        path=library.path,
        bytes_before=library.size,
        bytes_after=place.stat().st_size,
        containers=len({what.container for what, _ in new}),
        added=_added(sizes),
        proof=None,
    )


def _wheel(base: Path, request: GraftRequest, aims: tuple[Aim, ...]) -> Graft:
    with ExitStack() as stack:
        wheel = stack.enter_context(WheelFile(base))
        must_be_intact(wheel)
        found = survey_wheel(wheel, detail="entries")
        plan = plan_of(found.libraries, request, aims)
        licences = in_place.licence_findings({wheel.distribution.name: wheel.metadata or ""}) if plan.wanted else ()
        plan = replace(plan, untouched=(*plan.untouched, *licences))
        if not plan.wanted:
            return plan.answer(base)
        if request.dry_run:
            edit = WheelEdit(wheel)
            edit.rename(version=request.version or labelled(wheel, dict.fromkeys(each.arch for each in plan.wanted)))
            return plan.answer(base, outputs=[output_of(request.output or Path(), str(edit.name), [base])])
        output = request.output or Path()
        parent = output.parent if output.suffix == ".whl" else output
        stack.enter_context(files.errors_of(parent, f"{base.name} was not changed"))
        folder = stack.enter_context(files.scratch_beside(parent))
        places = {each.path: folder / f"in-{number}" for number, each in enumerate(plan.libraries)}
        for path, place in places.items():
            with place.open("wb") as file:
                wheel.copy_to(path, file)
        made = stack.enter_context(machine_code(plan, places.__getitem__, folder))
        if not made.decisions:
            return plan.answer(base, made)
        answer = partial(plan.answer, base, made)
        return write_wheel(wheel, made.decisions, folder, request, answer, compiled=made.rows, also=made.must_reach)


# A folder, an environment.


def _folder(base: Path, request: GraftRequest, aims: tuple[Aim, ...]) -> Graft:
    if request.version:
        raise UsageError("--version is for wheels")
    layout = in_place.layout_of_folder(base)
    if request.output is None:
        return _in_place(layout, request, aims)
    output = request.output
    in_place.must_be_new(base, output)
    planned = _in_place(layout, request, aims, dry_run=True)
    if request.dry_run or not planned.libraries:
        return replace(planned, outputs=(str(output),) if planned.libraries else (), dry_run=request.dry_run)
    growing = {each.path for each in planned.libraries}
    made = in_place.changed_copy(
        layout.root, output, growing, lambda tree: _in_place(tree, request, aims, keep_originals=False)
    )
    return replace(made, base=str(base), outputs=() if made.refused else (str(output),), undo=None)


def _in_place(
    layout: Layout,
    request: GraftRequest,
    aims: tuple[Aim, ...],
    only: Sequence[str] = (),
    *,
    dry_run: bool = False,
    keep_originals: bool = True,
) -> Graft:
    """`only`: the distributions, by any spelling of their names; all without one."""
    root, dry_run = layout.root, dry_run or request.dry_run
    with nullcontext() if dry_run else journal_file.locked(root):
        recovered = () if dry_run else journal.recover(root)
        libraries, _, unread = in_place.read_libraries(layout)
        owners = in_place.owners_of(layout, (each.path for each in libraries))
        if only:
            libraries = in_place.of_distributions(libraries, owners, only)
        plan = plan_of(libraries, request, aims)
        texts = {
            owner.name: in_place.read_text(owner.info / "METADATA")
            for each in plan.libraries
            if (owner := owners.get(each.path)) and (owner.info / "METADATA").is_file()
        }
        plan = replace(plan, untouched=(*recovered, *unread, *plan.untouched, *in_place.licence_findings(texts)))
        if not plan.wanted or dry_run:
            return replace(plan.answer(root, outputs=[root] if plan.wanted else []), dry_run=dry_run)
        return _write_in_place(root, plan, owners, keep_originals=keep_originals)


def _write_in_place(root: Path, plan: Plan, owners: dict[str, in_place.Owner], *, keep_originals: bool) -> Graft:
    """Every new file is staged first; the journal then renames them, and can undo that."""
    in_place.must_be_replaceable(root, [each.path for each in plan.libraries])
    files.must_have_room(root, sum(each.bytes_after for each in plan.expected))
    header = Header(tool=in_place.TOOL, targets=tuple(each.name for each in plan.aims))
    with (
        tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as scratch,
        machine_code(plan, root.joinpath, Path(scratch)) as made,
    ):
        if not made.decisions:
            return plan.answer(root, made)
        libraries: list[GraftedLibrary] = []
        digests: dict[str, Digest] = {}
        findings = list(made.findings)
        with journal.begin(root, header) as changes:
            for decision in made.decisions:
                path, staged = decision.base.name, changes.stage()
                libraries.append(decision.library(write_library(decision, staged, made.must_reach)))
                digests[path] = record.digest_of(staged)
                changes.replace(root / path, staged, digests[path])

            def notes_of(owner: in_place.Owner, names: Mapping[str, str]) -> dict[str, bytes]:
                before = in_place.earlier_note(owner, GRAFT_NOTE)
                return {GRAFT_NOTE: note_of_distribution(before, names, libraries, made.rows)}

            findings += in_place.stage_records(changes, owners, digests, notes_of)
            changes.apply()
    if not keep_originals:
        journal.commit(root)
    where = ["--env", str(plan.request.env)] if plan.request.env else [str(root)]
    undo = quoting.here(["cuwheel", "slim", "--undo", *where]) if keep_originals else None
    known = {"libraries": tuple(libraries), "outputs": [root], "written": True, "findings": tuple(findings)}
    return plan.answer(root, made, undo, **known)
