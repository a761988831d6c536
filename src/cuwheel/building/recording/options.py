"""The words of a compiler call as options: what they are for, where it writes, and the same call writing elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from msgspec import Struct

from cuwheel_core.support.wording import file_name

INPUT = ""  # the name of a word that is not an option
RESPONSE = "@"  # of a file of options

# nvcc --help of 12.4, 13.0 and 13.4: long name, short name; = where a value follows.
_NVCC = """
--output-file= -o        --pre-include= -include      --library= -l              --define-macro= -D
--undefine-macro= -U     --include-path= -I           --system-include= -isystem --library-path= -L
--output-directory= -odir --compiler-bindir= -ccbin   --archiver-binary= -arbin  --cudart= -cudart
--cudadevrt= -cudadevrt  --libdevice-directory= -ldir --target-directory= -target-dir
--optimization-info= -opt-info --optimize= -O         --Ofast-compile= -Ofc      --dopt= -dopt
--ftemplate-backtrace-limit= -ftemplate-backtrace-limit --ftemplate-depth= -ftemplate-depth
--x= -x                  --std= -std                  --stdlib= -stdlib          --machine= -m
--apply-controls= -apply-controls --compiler-options= -Xcompiler --linker-options= -Xlinker
--archive-options= -Xarchive --ptxas-options= -Xptxas --nvlink-options= -Xnvlink --nvprune-options= -Xnvprune
--tileiras-options= -Xtileiras --static-global-template-stub= -static-global-template-stub
--device-entity-has-hidden-visibility= -device-entity-has-hidden-visibility --threads= -t
--fmax-errors= -fmax-errors --split-compile= -split-compile --split-compile-extended= -split-compile-extended
--fdevice-time-trace= -fdevice-time-trace --keep-dir= -keep-dir --time= -time    --run-args= -run-args
--input-drive-prefix= -idp --dependency-drive-prefix= -ddp --drive-prefix= -dp   --dependency-target-name= -MT
--dependency-output= -MF --gpu-architecture= -arch    --gpu-code= -code          --generate-code= -gencode
--relocatable-device-code= -rdc --entries= -e         --maxrregcount= -maxrregcount --ftz= -ftz
--prec-div= -prec-div    --prec-sqrt= -prec-sqrt      --fmad= -fmad              --default-stream= -default-stream
--Werror= -Werror        --diag-error= -diag-error    --diag-suppress= -diag-suppress --diag-warn= -diag-warn
--host-linker-script= -hls --brief-diagnostics= -brief-diag --jump-table-density= -jtd
--device-stack-protector= -device-stack-protector     --compress-mode= -compress-mode --frandom-seed= -frandom-seed
--fdevice-sanitize= -fdevice-sanitize --options-file= -optf --qpp-config= -qpp-config
--cuda -cuda  --cubin -cubin  --fatbin -fatbin  --ptx -ptx  --optix-ir -optix-ir  --ltoir -ltoir  --preprocess -E
--generate-dependencies -M  --generate-nonsystem-dependencies -MM  --generate-dependencies-with-compile -MD
--generate-nonsystem-dependencies-with-compile -MMD  --generate-dependency-targets -MP  --compile -c  --device-c -dc
--device-w -dw  --device-link -dlink  --link -link  --lib -lib  --run -run  --objdir-as-tempdir -objtemp
--profile -pg  --debug -g  --device-debug -G  --generate-line-info -lineinfo  --dlink-time-opt -dlto  --lto -lto
--shared -shared  --no-exceptions -noeh  --dont-use-profile -noprof  --dryrun -dryrun  --verbose -v  --keep -keep
--clean-targets -clean
--no-device-link -nodlink  --disable-warnings -w  --source-in-ptx -src-in-ptx  --resource-usage -res-usage
--extensible-whole-program -ewp  --list-gpu-code -code-ls  --list-gpu-arch -arch-ls  --display-error-number -err-no
--relocatable-link -r  --help -h  --version -V  --save-temps -save-temps  --use_fast_math -use_fast_math
"""
# GCC 13 and Clang 17 manuals, and ld's: options whose value may stand in the next word.
_HOST_VALUED = """
-o -I -D -U -L -l -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix -isysroot -x -MF -MT -MQ -T -u
-e -z -B -Xlinker -Xassembler -Xpreprocessor -Xclang -mllvm -arch -target --param -aux-info -wrapper -framework
-dumpbase -dumpdir -dumpbase-ext -soname -h -rpath -rpath-link -dynamic-linker -m -plugin -Map -version-script
--version-script --dependency-file
"""
_HOST = frozenset(_HOST_VALUED.split())
# One letter with its value: -Ifolder, -DNAME=1, -O2, -m64. Longer names that begin alike are other options.
_JOINED = re.compile(r"(-[IDULlOx])(.+)|(-[mt])(\d+)", re.DOTALL)
_JOINED_HOST = re.compile(r"(-[IDULlOxoTBuz])(.+)|(-m)(\d+)", re.DOTALL)

# By any of their names: the words for people, and whether their order changes what is compiled or linked.
_MEANINGS: dict[str, tuple[str, bool]] = {
    INPUT: ("inputs", True),
    "--output-file": ("output", False),
    "-o": ("output", False),
    "--gpu-architecture": ("architectures", False),
    "--gpu-code": ("architectures", False),
    "--generate-code": ("architectures", False),
    "--compiler-bindir": ("host compiler", False),
    "--include-path": ("include folders", True),
    "-I": ("include folders", True),
    "--system-include": ("include folders", True),
    "-isystem": ("include folders", True),
    "-iquote": ("include folders", True),
    "--library-path": ("library folders", True),
    "-L": ("library folders", True),
    "--library": ("libraries", True),
    "-l": ("libraries", True),
    "--pre-include": ("included files", True),
    "-include": ("included files", True),
    "--define-macro": ("macros", True),  # the last definition counts
    "-D": ("macros", True),
    "--undefine-macro": ("macros", True),
    "-U": ("macros", True),
    "--std": ("language", False),
    "-std": ("language", False),
    "--compiler-options": ("options of the host compiler", True),
    "--linker-options": ("options of the linker", True),
    "-Xlinker": ("options of the linker", True),
    "--ptxas-options": ("options of ptxas", False),
    "--optimize": ("optimisation", False),
    "-O": ("optimisation", False),
    "--options-file": ("files of options", True),
}


class Option(Struct, frozen=True):
    """`name`: one for all spellings, empty for an input. `words`: as they stood."""

    name: str
    value: str | None
    words: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str | None]:
        return self.name, self.value

    @property
    def shown(self) -> str:
        return self.value or "" if self.name == INPUT else self.name + (f" {self.value}" if self.value else "")


def meaning(name: str) -> str:
    return _MEANINGS.get(name, ("other options", False))[0]


def order_counts(name: str) -> bool:
    return _MEANINGS.get(name, ("", False))[1]


def parse_options(words: Sequence[str], tool: str) -> tuple[Option, ...]:
    return tuple(_options_of(words, nvcc=tool == "nvcc"))


def input_files(words: Sequence[str], tool: str) -> tuple[str, ...]:
    """What is compiled or linked: no options, and no files of options."""
    return tuple(option.value for option in parse_options(words, tool) if option.name == INPUT and option.value)


def _options_of(words: Sequence[str], *, nvcc: bool) -> Iterator[Option]:
    names, valued = _nvcc_names() if nvcc else ({}, _HOST)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        head, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            yield Option(RESPONSE if word.startswith("@") else INPUT, word, (word,))
        elif word in valued and at < len(words):
            yield Option(names.get(word, word), words[at], (word, words[at]))
            at += 1
        elif joined := _joined(word, nvcc=nvcc):
            yield joined
        else:
            yield Option(names.get(head, head), value if equals else None, (word,))


def _joined(word: str, *, nvcc: bool) -> Option | None:
    names, valued = _nvcc_names() if nvcc else ({}, _HOST)
    match = (_JOINED if nvcc else _JOINED_HOST).fullmatch(word)
    if match is None or word.partition("=")[0] in (names or valued):
        return None
    short, value = (each for each in match.groups() if each is not None)
    return Option(names.get(short, short), value.removeprefix("=") if nvcc else value, (word,))


@cache
def _nvcc_names() -> tuple[dict[str, str], frozenset[str]]:
    """Any spelling → the long name; those that take a value."""
    words = _NVCC.split()
    names: dict[str, str] = {}
    valued: set[str] = set()
    for long, short in zip(words[::2], words[1::2], strict=True):
        name = long.rstrip("=")
        names |= {name: name, short: name}
        if long.endswith("="):
            valued |= {name, short}
    return names, frozenset(valued)


# Where a compiler call writes, and the same call writing elsewhere.

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


def output_files(words: Sequence[str], tool: str) -> tuple[str, ...]:
    """The files that a call names to write."""
    found = (option for option in parse_options(words, tool) if option.name in WRITTEN and option.value)
    return tuple(option.value for option in found if option.value and not option.value.startswith("/dev/"))


def redirect_outputs(words: Sequence[str], tool: str, folder: str, program: str = "") -> Redirected:
    """The same call with everything that it writes led into `folder`."""
    name = file_name(program).removesuffix(".exe")
    if name.endswith(_ARCHIVERS):
        # `ar rcs libx.a …`: a new archive, as a build that starts anew makes one.
        how = words[0].lstrip("-") if words else ""
        if len(words) < 2 or not set(how) & set("rq"):  # noqa: PLR2004 - what to do, and the archive
            return Redirected(words=tuple(words), written=(), leaks=bool(set(how) & set("dms")))
        if set(how) & set("abi"):  # a member's name stands before the archive's
            return Redirected(words=tuple(words), written=(), leaks=True)
        place = f"{folder}/{file_name(words[1])}"
        return Redirected(words=(words[0], place, *words[2:]), written=((words[1], place),))
    if name in _OTHERWISE:
        return Redirected(words=tuple(words), written=(), leaks=True)
    new: list[str] = []
    written: list[tuple[str, str]] = []
    options = parse_options(words, tool)
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
    more, leaks = _redirect_unnamed(options, tool, folder)
    return Redirected(words=(*new, *more), written=tuple(written), leaks=leaks)


def _redirect_unnamed(options: Sequence[Option], tool: str, folder: str) -> tuple[tuple[str, ...], bool]:
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
