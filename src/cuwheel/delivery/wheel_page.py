"""What the page of a wheel shows: its code by architecture, its libraries, what it needs, how it was built."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import description, wheel_facts
from cuwheel.support.wording import file_name, size
from cuwheel.verdicts import predict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.wheel_facts import WheelFacts


class Row(NamedTuple):
    """`share`: of the largest, in percent."""

    name: str
    kind: str
    entries: int
    size: str
    share: int


class LibraryRow(NamedTuple):
    path: str
    size: str
    toolkits: str
    archs: str
    reach: str


class WheelPage:
    """`url`: of the wheel, seen from its page; empty where it is not known."""

    def __init__(self, facts: WheelFacts, url: str) -> None:
        self.facts, self.url = facts, url
        self._survey = wheel_facts.survey(facts)

    @property
    def title(self) -> str:
        return f"{self.facts.name} {self.facts.version}"

    @property
    def size(self) -> str:
        return size(self.facts.size)

    @property
    def toolkits(self) -> str:
        return ", ".join(dict.fromkeys(each for library in self.facts.libraries for each in library.toolkits))

    @property
    def libraries_needed(self) -> str:
        """From outside the wheel, and not of every system."""
        inside = {file_name(each.path) for each in self.facts.libraries} | {
            each.soname for each in self.facts.libraries
        }
        needed = dict.fromkeys(name for each in self.facts.libraries for name in each.needed if name not in inside)
        return ", ".join(needed)

    @cached_property
    def architectures(self) -> list[Row]:
        """Machine code first, each by its number."""
        stored: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for library in self.facts.libraries:
            for row in library.device_code:
                stored[row.kind, row.arch] += row.bytes
                count[row.kind, row.arch] += row.count
        most = max(stored.values(), default=0) or 1
        return [
            Row(arch, kind, count[kind, arch], size(held), max(1, 100 * held // most))
            for (kind, arch), held in sorted(stored.items(), key=lambda item: _order(*item[0]))
        ]

    @cached_property
    def with_code(self) -> list[LibraryRow]:
        found = []
        for library, facts in zip(self._survey.libraries, self.facts.libraries, strict=True):
            reach = predict.coverage_of(library)
            archs = dict.fromkeys(row.arch for row in library.device_code)
            if archs:
                words = predict.coverage_in_words(reach, once_linked=library.type == "relocatable") if reach else ""
                row = LibraryRow(library.path, size(facts.size), ", ".join(library.toolkits), ", ".join(archs), words)
                found.append(row)
        return found

    @property
    def others(self) -> int:
        return len(self.facts.libraries) - len(self.with_code)

    @property
    def build(self) -> Iterator[tuple[str, str]]:
        """Of a wheel that cuwheel built."""
        about = self.facts.description
        if about is None:
            return
        yield from (("built", each) for each in description.words(about))
        if about.python:
            yield "Python", about.python
        if tools := about.toolchain:
            yield "toolkit", f"CUDA {tools.release} for {tools.platform}"
        if about.requires:
            yield "built with", ", ".join(about.requires)
        if about.sources:
            yield "sources", f"sha256 {about.sources}"
        for each in about.plan:
            yield "planned for", f"{each.machine} ({each.capability}): {each.how} by {each.by}"


def _order(kind: str, arch: str) -> tuple[bool, int, str]:
    digits = "".join(each for each in arch if each.isdigit())
    return kind != "cubin", int(digits[:9] or 0), arch
