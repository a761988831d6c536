"""What a workflow does otherwise than the one that would be written, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuwheel.delivery.workflows import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JOB_KEYS = {
    "runs-on": "the runner",
    "needs": "what it waits for",
    "if": "its condition",
    "timeout-minutes": "the time limit",
    "permissions": "what it may do",
    "strategy": "its matrix",
    "container": "the container",
    "environment": "the environment",
    "stage": "the stage",
    "tags": "the runner's tags",
    "image": "the image",
    "rules": "its rules",
    "artifacts": "what it keeps",
    "script": "its script",
}
_TOP = {
    "permissions": "what all jobs may do",
    "concurrency": "what happens to runs at the same time",
    "env": "variables",
    "defaults": "the shell",
    "variables": "variables",
}
_ACTION = re.compile(r"(?P<name>[^@\s]+)@(?P<ref>\S+)")
_SHOWN = 120


def of(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """A GitHub workflow."""
    yield from _triggers(_on(wanted), _on(there))
    for key, words in _TOP.items():
        if key in wanted and wanted[key] != there.get(key):
            yield _difference(words, there.get(key), wanted[key])
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
                yield _difference(name, own, job)
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
            yield _difference(f"the settings of {name}", there[name], value)


def _job(where: str, wanted: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _JOB_KEYS.items():
        one, other = wanted.get(key), own.get(key)
        if one != other:
            yield f"{where}: {_difference(words, other, one)}"
    named = {str(each.get("name")): each for each in references.steps(own)}
    for step in wanted.get("steps") or ():
        found = named.get(step["name"])
        if found is None:
            yield f"{where} lacks the step {step['name']!r}"
        else:
            yield from _step(f"{where}, step {step['name']!r}", step, found)


def _step(where: str, wanted: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    if wanted.get("run") != own.get("run"):
        yield f"{where}: it runs something else: {_words(own.get('run'))}"
    if wanted.get("uses") != own.get("uses"):
        one, other = _ACTION.match(str(wanted.get("uses"))), _ACTION.match(str(own.get("uses")))
        if one and other and one["name"] == other["name"]:
            yield f"{where}: it uses {one['name']} at {other['ref']}, and {one['ref'][:12]} is the one that is known"
        else:
            yield f"{where}: {_difference('the action', own.get('uses'), wanted.get('uses'))}"
    for key in ("with", "env", "if"):
        if wanted.get(key) != own.get(key):
            yield f"{where}: {_difference(repr(key), own.get(key), wanted.get(key))}"


def _difference(what: str, there: object, wanted: object) -> str:
    return f"{what}: {_words(there)}; it should be: {_words(wanted)}"


def _words(value: object) -> str:
    """A value without the punctuation of YAML."""
    text = " ".join(_plain(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _plain(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items()) or "nothing"
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "nothing"
    return str(value) or "nothing"
