"""Which failed call was the build's undoing. Configure steps fail on purpose: that is how they find out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.record import words

if TYPE_CHECKING:
    from cuwheel.record.values import Call, Record

# Folders and files of trial compilations: CMake's, Meson's, autoconf's, the cc crate's, setuptools' and PyTorch's.
_TRIAL = re.compile(
    r"(?:^|/)(?:CMakeTmp|CMakeScratch|CompilerId[A-Z]\w*|meson-private|_cmake_try\w*)(?:/|$)"
    r"|(?:^|/)(?:conftest\w*|cmTC_\w+|testCCompiler|testCXXCompiler|testCUDACompiler|CMake\w*CompilerId|flag_check"
    r"|sanitycheck\w*|has_flag\w*)\.\w+$|^__cmake_determine_cuda$"
)
_ASKING = frozenset(
    ("--version", "-V", "-v", "-dumpversion", "-dumpmachine", "-dumpfullversion", "--help", "-h", "-###")
)


def first(record: Record) -> Call | None:
    """The first call that failed and mattered; None where none did.

    A trial counts where nothing else failed and yet the build did: "the CUDA compiler is not able to compile a simple
    test program" ends it at the last one.
    """
    failed = sorted((call for call in record.calls if call.failed), key=_end)
    done = {_product(call) for call in record.calls if call.state == "succeeded"} - {None}
    for call in failed:
        if not is_trial(call) and not (_product(call) in done and _done_later(record, call)):
            return call
    if record.status and failed:
        last = failed[-1]
        # Whoever tries something else afterwards, and that works, did not end because of it.
        went_on = any(call.state == "succeeded" and call.began > _end(last) for call in record.calls)
        return None if went_on else last
    return None


def is_trial(call: Call) -> bool:
    """Whether it was made to find something out, and its failure is an answer."""
    parsed = words.parse(call.words)
    if not parsed.inputs:
        return bool(_ASKING.intersection(call.words)) or not call.words
    return any(_TRIAL.search(place) for place in (call.cwd, parsed.output, *parsed.inputs))


def _end(call: Call) -> float:
    return call.began if call.ended is None else call.ended


def _product(call: Call) -> tuple[str, str] | None:
    output = words.parse(call.words).output
    return (call.cwd, output) if output else None


def _done_later(record: Record, failed: Call) -> bool:
    """Tried again, and it worked."""
    product = _product(failed)
    return any(
        call.state == "succeeded" and call.began >= failed.began and _product(call) == product for call in record.calls
    )
