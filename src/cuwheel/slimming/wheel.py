"""A wheel without what its machines never load: decided, then written beside and given its name at the end."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import locking as lock
from cuwheel.binary import library
from cuwheel.binary.decisions import SlimOptions
from cuwheel.errors import MalformedError, UsageError
from cuwheel.files import errors_of, must_have_room, sync_folder
from cuwheel.finding import Finding
from cuwheel.inspection.survey import survey
from cuwheel.slimming import licence, note, proposal
from cuwheel.slimming import workers as work
from cuwheel.slimming.in_place import left_unread, signature_dropped
from cuwheel.slimming.outcome import FileChange, Outcome, Size
from cuwheel.slimming.wheel_names import Names, names_of, with_version
from cuwheel.stamping import restamp
from cuwheel.wheel import member_hashes, record
from cuwheel.wheel.metadata import recorded_files
from cuwheel.wheel.zip_reader import ZipReader
from cuwheel.wheel.zip_writer import DEFAULT_LEVEL, Traits, ZipWriter, data_offset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.binary.decisions import FileResult, LibraryPlan
    from cuwheel.slimming.proposal import Proposal
    from cuwheel.wheel.record import Digest

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`output`: a folder, or the file itself. `level`: None copies what is unchanged as it is compressed."""

    options: SlimOptions
    output: Path
    cuda: str | None = None
    version: str | None = None
    level: int | None = None
    dry_run: bool = False


def slim(path: Path, request: Request) -> Outcome:
    found = survey(path, detail="entries")
    names = names_of(path, found, request.version)
    output = _output(path, request.output, names)
    package = found.distribution.name if found.distribution else ""
    owner = proposal.Owning(package, found.loads_as or (found.distribution.version if found.distribution else None))
    plan = proposal.propose(found.libraries, request.options, cuda=request.cuda, package_of=lambda _: owner)
    findings = (*found.findings, *plan.findings)
    if plan.to_write:
        findings += licence.finding({package: _metadata(path, names)})
    if plan.refused or request.dry_run:
        files = proposal.expected(plan)
        size = Size(bytes_before=found.size, bytes_after=_expected_size(path, found.size, files))
        return _outcome(plan, files, findings, wheel=size, output=str(output))
    if not plan.to_write and not plan.removed:
        files = proposal.in_order(work.unchanged(each) for each in plan.plans.values())
        return _outcome(plan, files, (*findings, _nothing(path)))
    with errors_of(output, f"{output} was not written"):
        return _act(path, output, request, names, plan, findings)


def _act(
    path: Path, output: Path, request: Request, names: Names, plan: Proposal, findings: tuple[Finding, ...]
) -> Outcome:
    if wrong := member_hashes.wrong(path, names.info):
        raise MalformedError(
            path,
            f"not slimmed: these files are not what RECORD says of them: {', '.join(wrong[:5])}",
            hint="get the wheel from its publisher again",
        )
    with lock.scratch(output.parent) as folder:
        largest = max((each.bytes_before for each in plan.to_write), default=0)
        needed = 2 * largest + sum(each.bytes_after_estimate for each in plan.to_write) + path.stat().st_size
        must_have_room(folder, needed)
        results = _slim_libraries(path, folder, plan.to_write)
        written = {result.path: folder / f"out-{number}" for number, result in enumerate(results) if result.written}
        done = {result.path: work.change_of(result) for result in results}
        kept = [done.get(name) or work.unchanged(each) for name, each in plan.plans.items()]
        files = proposal.in_order([*kept, *proposal.removals(plan)])
        findings += proposal.met(plan, results)
        if not written and not plan.removed:
            return _outcome(plan, files, (*findings, _nothing(path)))
        made = folder / "wheel"
        findings += tuple(_write(path, made, request, names, files, written))
        findings += _check(path, made, names)
        made = restamp.restamp(made, output.name)
        size = Size(bytes_before=path.stat().st_size, bytes_after=made.stat().st_size)
        made.replace(output)
        sync_folder(output.parent)
    return _outcome(plan, files, findings, wheel=size, output=str(output), written=True)


def _slim_libraries(path: Path, folder: Path, plans: Sequence[LibraryPlan]) -> list[FileResult]:
    numbers = {plan.path: number for number, plan in enumerate(plans)}
    with zipfile.ZipFile(path) as archive:

        def act(plan: LibraryPlan) -> FileResult:
            number = numbers[plan.path]
            whole = folder / f"in-{number}"
            with archive.open(plan.path) as packed, whole.open("wb") as file:
                shutil.copyfileobj(packed, file, _CHUNK)
            result = library.slim_library(whole, folder / f"out-{number}", plan)
            whole.unlink()
            return replace(result, path=plan.path)

        try:
            return work.each_of(plans, act)
        except zipfile.BadZipFile as error:
            raise MalformedError(path, str(error), hint="download the wheel again") from error


def _write(
    path: Path,
    made: Path,
    request: Request,
    names: Names,
    files: Sequence[FileChange],
    written: Mapping[str, Path],
) -> list[Finding]:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    reader = ZipReader(path)
    level = DEFAULT_LEVEL if request.level is None else request.level
    try:
        with zipfile.ZipFile(path) as archive, made.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            writer = ZipWriter(file, pool, level)
            copier = _Copier(archive, reader, writer, names, again=request.level is not None)
            findings = copier.copy(request, files, written)
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        return findings
    finally:
        reader.close()


