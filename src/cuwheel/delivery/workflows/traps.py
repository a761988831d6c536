"""Known traps in workflows of any origin: what breaks later, or elsewhere, and looks right today."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuwheel.delivery.workflows import references
from cuwheel.errors import UnknownNameError
from cuwheel.facts import toolkits
from cuwheel.facts.arch import Arch
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.delivery.workflows.request import Service

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


def of(workflow: Mapping[Any, Any], file: str, service: Service) -> Iterator[Finding]:
    """Of a workflow or pipeline."""
    text = _text(workflow)
    yield from _listed("ci-action-unpinned", file, "actions that are not pinned to a commit", _actions(workflow))
    yield from _in_text(workflow, text, file)
    if re.search(r"cuda", text, re.IGNORECASE) and not _on_gpu(workflow):
        yield Finding(
            rule="ci-no-gpu",
            severity="note",
            message=f"{file}: nothing of it runs on a machine with a GPU",
            fix=f'gpu-runner = ["self-hosted", "gpu"] in [tool.cuwheel.ci]; cuwheel ci {service} --write',
        )


def of_tables(tables: Mapping[str, Any], file: str) -> Iterator[Finding]:
    """Of the tables of cibuildwheel."""
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
        yield Finding(
            rule=rule,
            severity="warning",
            message=f"{file}: {message}",
            evidence=first_few(evidence),
            fix=_FIXES[rule],
        )


_FIXES = {
    "ci-action-unpinned": "pin each by the commit of its release, with the version in a comment",
    "ci-image-unpinned": "give each image a dated tag or a digest",
    "ci-arch": "let cuwheel plan write the list: cuwheel plan --for … --cuda …",
    "ci-auditwheel": "cuwheel repair leaves them out; or auditwheel repair --exclude for each of them",
}


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
    """Of the CUDA versions that are named, those that cannot compile what is listed."""
    rows = {row.version: row for row in toolkits.all_toolkits()}
    below = [".".join(each.split(".")[:2]) for key, each in _walk(value) if "cuda" in key.lower()]
    named = [each for each in dict.fromkeys([*below, *_CUDA.findall(text)]) if each in rows]
    listed = [(found[1], found[2]) for found in (*_LISTS.finditer(text), *_WORDS.finditer(text))]
    for name, numbers in listed:
        archs = sorted({arch for parts in _NUMBER.findall(numbers) if (arch := _known("".join(parts)))}, key=str)
        for version in named:
            if lost := [str(each) for each in archs if not rows[version].supports(each)]:
                yield f"{name}: CUDA {version} cannot compile {', '.join(lost)}"


def _known(number: str) -> Arch | None:
    try:
        return Arch.parse(number)
    except UnknownNameError:
        return None


def _on_gpu(workflow: Mapping[Any, Any]) -> bool:
    jobs = workflow.get("jobs")
    for job in (jobs if isinstance(jobs, dict) else workflow).values():
        labels = [
            value for key, value in _walk(job) if key in ("runs-on", "tags", "labels", "group") or key.startswith("gpu")
        ]
        if any("${{" in each for each in labels):  # chosen by the matrix
            labels += [value for _, value in _walk(references.mapping(job).get("strategy"))]
        if any(map(_GPU.search, labels)):
            return True
    return False
