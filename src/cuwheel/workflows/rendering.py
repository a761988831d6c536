"""The text of a workflow, made of a template and a project's configuration."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from cuwheel.errors import UsageError
from cuwheel.facts import ci as facts
from cuwheel.planning import plans
from cuwheel.version import __version__
from cuwheel.workflows import blocks
from cuwheel.workflows.matrix import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.tables import Table
    from cuwheel.workflows.request import Service

_TEMPLATES = Path(__file__).with_name("templates")
_FILES: dict[str, str] = {"github": "github.yml.j2", "gitlab": "gitlab.yml.j2", "cibuildwheel": "cibuildwheel.toml.j2"}
PATHS: dict[str, str] = {
    "github": ".github/workflows/wheels.yml",
    "gitlab": ".gitlab-ci.yml",
    "cibuildwheel": "pyproject.toml",
}
_MANYLINUX = "manylinux_2_28"  # a name for which each cibuildwheel has an image with a date
_UPSTREAM = "upstream"


def render(service: Service, table: Table, config: str = "") -> str:
    """`config`: the file with the configuration, where the source that is built does not have it."""
    ci = table.ci
    config_option = f" --config {shlex.quote(config)}" if ci.upstream and config else ""
    text = (
        _environment()
        .get_template(_FILES[service])
        .render(
            ci=ci,
            table=table,
            use=_use,
            runners=facts.runners(),
            cuwheel=ci.cuwheel or f"cuwheel[build]=={__version__}",
            source=f"{_UPSTREAM}{config_option}" if ci.upstream else ".",
            config=config_option,
            cache=table.cache,
            checkout=_checkout(ci.upstream),
            own_checkout=_checkout(""),
            **(_more(table, config) if service != "github" else {}),
            begin=blocks.begin,
            end=blocks.end,
        )
    )
    return blocks.sealed(text)


def _more(table: Table, config: str) -> dict[str, object]:
    """What services without a matrix at run time are told when the file is written."""
    if not table.cuda:
        raise UsageError("the configuration names no CUDA version", hint='cuda = ["13.0"] in [tool.cuwheel]')
    ci, pythons = table.ci, table.python or (table.ci.python,)
    parts = f" --with {','.join(table.components)}" if table.components else ""
    stages = ["build", *(["prove"] if ci.gpu_runner else []), *(["publish"] if ci.publish != "none" else [])]
    return {
        "rows": tuple(_rows(table, pythons)),
        "stages": stages,
        "cuda": table.cuda[0],
        "with_parts": parts,
        "builds": [f"cp{each.replace('.', '')}-manylinux_*" for each in pythons],
        "image": lambda _cpu: ci.image or _MANYLINUX,
        "config_file": config or PATHS["cibuildwheel"],
        "variables": _variables(table),
    }


def _rows(table: Table, pythons: Sequence[str]) -> Iterator[Row]:
    naming = "local" if len(table.cuda) > 1 and table.naming is None and not table.merge else ""
    for cuda in table.cuda:
        for python in pythons:
            for cpu in table.ci.cpus:
                name = f"cu{cuda.replace('.', '')}-cp{python.replace('.', '')}-{cpu}"
                yield Row(name=name, cuda=cuda, python=python, cpu=cpu, runner="", naming=naming)


def _variables(table: Table) -> dict[str, str]:
    """The architecture list in every spelling that a build system reads from its environment."""
    planned = plans.make(table.for_, table.cuda[:1], table.plan) if table.for_ else None
    if planned is None or not planned.jobs:
        return {}
    flags = planned.jobs[0].flags
    cmake = f"-DCMAKE_CUDA_ARCHITECTURES={flags.cmake}" if flags.cmake else None
    named = {"CMAKE_ARGS": cmake, "CUDAARCHS": flags.cudaarchs, "TORCH_CUDA_ARCH_LIST": flags.torch}
    return {name: text for name, text in named.items() if text}


def _use(name: str, part: str = "") -> str:
    """An action, pinned. `part`: a folder of its repository."""
    action = facts.actions()[name]
    return f"{name}{part}@{action.commit} # {action.version}"


def _checkout(upstream: str) -> str:
    """Of the repository itself, and of the one whose source is built; without the token that fetched it."""
    pinned = f"        uses: {_use('actions/checkout')}\n        with:\n"
    quiet = "          persist-credentials: false"
    ref = "          ref: ${{ inputs.ref }}\n"
    if not upstream:
        return f"      - name: Fetch the source\n{pinned}{ref}          submodules: recursive\n{quiet}"
    other = (
        f"          repository: {json.dumps(upstream)}\n          path: {_UPSTREAM}\n          submodules: recursive\n"
    )
    own = f"      - name: Fetch the configuration\n{pinned}{quiet}\n"
    return f"{own}      - name: Fetch the source\n{pinned}{other}{ref}{quiet}"


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
