"""Where a compiler call writes, and the same call writing elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building.recording.options import INPUT, parse
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.recording.calls import ToolKind
    from cuwheel.building.recording.options import Option

WRITTEN = {  # name → how it is spelt; a folder or a file
    "--output-file": ("-o", False), "-o": ("-o", False), "--output-directory": ("-odir", True),
    "--dependency-output": ("-MF", False), "-MF": ("-MF", False), "--keep-dir": ("--keep-dir", True),
    "--time": ("--time", False), "--fdevice-time-trace": ("--fdevice-time-trace", False),
    "--dependency-file": ("--dependency-file", False), "-Map": ("-Map", False),
}  # fmt: skip
_NVCC_PHASES = frozenset(
    {"--compile", "--device-c", "--device-w", "--cubin", "--ptx", "--fatbin", "--cuda", "--optix-ir", "--ltoir"}
)
_NOTHING = frozenset(
    {"--version", "--help", "--dryrun", "--list-gpu-code", "--list-gpu-arch", "--preprocess", "--generate-dependencies",
     "--generate-nonsystem-dependencies", "-E", "-M", "-MM", "-fsyntax-only", "-###", "-dumpversion",
     "-dumpmachine", "-dumpspecs", "--target-help"}
)  # fmt: skip

# Programs that name what they write in ways of their own, and archivers, which name it first.
_OTHERWISE = ("fatbinary", "cudafe++", "cicc", "cl", "link", "lib")
_ARCHIVERS = ("ar", "gcc-ar", "llvm-ar")


class Redirected(Struct, frozen=True, kw_only=True):
    """`written`: each file as the caller named it, and where it goes now. `leaks`: it may still write elsewhere."""

    words: tuple[str, ...]
    written: tuple[tuple[str, str], ...]
    leaks: bool = False


def outputs(words: Sequence[str], tool: ToolKind) -> tuple[str, ...]:
    """The files that a call names to write."""
    found = (option for option in parse(words, tool) if option.name in WRITTEN and option.value)
    return tuple(option.value for option in found if option.value and not option.value.startswith("/dev/"))


def redirected(words: Sequence[str], tool: ToolKind, folder: str, program: str = "") -> Redirected:
    """The same call with everything that it writes led into `folder`."""
    name = file_name(program).removesuffix(".exe")
    if name.endswith(_ARCHIVERS):
        return _archived(words, folder)
    if name in _OTHERWISE:
        return Redirected(words=tuple(words), written=(), leaks=True)
    new: list[str] = []
    written: list[tuple[str, str]] = []
    options = parse(words, tool)
    for option in options:
        spelling = WRITTEN.get(option.name)
        if spelling and option.value and not option.value.startswith("/dev/"):
            # Several outputs may have one name: each gets a number.
            base = str(len(written)) if spelling[1] else f"{len(written)}-{file_name(option.value)}"
            written.append((option.value, f"{folder}/{base}"))
            new += [spelling[0], written[-1][1]]
        elif option.words[0].startswith("-Wp,-M") and option.words[0].count(",") == 2:  # noqa: PLR2004 - -Wp,-MD,file
            head, kind, path = option.words[0].split(",")
            written.append((path, f"{folder}/{len(written)}-{file_name(path)}"))
            new.append(f"{head},{kind},{written[-1][1]}")
        elif option.name == "-save-temps" and tool != "nvcc":
            new.append("-save-temps=obj")  # beside the output
        else:
            new += option.words
    names = {option.name for option in options}
    kept = tool == "nvcc" and names & {"--keep", "--save-temps"} and "--keep-dir" not in names
    new += ["--keep-dir", folder] if kept else []
    if names & {"--output-file", "-o", "--output-directory"} or names & _NOTHING:
        return Redirected(words=tuple(new), written=tuple(written))
    more, leaks = _unnamed(options, tool, folder)
    return Redirected(words=(*new, *more), written=tuple(written), leaks=leaks)


def _archived(words: Sequence[str], folder: str) -> Redirected:
    """`ar rcs libx.a …`: a new archive, as a build that starts anew makes one."""
    how = words[0].lstrip("-") if words else ""
    if len(words) < 2 or not set(how) & set("rq"):  # noqa: PLR2004 - what to do, and the archive
        return Redirected(words=tuple(words), written=(), leaks=bool(set(how) & set("dms")))
    if set(how) & set("abi"):  # a member's name stands before the archive's
        return Redirected(words=tuple(words), written=(), leaks=True)
    place = f"{folder}/{file_name(words[1])}"
    return Redirected(words=(words[0], place, *words[2:]), written=((words[1], place),))


def _unnamed(options: Sequence[Option], tool: ToolKind, folder: str) -> tuple[tuple[str, ...], bool]:
    """Words that lead an output without a name away from the call's own folder."""
    names = {option.name for option in options}
    sources = [option.value for option in options if option.name == INPUT and option.value]
    if not sources:
        return (), False
    if tool == "cache":  # its first word is the compiler
        return (), True
    if tool == "nvcc":
        return (("-odir", folder), False) if names & _NVCC_PHASES else (("-o", f"{folder}/a.out"), False)
    if tool == "compiler" and names & {"-c", "-S"}:
        ending = ".s" if "-S" in names else ".o"
        stem = file_name(sources[0]).rsplit(".", 1)[0]
        return (("-o", f"{folder}/{stem}{ending}"), False) if len(sources) == 1 else ((), True)
    return ("-o", f"{folder}/a.out"), False
