"""The text of a workflow, made of a template, a project's configuration and the matrix that a build plans.

What is ours in a file stands in marked blocks: they are renewed, what somebody changed stays, all else is left alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import jinja2
from msgspec import Struct, structs

from cuwheel.building import tables
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.facts import services, spellings, toolchain_parts
from cuwheel.facts import services as facts
from cuwheel.support import codec
from cuwheel.verdicts.planning import plans
from cuwheel.version import __version__
from cuwheel_core.support.opening import head

if TYPE_CHECKING:
    from cuwheel.building.tables import RepairTable, Table
    from cuwheel.delivery.request import Service
    from cuwheel.machine.fleet import Machine


# Marked blocks. A block begins with a line that has its name and the hash of its content: a change by hand shows.

State: TypeAlias = Literal["same", "added", "renewed", "removed", "edited"]
_BEGIN = re.compile(r"^[ \t]*# >>> cuwheel (?P<name>[a-z0-9_-]{1,60}) (?P<hash>[0-9a-f]{12})[ \t]*$")
_END = re.compile(r"^[ \t]*# <<< cuwheel (?P<name>[a-z0-9_-]{1,60})[ \t]*$")
_PENDING = "0" * 12
_SPECIAL_IN_QUOTES = re.compile(r'[\\"$`]')


class Block(Struct, frozen=True, kw_only=True):
    """`first`, `last`: the lines of its marks."""

    name: str
    first: int
    last: int
    hash: str
    content: str

    @property
    def edited(self) -> bool:
        return self.hash != digest_of(self.content)


def begin_mark(name: str, indent: int = 0) -> str:
    """A mark whose hash `sealed` writes."""
    return f"{' ' * indent}# >>> cuwheel {name} {_PENDING}"


def end_mark(name: str, indent: int = 0) -> str:
    return f"{' ' * indent}# <<< cuwheel {name}"


def digest_of(content: str) -> str:
    """Line ends do not count: some editors and git change them."""
    return hashlib.sha256(content.replace("\r\n", "\n").encode()).hexdigest()[:12]


def seal_blocks(text: str) -> str:
    lines = text.splitlines()
    for each in find_blocks(text):
        lines[each.first] = lines[each.first].replace(_PENDING, digest_of(each.content))
    return "\n".join(lines) + "\n"


def find_blocks(text: str) -> list[Block]:
    """In the order of the text; a mark without its other half is no block."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    first, lines = 0, text.splitlines()
    for number, line in enumerate(lines):
        if match := _BEGIN.match(line):
            opened, first = match, number
        elif (match := _END.match(line)) and opened and match["name"] == opened["name"]:
            content = "\n".join(lines[first + 1 : number])
            found.append(Block(name=match["name"], first=first, last=number, hash=opened["hash"], content=content))
            opened = None
    return found


def merge_blocks(present: str, wanted: str) -> tuple[str, dict[str, State]]:
    """A text with its blocks as `wanted` has them, except those that somebody changed; and what became of each.

    A block that is not there yet comes behind the one that is before it in `wanted`, or at the end.
    """
    own = {each.name: each for each in find_blocks(present)}
    new = {each.name: each for each in find_blocks(wanted)}
    lines, fresh = present.splitlines(), wanted.splitlines()
    states: dict[str, State] = {}
    texts: dict[str, list[str]] = {}
    for name, block in new.items():
        before = own.get(name)
        if before is None:
            states[name] = "added"
        elif before.content == block.content:
            states[name] = "same"
        else:
            states[name] = "edited" if before.edited else "renewed"
        texts[name] = fresh[block.first : block.last + 1]
    for name, block in own.items():
        if name not in new:
            states[name] = "edited" if block.edited else "removed"
    return "\n".join(_spliced(lines, own, texts, states)) + "\n", states


