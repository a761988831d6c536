"""The words of a compiler's command line: which program, what files, for which architectures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from cuwheel.building.recording.options import INPUT, parse_options
from cuwheel_core.support.wording import file_name

# The same names as in shim/tools.h; a test holds the two together.
TOOLS = {
    **dict.fromkeys(("nvcc",), "nvcc"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++", "c89", "c99"), "compiler"),
    **dict.fromkeys(("nvc", "nvc++", "icx", "icpx", "gfortran", "cicc", "cudafe++", "ptxas"), "compiler"),
    **dict.fromkeys(("fatbinary", "nvlink", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "lld", "mold"), "linker"),
    **dict.fromkeys(("collect2", "ar", "gcc-ar", "llvm-ar"), "linker"),
    **dict.fromkeys(("ccache", "sccache"), "cache"),
}
# Of programs for Windows alone: elsewhere a `link` is another thing.
WINDOWS_TOOLS = {
    **dict.fromkeys(("cl", "clang-cl"), "compiler"),
    **dict.fromkeys(("link", "lib", "lld-link"), "linker"),
}
_VERSION = re.compile(r"-[0-9.]+$")
_TRIPLE = re.compile(r".+-.*-(?=[^-]*$)")
_LONGEST_NAME = 128

_SOURCE = re.compile(r"\.(?:cu|c|cc|cpp|cxx|c\+\+|C|i|ii|gpu|ptx|s|S|f|f90|m|mm|cubin|fatbin)$")
_LINKED = re.compile(r"\.(?:o|obj|a|lib|so(?:\.[0-9.]+)?)$")
_GENCODE = ("--generate-code", "-gencode")
_ARCH = ("--gpu-architecture", "-arch")
_CODE = ("--gpu-code", "-code")
_OUTPUT = ("--output-file", "-o")
_COMPILING = frozenset(
    ("--compile", "--device-c", "--device-w", "--ptx", "--cubin", "--fatbin", "--preprocess", "-c", "-S", "-E")
)
_FILES = ("--options-file", "-optf")
# Options of cl and link, with either sign: what is written (/Fo, /Fe, /OUT), whether it compiles, and any other.
_MICROSOFT = re.compile(
    r"(?i:[-/](?:Fo|Fe|OUT):?(?P<output>.+)|(?P<compiles>[-/]c)$|/(?!/)[A-Za-z?][^\\/]*$|[-/]F[aimpR].*|/[A-Z]+:.*)"
)
_DEFAULT_TARGET = re.compile(r"sm_(\w+)")


class Parsed(Struct, frozen=True):
    """`archs`: what code is made for, as nvcc names it (`sm_90a`, `compute_90`); empty where no flag says."""

    inputs: tuple[str, ...]
    output: str
    archs: tuple[str, ...]
    compiles: bool


def tool_kind(program: str) -> str | None:
    """The kind of tool that a program of this name is; None for anything else."""
    name = program.rsplit("/", 1)[-1]
    tools = TOOLS
    if is_windows_program(program):
        name, tools = file_name(program).lower().removesuffix(".exe"), TOOLS | WINDOWS_TOOLS
    if len(name) > _LONGEST_NAME:
        return None
    if name in tools:
        return tools[name]
    name = _VERSION.sub("", name)
    return tools.get(_TRIPLE.sub("", name))


def is_windows_program(name: str) -> bool:
    return name[-4:].lower() == ".exe"


def call_label(name: str, given: Sequence[str]) -> str:
    """A call in two words: `nvcc kernels.cu`."""
    inputs = parse_words(given, tool=tool_kind(name) or "compiler").inputs
    more = f" +{len(inputs) - 1}" if len(inputs) > 1 else ""
    return readable(f"{name} {file_name(inputs[0])}{more}" if inputs else name)


def readable(text: str) -> str:
    """Bytes that are no text as escapes: in answers and on terminals they have no place."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a pair, as only a record that somebody wrote has: JSON can say it
        return text.encode("utf-8", "backslashreplace").decode()


