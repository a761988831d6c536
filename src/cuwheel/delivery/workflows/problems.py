"""What is wrong with a workflow, whoever wrote it: references that lead nowhere, known traps, differences from ours.

YAML that somebody wrote is read safely, and small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cuwheel.support import process
from cuwheel.support.finding import finding
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.arch import known_arch
from cuwheel_core.support.wording import first_few

if TYPE_CHECKING:
    from cuwheel.delivery.request import Service
    from cuwheel_core.support.finding import Finding


LARGEST_YAML = 1 << 18
_DEEPEST = 50
_MOST_VALUES = 100_000  # values


def load_yaml(text: str, name: str) -> dict[str, Any]:
    """A mapping; anything else is no workflow. Anchors may not repeat themselves into something huge."""
    process.require_extra("reading a workflow", modules=("ruamel.yaml",), extra="ci")
    from ruamel.yaml import YAML  # noqa: PLC0415 - of an extra
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    if len(text) > LARGEST_YAML:
        raise MalformedError(name, f"is too large: it has more than {LARGEST_YAML:,} characters")
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MalformedError(name, f"is not valid YAML: {first}") from error
    if not isinstance(found, dict):
        raise MalformedError(name, "is not a workflow: it is not a mapping")
    if _count_values(found, (), {}) > _MOST_VALUES:
        raise MalformedError(
            name, f"is not a workflow: its anchors make it contain itself, or more than {_MOST_VALUES:,} values"
        )
    return found


def _count_values(value: object, above: tuple[int, ...], known: dict[int, int]) -> int:
    """How many are in it, what anchors repeat counted each time. One that is part of itself has too many."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in above or len(above) > _DEEPEST:
        return _MOST_VALUES + 1
    if id(value) not in known:
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count_values(each, (*above, id(value)), known) for each in inside)
    return known[id(value)]


# Every `matrix.*`, `needs.*`, `steps.*` and `inputs.*` that a workflow mentions exists. Schemas do not see that.

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_REFERENCE = re.compile(r"\b(matrix|needs|steps|inputs)\.([A-Za-z_][\w-]*)(?:\.(?:outputs|result)(?:\.([\w-]+))?)?")
_TEXT = re.compile(r"'[^']*'")
_BARE = ("if",)  # a key whose whole text is an expression


def wrong_references(workflow: Mapping[Any, Any], rows: tuple[str, ...]) -> Iterator[str]:
    """`rows`: the keys that a matrix made by a job has."""
    jobs = {name: job for name, job in mapping(workflow.get("jobs")).items() if isinstance(job, dict)}
    known = _inputs(mapping(workflow.get("on") or workflow.get(True)))  # YAML 1.1 reads `on` so
    for name, job in jobs.items():
        for where, text in _texts(job, f"job {name}"):
            for kind, key, output in _mentioned(text):
                if problem := _wrong_reference(kind, key, output, job, jobs, known, rows):
                    yield f"{where}: {kind}.{key}{f'.outputs.{output}' if output else ''}: {problem}"
        for each in _needed(job):
            if each not in jobs:
                yield f"job {name}: it needs the job {each}, which is not there"


def expressions_in_scripts(workflow: Mapping[str, Any]) -> Iterator[str]:
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


def _wrong_reference(
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


# Known traps in workflows of any origin: what breaks later, or elsewhere, and looks right today.

_PINNED_ACTION = re.compile(r"[^@]+@[0-9a-f]{40}|\./.*|docker://.*@sha256:.*")
_PINNED_IMAGE = re.compile(r".*(@sha256:[0-9a-f]{64}|:(?!latest$)[\w][\w.-]*)")
_IMAGE_KEYS = re.compile(r"container|image|CIBW_\w*_IMAGE|(many|musl)linux-[\w-]+-image", re.IGNORECASE)
_SHORT_IMAGES = re.compile(r"(many|musl)linux\w*")  # cibuildwheel's names for images that it pins itself
_LISTS = re.compile(
    r"(TORCH_CUDA_ARCH_LIST|CMAKE_CUDA_ARCHITECTURES|CUDAARCHS|COMPUTE_CAPABILITY)\b[^0-9\n]{0,4}"
    r"([0-9][0-9.;, af+PTXrealvirtu-]*)"
)
_WORDS = re.compile(r"(?<!\S)(-gencode|-arch)[= ]\S*?((?:sm|compute)_[0-9]{2,3})")
_CUDA = re.compile(r"cuda[\w. -]{0,20}?[=: \"'\[]+([0-9]{2}\.[0-9]{1,2})(?:\.[0-9]+)?\b", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]{1,2})\.?([0-9])[af]?\b")
_REPAIR = re.compile(r"auditwheel\s+repair([^\n&|;]*)")
_CONTINUED = re.compile(r"\\\n\s*")
_GPU = re.compile(r"gpu|cuda|nvidia|\b[abhltv][0-9]{1,3}s?\b", re.IGNORECASE)