def _spliced(
    lines: list[str], own: dict[str, Block], texts: dict[str, list[str]], states: dict[str, State]
) -> list[str]:
    missing: dict[str, list[list[str]]] = {}  # by the block that they come behind
    last = ""
    for name, text in texts.items():
        if states[name] == "added":
            missing.setdefault(last, []).append(text)
        else:
            last = name
    made: list[str] = []
    at = 0
    for block in sorted(own.values(), key=lambda each: each.first):
        made += lines[at : block.first]
        at = block.last + 1
        if states[block.name] in ("same", "edited"):
            made += lines[block.first : at]
        elif states[block.name] == "renewed":
            made += texts[block.name]
        for text in missing.pop(block.name, ()):
            made += ["", *text]
    made += lines[at:]
    for rest in missing.values():
        for text in rest:
            made += ["", *text]
    return made


# The matrix of a workflow, from what `cuwheel build --dry-run --json` plans: nobody edits YAML to add a GPU.

_SCHEMA = "cuwheel.build/1"
_NAMING = "naming-chosen"  # the finding of a plan for several CUDA versions, which one job alone does not see
_LARGEST_PLAN = 32 << 20
_MOST_JOBS = 256  # jobs of one matrix, at GitHub


class _Job(Struct, frozen=True):
    id: str
    cuda: str
    python: str
    outcome: str
    reason: str = ""


class _Finding(Struct, frozen=True):
    rule: str


class _Plan(Struct, frozen=True):
    schema: str
    jobs: tuple[_Job, ...]
    findings: tuple[_Finding, ...] = ()


class Row(Struct, frozen=True, kw_only=True):
    """A job of the matrix. `naming`: how CUDA appears in the wheel's name, where the plan chose it.

    `image`: the container that it runs in, or nothing.
    """

    name: str
    cuda: str
    python: str
    cpu: str
    runner: str
    naming: str = ""
    image: str = ""


MATRIX_KEYS = tuple(each.name for each in structs.fields(Row))


def matrix_rows(plan: Path, cpus: Sequence[str], *, windows: bool = False, image: str = "") -> tuple[Row, ...]:
    """For Linux with each of these processors, then for Windows."""
    found = _read_plan(plan)
    failed = [each for each in found.jobs if each.outcome != "planned" and each.reason]
    if failed or not found.jobs:
        why = "; ".join(f"{each.id}: {each.reason.splitlines()[0][:200]}" for each in failed)
        raise UsageError(f"this plan cannot be built: {why or 'it is empty'}", hint="cuwheel build --dry-run shows it")
    naming = "local" if any(each.rule == _NAMING for each in found.findings) else ""
    places = [(cpu, cpu, services.linux_runners()[cpu], image) for cpu in cpus]
    if windows:
        cpu, label = services.windows_runner()
        places.append(("windows", cpu, label, ""))
    made = tuple(
        Row(
            name=f"{job.id}-{place}",
            cuda=job.cuda,
            python=job.python,
            cpu=cpu,
            runner=label,
            naming=naming,
            image=image_of_job(container, job.cuda, cpu),
        )
        for job in found.jobs
        for place, cpu, label, container in places
    )
    if len(made) > _MOST_JOBS:
        raise UsageError(f"this makes {len(made)} jobs, and a matrix has at most {_MOST_JOBS}", hint="--cuda, --python")
    return made


def _read_plan(plan: Path) -> _Plan:
    hint = "cuwheel build --dry-run --json > plan.json"
    found = codec.parse(head(plan, _LARGEST_PLAN), _Plan, plan, "the plan of a build", hint=hint)
    if found.schema != _SCHEMA:
        raise NewerSchemaError(plan, found.schema, _SCHEMA)
    return found


def image_of_job(image: str, cuda: str, cpu: str) -> str:
    """The image of one job."""
    return image.replace("{cuda}", cuda.replace(".", "_")).replace("{cpu}", cpu)


def matrix_output(made: Sequence[Row]) -> str:
    """Lines for $GITHUB_OUTPUT: all jobs, and those whose kits fit the machine with a GPU: the first processor's."""
    kits = [each for each in made if each.cpu == made[0].cpu and each.runner == made[0].runner]
    named = {"matrix": made, "kits": kits}
    return "".join(f"{name}={codec.encode({'include': list(rows)}).decode()}\n" for name, rows in named.items())


