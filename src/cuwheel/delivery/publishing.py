"""`cuwheel publish`: wheels looked at, an update decided, and carried out under the index's lock; or uploaded.

An index that is served somewhere is brought along first (`--existing`). `--check` is in `checking`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import arrivals, index_folder, page, signatures, simple_api, transaction, update, variants
from cuwheel.delivery.index_folder import JOURNAL, IndexFolder, Journal
from cuwheel.delivery.install_answer import Part
from cuwheel.delivery.simple_api import SCHEMA, Project, ProjectList
from cuwheel.delivery.variants import PublishedVariant
from cuwheel.device_code import wheel_facts
from cuwheel.errors import UsageError
from cuwheel.facts import services
from cuwheel.network import addresses, resolver
from cuwheel.support import codec, files, log, masking, process, quoting
from cuwheel.support.answer import Answer
from cuwheel.support.finding import finding
from cuwheel.wheel import requirements
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.fix import Fix
from cuwheel_core.support.finding import Finding, gravest_first
from cuwheel_core.support.wording import first_few, size

if TYPE_CHECKING:
    from cuwheel.delivery.arrivals import Arrival
    from cuwheel.delivery.index_folder import Site
    from cuwheel.delivery.request import PublishRequest
    from cuwheel.delivery.simple_api import PublishedFile
    from cuwheel.delivery.transaction import Step
    from cuwheel.delivery.update import Update

_LARGEST_ASSET = 2 << 30
Outcome: TypeAlias = Literal["added", "present", "refused", "sound", "wrong", "uploaded", "planned", "skipped"]


class PublishedWheel(Struct, frozen=True, kw_only=True):
    """`added`: it was not there before. `present`: it was, with the same content. `refused`: see the findings.

    `sound`, `wrong`: what a check of the index says of it. `uploaded`, or `planned` by a dry run; `skipped` where an
    upload before it failed, or where another wheel was refused: then none is added.
    """

    file: str
    sha256: str
    size: int
    added: bool
    outcome: Outcome
    channels: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """A file of the folder that is written or removed."""

    path: str
    action: Literal["written", "removed"]
    size: int | None = None


class Mirror(Struct, frozen=True, kw_only=True):
    """What a requirements file comes to on each kind of machine (`parts`). `new`: files that were brought, or with
    `dry_run` would be, and `bytes_new` their sizes. `bytes_before`, `bytes_after`: of all files, as their indexes have
    them and as the mirror has them. `locks`: files in the mirror, for each kind of machine.
    """

    parts: tuple[Part, ...]
    new: tuple[str, ...] = ()
    bytes_new: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    locks: tuple[str, ...] = ()


class Publish(Answer, frozen=True, kw_only=True):
    """`channels`: all that the index has. `removed`, `yanked`, `unyanked`: file names. `changes`: every file of the
    folder that is written or removed; with `dry_run` nothing was, and these are those that would be. Where `action` is
    "check", `wheels` are those of the index, each sound or wrong. `mirror`: of a requirements file. `copied`: what
    `--copy-to` wrote or removed elsewhere. `uses`: ways to install what was added.
    """

    schema: Literal["cuwheel.publish/1"] = "cuwheel.publish/1"
    action: Literal["publish", "check", "upload"] = "publish"
    place: str
    dry_run: bool = False
    wheels: tuple[PublishedWheel, ...]
    channels: tuple[str, ...]
    variants: tuple[PublishedVariant, ...] = ()
    removed: tuple[str, ...] = ()
    yanked: tuple[str, ...] = ()
    unyanked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    mirror: Mirror | None = None
    copied: tuple[Change, ...] = ()
    uses: tuple[Fix, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(each.severity == "error" for each in self.findings)


def publish(request: PublishRequest, *, of_others: bool = False) -> Publish:
    """Decided first: where one wheel is refused, nothing is written. `of_others`: a mirror of their wheels."""
    unattested = tuple(signatures.make_attestations(arrivals.wheel_paths(request.named))) if request.attest else ()
    arrived = arrivals.read_arrivals(request.named, of_others=of_others)
    index = IndexFolder(request.to)
    index.must_be_ours()
    made = variants.MadeVariants(arrivals=(), variants=(), findings=())
    brought = False
    with contextlib.ExitStack() as stack:
        if request.variants and not any(each.refused for each in arrived):
            made = stack.enter_context(variants.made_variants(arrived, index))
            arrived += made.arrivals
        if not request.dry_run and not any(each.refused for each in arrived):
            stack.enter_context(index.locked())
            if request.existing:
                brought = bring_existing(request.existing, index)
        wanted = update.decide(index, [each for each in arrived if not each.refused], request)
        refused = {each.name for each in arrived if each.refused} | wanted.refused.keys()
        todo: list[Step] = []
        if not refused:
            signer = _signer(index, request.sign)
            todo = transaction.steps_of(index, wanted, _generators(index, request), signer)
            if not request.dry_run:
                transaction.carry_out(index, todo, wanted.journal)
    yanked, unyanked = ((), ()) if refused else wanted.withdrawn
    last = {each.path: each for each in todo}  # each path once, as it ends: sums are written twice where something goes
    return Publish(
        place=str(request.to),
        dry_run=request.dry_run,
        wheels=tuple(_wheel(each, wanted, refused) for each in arrived),
        channels=wanted.all_channels,
        variants=() if refused else made.variants,
        removed=() if refused else wanted.gone,
        yanked=yanked,
        unyanked=unyanked,
        changes=tuple(map(_change, last.values())),
        uses=tuple(_uses(index, arrived)) if not (refused or request.dry_run) else (),
        findings=(*_findings(arrived, wanted, request, brought=brought), *made.findings, *unattested),
    )


def _uses(index: IndexFolder, arrived: Sequence[Arrival]) -> Iterator[Fix]:
    """The commands that install what was added, from the folder as it is.

    Where its requirements are not all in the index, pip has to be given the others' index, too.
    """
    facts = next((wheel_facts.parse(each.facts, each.name) for each in arrived if each.facts), None)
    if facts is None:
        return
    folder = files.absolute(index.root)
    wanted = f"{facts.name}=={facts.version}"
    yield Fix.run("cuwheel install", wanted, "--index", folder, changes=("package",))
    simple = (folder / simple_api.SIMPLE).as_uri()
    elsewhere = [
        each for each in requirements.brought(facts.requires_dist) if not (folder / simple_api.SIMPLE / each).is_dir()
    ]
    if not elsewhere:
        yield Fix.run("pip install --index-url", simple, wanted, changes=("package",))
        return
    yield Fix.run(
        "pip install --extra-index-url",
        simple,
        wanted,
        changes=("package",),
        text=f"with pip, which then takes {facts.name} from any index that has this version",
    )


def _generators(index: IndexFolder, request: PublishRequest) -> list[transaction.Generator]:
    """What writes further pages. The page of a catalogue comes before the link to it, and goes after."""
    asked = request.catalogue
    shown = asked != index_folder.NO_CATALOGUE if asked else index.path(index_folder.CATALOGUE_PAGE).exists()
    own: transaction.Generator = functools.partial(page.page_steps, with_catalogue=shown)
    if not asked:
        return [own]
    from cuwheel.delivery import cataloguing  # noqa: PLC0415 - the judge of whole catalogues takes long to import

    def catalogue(_index: IndexFolder, _wanted: Update) -> Iterator[transaction.Write | transaction.Remove]:
        return cataloguing.catalogue_page_steps(asked)

    return [catalogue, own] if shown else [own, catalogue]


def _signer(index: IndexFolder, key: Path | None) -> transaction.Signer | None:
    if key is not None:
        return functools.partial(signatures.sign, key)
    if index.path(index_folder.SIGNATURE).exists():
        raise UsageError("this index is signed, so every change of it must be", hint="--sign ~/.ssh/id_ed25519")
    return None


def _wheel(arrival: Arrival, wanted: Update, refused: Iterable[str]) -> PublishedWheel:
    """Where one is refused, none is added."""
    new = arrival.name in wanted.new
    listed = wanted.published(arrival.name) or arrival.file
    outcome: Outcome = "refused" if arrival.name in refused else "present"
    if new and outcome == "present":
        outcome = "skipped" if refused else "added"
    elif outcome == "present" and wanted.published(arrival.name) is None:  # `--keep` took it away before it came
        outcome = "skipped"
    return PublishedWheel(
        file=arrival.name,
        sha256=arrival.sha256,
        size=arrival.size,
        added=outcome == "added",
        outcome=outcome,
        channels=listed.channels if listed else (),
    )


def _change(step: Step) -> Change:
    if isinstance(step, transaction.Remove):
        return Change(path=step.path, action="removed")
    count = step.size if isinstance(step, transaction.Copy) else len(step.data)
    return Change(path=step.path, action="written", size=count)


def _findings(
    arrived: Sequence[Arrival], wanted: Update, request: PublishRequest, *, brought: bool
) -> Iterator[Finding]:
    """`brought`: the pages to make whole are those of an index that was just copied here, which is no news."""
    if wanted.repairs and not brought:
        yield finding(
            "publish-interrupted",
            "an earlier run was interrupted: its pages are made whole",
            evidence=first_few(wanted.repairs.projects),
        )
    found = [(each.name, finding) for each in arrived for finding in each.findings]
    found += wanted.refused.items()
    if request.files_url:
        found += [
            (
                each.name,
                finding("publish-asset-size", f"it has {size(each.size)}, and release assets may have at most 2 GiB"),
            )
            for each in arrived
            if each.size > _LARGEST_ASSET
        ]
    yield from merged_findings(found)


def merged_findings(found: Iterable[tuple[str, Finding]]) -> tuple[Finding, ...]:
    """One finding for all files of which it says the same; the gravest first."""
    names: dict[Finding, list[str]] = defaultdict(list)
    for name, each in found:
        names[each].append(name)
    made = []
    for each, named in names.items():
        if len(named) == 1:
            made.append(replace(each, about=named[0]))
        else:
            evidence = (*each.evidence, *first_few(named))
            made.append(replace(each, about=f"{len(named)} wheels", evidence=evidence))
    return gravest_first(made)


# An index that is served somewhere, brought into a folder that is to be published in its place.
# Static hosting is replaced whole: what a job without a memory publishes has to have all that was there before.


def bring_existing(place: str, index: IndexFolder) -> bool:
    """Whether it brought one. Nothing happens where the folder has an index, or where none is served yet.

    Under the index's lock. What it writes counts as an interrupted run: the one that follows makes every page of it.
    """
    listing = f"{index_folder.list_page()}.json"
    if index.path(listing).exists() and not index.path(JOURNAL).exists():
        return False
    where = index_folder.open_site(place)
    data = where.read(listing)
    if data is None:
        log.info("there is no index at %s yet: this is the first one", where.name)
        return False
    listed = simple_api.parse_page(data, ProjectList, f"{where.name}/{listing}")
    if listed.schema != SCHEMA:
        raise MalformedError(where.name, "is not an index that cuwheel made")
    pages = {each.name: _served_project(where, each.name) for each in listed.projects}
    everything = [file for page in pages.values() for file in page.files]
    journal = Journal(
        projects=tuple(pages),
        channels=tuple(sorted({channel for page in pages.values() for channel in update.channels_of(page)})),
        files=tuple(each.filename for each in everything),
    )
    with files.errors_of(index.root, "publish again to go on"):
        _write(index, JOURNAL, codec.encode(journal))
        for name, page in pages.items():
            for file in page.files:
                _bring_file(where, name, file, index)
            _write(index, f"{index_folder.project_page(name)}.json", simple_api.encode_page(page))
        for path in (index_folder.SUMS, index_folder.SIGNATURE):
            if (content := where.read(path)) is not None:
                _write(index, path, content)
        _write(index, listing, data)
    return True


def _write(index: IndexFolder, relative: str, data: bytes) -> None:
    files.write(index.place(relative), data)


def _served_project(where: Site, name: str) -> Project:
    if not index_folder.is_project(name):
        raise MalformedError(where.name, f"lists {name[:100]!r}, which is not a normalised name")
    path = f"{index_folder.project_page(name)}.json"
    data = where.read(path)
    if data is None:
        hint = quoting.here(["cuwheel", "publish", "--check", where.name])
        raise UnreadableError(f"{where.name}/{path}", "is listed but missing", hint=hint)
    page = simple_api.parse_page(data, Project, f"{where.name}/{path}")
    problem = index_folder.strange_files(page.files)
    if problem or page.name != name:
        raise MalformedError(f"{where.name}/{path}", problem or f"is the page of {page.name[:100]!r}")
    return page


def _bring_file(where: Site, project: str, file: PublishedFile, index: IndexFolder) -> None:
    page = f"{index_folder.project_page(project)}.json"
    for link, name, sha256 in _links(file):
        with where.file(page, link) as path:
            if path is None:
                raise UnreadableError(f"{where.name}: {name}", "is linked but missing")
            if sha256 and files.sha256(path) != sha256:
                raise MalformedError(f"{where.name}: {name}", "its content is not what the page says")
            files.copy(path, index.place(index_folder.file_path(name)))


def _links(file: PublishedFile) -> Iterator[tuple[str, str, str]]:
    """Link, name and hash of a file, unless it stays where it is, and of what lies beside it."""
    if index_folder.is_here(file.url):
        yield file.url, file.filename, file.sha256
    for suffix, sha256 in file.files_beside():
        yield file.url + suffix, file.filename + suffix, sha256


# `--upload`: wheels to an index that takes uploads, by `uv publish`; its rules are checked before.

PUBLIC = "public"  # in place of an address
_TIMEOUT_S = 6 * 3600.0
_WIDE = "10000"
_LINES = 12
_MARKUP = re.compile(r"<[^<>]{0,200}>")


def upload(
    wheels: Sequence[str | Path],
    url: str,
    *,
    limit: int | None = None,
    dry_run: bool = False,
) -> Publish:
    """`limit`: bytes that a file may have there, where the index has raised its usual limit for this project.

    The first that the server refuses is the last: what is wrong with one (a login) is mostly wrong with all.
    """
    program = process.needed_program("uv", "uploading a wheel")
    arrived = arrivals.read_arrivals(wheels)
    found = [(each.name, finding) for each in arrived for finding in (*each.findings, *_against(each, url, limit))]
    refused = {name for name, finding in found if finding.severity == "error"}
    found += _against_project(arrived, url)
    outcomes: dict[str, Outcome] = dict.fromkeys(refused, "refused")
    if not refused and not dry_run:
        for each in arrived:
            problem = _uploaded(program, each.path, url)
            outcomes[each.name] = "refused" if problem else "uploaded"
            if problem:
                found.append((each.name, problem))
                break
    rest: Outcome = "planned" if dry_run and not refused else "skipped"
    return Publish(
        action="upload",
        place=addresses.parted(url)[0],
        dry_run=dry_run,
        wheels=tuple(
            PublishedWheel(
                file=each.name,
                sha256=each.sha256,
                size=each.size,
                added=outcomes.get(each.name) == "uploaded",
                outcome=outcomes.get(each.name, rest),
            )
            for each in arrived
        ),
        channels=(),
        findings=tuple(merged_findings(found)),
    )


def _against_project(arrived: Sequence[Arrival], url: str) -> Iterator[tuple[str, Finding]]:
    """What the public index says against all files of a project together; what it has already, it alone knows."""
    index = services.public_index()
    sizes: Counter[str] = Counter()
    for each in arrived:
        wheel = index_folder.wheel_name(each.name)
        sizes[wheel.project if wheel else ""] += each.size
    for project, total in sizes.items() if _is_public(url) else ():
        if total > index.largest_project:
            message = f"these have {size(total)}, and {index.name} takes {size(index.largest_project)} of a project"
            fix = "ask the index for more room, slim the wheels (cuwheel slim), or publish them in an index of your own"
            yield project, finding("upload-project-size", message, fix=fix)


def _against(arrival: Arrival, url: str, limit: int | None) -> Iterator[Finding]:
    """What the rules of the public index say against a wheel; any other decides when it is asked."""
    index, wheel = services.public_index(), index_folder.wheel_name(arrival.name)
    if wheel is None or not _is_public(url):
        return
    version = index_folder.version_of(wheel.version)
    if version is not None and version.local and not index.local_versions:
        yield finding("upload-local-version", f"{index.name} takes no local versions (+{version.local})")
    if wheel.variant is not None and not index.variants:
        yield finding("upload-variant", f"{index.name} does not take variant wheels yet")
    strange = [each for each in wheel.platforms if not services.takes_platform(index, each)]
    if strange:
        yield finding("upload-platform", f"{index.name} does not take the platform {', '.join(strange)}")
    if index.normalised_names and wheel.name != (named := wheel.project.replace("-", "_")):
        yield finding("upload-name", f"{index.name} wants the name to begin with {named!r}, not {wheel.name!r}")
    largest = limit or index.largest
    if arrival.size > largest:
        yield finding(
            "upload-size",
            f"it has {size(arrival.size)}, and {index.name} takes files of at most {size(largest)}"
            + ("" if limit else ", unless it has raised that for your project"),
        )


def _is_public(url: str) -> bool:
    return url == PUBLIC or resolver.is_public(url)


def _uploaded(program: str, wheel: Path, url: str) -> Finding | None:
    """What the server, or uv, has against it."""
    address, login = addresses.parted(url)
    environ = {**os.environ, "COLUMNS": _WIDE}  # sentences, not lines wrapped for a terminal
    if login:  # in its environment: words of a command can be seen by everybody on the machine
        environ |= {"UV_PUBLISH_USERNAME": login.username, "UV_PUBLISH_PASSWORD": login.password or ""}
    where = () if url == PUBLIC else ("--publish-url", address)  # uv's own default is the public index
    command = (program, "publish", *where, "--no-progress", wheel)
    done = process.run(command, timeout=_TIMEOUT_S, check=False, env=environ)
    if done.status == 0:
        return None
    printed = masking.known(_MARKUP.sub("", done.stderr), environ)
    lines = [line.strip() for line in printed.splitlines() if line.strip() and "{" not in line]
    return finding(
        "upload-failed",
        "it was not uploaded",
        evidence=tuple(lines[-_LINES:]),
        fix="check the address, the login (UV_PUBLISH_TOKEN, or _USERNAME and _PASSWORD), and whether it is there"
        + (f"; a release takes no file after {services.public_index().days} days" if _is_public(url) else ""),
    )