def parse_words(
    given: Sequence[str], files: Mapping[str, str | None] | None = None, *, tool: str = "nvcc", windows: bool = False
) -> Parsed:
    """`files`: the texts of response files by their names, whose words count too. `windows`: of a program there."""
    inputs: list[str] = []
    gencodes: list[str] = []
    codes: list[str] = []
    arch, output, compiles = None, "", False
    for option in parse_options(tuple(with_response_files(given, files or {}, windows=windows)), tool):
        name, value = option.name, option.value or ""
        if windows and (match := _MICROSOFT.match(option.words[0])):
            output = match["output"] or output
            compiles |= bool(match["compiles"])
        elif name == INPUT:
            inputs += [value] if _SOURCE.search(value) or _LINKED.search(value) else []
        elif name in _GENCODE:
            # `arch=compute_90,code=[sm_90,compute_90]` → both codes; without a code the architecture itself.
            head, _, said = value.strip("'\"").partition(",code=")
            gencodes += _split(said) or ([head.removeprefix("arch=")] if head else [])
        elif name in _ARCH:
            arch = value
        elif name in _CODE:
            codes = _split(value)
        elif name in _OUTPUT:
            output = value
        compiles |= name in _COMPILING
    sources = [word for word in inputs if _SOURCE.search(word)]
    archs = (*_chosen(arch, codes), *gencodes)
    return Parsed(
        inputs=tuple(sources or inputs),
        output=output,
        archs=tuple(dict.fromkeys(archs)),
        compiles=compiles or bool(sources),
    )


def with_response_files(
    words: Iterable[str], files: Mapping[str, str | None], depth: int = 4, *, windows: bool = False
) -> Iterator[str]:
    """The words, with those of response files in place of their names."""
    named = False
    for word in words:
        option, joined, value = word.partition("=")
        names: tuple[str, ...] = ()
        if named or (joined and option in _FILES):
            names = tuple((word if named else value).split(","))
            named = False
        elif word in _FILES:
            named = True
            continue
        elif word.startswith("@"):
            names = (word[1:],)
        known = [text for name in names if (text := files.get(name)) is not None]
        if known and depth:
            for text in known:
                split = split_windows_text(text) if windows else split_text(text)
                yield from with_response_files(split, files, depth - 1, windows=windows)
        elif not names or not known:
            yield word


_TEXT_WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"?|'[^']*'?|[^\s"'\\])+""", re.DOTALL)
_UNQUOTED = re.compile(r"""\\(.)|["']""", re.DOTALL)


def split_text(text: str) -> list[str]:
    """The words of a response file. Quotes that nobody closed go to its end."""
    return [_UNQUOTED.sub(lambda match: match[1] or "", word) for word in _TEXT_WORD.findall(text)]


_WINDOWS_WORD = re.compile(r"""(?:[^\s"\\]|\\+"?|"(?:[^"\\]|\\+"?)*"?)+""")
_SLASHES = re.compile(r'(\\*)("?)')


def split_windows_text(text: str) -> list[str]:
    """Splits by Microsoft's rules: a backslash means something only before a quote."""

    def unquoted(match: re.Match[str]) -> str:
        if not match[2]:
            return match[1]
        kept = "\\" * (len(match[1]) // 2)
        return kept + '"' if len(match[1]) % 2 else kept

    return [_SLASHES.sub(unquoted, word) for word in _WINDOWS_WORD.findall(text)]


def _split(value: str) -> list[str]:
    return [each for each in re.split(r"[\s,]+", value.strip("'\"[]\\")) if each]


def _chosen(arch: str | None, codes: list[str]) -> list[str]:
    if arch is None or codes:
        return codes
    match = _DEFAULT_TARGET.fullmatch(arch)
    return [arch, f"compute_{match[1]}"] if match else [arch]


NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


def without_archs(given: Sequence[str]) -> list[str]:
    """The words of a call of nvcc but those that choose architectures, by themselves or with the next word."""
    kept = (each for each in parse_options(given, "nvcc") if each.name not in (*_GENCODE, *_ARCH, *_CODE))
    return [word for option in kept for word in option.words]