_TEMPLATES = Path(__file__).with_name("templates")
_FILES: dict[str, str] = {"github": "github.yml.j2", "gitlab": "gitlab.yml.j2", "cibuildwheel": "cibuildwheel.toml.j2"}
PATHS: dict[str, str] = {
    "github": ".github/workflows/wheels.yml",
    "gitlab": ".gitlab-ci.yml",
    "cibuildwheel": "pyproject.toml",
}
_FURTHER = "ci/cibuildwheel-cu{digits}.toml"  # for a CUDA version that is asked for
_MANYLINUX = "manylinux_2_28"  # a name for which each cibuildwheel has an image with a date
_UPSTREAM = "upstream"
MIRROR = "ci/cuda-{cuda}"  # what `cuwheel toolchain fetch` put there: a folder for each version


def cpus_of(table: Table, machines: Sequence[Machine]) -> tuple[str, ...]:
    """The processors of the jobs: as configured, else that of all machines which the wheels are for."""
    named = {each.cpu for each in machines}
    own = named.pop() if len(named) == 1 else None
    known = facts.linux_runners()
    return table.ci.cpus or (own if own in known else next(iter(known)),)


def render(
    service: Service, table: Table, config: str = "", cuda: str | None = None, machines: Sequence[Machine] = ()
) -> str:
    """`config`: the file with the configuration. `cuda`: of the tables of cibuildwheel, if not the first.

    `machines`: those that the wheels are for.
    """
    ci = structs.replace(table.ci, cpus=cpus_of(table, machines))
    table = structs.replace(table, ci=ci)
    config_option = f" --config {shlex.quote(config)}" if ci.upstream and config else ""  # the source does not have it
    known: dict[str, object] = {
        "ci": ci,
        "use": _pinned_action,
        "runners": facts.linux_runners(),
        "cuwheel": installed_by_jobs(table),
        "source": f"{_UPSTREAM}{config_option}" if ci.upstream else ".",
        "config": config_option,
        "cache": table.cache,
        "tags_are_refs": bool(ci.upstream) and "://" in ci.watch,
        "begin": begin_mark,
        "end": end_mark,
    }
    if service != "github" and not table.cuda:
        raise UsageError("the configuration names no CUDA version", hint='cuda = ["13.0"] in [tool.cuwheel]')
    if service == "gitlab":
        known |= _of_gitlab(table)
    elif service == "cibuildwheel":
        known |= _of_cibuildwheel(table, config, cuda or table.cuda[0])
    return seal_blocks(_environment().get_template(_FILES[service]).render(known))


def installed_by_jobs(table: Table) -> tuple[str, ...]:
    """What pip installs in every job: by default the cuwheel that writes the file."""
    return table.ci.installs or (f"cuwheel[{'build,cache' if table.cache else 'build'}]=={__version__}",)


def _of_gitlab(table: Table) -> dict[str, object]:
    """It has no matrix at run time: its jobs are written out."""
    ci = table.ci
    stages = ["build", *(["prove"] if ci.gpu_runner else []), *(["publish"] if ci.publish != "none" else [])]
    own = ci.upstream if "://" in ci.upstream else f"$CI_SERVER_URL/{ci.upstream}.git"
    return {
        "rows": tuple(_planned_rows(table)),
        "abi": _abi,
        "stages": stages,
        "upstream_address": own,
        "before": shlex.quote(ci.index) if ci.index else '"$CI_PAGES_URL"',
    }


def _of_cibuildwheel(table: Table, config: str, cuda: str) -> dict[str, object]:
    ci = table.ci
    return {
        "cuda": cuda,
        "with_parts": f" --with {','.join(table.components)}" if table.components else "",
        "builds": [f"cp{each.replace('.', '')}-manylinux_*" for each in table.python or (ci.python,)],
        "image": lambda cpu: image_of_job(ci.image, cuda, cpu) or _MANYLINUX,
        "own_python": _abi(ci.python),
        "config_file": config or PATHS["cibuildwheel"],
        "mirror": MIRROR.format(cuda=cuda),
        "provider": "index" if toolchain_parts.nvcc_on_index(cuda) else "redist,conda",
        "repair": "".join(_repair_options(table.repair, cuda)),
        "is_repaired": table.repair.enabled is not False,
        "variables": _variables(table, cuda),
    }


