"""nvcc: `-gencode arch=compute_90,code=sm_90`, as options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuwheel.facts.spellings.row import (
    NOTHING,
    ArchList,
    ListWord,
    Releases,
    Row,
    Spelling,
    as_ptx,
    is_resolved_by_build,
    listed,
)
from cuwheel_core.facts.arch import Arch, known_arch

# nvcc's options, with `=` or a space before the value, and names of code on their own.
_NVCC = re.compile(
    r"(?P<gencode>--?(?:gencode|generate-code)[=\s]+)(?P<pair>[^\s]+)"
    r"|(?P<arch>--?(?:arch|gpu-architecture)[=\s]+)(?P<target>[^\s]+)"
    r"|(?P<code>--?(?:code|gpu-code)[=\s]+)(?P<codes>[^\s]+)"
    r"|(?P<word>[^\s;,]+)",
    re.ASCII,
)
_CODE = re.compile(r"code=(.+)", re.ASCII)


def write(
    variable: str,
    archs: Sequence[Arch],
    ptx: Sequence[Arch],
    releases: Releases,  # noqa: ARG001 - as every spelling has it
) -> Spelling:
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=NOTHING)
    words = [f"-gencode arch=compute_{arch.number},code={arch}" for arch in (*archs, *ptx)]
    return Spelling(variable=variable, value=" ".join(words))


def read(text: str, release: str | None = None) -> ArchList:  # noqa: ARG001 - as every spelling has it
    """`-gencode arch=compute_80,code=sm_80`, `-arch=sm_90`, and names alone: `sm_80 compute_90`."""
    matches = list(_NVCC.finditer(text.replace('"', "").replace("'", "").replace("\\", "")))
    if any(match["code"] for match in matches):  # then -arch says what it is compiled from, and not what comes out
        matches = [match for match in matches if not match["arch"]]
    return listed(map(_word, matches))


def _word(match: re.Match[str]) -> ListWord:
    text = " ".join(match[0].split())
    if match["gencode"]:
        code = _CODE.search(match["pair"])
        return ListWord(text=text, archs=_codes(code[1]) if code else ())
    if match["code"]:
        return ListWord(text=text, archs=_codes(match["codes"]))
    if match["arch"]:
        if is_resolved_by_build(match["target"]):
            return ListWord(text=text, resolved_by_build=True)
        archs = _codes(match["target"])
        ptx = tuple(as_ptx(arch) for arch in archs if arch.kind == "sm")
        return ListWord(text=text, archs=archs + ptx)
    return ListWord(text=text, archs=_codes(text))


def _codes(text: str) -> tuple[Arch, ...]:
    """`[sm_80,compute_80]`; nothing where one of them means nothing."""
    names = [name for name in text.strip("[]").split(",") if name]
    archs = [known_arch(name) for name in names if "_" in name]
    found = tuple(arch for arch in archs if arch)
    return found if len(found) == len(names) else ()


ROW = Row(
    name="nvcc",
    owner="nvcc",
    variable="nvcc",
    write=write,
    read=read,
    guessed=re.compile(r"gencode|generate-code|-arch|-code|--gpu|(sm|compute|lto)_\d", re.IGNORECASE | re.ASCII),
)
