"""What differs between two ways to run a compiler: program, folder, arguments by meaning, variables by element.

And which compilers either would run, in which versions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from cuwheel.building.recording import options, reader
from cuwheel.building.recording.calls import Call, Record, ToolKind
from cuwheel.building.recording.options import WRITTEN
from cuwheel.machine import compilers as host_compilers
from cuwheel.machine.system import VARIABLE_NAMES
from cuwheel.machine.world import World
from cuwheel.support import masking, process
from cuwheel_core.errors import CuwheelError

T = TypeVar("T")

# `steers`: known to lead compilers; `session`: of a terminal or a login, and of no compiler.
Weight: TypeAlias = Literal["steers", "other", "session"]
WEIGHTS: tuple[Weight, ...] = ("steers", "other", "session")

# Beside CUDA's own: GCC's and Clang's manuals ("Environment Variables"), ld's, Microsoft's cl and link, make's.
_STEERS = frozenset(
    {
        *VARIABLE_NAMES, "PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH",
        "COMPILER_PATH", "GCC_EXEC_PREFIX", "GCC_SPECS", "LD_PRELOAD", "LD_RUN_PATH", "LDFLAGS", "CFLAGS", "CXXFLAGS",
        "CPPFLAGS", "CUDAFLAGS", "CCC_OVERRIDE_OPTIONS", "SDKROOT", "SOURCE_DATE_EPOCH", "TMPDIR", "TMP", "TEMP",
        "INCLUDE", "LIB", "LIBPATH", "CL", "_CL_", "LINK", "_LINK_", "EXTERNAL_INCLUDE", "VCINSTALLDIR",
        "VSINSTALLDIR", "VCToolsInstallDir", "WindowsSdkDir", "MAKEFLAGS", "CONDA_PREFIX", "CONDA_BUILD_SYSROOT",
        "NVCC", "CCACHE_DISABLE", "CCACHE_DIR", "CCACHE_PREFIX", "SCCACHE_DIR", "CUDA_CACHE_PATH", "LANG", "LC_ALL",
    }
)  # fmt: skip
_SESSION = re.compile(
    r"PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|TERM|TERM_\w+|COLORTERM|WINDOWID|DISPLAY|WAYLAND_DISPLAY|SSH_\w+|XDG_\w+|GPG_TTY"
    r"|TMUX\w*|STY|VTE_VERSION|LS_COLORS|PS\d|HIST\w+|DBUS_\w+|INVOCATION_ID|JOURNAL_STREAM|LOGNAME|USER|MAIL|SHELL"
    r"|PAGER|EDITOR|VISUAL|LESS\w*|SESSION_MANAGER|DESKTOP_SESSION|GNOME_\w+|KDE_\w+|BASH_FUNC_.*|PYTEST_CURRENT_TEST"
)
_LISTS = re.compile(
    r"PATH|(?:LD_|DYLD_)?(?:LIBRARY|RUN)_PATH|CPATH|\w+_INCLUDE_PATH|COMPILER_PATH|PYTHONPATH|PKG_CONFIG_PATH|MANPATH"
    r"|CMAKE_\w+_PATH|INCLUDE|LIB|LIBPATH|PATHEXT",
    re.IGNORECASE,
)
_MAYBE_LISTS = re.compile(r"\w*(?:PATHS?|DIRS)", re.IGNORECASE)  # CUDA_PATH names one folder
_JOINED = re.compile(r":/|;")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")


class Situation(Struct, frozen=True, kw_only=True):
    """A call that can be run: `words` without the program."""

    label: str
    tool: ToolKind
    program: str
    words: tuple[str, ...]
    cwd: str
    environ: dict[str, str] = field(default_factory=dict)


class VariableDifference(Struct, frozen=True, kw_only=True):
    """`left`, `right`: None where it is not set; secrets are masked. For lists: what only one has, in its order.

    `reordered`: the same elements in another order. `origin`: the file that sets it, where one is known to.
    """

    name: str
    weight: Weight
    left: str | None
    right: str | None
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()
    reordered: bool = False
    origin: str = ""


class ArgumentDifference(Struct, frozen=True, kw_only=True):
    """Values of one option that only one side has; `reordered`: the same ones in an order that counts."""

    option: str
    meaning: str
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()
    reordered: bool = False


class Pair(Struct, frozen=True, kw_only=True):
    left: str
    right: str


class Differences(Struct, frozen=True, kw_only=True):
    """`versions`: of the compilers that either side would run, by what they are."""

    left: str
    right: str
    program: Pair | None = None
    directory: Pair | None = None
    arguments: tuple[ArgumentDifference, ...] = ()
    variables: tuple[VariableDifference, ...] = ()
    versions: dict[str, Pair] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.program or self.directory or self.arguments or self.variables)


def compare_situations(left: Situation, right: Situation, origins: Mapping[str, str] | None = None) -> Differences:
    """`origins`: variables that a file is known to set, and the file."""
    return Differences(
        left=left.label,
        right=right.label,
        program=_pair(left.program, right.program),
        directory=_pair(left.cwd, right.cwd),
        arguments=tuple(_arguments(left, right)),
        variables=tuple(_variables(left.environ, right.environ, origins or {})),
    )


def _pair(left: str, right: str) -> Pair | None:
    return Pair(left=left, right=right) if left != right else None


# Variables


def weight(name: str) -> Weight:
    if name in _STEERS:
        return "steers"
    return "session" if _SESSION.fullmatch(name) else "other"


def differing_variables(left: Mapping[str, str], right: Mapping[str, str]) -> tuple[str, ...]:
    """Names, those that steer compilers first. A masked value may be the other's: then nothing is known to differ."""
    names = {
        name
        for name in left.keys() | right.keys()
        if left.get(name) != right.get(name) and not _alike_masked(name, left.get(name), right.get(name))
    }
    return tuple(sorted(names, key=lambda name: (WEIGHTS.index(weight(name)), name)))


