"""`cuwheel ci`: the workflow of a project, written, renewed, or held against the one that is there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import DecodeError, Struct
from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cuwheel.building import config, sources
from cuwheel.delivery import candidates, simple_api
from cuwheel.delivery.workflows import rendering
from cuwheel.delivery.workflows.problems import (
    differences_of_pipeline,
    differences_of_workflow,
    expressions_in_scripts,
    load_yaml,
    mapping,
    traps_in_tables,
    traps_in_workflow,
    wrong_references,
)
from cuwheel.delivery.workflows.rendering import MATRIX_KEYS, Row, State
from cuwheel.errors import NetworkError, UsageError
from cuwheel.facts import services
from cuwheel.machine import fleet
from cuwheel.network import client
from cuwheel.support import codec, files, limited, process
from cuwheel.support.answer import Answer
from cuwheel.support.finding import finding
from cuwheel.verdicts.planning.plan import ALL, find_toolkits
from cuwheel_core.errors import MalformedError, UnknownNameError, UnreadableError
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import first_few

if TYPE_CHECKING:
    from cuwheel.building.tables import Table
    from cuwheel.delivery.request import CiRequest
    from cuwheel.machine.fleet import Machine


_LARGEST = 4 << 20
_AS_ERRORS = ("ci-no-cuda", "ci-no-runner")  # warnings where the file is written, errors where it is checked
_CHANGING = ("added", "renewed", "removed")


class BlockState(Struct, frozen=True, kw_only=True):
    """`edited`: somebody changed it, and it stays so."""

    name: str
    state: State


class Ci(Answer, frozen=True, kw_only=True):
    """`action`: `write` (`written` says whether the file was), `check`, `matrix` or `watch`.

    `text`: the file as it is to be. `blocks`: what is cuwheel's of it. `rows`: the jobs of a matrix. `upstream`: what
    was found of the project that is watched.
    """

    schema: Literal["cuwheel.ci/1"] = "cuwheel.ci/1"
    action: Literal["write", "check", "matrix", "watch"]
    service: str = ""
    file: str = ""
    text: str = ""
    blocks: tuple[BlockState, ...] = ()
    changed: bool = False
    written: bool = False
    rows: tuple[Row, ...] = ()
    upstream: Watched | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(each.severity == "error" for each in self.findings)


def write_workflow(request: CiRequest) -> Ci:
    """Decided, and with `write` carried out."""
    path, present, wanted, further = _both(request)
    if present is None:
        states: dict[str, State] = {each.name: "added" for each in rendering.find_blocks(wanted)}
        text = wanted
    else:
        _must_be_ours(request, path, present)
        text, states = rendering.merge_blocks(present, wanted)
    changed = present is None or any(each in _CHANGING for each in states.values())
    if request.write and changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, text.encode())
    return Ci(
        action="write",
        service=request.service,
        file=_shown(path, request.source),
        text=text,
        blocks=tuple(BlockState(name=name, state=state) for name, state in states.items()),
        changed=changed,
        written=request.write and changed,
        findings=(*_edited(states, request.service), *further),
    )


def check_workflow(request: CiRequest) -> Ci:
    """What is there against what would be written, and traps in it. Nothing is changed."""
    path, present, wanted, further = _both(request)
    further += _unavailable(request)
    shown = _shown(path, request.source)
    found: list[Finding] = []
    states: dict[str, State] = {}
    if present is None:
        hint = f"cuwheel ci {request.service} --write"
        found.append(finding("ci-missing", f"{shown} is not there", fix=hint))
    else:
        _, states = rendering.merge_blocks(present, wanted)
        found += _compared(request, shown, present, wanted)
    return Ci(
        action="check",
        service=request.service,
        file=shown,
        text=wanted,
        blocks=tuple(BlockState(name=name, state=state) for name, state in states.items()),
        changed=present is None or any(each in _CHANGING for each in states.values()),
        findings=(*found, *(replace(each, severity="error") if each.rule in _AS_ERRORS else each for each in further)),
    )


def _both(request: CiRequest) -> tuple[Path, str | None, str, list[Finding]]:
    """The file, what is in it, what would be, and what of the configuration it does not do."""
    folder = request.source
    found = config.find_configuration(folder, request.config, {})
    path = request.file or _own_place(folder, rendering.path_of(request.service, request.cuda))
    own = _shown(found.path, folder) if found.path else ""
    names = config.machine_names(found.table, found.path, folder)
    machines = () if ALL in map(str.lower, names) else fleet.machines_named(names)
    wanted = rendering.render(request.service, found.table, own, request.cuda, machines)
    data = files.read_if_present(path, _LARGEST, "a workflow")
    try:
        return path, None if data is None else data.decode(), wanted, list(_further(request, found.table, machines))
    except UnicodeDecodeError as error:
        raise MalformedError(path, f"is not UTF-8: {error.reason}") from error


def _own_place(source: Path, name: str) -> Path:
    """Nobody named it: a link on the way would lead what is written out of the project. Services follow none either."""
    path = source / name
    for each in (path, *path.parents):
        if each == source:
            break
        if each.is_symlink():
            raise MalformedError(each, "is a link: nothing is written through it", hint="name the file with --file")
    return path


def _further(request: CiRequest, table: Table, machines: Sequence[Machine]) -> Iterator[Finding]:
    # A farm builds the source of others, which is not here.
    is_here = table.gate.device_code and not table.ci.upstream and request.source.is_dir()
    if is_here and not sources.mentions_cuda(request.source, list(sources.walked(request.source, set()))):
        yield finding(
            "ci-no-cuda",
            "the project has no CUDA code: no .cu file, and no build file that mentions CUDA",
        )
    yield from (finding("ci-no-runner", message) for message in _without_runner(table, machines))
    others = table.cuda[1:]
    if request.service == "cibuildwheel" and request.cuda is None and others:
        yield finding(
            "ci-one-cuda",
            f"these tables are for CUDA {table.cuda[0]}, and the configuration also names {', '.join(others)}",
            fix=f"cuwheel ci cibuildwheel --cuda {others[0]} --write writes a file for it, for cibuildwheel to read",
        )


def _without_runner(table: Table, machines: Sequence[Machine]) -> Iterator[str]:
    """Machines that no job builds for, and jobs that no machine is for."""
    cpus = rendering.cpus_of(table, machines)
    for machine in machines:
        if machine.os == "windows" and not table.ci.windows:
            yield f"{machine.name} runs Windows, and nothing is built for it: windows = true in [tool.cuwheel.ci]"
        elif machine.os != "windows" and machine.cpu not in (None, *cpus):
            known = machine.cpu in services.linux_runners()
            way = (
                f"cpus = {[*cpus, machine.cpu]} in [tool.cuwheel.ci]".replace("'", '"') if known else "no runner has it"
            )
            yield f"{machine.name} has {machine.cpu}, and the jobs build for {', '.join(cpus)}: {way}"
        elif machine.runs_l4t:
            joined = toolkits.joined_arm64(machine.capability)
            or_newer = f", or with CUDA {joined.cuda} or later" if joined else ""
            for row in find_toolkits(table.cuda, []):
                if joined is None or not versions.at_least(row.version, joined.cuda):
                    runs = "is not known to run" if toolkits.one_arm64(row) else "does not run"
                    yield (
                        f"{machine.name} is a Jetson, and arm64 runners are servers: it {runs} what they build "
                        f"with CUDA {row.version}. Build it on the Jetson{or_newer}"
                    )
    for cpu in cpus:
        if machines and not any(each.os != "windows" and each.cpu in (None, cpu) for each in machines):
            yield f"no machine has {cpu}: its jobs fail. Leave it out of cpus in [tool.cuwheel.ci]"


def _unavailable(request: CiRequest) -> Iterator[Finding]:
    """The first step of every job installs cuwheel: whether that can be had at all."""
    if request.service == "cibuildwheel":
        return
    for wanted in rendering.installed_by_jobs(config.find_configuration(request.source, request.config, {}).table):
        try:
            problem = why_not_available(wanted, request.source)
        except NetworkError as error:
            told = f"nobody can tell from here whether the jobs can install {wanted}: {error.message}"
            yield replace(finding("ci-install-unavailable", told), severity="warning")
        else:
            if problem:
                yield finding("ci-install-unavailable", f"the jobs begin by installing {wanted}, and {problem}")


def why_not_available(wanted: str, repository: Path) -> str:
    """Why pip cannot install this wheel of the repository, address or requirement; empty where it can."""
    place = wanted.partition(".whl")[0] + ".whl"
    if wanted.startswith("https://"):
        try:
            with client.request("HEAD", place):
                return ""
        except client.NotThereError:
            return "nothing is at that address"
    if ".whl" in wanted and "@" not in wanted:
        return "" if (repository / place).is_file() else "the repository has no such file"
    requirement = candidates.parse_requirement(wanted)
    if requirement.url:
        return why_not_available(requirement.url, repository) if requirement.url.startswith("https://") else ""
    try:
        with client.Session() as session:
            places = candidates.configured_places(session.settings)
            listed = candidates.list_candidates(requirement, places, session)
    except UnknownNameError:
        listed = ()
    return "" if listed else "the indexes that pip is configured with here have no such release"


def _must_be_ours(request: CiRequest, path: Path, present: str) -> None:
    if rendering.find_blocks(present) or (request.service == "cibuildwheel" and "[tool.cibuildwheel" not in present):
        return
    what = "has [tool.cibuildwheel] already" if request.service == "cibuildwheel" else "was not written by cuwheel"
    raise UsageError(
        f"{path} {what}",
        hint=f"cuwheel ci {request.service} --check says what differs; --file OTHER writes beside it",
    )


def _compared(request: CiRequest, shown: str, present: str, wanted: str) -> Iterator[Finding]:
    if request.service == "cibuildwheel":
        tool = mapping(_toml(present, shown).get("tool"))
        own = mapping(tool.get("cibuildwheel"))
        ways = list(_of_tables(wanted, own))
        yield from traps_in_tables(own, shown)
    else:
        own, made = load_yaml(present, shown), load_yaml(wanted, "what would be written")
        compare = differences_of_workflow if request.service == "github" else differences_of_pipeline
        ways = list(compare(made, own))
        if request.service == "github":
            yield from _found("ci-reference", shown, wrong_references(own, MATRIX_KEYS), "correct the name")
            yield from _found("ci-injection", shown, expressions_in_scripts(own), 'hand it over in env: "$NAME"')
        yield from traps_in_workflow(own, shown, request.service)
    if ways:
        yield finding(
            "ci-differs",
            f"{shown} differs from what would be written in {len(ways)} {'way' if len(ways) == 1 else 'ways'}",
            evidence=first_few(ways, 40),
            fix=f"cuwheel ci {request.service} --write renews what nobody changed by hand; it writes a block anew that "
            "you delete",
        )


def _toml(text: str, shown: str) -> dict[str, object]:
    try:
        return codec.parse_toml(text.encode())
    except DecodeError as error:
        raise MalformedError(shown, f"is not valid TOML: {error}") from error


def _of_tables(wanted: str, own: dict[str, object]) -> Iterator[str]:
    made = codec.parse_toml(wanted.encode())["tool"]["cibuildwheel"]
    if not own:
        yield "[tool.cibuildwheel] is missing"
        return
    yield from _keys(made, own, "tool.cibuildwheel")


def _keys(made: dict[str, object], own: object, where: str) -> Iterator[str]:
    for key, value in made.items():
        present = own.get(key) if isinstance(own, dict) else None
        if isinstance(value, dict):
            yield from _keys(value, present, f"{where}.{key}")
        elif present != value:
            yield f"{where}.{key} is {present!r} and should be {value!r}"


def _found(rule: str, shown: str, problems: Iterator[str], fix: str) -> Iterator[Finding]:
    found = list(problems)
    if found:
        message = f"{shown}: {found[0]}"
        yield finding(rule, message, evidence=first_few(found[1:], 40), fix=fix)


def _edited(states: dict[str, State], service: str) -> Iterator[Finding]:
    if edited := [name for name, state in states.items() if state == "edited"]:
        yield finding(
            "ci-edited",
            f"changed by hand, and kept as they are: {', '.join(edited)}",
            fix=f"cuwheel ci {service} --check says what differs; delete a block to have it written anew",
        )


def _shown(path: Path, source: Path) -> str:
    try:
        return path.absolute().relative_to(source.absolute()).as_posix()
    except ValueError:
        return str(path)


# `cuwheel ci watch`: whether upstream has a release that was not built yet.

_TIMEOUT_S = 120.0
_TAG = re.compile(r"^[0-9a-f]{40,64}\trefs/tags/(\S+?)(\^\{\})?$", re.ASCII)
_VERSION = re.compile(r"(?:^|[^0-9A-Za-z])v?(\d+(?:\.\d+)+[0-9A-Za-z.]*)$", re.ASCII)
_GIT = ("https://", "http://", "file://", "ssh://", "git@")


class Release(Struct, frozen=True, kw_only=True):
    """`ref`: the tag in a repository, or the version."""

    version: str
    ref: str


class Watched(Struct, frozen=True, kw_only=True):
    """`new`: upstream has a release that is later than all that were built. `fingerprint`: of that release."""

    upstream: str
    newest: Release
    built: str
    new: bool
    fingerprint: str

    @property
    def title(self) -> str:
        return f"{self.upstream} {self.newest.version} is out"


def watch(upstream: str, built: str, name: str = "") -> Watched:
    """`upstream`: a package, or the address of a git repository. `built`: an index, or a version.

    `name`: of the package in that index, if it is not upstream's.
    """
    found = list(_tags(upstream) if upstream.startswith(_GIT) else _released(upstream))
    if not found:
        raise UnreadableError(upstream, "has no release", hint="cuwheel ci watch torch --built 2.10")
    newest = max(found, key=lambda each: limited.version(each.version))
    if not name and upstream.startswith(_GIT):
        name = upstream.rstrip("/").removesuffix(".git").rpartition("/")[2]
    before = _built(built, name or upstream)
    return Watched(
        upstream=upstream,
        newest=newest,
        built=str(before) if before else "",
        new=before is None or limited.version(newest.version) > before,
        fingerprint=hashlib.sha256(f"{upstream} {newest.version}".encode()).hexdigest()[:20],
    )


def _tags(url: str) -> Iterator[Release]:
    done = process.run(("git", "ls-remote", "--tags", "--", url), timeout=_TIMEOUT_S)
    for line in done.stdout.splitlines():
        tag = _TAG.match(line)
        version = tag and _VERSION.search(tag[1])
        if tag and version and (parsed := _final(version[1])):
            yield Release(version=str(parsed), ref=tag[1])


def _released(name: str, indexes: Sequence[str] = ()) -> Iterator[Release]:
    """The releases on the indexes that pip or uv is configured with, or on these alone; withdrawn ones do not count."""
    with client.Session() as session:
        places = candidates.configured_places(session.settings, indexes=indexes)
        if indexes:  # that upstream has a release does not mean that it was built
            places = places._replace(indexes=(), find_links=())
        for each in candidates.list_candidates(candidates.parse_requirement(name), places, session):
            if each.listing.yanked is None and (parsed := _final(str(each.version))):
                yield Release(version=str(parsed), ref=str(parsed))


def _final(text: str) -> Version | None:
    """Previews are nobody's to rebuild for."""
    try:
        parsed = limited.version(text)
    except InvalidVersion:
        return None
    return None if parsed.is_prerelease else limited.version(parsed.public)


def _built(place: str, name: str) -> Version | None:
    """The newest that was built."""
    if "://" not in place and (version := _final(place)):
        return version
    index = place.rstrip("/").removesuffix(f"/{simple_api.SIMPLE}")
    try:
        found = list(_released(name, [f"{index}/{simple_api.SIMPLE}" if "://" in index else index]))
    except UnknownNameError:  # nothing was built yet
        return None
    return max((limited.version(each.version) for each in found), default=None)


def output(watched: Watched) -> str:
    """Lines for $GITHUB_OUTPUT; none of them has a line break of its own, since versions and tags have none."""
    rows = {
        "new": "true" if watched.new else "false",
        "version": watched.newest.version,
        "ref": watched.newest.ref,
        "title": watched.title,
        "fingerprint": watched.fingerprint,
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())
