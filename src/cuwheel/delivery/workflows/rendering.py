"""The text of a workflow, made of a template and a project's configuration."""

from __future__ import annotations

import json
import shlex
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from cuwheel.delivery.workflows import blocks
from cuwheel.delivery.workflows.matrix import Row, filled
from cuwheel.errors import UsageError
from cuwheel.facts import services as facts
from cuwheel.facts import toolkits
from cuwheel.verdicts.planning import plans
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.tables import RepairTable, Table
    from cuwheel.delivery.workflows.request import Service

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


def render(service: Service, table: Table, config: str = "", cuda: str | None = None) -> str:
    """`config`: the file with the configuration. `cuda`: of the tables of cibuildwheel, if not the first."""
    ci = table.ci
    config_option = f" --config {shlex.quote(config)}" if ci.upstream and config else ""  # the source does not have it
    known: dict[str, object] = {
        "ci": ci,
        "use": _use,
        "runners": facts.linux_runners(),
        "cuwheel": ci.cuwheel or f"cuwheel[{'build,cache' if table.cache else 'build'}]=={__version__}",
        "source": f"{_UPSTREAM}{config_option}" if ci.upstream else ".",
        "config": config_option,
        "cache": table.cache,
        "tags_are_refs": bool(ci.upstream) and "://" in ci.watch,
        "begin": blocks.begin,
        "end": blocks.end,
    }
    if service != "github" and not table.cuda:
        raise UsageError("the configuration names no CUDA version", hint='cuda = ["13.0"] in [tool.cuwheel]')
    if service == "gitlab":
        known |= _of_gitlab(table)
    elif service == "cibuildwheel":
        known |= _of_cibuildwheel(table, config, cuda or table.cuda[0])
    return blocks.sealed(_environment().get_template(_FILES[service]).render(known))


def _of_gitlab(table: Table) -> dict[str, object]:
    """It has no matrix at run time: its jobs are written out."""
    ci = table.ci
    stages = ["build", *(["prove"] if ci.gpu_runner else []), *(["publish"] if ci.publish != "none" else [])]
    own = ci.upstream if "://" in ci.upstream else f"$CI_SERVER_URL/{ci.upstream}.git"
    return {
        "rows": tuple(_rows(table)),
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
        "image": lambda cpu: filled(ci.image, cuda, cpu) or _MANYLINUX,
        "own_python": _abi(ci.python),
        "config_file": config or PATHS["cibuildwheel"],
        "mirror": MIRROR.format(cuda=cuda),
        "provider": "index" if toolkits.nvcc_on_index(cuda) else "redist,conda",
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


def _rows(table: Table) -> Iterator[Row]:
    naming = "local" if len(table.cuda) > 1 and table.naming is None and not table.merge else ""
    for cuda, python, cpu in product(table.cuda, table.python or (table.ci.python,), table.ci.cpus):
        yield Row(
            name=f"cu{cuda.replace('.', '')}-cp{python.replace('.', '')}-{cpu}",
            cuda=cuda,
            python=python,
            cpu=cpu,
            runner=facts.gitlab_runners().get(cpu, ""),
            naming=naming,
            image=filled(table.ci.image, cuda, cpu),
        )


def _variables(table: Table, cuda: str) -> dict[str, str]:
    """The architecture list in every spelling that a build system reads from its environment."""
    planned = plans.plan_for(table.for_, (cuda,), table.plan) if table.for_ else None
    if planned is None or not planned.jobs:
        return {}
    flags = planned.jobs[0].flags
    cmake = f"-DCMAKE_CUDA_ARCHITECTURES={flags.cmake}" if flags.cmake else None
    named = {"CMAKE_ARGS": cmake, "CUDAARCHS": flags.cudaarchs, "TORCH_CUDA_ARCH_LIST": flags.torch}
    return {name: text for name, text in named.items() if text}


def path_of(service: Service, cuda: str | None = None) -> str:
    """Where the file belongs in a repository."""
    return _FURTHER.format(digits=cuda.replace(".", "")) if cuda else PATHS[service]


def _use(name: str, part: str = "") -> str:
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
