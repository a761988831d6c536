"""`publish -r`: a mirror cut to a fleet: what a requirements file comes to on each kind of machine, slimmed for them.

Everything is resolved and judged first, as `install -r` does; where a machine is not served, nothing is written. Files
come by their hashes, are cut for the machines that install them, and are published with facts, channels and a lock for
each kind of machine. `mirror.json` remembers what became of each file, so that a later run brings only what is new.

The version of a file that was cut names its GPUs, and a hash of all that the cut follows from: two files never have
one name. Where the fleet changes, what was cut for the one before stays for its locks, yanked: no resolver takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import fleet_install, index_folder, lock_files, publishing
from cuwheel.delivery.index_folder import IndexFolder
from cuwheel.delivery.lock_files import InstallLock
from cuwheel.delivery.publishing import Mirror, Publish
from cuwheel.delivery.request import InstallRequest
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine, machines_named
from cuwheel.network.resolver import Release
from cuwheel.support import codec, files, limited, log
from cuwheel.support.finding import finding
from cuwheel.version import __version__
from cuwheel.wheel import requirements
from cuwheel.wheel.file import WheelFile
from cuwheel_core.support.wording import a_few, size
from cuwheel_core.verdicts.choice import loader_of
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.install_answer import Part
    from cuwheel.delivery.lock_files import LockPart
    from cuwheel.delivery.request import PublishRequest
    from cuwheel_core.support.finding import Finding

RECORD = "mirror.json"
_SCHEMA = "cuwheel.mirror/1"
_MOST = 1 << 26
_WORTH = 0.99  # of its size: for less a file keeps its own hash
_WORTH_DEBUG = 10**7  # bytes of debug information alone: for less it does, too
_WHOLE, _ANY = "whole", "any"  # in place of GPUs: it was not to be cut; it has nothing to cut for any
_LICENCE = "licence-on-changes"
_TERMS = "it is under NVIDIA's terms, and --originals keeps such files as they are"
_NO_CODE = "it has no device code"


class MirroredFile(Struct, frozen=True, kw_only=True):
    """What became of a file of another index. `why`: why it was not slimmed, though it was asked for.

    `restricted`: it is under NVIDIA's terms. `replaced`: it was cut for GPUs of an earlier fleet, and is yanked.
    """

    original: str
    file: str
    version: str
    sha256: str
    size: int
    bytes_before: int
    why: str = ""
    restricted: bool = False
    replaced: bool = False


class Record(Struct, frozen=True, kw_only=True):
    """mirror.json. By the hash of the original, and the GPUs that it was cut for."""

    schema: str = _SCHEMA
    files: dict[str, MirroredFile] = {}


class _Wanted(Struct, frozen=True, kw_only=True):
    """A file of the fleet's locks, the machines that install it, and the GPUs it is cut for."""

    release: Release
    machines: tuple[Machine, ...]
    gpus: str

    @property
    def key(self) -> str:
        return f"{self.release.sha256} {self.gpus}"

    def known(self, record: dict[str, MirroredFile], request: PublishRequest) -> MirroredFile | None:
        """What an earlier run made of it, where this one would make the same and it is still there."""
        for gpus in (self.gpus, _ANY):
            found = record.get(f"{self.release.sha256} {gpus}")
            if found is None or (found.why == _TERMS and not request.originals):
                continue
            if found.restricted and found.file != found.original and request.originals:
                continue
            path = request.to / index_folder.file_path(found.file)
            if path.is_file() and path.stat().st_size == found.size:
                return found
        return None