def _alike_masked(name: str, left: str | None, right: str | None) -> bool:
    if left is None or right is None or masking.MASK not in left + right:
        return False
    return masking.variable(name, left) == masking.variable(name, right)


def _variables(
    left: Mapping[str, str], right: Mapping[str, str], origins: Mapping[str, str]
) -> Iterator[VariableDifference]:
    for name in differing_variables(left, right):
        before, after = left.get(name), right.get(name)
        only_left: tuple[str, ...] = ()
        only_right: tuple[str, ...] = ()
        reordered = False
        values = [each for each in (before, after) if each]
        if separator := list_separator(name, *values):
            first, second = ((each or "").split(separator) if each else [] for each in (before, after))
            only_left, only_right = _missing_in(first, second), _missing_in(second, first)
            reordered = not only_left and not only_right and bool(values)
        yield VariableDifference(
            name=name,
            weight=weight(name),
            left=None if before is None else masking.variable(name, before),
            right=None if after is None else masking.variable(name, after),
            only_left=only_left,
            only_right=only_right,
            reordered=reordered,
            origin=origins.get(name, ""),
        )


def list_separator(name: str, *values: str) -> str | None:
    """The separator of a variable that holds a list of folders, by the system whose paths it holds."""
    maybe = _MAYBE_LISTS.fullmatch(name) and any(map(_JOINED.search, values))
    if not (maybe or _LISTS.fullmatch(name)):
        return None
    if any(_WINDOWS.match(value) or ";" in value for value in values):
        return ";"
    return ":" if any("/" in value for value in values) else None


def _missing_in(these: Sequence[str], those: Sequence[str]) -> tuple[str, ...]:
    """What `those` have not, or not as often, in its order."""
    remaining = Counter(those)
    found = []
    for each in these:
        if remaining[each]:
            remaining[each] -= 1
        else:
            found.append(each)
    return tuple(found)


# Arguments


def without_outputs(situation: Situation) -> tuple[options.Option, ...]:
    """Where a call writes does not change what it does."""
    parsed = options.parse_options(situation.words, situation.tool)
    return tuple(option for option in parsed if option.name not in WRITTEN)


def _arguments(left: Situation, right: Situation) -> Iterator[ArgumentDifference]:
    first, second = without_outputs(left), without_outputs(right)
    for name in dict.fromkeys(option.name for option in (*first, *second)):
        ours = [option.value or "" for option in first if option.name == name]
        theirs = [option.value or "" for option in second if option.name == name]
        only_left, only_right = _missing_in(ours, theirs), _missing_in(theirs, ours)
        reordered = not only_left and not only_right and ours != theirs and options.order_counts(name)
        if only_left or only_right or reordered:
            yield ArgumentDifference(
                option=name,
                meaning=options.meaning(name),
                only_left=tuple(map(masking.text, only_left)),
                only_right=tuple(map(masking.text, only_right)),
                reordered=reordered,
            )


# Sequences in part


