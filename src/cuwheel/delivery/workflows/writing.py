"""`cuwheel ci`: the workflow of a project, written, renewed, or held against the one that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct
from msgspec.structs import replace

from cuwheel.building import config, pyproject, sources
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
from cuwheel.delivery.workflows.rendering import MATRIX_KEYS, State
from cuwheel.errors import MalformedError, UsageError
from cuwheel.support import codec, files
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.building.tables import Table
    from cuwheel.delivery.workflows.request import CiRequest

_LARGEST = 4 << 20
_NO_CUDA = "ci-no-cuda"  # a warning where the file is written, an error where it is checked
_CHANGING = ("added", "renewed", "removed")


class BlockState(Struct, frozen=True, kw_only=True):
    """`edited`: somebody changed it, and it stays so."""

    name: str
    state: State


class Workflow(Struct, frozen=True, kw_only=True):
    """`text`: the whole file, as it is to be. `changed`: whether that is another than it was."""

    service: str
    file: str
    text: str
    blocks: tuple[BlockState, ...]
    changed: bool
    written: bool
    findings: tuple[Finding, ...] = ()


def workflow(request: CiRequest) -> Workflow:
    """Decided, and with `write` carried out."""
    path, there, wanted, further = _both(request)
    if there is None:
        states: dict[str, State] = {each.name: "added" for each in rendering.find_blocks(wanted)}
        text = wanted
    else:
        _must_be_ours(request, path, there)
        text, states = rendering.merge_blocks(there, wanted)
    changed = there is None or any(each in _CHANGING for each in states.values())
    if request.write and changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, text.encode())
    return Workflow(
        service=request.service,
        file=_shown(path, request.source),
        text=text,
        blocks=tuple(BlockState(name=name, state=state) for name, state in states.items()),
        changed=changed,
        written=request.write and changed,
        findings=(*_edited(states), *further),
    )


def check(request: CiRequest) -> Workflow:
    """What is there against what would be written, and traps in it. Nothing is changed."""
    path, there, wanted, further = _both(request)
    shown = _shown(path, request.source)
    found: list[Finding] = []
    states: dict[str, State] = {}
    if there is None:
        hint = f"cuwheel ci {request.service} --write"
        found.append(Finding(rule="ci-missing", severity="error", message=f"{shown} is not there", fix=hint))
    else:
        _, states = rendering.merge_blocks(there, wanted)
        found += _compared(request, shown, there, wanted)
    return Workflow(
        service=request.service,
        file=shown,
        text=wanted,
        blocks=tuple(BlockState(name=name, state=state) for name, state in states.items()),
        changed=there is None or any(each in _CHANGING for each in states.values()),
        written=False,
        findings=(*found, *(replace(each, severity="error") if each.rule == _NO_CUDA else each for each in further)),
    )


def _both(request: CiRequest) -> tuple[Path, str | None, str, list[Finding]]:
    """The file, what is in it, what would be, and what of the configuration it does not do."""
    folder = request.source
    found = config.find(folder, request.config, {})
    path = request.file or _own_place(folder, rendering.path_of(request.service, request.cuda))
    own = _shown(found.path, folder) if found.path else ""
    wanted = rendering.render(request.service, found.table, own, request.cuda)
    data = files.read_if_present(path, _LARGEST, "a workflow")
    try:
        return path, None if data is None else data.decode(), wanted, list(_further(request, found.table))
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


def _further(request: CiRequest, table: Table) -> Iterator[Finding]:
    # A farm builds the source of others, which is not here.
    is_here = table.gate.device_code and not table.ci.upstream and request.source.is_dir()
    if is_here and not pyproject.has_cuda(request.source, list(sources.walked(request.source, set()))):
        yield Finding(
            rule=_NO_CUDA,
            severity="warning",
            message="the project has no CUDA code: no .cu file, and no build file that mentions CUDA",
            fix="nothing of it needs cuwheel: take any workflow that builds wheels; for a wrapper of the driver's API "
            "set device-code = false in [tool.cuwheel.gate]",
        )
    others = table.cuda[1:]
    if request.service == "cibuildwheel" and request.cuda is None and others:
        yield Finding(
            rule="ci-one-cuda",
            severity="note",
            message=f"these tables are for CUDA {table.cuda[0]}, and the configuration also names {', '.join(others)}",
            fix=f"cuwheel ci cibuildwheel --cuda {others[0]} --write writes a file for it, for cibuildwheel to read",
        )


def _must_be_ours(request: CiRequest, path: Path, there: str) -> None:
    if rendering.find_blocks(there) or (request.service == "cibuildwheel" and "[tool.cibuildwheel" not in there):
        return
    what = "has [tool.cibuildwheel] already" if request.service == "cibuildwheel" else "was not written by cuwheel"
    raise UsageError(
        f"{path} {what}",
        hint=f"cuwheel ci {request.service} --check says what differs; --file OTHER writes beside it",
    )


def _compared(request: CiRequest, shown: str, there: str, wanted: str) -> Iterator[Finding]:
    fix = f"cuwheel ci {request.service} --write"
    if request.service == "cibuildwheel":
        tool = mapping(_toml(there, shown).get("tool"))
        own = mapping(tool.get("cibuildwheel"))
        ways = list(_of_tables(wanted, own))
        yield from traps_in_tables(own, shown)
    else:
        own, made = load_yaml(there, shown), load_yaml(wanted, "what would be written")
        compare = differences_of_workflow if request.service == "github" else differences_of_pipeline
        ways = list(compare(made, own))
        if request.service == "github":
            yield from _found("ci-reference", shown, wrong_references(own, MATRIX_KEYS), "correct the name")
            yield from _found("ci-injection", shown, expressions_in_scripts(own), 'hand it over in env: "$NAME"')
        yield from traps_in_workflow(own, shown, request.service)
    if ways:
        yield Finding(
            rule="ci-differs",
            severity="error",
            message=f"{shown} differs from what would be written in {len(ways)} {'way' if len(ways) == 1 else 'ways'}",
            evidence=first_few(ways, 40),
            fix=fix,
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
        there = own.get(key) if isinstance(own, dict) else None
        if isinstance(value, dict):
            yield from _keys(value, there, f"{where}.{key}")
        elif there != value:
            yield f"{where}.{key} is {there!r} and should be {value!r}"


def _found(rule: str, shown: str, problems: Iterator[str], fix: str) -> Iterator[Finding]:
    found = list(problems)
    if found:
        message = f"{shown}: {found[0]}"
        yield Finding(rule=rule, severity="error", message=message, evidence=first_few(found[1:], 40), fix=fix)


def _edited(states: dict[str, State]) -> Iterator[Finding]:
    if edited := [name for name, state in states.items() if state == "edited"]:
        yield Finding(
            rule="ci-edited",
            severity="note",
            message=f"changed by hand, and kept as they are: {', '.join(edited)}",
            fix="cuwheel ci --check says what differs; delete a block to have it written anew",
        )


def _shown(path: Path, source: Path) -> str:
    try:
        return path.absolute().relative_to(source.absolute()).as_posix()
    except ValueError:
        return str(path)
