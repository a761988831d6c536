"""Plays GitLab: the jobs of a written pipeline, stage by stage, each on a clean copy with the artefacts before it.

Stood in for: images (this machine), `apt-get` (nothing is installed), caches, tags of runners, Pages (a folder that is
served). Rules are followed as far as the pipelines use them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from tests.integration.workflow_player import Ran

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TIMEOUT_S = 900
_RULE = re.compile(r'\$(\w+)(?: == "([^"]*)")?')


def play(
    pipeline: dict[str, Any], repository: Path, scratch: Path, environ: Mapping[str, str], jobs: Sequence[str] = ()
) -> list[Ran]:
    """`jobs`: only these; what the others would have left lies in the folder `artefacts` of `scratch`."""
    tools = scratch / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "apt-get").write_text("#!/bin/sh\n")
    (tools / "apt-get").chmod(0o755)
    artefacts = scratch / "artefacts"
    artefacts.mkdir(exist_ok=True)
    environ = {**environ, "GITLAB_CI": "true", "PATH": f"{tools}:{environ['PATH']}"}
    variables = {name: _filled(str(value), environ) for name, value in pipeline["variables"].items()}
    environ = {**variables, **environ}
    if not _starts(pipeline["workflow"]["rules"], environ):
        return []
    ran = []
    for stage in pipeline["stages"]:
        made: list[tuple[Path, str]] = []
        for name, job in pipeline.items():
            chosen = isinstance(job, dict) and job.get("stage") == stage and (not jobs or name in jobs)
            if not chosen or not _starts(job.get("rules"), environ):
                continue
            workspace = scratch / "work" / f"{name}-{len(list(scratch.glob('work/*')))}"
            shutil.copytree(repository, workspace)
            shutil.copytree(artefacts, workspace, dirs_exist_ok=True)
            ran.append(_run(name, job, workspace, environ))
            made += [(workspace, each) for each in job.get("artifacts", {}).get("paths", ())]
        for workspace, pattern in made:
            for path in workspace.glob(pattern):
                to = artefacts / path.relative_to(workspace)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(path, to, dirs_exist_ok=True) if path.is_dir() else shutil.copy(path, to)
    return ran


def _run(name: str, job: Mapping[str, Any], workspace: Path, environ: Mapping[str, str]) -> Ran:
    script = workspace.with_suffix(".sh")
    script.write_text("\n".join([*job.get("before_script", []), *job["script"]]))
    kept = {
        key: value for key, value in environ.items() if not key.endswith("_ID_TOKEN") or key in job.get("id_tokens", {})
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", str(script)], cwd=workspace, env=kept, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    return Ran(job=name, step="script", status=done.returncode, output=done.stdout)


def _filled(text: str, environ: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: environ.get(found[1], "."), text)


def _starts(rules: Sequence[Mapping[str, Any]] | None, environ: Mapping[str, str]) -> bool:
    return rules is None or any(_holds(each.get("if", ""), environ) for each in rules)


def _holds(rule: str, environ: Mapping[str, str]) -> bool:
    if not rule:
        return False  # `changes`, of a push
    found = _RULE.fullmatch(rule)
    assert found, rule
    value = environ.get(found[1], "")
    return value == found[2] if found[2] is not None else bool(value)
