"""Every `matrix.*`, `needs.*`, `steps.*` and `inputs.*` that a workflow mentions exists. Schemas do not see that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_REFERENCE = re.compile(r"\b(matrix|needs|steps|inputs)\.([A-Za-z_][\w-]*)(?:\.(?:outputs|result)(?:\.([\w-]+))?)?")
_TEXT = re.compile(r"'[^']*'")
_BARE = ("if",)  # a key whose whole text is an expression


def problems(workflow: Mapping[Any, Any], rows: tuple[str, ...]) -> Iterator[str]:
    """`rows`: the keys that a matrix made by a job has."""
    jobs = {name: job for name, job in mapping(workflow.get("jobs")).items() if isinstance(job, dict)}
    known = _inputs(mapping(workflow.get("on") or workflow.get(True)))  # YAML 1.1 reads `on` so
    for name, job in jobs.items():
        for where, text in _texts(job, f"job {name}"):
            for kind, key, output in _mentioned(text):
                if problem := _problem(kind, key, output, job, jobs, known, rows):
                    yield f"{where}: {kind}.{key}{f'.outputs.{output}' if output else ''}: {problem}"
        for each in _needed(job):
            if each not in jobs:
                yield f"job {name}: it needs the job {each}, which is not there"


def in_scripts(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Expressions inside scripts: whoever chooses what they stand for chooses what the shell runs."""
    for name, job in mapping(workflow.get("jobs")).items():
        for step in steps(job):
            script = step.get("run")
            if isinstance(script, str) and (found := _EXPRESSION.search(script)):
                yield f"job {name}, step {step.get('name', '?')}: {found[0]} is put into a script"


def mapping(value: object) -> dict[str, Any]:
    """What somebody wrote where a mapping belongs; nothing where it is something else."""
    return value if isinstance(value, dict) else {}


def steps(job: object) -> list[dict[str, Any]]:
    found = mapping(job).get("steps")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _needed(job: Mapping[str, Any]) -> list[str]:
    needed = job.get("needs")
    return [needed] if isinstance(needed, str) else list(map(str, needed)) if isinstance(needed, list) else []


def _inputs(triggers: Mapping[str, Any]) -> set[str]:
    kinds = ("workflow_dispatch", "workflow_call")
    return {str(name) for kind in kinds for name in mapping(mapping(triggers.get(kind)).get("inputs"))}


def _problem(
    kind: str,
    key: str,
    output: str,
    job: Mapping[str, Any],
    jobs: Mapping[str, Any],
    inputs: set[str],
    rows: tuple[str, ...],
) -> str:
    if kind == "inputs":
        return "" if key in inputs else "no trigger has this input"
    if kind == "matrix":
        return "" if key in _matrix(job, rows) else "the job's matrix does not have it"
    if kind == "steps":
        ids = {str(each.get("id")) for each in steps(job)}
        return "" if key in ids else "no step of the job has this id"
    if key not in _needed(job):
        return "the job does not need it"
    outputs = mapping(mapping(jobs.get(key)).get("outputs"))
    return "" if not output or output in outputs else "that job does not hand it on"


def _matrix(job: Mapping[str, Any], rows: tuple[str, ...]) -> set[str]:
    matrix = mapping(job.get("strategy")).get("matrix")
    if isinstance(matrix, str):
        return set(rows)
    listed = mapping(matrix).get("include")
    keys = {str(each) for each in mapping(matrix) if each not in ("include", "exclude")}
    included = listed if isinstance(listed, list) else []
    return keys | {str(key) for row in included for key in mapping(row)}


def _mentioned(text: str) -> Iterator[tuple[str, str, str]]:
    for found in _REFERENCE.finditer(_TEXT.sub("''", text)):
        yield found[1], found[2], found[3] or ""


def _texts(value: object, where: str, key: str = "") -> Iterator[tuple[str, str]]:
    """The expressions below a value, with where they stand."""
    if isinstance(value, str):
        yield from ((where, found[1]) for found in _EXPRESSION.finditer(value))
        if key in _BARE and "${{" not in value:
            yield where, value
    elif isinstance(value, dict):
        named = f"{where}, step {value['name']}" if "name" in value and ("run" in value or "uses" in value) else where
        for name, each in value.items():
            yield from _texts(each, named, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, where)