class _Copier:
    """Every member in its order; RECORD and the note about what was removed come last."""

    def __init__(
        self, archive: zipfile.ZipFile, reader: ZipReader, writer: ZipWriter, names: Names, *, again: bool
    ) -> None:
        self._archive, self._reader, self._writer = archive, reader, writer
        self._names, self._again = names, again
        self._digests: dict[str, Digest] = {}

    def copy(self, request: Request, files: Sequence[FileChange], written: Mapping[str, Path]) -> list[Finding]:
        names = self._names
        listed, metadata, noted = (names.info + each for each in ("RECORD", "METADATA", note.NAME))
        signatures = {names.info + each for each in record.SIGNATURES}
        removed = {each.path for each in files if each.fate == "removed"} | signatures
        infos = {info.filename: info for info in self._archive.infolist()}
        for name, info in infos.items():
            if name in removed or name in (listed, noted):
                continue
            if name == metadata:
                self._add(info, with_version(self._archive.read(info), names.version))
            elif name in written:
                self._add_file(info, written[name])
            else:
                self._copy(info)
        before = self._archive.read(noted) if noted in infos else None
        data = note.text(
            targets=note.names_of(request.options.targets),
            cuda=request.cuda,
            version=names.old_version,
            files=files,
            before=before,
        )
        self._add(infos[metadata], data, noted)
        text = self._archive.read(listed).decode("utf-8", "surrogateescape")
        new = {names.renamed(noted): self._digests.pop(noted)}
        text = record.changed(
            text,
            self._digests,
            removed={*removed, noted},
            added=new,
            renamed={name: names.renamed(name) for name in infos},
        )
        self._add(infos[listed], text.encode("utf-8", "surrogateescape"))
        return [signature_dropped(each) for each in sorted(signatures & infos.keys())]

    def _copy(self, info: zipfile.ZipInfo) -> None:
        traits = Traits.of(info, self._names.renamed(info.filename))
        if not self._again or info.is_dir():
            self._writer.copy(traits, info, self._reader.source, data_offset(self._reader.source, info))
            return
        with self._archive.open(info) as stream:
            self._writer.add(traits, stream, info.file_size)  # type: ignore[arg-type]

    def _add(self, like: zipfile.ZipInfo, data: bytes, name: str | None = None) -> None:
        name = name or like.filename
        self._digests[name] = record.digest_of_bytes(data)
        self._writer.add(Traits.of(like, self._names.renamed(name)), io.BytesIO(data), len(data))

    def _add_file(self, info: zipfile.ZipInfo, path: Path) -> None:
        """A library that was stored without compression stays so, unless a level was asked for."""
        self._digests[info.filename] = record.digest_of(path)
        deflate = self._again or info.compress_type != zipfile.ZIP_STORED
        with path.open("rb") as stream:
            self._writer.add(
                Traits.of(info, self._names.renamed(info.filename)), stream, path.stat().st_size, deflate=deflate
            )


def _check(path: Path, made: Path, names: Names) -> tuple[Finding, ...]:
    """What was written must read as a wheel whose RECORD lists what is in it, as far as the original's did."""
    before = {names.renamed(each) for each in _disagreements(path, names.info)}
    after = _disagreements(made, names.new_info)
    if new := sorted(after - before):
        raise MalformedError(made, f"RECORD and the files do not agree: {', '.join(new[:5])}", hint="a bug: report it")
    if not after:
        return ()
    return (
        Finding(
            rule="record-incomplete",
            severity="warning",
            message="RECORD and the files of the original do not agree, and so do not in the new wheel",
            evidence=tuple(sorted(after)[:3]),
        ),
    )


def _disagreements(path: Path, info: str) -> set[str]:
    reader = ZipReader(path)
    try:
        text = reader.text(info + "RECORD") or ""
        listed = set(recorded_files(text))
        signatures = {info + each for each in record.SIGNATURES}
        return (listed ^ set(reader.members)) - signatures | {each.message for each in reader.findings}
    finally:
        reader.close()


def _metadata(path: Path, names: Names) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(names.info + "METADATA").decode("utf-8", "replace")


def _output(path: Path, wanted: Path, names: Names) -> Path:
    output = wanted if wanted.suffix == ".whl" else wanted / names.file_name
    if output.name != names.file_name:
        raise UsageError(
            f"{output.name} is not the name of the wheel that it would hold",
            hint=f"-o {output.with_name(names.file_name)}   (installers refuse others; --version sets the version)",
        )
    if output.exists() and output.samefile(path):
        raise UsageError(f"{output} is the wheel to be slimmed", hint="give another folder with -o")
    return output


def _expected_size(path: Path, whole: int, files: Sequence[FileChange]) -> int:
    """As if what is left compressed as well as all of it."""
    with zipfile.ZipFile(path) as archive:
        saved = 0.0
        for each in files:
            info = archive.getinfo(each.path)
            saved += info.compress_size * (each.bytes_before - each.bytes_after) / max(info.file_size, 1)
    return round(whole - saved)


def _outcome(
    plan: Proposal,
    files: tuple[FileChange, ...],
    findings: tuple[Finding, ...],
    *,
    wheel: Size | None = None,
    output: str | None = None,
    written: bool = False,
) -> Outcome:
    return Outcome(
        files=files,
        remaining=proposal.remaining(plan, files),
        heavy=proposal.heavy(plan, files),
        findings=(*plan.refused, *left_unread(findings)),
        refused=bool(plan.refused),
        written=written,
        output=output,
        wheel=wheel,
    )


def _nothing(path: Path) -> Finding:
    return Finding(
        rule="nothing-to-slim",
        severity="note",
        message=f"{path.name} holds nothing that could be left out: nothing was written",
    )