class Hunk(Struct, frozen=True):
    """`start` to `stop` of the one sequence is `start_` to `stop_` of the other."""

    start: int
    stop: int
    start_: int
    stop_: int


def hunks(one: Sequence[T], other: Sequence[T], *, single: bool = False) -> tuple[Hunk, ...]:
    """Where they differ; `single`: each element on its own."""
    matcher = SequenceMatcher(a=list(one), b=list(other), autojunk=False)
    found = [Hunk(*places) for tag, *places in matcher.get_opcodes() if tag != "equal"]
    return tuple(piece for hunk in found for piece in _single_pieces(hunk)) if single else tuple(found)


def _single_pieces(hunk: Hunk) -> Iterator[Hunk]:
    """What is put in first, one by one, then what is taken out: any choice of them can be applied in this order."""
    for place in range(hunk.start_, hunk.stop_):
        yield Hunk(hunk.start, hunk.start, place, place + 1)
    for place in range(hunk.start, hunk.stop):
        yield Hunk(place, place + 1, hunk.stop_, hunk.stop_)


def apply_hunks(one: Sequence[T], other: Sequence[T], chosen: Sequence[Hunk]) -> tuple[T, ...]:
    """`one`, with the chosen places as in the other."""
    result: list[T] = []
    at = 0
    for hunk in sorted(chosen, key=lambda hunk: (hunk.start, hunk.stop, hunk.start_)):
        result += [*one[at : hunk.start], *other[hunk.start_ : hunk.stop_]]
        at = hunk.stop
    return (*result, *one[at:])


# Which compilers a call would run, and their versions: by asking them, or by what a record heard them say.

_TIMEOUT_S = 10.0
_ASKS = frozenset({"--version", "-V", "-v", "-dumpversion", "-dumpfullversion"})
_HOST_NAMES = ("g++", "gcc", "c++", "cl.exe")


def host_compiler(situation: Situation) -> str | None:
    """The program that nvcc would call: the one it is given, else the first of its usual names on PATH."""
    chosen = [
        option.value for option in options.parse_options(situation.words, "nvcc") if option.name == "--compiler-bindir"
    ]
    world = World(environ=situation.environ, cwd=Path(situation.cwd))
    wanted = chosen[-1] if chosen else situation.environ.get("NVCC_CCBIN")
    if wanted:
        place = Path(situation.cwd, wanted)
        if place.is_dir():
            return next((str(place / name) for name in _HOST_NAMES if (place / name).exists()), str(place))
        on_path = world.which_all(wanted)
        return str(on_path[0]) if on_path else str(place)
    found = (path for name in _HOST_NAMES for path in world.which_all(name)[:1])
    return next((str(path) for path in found), None)


def compiler_versions(left: Situation, right: Situation, timeout: float = _TIMEOUT_S) -> dict[str, Pair]:
    """What either side would run, where it is not the same."""
    sides = [dict(_compilers(side, min(timeout, _TIMEOUT_S))) for side in (left, right)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    pairs = {name: Pair(left=sides[0].get(name, "none"), right=sides[1].get(name, "none")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair.left != pair.right}


def _compilers(situation: Situation, timeout: float) -> Iterator[tuple[str, str]]:
    yield situation.tool, _asked_version(situation.program, situation, timeout)
    if situation.tool == "nvcc":
        host = host_compiler(situation)
        yield "host compiler", _asked_version(host, situation, timeout) if host else "none"


def _asked_version(program: str, situation: Situation, timeout: float) -> str:
    try:
        done = process.run([program, "--version"], timeout=timeout, check=False, env=situation.environ)
    except CuwheelError:
        return f"{program} (does not start)"
    banner = done.stdout + done.stderr
    version = host_compilers.nvcc_version_in(banner) or host_compilers.compiler_version_in(banner)[1]
    return f"{program} ({version or 'version not known'})"


def reported_versions(record: Record, call: Call) -> dict[str, str]:
    """Facts for `explain`, from calls in which the build asked compilers who they are: of the same program first."""
    facts: dict[str, str] = {}
    asking = [each for each in record.calls if _ASKS.intersection(each.words)]
    for each in sorted(asking, key=lambda each: each.program != call.program):
        banner = "".join(reader.read_output(record, each))
        if each.tool == "nvcc":
            if version := host_compilers.nvcc_version_in(banner):
                facts.setdefault("nvcc", version)
        else:
            kind, found = host_compilers.compiler_version_in(banner)
            if kind and found:
                facts.setdefault(kind, found)
    return facts