def traps_in_workflow(workflow: Mapping[Any, Any], file: str, service: Service) -> Iterator[Finding]:
    """Finds the traps in a workflow or pipeline."""
    text = _text(workflow)
    yield from _listed("ci-action-unpinned", file, "actions that are not pinned to a commit", _actions(workflow))
    yield from _in_text(workflow, text, file)
    if re.search(r"cuda", text, re.IGNORECASE) and not _on_gpu(workflow):
        yield finding(
            "ci-no-gpu",
            f"{file}: nothing of it runs on a machine with a GPU",
            fix=f'gpu-runner = ["self-hosted", "gpu"] in [tool.cuwheel.ci]; cuwheel ci {service} --write',
        )


def traps_in_tables(tables: Mapping[str, Any], file: str) -> Iterator[Finding]:
    """Finds the traps in the tables of cibuildwheel."""
    yield from _in_text(tables, _text(tables), file)


def _in_text(value: Mapping[Any, Any], text: str, file: str) -> Iterator[Finding]:
    yield from _listed("ci-image-unpinned", file, "images that may change under a build", _images(value))
    yield from _listed("ci-arch", file, "architectures that a toolkit cannot compile", _archs(value, text))
    repairs = [each[0].strip() for each in _REPAIR.finditer(text) if "--exclude" not in each[1]]
    yield from _listed("ci-auditwheel", file, "auditwheel would pack CUDA's libraries into the wheel", repairs)


def _text(value: object) -> str:
    """What is said in it, without comments of the file; a command that goes on in the next line is one line."""
    return _CONTINUED.sub(" ", "\n".join(f"{key}: {each}" for key, each in _walk(value)))


def _listed(rule: str, file: str, message: str, found: Any) -> Iterator[Finding]:  # noqa: ANN401 - texts
    evidence = list(dict.fromkeys(found))
    if evidence:
        yield finding(rule, f"{file}: {message}", evidence=first_few(evidence))


def _walk(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _walk(each, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each, key)
    elif isinstance(value, str):
        yield key, value


def _actions(workflow: Mapping[Any, Any]) -> Iterator[str]:
    for key, value in _walk(workflow):
        if key == "uses" and not _PINNED_ACTION.fullmatch(value):
            yield value


def _images(workflow: Mapping[Any, Any]) -> Iterator[str]:
    for key, value in _walk(workflow):
        known = "${{" in value or _SHORT_IMAGES.fullmatch(value) or _PINNED_IMAGE.fullmatch(value)
        if _IMAGE_KEYS.fullmatch(key) and value and not known:
            yield value


def _archs(value: object, text: str) -> Iterator[str]:
    """Says which of the CUDA versions that a workflow names cannot compile what it lists."""
    rows = {row.version: row for row in toolkits.all_toolkits()}
    below = [".".join(each.split(".")[:2]) for key, each in _walk(value) if "cuda" in key.lower()]
    named = [each for each in dict.fromkeys([*below, *_CUDA.findall(text)]) if each in rows]
    listed = [(found[1], found[2]) for found in (*_LISTS.finditer(text), *_WORDS.finditer(text))]
    for name, numbers in listed:
        archs = sorted({arch for parts in _NUMBER.findall(numbers) if (arch := known_arch("".join(parts)))}, key=str)
        for version in named:
            if lost := [str(each) for each in archs if not rows[version].supports(each)]:
                yield f"{name}: CUDA {version} cannot compile {', '.join(lost)}"


def _on_gpu(workflow: Mapping[Any, Any]) -> bool:
    jobs = workflow.get("jobs")
    for job in (jobs if isinstance(jobs, dict) else workflow).values():
        labels = [
            value for key, value in _walk(job) if key in ("runs-on", "tags", "labels", "group") or key.startswith("gpu")
        ]
        if any("${{" in each for each in labels):  # chosen by the matrix
            labels += [value for _, value in _walk(mapping(job).get("strategy"))]
        if any(map(_GPU.search, labels)):
            return True
    return False


# What a workflow does otherwise than the one that would be written, in words.

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


def differences_of_workflow(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    """A GitHub workflow."""
    yield from _triggers(_on(wanted), _on(present))
    for key, words in _TOP.items():
        if key in wanted and wanted[key] != present.get(key):
            yield _difference(words, present.get(key), wanted[key])
    jobs = present.get("jobs")
    for name, job in (wanted.get("jobs") or {}).items():
        own = jobs.get(name) if isinstance(jobs, dict) else None
        if not isinstance(own, dict):
            yield f"the job {name} is missing"
        else:
            yield from _job(f"the job {name}", job, own)


def differences_of_pipeline(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    """A GitLab pipeline: its jobs stand at the top."""
    for name, job in wanted.items():
        own = present.get(name)
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


def _triggers(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if name not in present:
            yield f"{name} does not start it"
        elif present[name] != value:
            yield _difference(f"the settings of {name}", present[name], value)


def _job(where: str, wanted: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _JOB_KEYS.items():
        one, other = wanted.get(key), own.get(key)
        if one != other:
            yield f"{where}: {_difference(words, other, one)}"
    named = {str(each.get("name")): each for each in steps(own)}
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


def _difference(what: str, present: object, wanted: object) -> str:
    return f"{what}: {_words(present)}; it should be: {_words(wanted)}"


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
