"""The text of a workflow, made of a template and a project's configuration."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from cuwheel.facts import ci as facts
from cuwheel.version import __version__
from cuwheel.workflows import blocks

if TYPE_CHECKING:
    from cuwheel.building.tables import Table
    from cuwheel.workflows.request import Service

_TEMPLATES = Path(__file__).with_name("templates")
_FILES: dict[str, str] = {"github": "github.yml.j2", "gitlab": "gitlab.yml.j2", "cibuildwheel": "cibuildwheel.toml.j2"}
PATHS: dict[str, str] = {
    "github": ".github/workflows/wheels.yml",
    "gitlab": ".gitlab-ci.yml",
    "cibuildwheel": "pyproject.toml",
}
_UPSTREAM = "upstream"


def render(service: Service, table: Table, config: str = "") -> str:
    """`config`: the file with the configuration, where the source that is built does not have it."""
    ci = table.ci
    elsewhere = f" --config {shlex.quote(config)}" if ci.upstream and config else ""
    text = (
        _environment()
        .get_template(_FILES[service])
        .render(
            ci=ci,
            table=table,
            use=_use,
            runners=facts.runners(),
            cuwheel=ci.cuwheel or f"cuwheel[build]=={__version__}",
            source=f"{_UPSTREAM}{elsewhere}" if ci.upstream else ".",
            config=elsewhere,
            cache=table.cache,
            checkout=_checkout(ci.upstream),
            own_checkout=_checkout(""),
            begin=blocks.begin,
            end=blocks.end,
        )
    )
    return blocks.sealed(text)


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
