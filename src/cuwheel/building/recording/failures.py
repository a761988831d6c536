"""Which failed call was the build's undoing. Configure steps fail on purpose: that is how they find out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.building.recording import summary

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import Call, Record

# Folders and files of trial compilations: CMake's, Meson's, autoconf's, the cc crate's, setuptools' and PyTorch's.
_TRIAL = re.compile(
    r"(?:^|/)(?:CMakeTmp|CMakeScratch|CompilerId[A-Z]\w*|meson-private|_cmake_try\w*)(?:/|$)"
    r"|(?:^|/)(?:conftest\w*|cmTC_\w+|testCCompiler|testCXXCompiler|testCUDACompiler|CMake\w*CompilerId|flag_check"
    r"|sanitycheck\w*|has_flag\w*|_configtest|detect_cuda_\w+|tmp[a-z0-9_]{8})\.\w+$|^__cmake_determine_cuda$"
)
# Of those, the ones without which nothing can be built: a compiler that does not work at all.
_VITAL = re.compile(r"(?:^|/)(?:test(?:C|CXX|CUDA)Compiler|CMake\w*Compiler(?:Id|ABI)|sanitycheck\w*)\.")
_NO_FILE = frozenset(("-", "/dev/null", "NUL"))


def first(record: Record) -> Call | None:
    """The first call that failed and mattered; None where none did.

    A trial counts where nothing else failed and yet the build did, if without it nothing can be built: "the CUDA
    compiler is not able to compile a simple test program". Any other answers a question of the build system.
    """
    failed = sorted((call for call in record.calls if call.failed), key=_end)
    done = {_product(call) for call in record.calls if call.state == "succeeded"} - {None}
    for call in failed:
        if not is_trial(call) and not (_product(call) in done and _succeeded_afterwards(record, call)):
            return call
    if record.status and failed:
        last = failed[-1]
        # A build that tried something else afterwards, which worked, did not end because of this one.
        went_on = any(call.state == "succeeded" and call.began > _end(last) for call in record.calls)
        return last if not went_on and _is_vital(record, last) else None
    return None


def last(record: Record) -> Call | None:
    """The call with which everything ended, if it failed and was no trial.

    A build system that gives up in words of its own, right after it, most likely speaks of this call, whose output it
    may have thrown away (CMake's `execute_process(… ERROR_QUIET)`). One that went on to other calls does not.
    """
    ended = max(record.calls, key=_end, default=None)
    return ended if ended and ended.failed and not is_trial(ended) else None


def is_trial(call: Call) -> bool:
    """Whether it was made to find something out, and its failure is an answer."""
    parsed = summary.parse(call)
    if not set(parsed.inputs) - _NO_FILE:
        # Without a file to work on it asks for versions, folders, or whether an option is known.
        return not (parsed.compiles or parsed.output) or not _NO_FILE.isdisjoint(call.words)
    return any(_TRIAL.search(_slashes(place)) for place in (call.cwd, parsed.output, *parsed.inputs))


def _is_vital(record: Record, last: Call) -> bool:
    """A test of the compiler itself; or nothing that was tried ever worked."""
    same = [call for call in record.calls if call.failed and call.tool == last.tool]
    if any(_VITAL.search(_slashes(each)) for call in same for each in summary.parse(call).inputs):
        return True
    tried = [call for call in record.calls if summary.parse(call).inputs]
    return bool(tried) and not any(call.state == "succeeded" for call in tried)


def _slashes(path: str) -> str:
    return path.replace("\\", "/")


def _end(call: Call) -> float:
    return call.began if call.ended is None else call.ended


def _product(call: Call) -> tuple[str, str] | None:
    output = summary.parse(call).output
    return (call.cwd, output) if output else None


def _succeeded_afterwards(record: Record, failed: Call) -> bool:
    """Tried again, and it worked."""
    product = _product(failed)
    return any(
        call.state == "succeeded" and call.began >= failed.began and _product(call) == product for call in record.calls
    )


def source_of(call: Call) -> str:
    """The first file that a call compiles; nothing for one that only links, or tries something out."""
    parsed = summary.parse(call)
    return parsed.inputs[0] if parsed.compiles and parsed.inputs and not is_trial(call) else ""
