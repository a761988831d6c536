"""What a workflow does otherwise than the one that would be written, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuwheel.workflows import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JOB_KEYS = {
    "runs-on": "runs on",
    "needs": "needs",
    "if": "runs if",
    "timeout-minutes": "has a time limit of",
    "permissions": "may",
    "strategy": "has the matrix",
    "container": "runs in",
    "environment": "publishes to",
    "stage": "is in the stage",
    "tags": "runs on runners tagged",
    "image": "runs in",
    "rules": "runs by the rules",
    "artifacts": "keeps",
    "script": "runs",
}
_TOP = {"permissions": "permissions", "concurrency": "concurrency", "env": "variables", "variables": "variables"}
_ACTION = re.compile(r"(?P<name>[^@\s]+)@(?P<ref>\S+)")
_SHOWN = 120


def of(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """A GitHub workflow."""
    yield from _triggers(_on(wanted), _on(there))
    for key, words in _TOP.items():
        if key in wanted and wanted[key] != there.get(key):
            yield f"its {words} are {_short(there.get(key))} and should be {_short(wanted[key])}"
    jobs = there.get("jobs")
    for name, job in (wanted.get("jobs") or {}).items():
        own = jobs.get(name) if isinstance(jobs, dict) else None
        if not isinstance(own, dict):
            yield f"the job {name} is missing"
        else:
            yield from _job(f"the job {name}", job, own)


def of_jobs(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """A GitLab pipeline: its jobs stand at the top."""
    for name, job in wanted.items():
        own = there.get(name)
        if not isinstance(job, dict):
            if own != job:
                yield f"{name} is {_short(own)} and should be {_short(job)}"
        elif not isinstance(own, dict):
            yield f"{name} is missing"
        else:
            yield from _job(name, job, own)


def _on(workflow: Mapping[Any, Any]) -> Mapping[str, Any]:
    """YAML 1.1 reads the key `on` as a truth value."""
    found = workflow.get("on", workflow.get(True))
    if isinstance(found, str):
        return {found: None}
    if isinstance(found, list):
        return dict.fromkeys(map(str, found))
    return found if isinstance(found, dict) else {}


def _triggers(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if name not in there:
            yield f"{name} does not start it"
        elif there[name] != value:
            yield f"{name} starts it otherwise: {_short(there[name])} and not {_short(value)}"


def _job(where: str, wanted: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _JOB_KEYS.items():
        one, other = wanted.get(key), own.get(key)
        if one != other:
            yield f"{where} {words} {_short(other)} and not {_short(one)}"
    named = {str(each.get("name")): each for each in references.steps(own)}
    for step in wanted.get("steps") or ():
        found = named.get(step["name"])
        if found is None:
            yield f"{where} lacks the step {step['name']!r}"
        else:
            yield from _step(f"{where}, step {step['name']!r}", step, found)


def _step(where: str, wanted: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    if wanted.get("run") != own.get("run"):
        yield f"{where}: it runs something else: {_short(own.get('run'))}"
    if wanted.get("uses") != own.get("uses"):
        one, other = _ACTION.match(str(wanted.get("uses"))), _ACTION.match(str(own.get("uses")))
        if one and other and one["name"] == other["name"]:
            yield f"{where}: it uses {one['name']} at {other['ref']}, and {one['ref'][:12]} is the one that is known"
        else:
            yield f"{where}: it uses {_short(own.get('uses'))} and not {_short(wanted.get('uses'))}"
    for key in ("with", "env", "if"):
        if wanted.get(key) != own.get(key):
            yield f"{where}: its {key!r} is {_short(own.get(key))} and should be {_short(wanted.get(key))}"


def _short(value: object) -> str:
    if value is None or value == {}:
        return "nothing"
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