def publish_mirror(request: PublishRequest) -> Publish:
    """Refused before anything is written where something does not run."""
    if request.requirements is None:
        raise UsageError("no requirements file was given", hint="cuwheel publish -r requirements.txt --for fleet.toml")
    IndexFolder(request.to).must_be_ours()
    machines = machines_named(request.machines, request.refine)
    asked = InstallRequest(
        requirements=request.requirements,
        indexes=request.indexes,
        find_links=request.find_links,
        fallback=("older",),
    )
    found = fleet_install.resolve_fleet(asked, machines)
    parts = tuple(part for part, _ in found)
    locks = tuple(each for _, each in found if each)
    if len(locks) < len(found):
        return _refused(request, parts)
    wanted = _wanted(InstallLock(wanted=(request.requirements.name,), parts=locks), machines, slim=request.slim)
    record = _read_record(request.to)
    made = {each.key: known for each in wanted if (known := each.known(record, request))}
    missing = [each for each in wanted if each.key not in made]
    total = sum(each.release.size or 0 for each in missing)
    if missing:
        log.info("%s of %s files are new%s", len(missing), len(wanted), f" ({size(total)})" if total else "")
    if request.dry_run:
        return Publish(
            place=str(request.to),
            dry_run=True,
            wheels=(),
            channels=(),
            mirror=Mirror(parts=parts, new=tuple(each.release.file for each in missing), bytes_new=total),
        )
    request.to.mkdir(parents=True, exist_ok=True)
    findings: list[Finding] = []
    with files.scratch_beside(request.to) as scratch:
        brought = []
        for each in missing:
            path, made[each.key], notes = _brought(each, scratch, request)
            brought.append(path)
            findings += notes
        # Cut from the same originals for another fleet, or not cut then.
        originals = {each.original for each in made.values()}
        replaced = {each.file for each in record.values() if each.original in originals}
        replaced -= {each.file for each in made.values()}
        done = _published(request, brought, record, made, replaced)
    if not done.succeeded:
        return replace(done, mirror=Mirror(parts=parts), findings=(*done.findings, *_merged(findings)))
    alike = {f"{key.partition(' ')[0]} {_ANY}" if each.why == _NO_CODE else key: each for key, each in made.items()}
    kept = {key: replace(each, replaced=each.file in replaced) for key, each in {**record, **alike}.items()}
    files.write_changed(request.to / RECORD, codec.indented(Record(files=dict(sorted(kept.items())))))
    by_file = {each.release.sha256: made[each.key] for each in wanted}
    written = lock_files.write_locks(
        request.to,
        InstallLock(
            wanted=(request.requirements.name,),
            parts=tuple(_of_mirror(part, by_file, request) for part in locks),
        ),
        ("pylock", "requirements", "uv"),
    )
    return replace(
        done,
        mirror=Mirror(
            parts=parts,
            new=tuple(each.release.file for each in missing),
            bytes_new=sum(made[each.key].bytes_before for each in missing),
            bytes_before=sum(each.bytes_before for each in by_file.values()),
            bytes_after=sum(each.size for each in by_file.values()),
            locks=tuple(path.name for path in written),
        ),
        findings=(*done.findings, *_merged(findings), *_rewritten(request, by_file)),
    )


def _refused(request: PublishRequest, parts: Sequence[Part]) -> Publish:
    findings = []
    for part in parts:
        reasons = [part.problem] if part.problem else []
        reasons += [f"{each.name}: {each.why}" for each in part.packages if not each.version]
        if reasons:
            message = f"{', '.join(part.machines)}: {'; '.join(reasons)}"
            findings.append(finding("mirror-not-served", message))
    mirror = Mirror(parts=tuple(parts))
    return Publish(place=str(request.to), wheels=(), channels=(), mirror=mirror, findings=tuple(findings))


def _wanted(lock: InstallLock, machines: Sequence[Machine], *, slim: bool) -> list[_Wanted]:
    """Each file once, cut for all that install it: a wheel for aarch64 is no business of the others."""
    by_name = {each.name: each for each in machines}
    found = []
    for release in lock_files.all_files(lock):
        using = [part for part in lock.parts if any(each.sha256 == release.sha256 for each in part.files)]
        own = tuple(by_name[name] for part in using for name in part.machines if name in by_name)
        devices = {loader_of(each) for each in own}
        gpus = sorted(
            f"{each.capability}{'' if each.jit == 'allowed' else each.jit}" if each else "?" for each in devices
        )
        found.append(_Wanted(release=release, machines=own, gpus=",".join(gpus) if slim else _WHOLE))
    return found


def _brought(wanted: _Wanted, scratch: Path, request: PublishRequest) -> tuple[Path, MirroredFile, list[Finding]]:
    """The file, by its hash, and cut where that is asked for and makes it smaller."""
    from cuwheel.changes.in_place import licence_findings  # noqa: PLC0415 - all that changes wheels

    release = wanted.release
    path = fleet_install.fetched(release, scratch)
    with WheelFile(path) as wheel:
        restricted = bool(licence_findings({wheel.distribution.name: wheel.metadata or ""}))
        version = wheel.distribution.version
    before = path.stat().st_size
    made, why = path, ""
    notes: list[Finding] = []
    if request.slim and restricted and request.originals:
        why = _TERMS
    elif request.slim:
        version, made, why, notes = _slimmed(path, version, wanted, scratch / "slim")
    if made != path:
        path.unlink()  # a fleet's originals would need as much room again
    mirrored = MirroredFile(
        original=release.file,
        file=made.name,
        version=version,
        sha256=files.sha256(made),
        size=made.stat().st_size,
        bytes_before=before,
        why=why,
        restricted=restricted,
    )
    return made, mirrored, notes


