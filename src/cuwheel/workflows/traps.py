"""Known traps in workflows of any origin: what breaks later, or elsewhere, and looks right today."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuwheel.facts import toolkits
from cuwheel.facts.arch import Arch
from cuwheel.finding import Finding
from cuwheel.units import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PINNED_ACTION = re.compile(r"[^@]+@[0-9a-f]{40}|\./.*|docker://.*@sha256:.*")
_PINNED_IMAGE = re.compile(r".*(@sha256:[0-9a-f]{64}|:(?!latest$)[\w][\w.-]*)")
_IMAGE_KEYS = re.compile(r"container|image|CIBW_\w*_IMAGE|(many|musl)linux-[\w-]+-image", re.IGNORECASE)
_SHORT_IMAGES = re.compile(r"(many|musl)linux\w*")  # cibuildwheel's names for images that it pins itself
_LISTS = re.compile(
    r"(TORCH_CUDA_ARCH_LIST|CMAKE_CUDA_ARCHITECTURES|CUDAARCHS|COMPUTE_CAPABILITY)\b[^0-9\n]{0,4}"
    r"([0-9][0-9.;, af+PTXrealvirtu-]*)"
)
_CUDA = re.compile(r"cuda[\w. -]{0,20}?[=: \"'\[]+([0-9]{2}\.[0-9]{1,2})(?:\.[0-9]+)?\b", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]{1,2})\.?([0-9])[af]?\b")
_REPAIR = re.compile(r"auditwheel\s+repair([^\n&|;]*)")
_GPU = re.compile(r"gpu|cuda|nvidia|a100|h100|t4|l4", re.IGNORECASE)


def of(workflow: Mapping[Any, Any], text: str, file: str) -> Iterator[Finding]:
    yield from _listed("ci-action-unpinned", file, "actions that are not pinned to a commit", _actions(workflow))
    yield from _listed("ci-image-unpinned", file, "images that may change under a build", _images(workflow))
    yield from _listed("ci-arch", file, "architectures that a toolkit cannot compile", _archs(text))
    repairs = [each[0].strip() for each in _REPAIR.finditer(text) if "--exclude" not in each[1]]
    yield from _listed("ci-auditwheel", file, "auditwheel would pack CUDA's libraries into the wheel", repairs)
    if re.search(r"cuda", text, re.IGNORECASE) and not _on_gpu(workflow):
        yield Finding(
            rule="ci-no-gpu",
            severity="note",
            message=f"{file}: nothing of it runs on a machine with a GPU",
            fix='gpu-runner = ["self-hosted", "gpu"] in [tool.cuwheel.ci]; cuwheel ci github --write',
        )


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


def _archs(text: str) -> Iterator[str]:
    """Of the CUDA versions that the text names, those that cannot compile what it lists."""
    rows = {row.version: row for row in toolkits.all_toolkits()}
    named = [each for each in dict.fromkeys(_CUDA.findall(text)) if each in rows]
    for found in _LISTS.finditer(text):
        numbers = {f"{major}{minor}" for major, minor in _NUMBER.findall(found[2])}
        for version in named:
            lost = sorted((each for each in numbers if not rows[version].supports(Arch.parse(each))), key=int)
            if lost:
                yield f"{found[1]}: CUDA {version} cannot compile {', '.join(f'sm_{each}' for each in lost)}"


def _on_gpu(workflow: Mapping[Any, Any]) -> bool:
    return any(key in ("runs-on", "tags", "labels", "gpu") and _GPU.search(value) for key, value in _walk(workflow))
