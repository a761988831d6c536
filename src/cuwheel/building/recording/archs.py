"""nvcc's architecture flags, replaced by those of a plan: as shim/archs.h does it, for the shim in Python.

nvcc takes these spellings and no others, with the value in the same word behind `=`, or in the next. Tests hold the two
together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

OPTIONS = frozenset(("-arch", "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code"))
FILES = ("--options-file", "-optf")
VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_TAKING = frozenset(
    """
    -Xcompiler --compiler-options -Xlinker --linker-options -Xarchive --archive-options -Xptxas --ptxas-options -Xnvlink
    --nvlink-options -Xcudafe --cudafe-options -Xfatbinary --fatbinary-options -Xnvvm --nvvm-options -o --output-file
    -odir --output-directory -D -I -L -l -include -isystem -MF -MT -MQ -x -ccbin --compiler-bindir
    """.split()  # noqa: SIM905 - a list of thirty words reads as one
)
_TELLING = frozenset(("--version", "-V", "--help", "-h", "--list-gpu-code", "-code-ls", "--list-gpu-arch", "-arch-ls"))
_SINGLE = frozenset(
    """
    -ptx --ptx -cubin --cubin -optix-ir --optix-ir -E --preprocess -M --generate-dependencies -MM
    --generate-nonsystem-dependencies -lib --lib
    """.split()  # noqa: SIM905
)
_UNTIMED = frozenset(("-E", "--preprocess", "-dryrun", "--dryrun", "-run", "--run", "-time", "--time"))
_WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*(?:"|\\?$)|'(?:\\.|[^'\\])*(?:'|\\?$)|\\$|[^ \t\r\n"'\\])+""", re.DOTALL)


# Not a struct: the shim in Python runs without packages.
@dataclass(slots=True)
class Asked:
    """What nvcc is asked for: to tell something and make nothing; for one architecture alone; not to be timed."""

    telling: bool = False
    single: bool = False
    untimed: bool = False
    inputs: bool = False

    def look_at(self, word: str) -> None:
        name = word.partition("=")[0]
        self.telling |= name in _TELLING
        self.single |= name in _SINGLE
        self.untimed |= name in _UNTIMED
        self.inputs |= bool(word) and not word.startswith("-")


def asked(words: Sequence[str], environ: Mapping[str, str], read: Callable[[str], str | None]) -> Asked:
    """By its words, the files they name and nvcc's own variables. `read`: a file's text; None where it has none."""
    found = Asked()
    for word, value in _pairs(words):
        files = _named(word, value)
        if files is None:
            found.look_at(word)
        for file in files or ():
            _filter(read(file) or "", found)
    for name in VARIABLES:
        _filter(environ.get(name, ""), found)
    return found


def without(text: str) -> str | None:
    """A text of options without those that choose architectures; None where there are none in it."""
    kept, changed = _filter(text, None)
    return " ".join(kept) if changed else None


def replaced(
    words: Sequence[str], archs: Sequence[str], read: Callable[[str], str | None], keep: Callable[[int, str], str]
) -> list[str]:
    """The words with the plan's architectures. `keep` writes a file of options by the index of its word; its path."""
    result: list[str] = []
    index = 0
    for word, value in _pairs(words):
        files = _named(word, value)
        pair = [word] if value is None else [word, value]
        if word.partition("=")[0] not in OPTIONS:
            copy = _copied(index, files, read, keep)
            if copy is not None:
                pair = [f"--options-file={copy}"] if value is None else [word, copy]
            result += pair
        index += len(pair)
    return [*result, *archs]


def _copied(
    index: int, files: list[str] | None, read: Callable[[str], str | None], keep: Callable[[int, str], str]
) -> str | None:
    texts = [read(file) or "" for file in files or ()]
    filtered = [_filter(text, None) for text in texts]
    if not any(changed for _, changed in filtered):
        return None
    return keep(index, " ".join(word for kept, _ in filtered for word in kept))


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each word, with the next one where that is its value."""
    index = 0
    while index < len(words):
        word = words[index]
        takes = word in _TAKING or word in OPTIONS or word in FILES
        value = words[index + 1] if takes and index + 1 < len(words) else None
        yield word, value
        index += 1 if value is None else 2


def _named(word: str, value: str | None) -> list[str] | None:
    """The files of options that a word names; None if it is not such a word."""
    name, joined, rest = word.partition("=")
    if name not in FILES or not (joined or value is not None):
        return None
    return [file for file in (rest if joined else value or "").split(",") if file]


def _filter(text: str, found: Asked | None) -> tuple[list[str], bool]:
    kept: list[str] = []
    words = _WORD.findall(text)
    for word, value in _pairs(words):
        if word.partition("=")[0] in OPTIONS:
            continue
        if found:
            found.look_at(word)
        kept += [word] if value is None else [word, value]
    return kept, len(kept) != len(words)