def _repair_options(repair: RepairTable, cuda: str) -> Iterator[str]:
    """`[tool.cuwheel.repair]` as options of `cuwheel repair`, with a space before each."""
    if repair.policy:
        yield f" --policy {shlex.quote(repair.policy)}"
    yield from (f" --exclude {shlex.quote(each)}" for each in repair.exclude)
    if repair.requires:
        yield f" --requires --cuda {cuda}"


def _abi(python: str) -> str:
    """The folder of a Python in the manylinux images."""
    tag = f"cp{python.replace('.', '')}"
    return f"{tag}-{tag}"


def _planned_rows(table: Table) -> Iterator[Row]:
    naming = "local" if len(table.cuda) > 1 and table.naming is None and not table.merge else ""
    for cuda, python, cpu in product(table.cuda, table.python or (table.ci.python,), table.ci.cpus):
        yield Row(
            name=f"cu{cuda.replace('.', '')}-cp{python.replace('.', '')}-{cpu}",
            cuda=cuda,
            python=python,
            cpu=cpu,
            runner=facts.gitlab_runners().get(cpu, ""),
            naming=naming,
            image=image_of_job(table.ci.image, cuda, cpu),
        )


def _variables(table: Table, cuda: str) -> dict[str, str]:
    """The architecture list in every spelling that a build system reads, and `[tool.cuwheel.environment]`."""
    planned = plans.plan_for(table.for_, (cuda,), table.plan, one_list=True) if table.for_ else None
    flags = planned.jobs[0].flags if planned and planned.jobs else None
    made: dict[str, str] = {}
    if flags:
        cmake = f"-DCMAKE_CUDA_ARCHITECTURES={flags.cmake}" if flags.cmake else None
        named = {"CMAKE_ARGS": cmake, "CUDAARCHS": flags.cudaarchs, "TORCH_CUDA_ARCH_LIST": flags.torch}
        made = {name: text for name, text in named.items() if text}
    values: dict[str, str | None] = {f"archs.{each}": getattr(flags, each, None) for each in spellings.NAMES}
    values |= {
        "cuda": cuda,
        "cuda_digits": cuda.replace(".", ""),
        "toolkit": "/opt/cuda",
        "nvcc": "/opt/cuda/bin/nvcc",
        "host_compiler": "$(which g++)",
        "python": "python",
        "source": f"/project/{table.subdirectory}".rstrip("/"),
        "jobs": "$(nproc)",
    }
    for name, text in table.environment.items():
        # cibuildwheel reads a value as a shell does between double quotes.
        value = tables.fill_placeholders(_SPECIAL_IN_QUOTES.sub(r"\\\g<0>", text), values)
        made[name] = f"{made[name]} {value}" if name == "CMAKE_ARGS" and made.get(name) else value
    return made


def path_of(service: Service, cuda: str | None = None) -> str:
    """Where the file belongs in a repository."""
    return _FURTHER.format(digits=cuda.replace(".", "")) if cuda else PATHS[service]


def _pinned_action(name: str, part: str = "") -> str:
    """An action, pinned. `part`: a folder of its repository."""
    action = facts.workflow_actions()[name]
    return f"{name}{part}@{action.commit} # {action.version}"


@cache
def _environment() -> jinja2.Environment:
    """With brackets in place of braces, which the workflows' own expressions have."""
    made = jinja2.Environment(  # noqa: S701 - it is YAML: texts are written as JSON, which YAML includes
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
        keep_trailing_newline=True,
    )
    made.filters["json"] = json.dumps
    made.filters["shell"] = shlex.quote
    return made
