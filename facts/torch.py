"""torch.toml and the frameworks of packages.toml against every release of torch and of jax's plugins."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts import packages, toolchain_parts, torch
from cuwheel.facts.tables import tables
from cuwheel_core.facts import versions
from cuwheel_core.facts.tables import tables as core_tables
from facts import index
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.facts.rows.cuda_libraries import Package
    from facts.index import Wheel

_REQUIRES = re.compile(r"^Requires-Dist: ((?:nvidia|cuda)[\w-]+)(\[[^\]]*\])?[ (]*(?:==([\d.]+))?", re.MULTILINE)
_PLUGINS = {"jax-cuda12-plugin": 12, "jax-cuda13-plugin": 13}


def check() -> Iterator[Difference]:
    found = releases()
    for release, source in zip(found, index.at_once(_helpers, found, "torch releases"), strict=True):
        yield from _lists(release, source)
        yield from _brought("torch", release)
    for name, cuda in _PLUGINS.items():
        for release in _linux(name):
            yield from _brought("jax", release, cuda)


def releases() -> list[Wheel]:
    """One wheel of each release of torch that the tables are about, the oldest first."""
    first = tables().torch.change[0].since
    return [each for each in _linux("torch") if versions.at_least(str(each.version), first)]


def _linux(name: str) -> list[Wheel]:
    """One wheel for each release: Linux on x86-64, without a local version."""
    fitting = [each for each in index.wheels(name) if "linux" in each.platform and each.cpu == "x86_64"]
    return list({each.version: each for each in fitting if not each.version.local}.values())


def _helpers(wheel: Wheel) -> str:
    index.member(wheel, ".dist-info/METADATA")
    return (index.member(wheel, "torch/utils/cpp_extension.py") or b"").decode()


def _lists(wheel: Wheel, source: str) -> Iterator[Difference]:
    release = str(wheel.version)
    named, supported = _assigned(source, "named_arches"), _assigned(source, "supported_arches")
    theirs = ast.literal_eval(supported)
    ours = torch.architectures(release)
    if {*theirs} != {*ours}:
        only_ours, only_theirs = sorted({*ours} - {*theirs}), sorted({*theirs} - {*ours})
        yield Difference("torch.toml", f"torch {release}", f"also {only_ours}", f"also {only_theirs}")
    meanings = dict(ast.literal_eval(named[named.index("[") : named.rindex("]") + 1]))
    for name in dict.fromkeys([*meanings, *(row.name for row in tables().torch.name)]):
        if torch.list_named(name, release) != meanings.get(name):
            said = str(torch.list_named(name, release))
            yield Difference("torch.toml", f"torch {release}: {name}", said, str(meanings.get(name)))


def _assigned(source: str, name: str) -> str:
    """The expression that a function assigns to a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            return ast.unparse(node.value)
    return "[]"


def _brought(framework: str, wheel: Wheel, cuda: int | None = None) -> Iterator[Difference]:
    """Each package that it requires brings a library; each library that it is said to bring is in one of them."""
    metadata = (index.member(wheel, ".dist-info/METADATA") or b"").decode()
    pins = {name: match[3] for match in _REQUIRES.finditer(metadata) for name in _packages(match[1], match[2] or "")}
    rows = [row for row in core_tables().libraries.package if row.cuda is not None]
    required = [row for row in rows if row.name in pins and _is_pinned(row, pins[row.name])]
    major = cuda or max((row.cuda or 0 for row in required), default=0)
    if not required:  # the first plugins left that to others
        return
    release = str(wheel.version)
    there = {_component(each) for row in required for each in row.sonames}
    there -= {_component(each) for each in core_tables().libraries.everyones}
    for component in sorted(there):
        if not packages.framework_brings(framework, component, release=release, cuda=major):
            yield Difference("packages.toml", f"{wheel}: {component}", "does not come with it", "it does")
    for pattern in packages.components_of_framework(framework, release=release, cuda=major):
        if not any(fnmatchcase(each, pattern) for each in there) and not _transitive(pattern, there):
            yield Difference("packages.toml", f"{wheel}: {pattern}", "comes with it", "it does not")


def _is_pinned(row: Package, pin: str | None) -> bool:
    """Whether the row is of the release that is required; the newest where a range is."""
    return row.covers(pin) if pin else row.below is None


def _component(soname: str) -> str:
    return re.sub(r"^lib|(\.alt)?\.so.*$", "", soname)


def _transitive(pattern: str, there: set[str]) -> bool:
    """Not named itself, but cuSPARSE of CUDA 12 requires it."""
    return pattern == "nvJitLink" and "cusparse" in there


def _packages(name: str, extras: str) -> Iterator[str]:
    """`cuda-toolkit[cublas,cudart]` requires the packages of its extras."""
    if name != tables().toolchains.index.package:
        yield name
        return
    for extra in re.findall(r"\w+", extras):
        row = next((each for each in toolchain_parts.all_components() if extra in each.index), None)
        yield from (f"nvidia-{prefix}{extra}" for prefix in ("", "cuda-"))
        yield f"nvidia-{row.name}" if row else f"nvidia-{extra}"
        if extra == "cudart":
            yield "nvidia-cuda-runtime"
