"""The small programs that stand in for compilers: our own C, compiled once with the compiler at hand."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building.recording import instructions
from cuwheel.building.recording.instructions import Orders, Wish
from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.support import files, masking, own_c, process, system_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = Path(__file__).parent / "shim"
_COMMON = ("-x", "c", "-std=gnu11", "-O2", "-w")
_ANSWER_S = 20
_ROOT = Path(__file__).parents[3]
_PYTHON = (
    "import sys; sys.path.insert(0, sys.argv[1]); from cuwheel.building.recording.shim import program; "
    "program.main(sys.argv[2], sys.argv[3:])"
)


class Native(Struct, frozen=True, kw_only=True):
    """`library` None: programs of this machine cannot be made to load it, and shims on PATH do the work."""

    shim: Path
    library: Path | None


def built(cache: Path, environ: Mapping[str, str]) -> Native | None:
    """Compiled now, or before; None if no C compiler is found, or it cannot make programs that run."""
    if not sys.platform.startswith("linux"):
        return None
    folder = own_c.home(cache) / "record" / own_c.digest(SOURCES, secret_lists())
    if not (folder / "shim").is_file():
        made = _made(folder, environ)
        if not made:
            return None
    library = folder / "preload.so"
    return Native(shim=folder / "shim", library=library if library.is_file() else None)


def secret_lists() -> str:
    """The lists of `masking` as C has them: there is one truth about what a secret is."""
    names = ("PARTS", "LAST_PARTS", "TAILS", "LAST_TAILS", "INSIDE", "ALWAYS")
    harmless = ("HARMLESS", "HARMLESS_HEADS", "HARMLESS_ENDS", "HARMLESS_WORDS")
    lists = (
        f"static const char *const {name}[] = {{{', '.join(map(json.dumps, getattr(masking, name)))}, 0}};\n"
        for name in (*names, *harmless)
    )
    tokens = ", ".join(f"{{{json.dumps(head)}, {least}, {plain:d}}}" for head, (least, plain) in masking.TOKENS.items())
    shape = "struct token { const char *head; unsigned long least; int plain; };\n"
    return "".join(lists) + shape + f"static const struct token TOKENS[] = {{{tokens}, {{0, 0, 0}}}};\n"


def _made(folder: Path, environ: Mapping[str, str]) -> bool:
    folder.parent.mkdir(parents=True, exist_ok=True)
    for compiler in own_c.compilers(environ):
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            scratch = Path(name)
            if not _compile(compiler, scratch, environ):
                continue
            # Renamed as a whole: who finds the folder finds programs that were tried.
            with contextlib.suppress(OSError):  # another cuwheel was first
                os.rename(_moved(scratch), folder)  # noqa: PTH104 - pathlib's would replace it
            return (folder / "shim").is_file()
    return False


def _moved(scratch: Path) -> Path:
    """The products alone, still in the scratch folder, which is removed however this ends."""
    target = scratch / "made"
    target.mkdir()
    for name in ("shim", "preload.so"):
        if (scratch / name).is_file():
            shutil.move(scratch / name, target / name)
    return target


def _compile(compiler: str, scratch: Path, environ: Mapping[str, str]) -> bool:
    (scratch / "secrets.h").write_text(secret_lists(), encoding="utf-8")
    shim = SOURCES / "shim.c"
    common = (*_COMMON, "-I", str(scratch))
    attempts = ((*common, "-static"), common)  # without a loader it starts in half the time
    if not any(own_c.compiled([compiler, *words, shim, "-o", scratch / "shim"], environ) for words in attempts):
        return False
    if not steps_aside(scratch / "shim"):
        return False
    words = (*common, "-shared", "-fPIC", "-fvisibility=hidden")
    library = scratch / "preload.so"
    if not own_c.compiled([compiler, *words, SOURCES / "preload.c", "-o", library, "-ldl"], environ) or not _is_loaded(
        scratch
    ):
        library.unlink(missing_ok=True)
    return True


def steps_aside(shim: Path) -> bool:
    """A compiler for another machine, or a folder from which nothing may be run, shows here."""
    with contextlib.suppress(ToolError, ToolTimeoutError):
        done = process.run(
            [shim, "--cuwheel-run", "/bin/sh", "sh", "-c", "exit 7"], timeout=_ANSWER_S, check=False, env={}
        )
        return done.status == 7  # noqa: PLR2004 - a status that does not come up by accident
    return False


def _is_loaded(scratch: Path) -> bool:
    """Whether a shell of this machine loads the library, and so starts the shim in place of a compiler."""
    record = scratch / "trial"
    record.mkdir()
    (record / "output").mkdir()
    (record / "cc").write_text("#!/bin/sh\nexit 7\n", encoding="ascii")
    (record / "cc").chmod(0o755)
    library = scratch / "preload.so"
    instructions.write(record, Orders(record=record, began=0, wish=Wish(), library=library, environ={}))
    environ = {instructions.VARIABLE: str(record), "LD_PRELOAD": str(library), "PATH": os.defpath}
    with contextlib.suppress(ToolError, ToolTimeoutError):
        process.run(["/bin/sh", "-c", '"$0" -c; :', record / "cc"], timeout=_ANSWER_S, env=environ)
    return (record / "calls.jsonl").is_file()


def in_python(home: Path) -> Path:
    """The shim for machines without a C compiler: slower (30 ms a call), and otherwise the same.

    A script that links under any compiler's name may lead to. It finds this Python and this cuwheel by itself.
    """
    words = (sys.executable, "-S", "-E", "-s", "-c", _PYTHON, str(_ROOT))
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$0" "$@"\n'
    target = home / "record" / f"python-{files.sha256_of(text.encode())[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(target) as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            system_calls.set_mode(file.fileno(), 0o755)
    return target