def _slimmed(path: Path, version: str, wanted: _Wanted, folder: Path) -> tuple[str, Path, str, list[Finding]]:
    """Its version, where it is, and why it is the original where it is."""
    from cuwheel.changes.slim import act  # noqa: PLC0415 - all that changes wheels
    from cuwheel.changes.slim.request import SlimRequest  # noqa: PLC0415

    capabilities = sorted({each.capability for each in wanted.machines if each.capability})
    digest = files.sha256_of(f"{wanted.gpus} {__version__}".encode())[:7]
    label = ".".join(["slim", *(f"sm{each.major}{each.minor}" for each in capabilities), f"h{digest}"])
    cut = f"{version}{'.' if '+' in version else '+'}{label}"
    with log.progress(f"slimming {path.name}"):
        done = act.slim(SlimRequest(path, machines=list(wanted.machines), version=cut, strip_debug=True, output=folder))
    notes = [each for each in done.findings if each.severity == "error" or each.rule == _LICENCE]
    if not done.written or done.output is None or done.wheel is None:
        errors = [each for each in notes if each.severity == "error"]
        return version, path, "it has nothing to remove" if done.files else _NO_CODE, errors
    saved = done.wheel.bytes_before - done.wheel.bytes_after
    cut_code = any(each.dropped or each.fate == "removed" for each in done.files)
    if done.wheel.bytes_after > _WORTH * done.wheel.bytes_before or not (cut_code or saved > _WORTH_DEBUG):
        return version, path, "it would hardly be smaller", []
    log.info("%s: %s, was %s", path.name, size(done.wheel.bytes_after), size(done.wheel.bytes_before))
    return cut, Path(done.output), "", notes


def _published(
    request: PublishRequest,
    brought: Sequence[Path],
    record: dict[str, MirroredFile],
    made: dict[str, MirroredFile],
    replaced: set[str],
) -> Publish:
    there = [each for each in record.values() if (request.to / index_folder.file_path(each.file)).is_file()]
    yank = tuple(dict.fromkeys(each.file for each in there if each.file in replaced and not each.replaced))
    unyank = tuple(dict.fromkeys(each.file for each in made.values() if each.replaced))
    if not (brought or yank or unyank or request.catalogue):
        return Publish(place=str(request.to), wheels=(), channels=())
    wheels = with_fields(
        request,
        wheels=tuple(brought),
        yank=yank,
        unyank=unyank,
        reason="it was cut for other GPUs than this mirror is for now" if yank else None,
        requirements=None,
        machines=(),
        indexes=(),
        find_links=(),
        slim=False,
        originals=False,
    )
    return publishing.publish(wheels, of_others=True)


def _merged(findings: Sequence[Finding]) -> Iterator[Finding]:
    """One for all packages of which the same is to be said."""
    named: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        named.setdefault((each.rule, each.message), []).append(each)
    for alike in named.values():
        yield replace(alike[0], evidence=tuple(dict.fromkeys(line for each in alike for line in each.evidence)))


def _of_mirror(part: LockPart, made: dict[str | None, MirroredFile], request: PublishRequest) -> LockPart:
    """The same lock with the mirror's files; their versions end in `+slim` where they were cut."""
    served = f"{request.files_url.rstrip('/')}/" if request.files_url else ""

    def mirrored(release: Release) -> Release:
        own = made[release.sha256]
        place = request.to / index_folder.file_path(own.file)
        url = f"{served}{own.file}" if served else files.absolute(place).as_uri()
        return replace(release, version=own.version, file=own.file, url=url, sha256=own.sha256, size=own.size, index="")

    taken = tuple(map(mirrored, part.files))
    versions = {normalised(each.name): each.version for each in taken}
    packages = {name: f"{versions[name]} {how.partition(' ')[2]}" for name, how in part.packages.items()}
    return replace(part, files=taken, packages=packages)


def _rewritten(request: PublishRequest, made: dict[str | None, MirroredFile]) -> Iterator[Finding]:
    """`==2.11.0+cu130` does not accept `+cu130.slim`: the locks name what is there; a resolver would refuse it."""
    from cuwheel.delivery import requirements_file  # noqa: PLC0415

    if request.requirements is None:
        return
    versions = {normalised(each.file.partition("-")[0]): limited.version(each.version) for each in made.values()}
    listed = requirements_file.read_requirements(request.requirements, None)
    broken = []
    for text in listed.named:
        wanted = requirements.parse(text)
        have = versions.get(normalised(wanted.name)) if wanted else None
        if wanted and have and not limited.specifiers(str(wanted.specifier)).contains(have, prereleases=True):
            broken.append(f"{wanted}: {have}")
    if broken:
        message = f"{a_few(broken, 4)}: the locks name the slimmed version, and the requirements do not accept it"
        yield finding("mirror-pin-rewritten", message)


def _read_record(folder: Path) -> dict[str, MirroredFile]:
    data = files.read_if_present(folder / RECORD, _MOST, "the record of a mirror")
    if data is None:
        return {}
    hint = "remove it: everything is then brought again"
    return codec.parse(data, Record, folder / RECORD, "the record of a mirror", schema=_SCHEMA, hint=hint).files
