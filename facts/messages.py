"""What the tools can say, read off the tools: compilers' format strings, error tables of headers. What is explained?

Nothing of it is kept: cuwheel ships its own patterns, and this shows what they cover and what they do not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from cuwheel.diagnosis import text
from cuwheel.diagnosis.explain import explain
from facts import index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from facts.index import Wheel

_SHORTEST, _WORDS = 12, 3  # letters and words of a message
_WORD = re.compile(r"(?<![%\w])[A-Za-z]{2,}")
# Letters in a row that hold a placeholder: C's, and those of the C++ front end (%sq, %nd, %t1).
_PRINTED = re.compile(rb"[\x20-\x7e]{12,400}")
_PLACEHOLDER = re.compile(
    r"%(?:\d+\$)?[-+ #0]*\d*(?:\.\d+)?(?:ll?|h|z)?[sdiuxXcpf]|%(?:sq|nd|no|nf|np|no\d|[nstpr]\d?)\b"
)
_FILLED = {"s": "name", "d": "1", "i": "1", "u": "1", "x": "1", "X": "1", "c": "x", "p": "0x1", "f": "1.0"}


class Program(NamedTuple):
    """`says`: how it prints a message, with the message in braces."""

    tool: str
    package: str
    member: str
    says: str


class Header(NamedTuple):
    tool: str
    packages: tuple[str, ...]
    member: str
    names: str


class Message(NamedTuple):
    """`shown`: as it would be printed. `cause`: that explains it, if any."""

    tool: str
    of: str
    shown: str
    cause: str


PROGRAMS = (
    Program("nvcc", "nvidia-cuda-nvcc", "bin/nvcc", "nvcc fatal   : {}"),
    Program("cudafe++", "nvidia-cuda-nvcc", "bin/cudafe++", "a.cu(1): error: {}"),
    Program("ptxas", "nvidia-cuda-nvcc", "bin/ptxas", "ptxas fatal   : {}"),
    Program("nvlink", "nvidia-cuda-nvcc", "bin/nvlink", "nvlink error   : {}"),
    Program("fatbinary", "nvidia-cuda-nvcc", "bin/fatbinary", "fatbinary fatal   : {}"),
)
HEADERS = (
    Header("runtime", ("nvidia-cuda-runtime",), "include/driver_types.h", r"\b(cudaError[A-Z]\w+)\s*=\s*\d+"),
    Header("driver", ("nvidia-cuda-runtime", "nvidia-cuda-crt"), "include/cuda.h", r"\b(CUDA_ERROR_\w+)\s*=\s*\d+"),
    Header("cublas", ("nvidia-cublas",), "include/cublas_api.h", r"\b(CUBLAS_STATUS_\w+)\s*=\s*\d+"),
    Header("cusolver", ("nvidia-cusolver",), "include/cusolver_common.h", r"\b(CUSOLVER_STATUS_\w+)\s*=\s*\d+"),
    Header("cusparse", ("nvidia-cusparse",), "include/cusparse.h", r"\b(CUSPARSE_STATUS_\w+)\s*=\s*\d+"),
    Header("cudnn", ("nvidia-cudnn-cu13",), "include/cudnn_graph.h", r"\b(CUDNN_STATUS_\w+)\s*=\s*\d+"),
    Header("nccl", ("nvidia-nccl-cu13",), "include/nccl.h", r"\b(nccl[A-Z]\w+)\s*=\s*\d+"),
)
_FINE = re.compile(r"(?i)success|inprogress")
TOOLS = (*(each.tool for each in PROGRAMS), *(each.tool for each in HEADERS), "nvml")


def read(only: str = "") -> Iterator[Message]:
    """Of the newest release of each tool on the index; of NVML as its Python package has them."""
    for program in PROGRAMS:
        if only in ("", program.tool) and (wheel := _newest(program.package)):
            for each in format_strings(index.member(wheel, program.member) or b""):
                yield _judged(program.tool, str(wheel), program.says.format(filled(each)))
    for header in HEADERS:
        if only in ("", header.tool):
            for package in header.packages:
                wheel = _newest(package)
                data = index.member(wheel, header.member) if wheel else None
                for name in dict.fromkeys(re.findall(header.names, (data or b"").decode(errors="replace"))):
                    if not _FINE.search(name):
                        yield _judged(header.tool, str(wheel), f"RuntimeError: {header.tool} error: {name}")
    if only in ("", "nvml"):
        for name in (each for each in dir(pynvml) if each.startswith("NVML_ERROR_")):
            code = getattr(pynvml, name)
            yield _judged("nvml", "nvidia-ml-py", f"pynvml.NVMLError: {pynvml.NVMLError(code)} ({name})")


def _newest(package: str) -> Wheel | None:
    found = [each for each in index.wheels(package) if not each.windows and each.cpu == "x86_64"]
    return found[-1] if found else None


def format_strings(data: bytes) -> list[str]:
    """Those of a program that are sentences with a placeholder, each once."""
    texts = (match[0].decode() for match in _PRINTED.finditer(data))
    kept = (each.strip() for each in texts if _PLACEHOLDER.search(each) and each.count(" ") > 1 and "<" not in each[:1])
    return list(dict.fromkeys(each for each in kept if len(each) >= _SHORTEST and len(_WORD.findall(each)) >= _WORDS))


def filled(message: str) -> str:
    """With something in the places of what varies."""
    return _PLACEHOLDER.sub(lambda match: _FILLED.get(match[0][-1], "'name'"), message)


def _judged(tool: str, of: str, shown: str) -> Message:
    causes = explain(text.parse(shown + "\n")).causes
    return Message(tool, of, shown, causes[0].id if causes else "")


def show(only: str = "") -> None:
    """A line for each tool; of one that is named, every message."""
    found = list(read(only))
    for tool in TOOLS:
        own = [each for each in found if each.tool == tool]
        if own:
            explained = sum(bool(each.cause) for each in own)
            print(f"{tool}: {len(own)} messages of {own[0].of}, {explained} of them explained", flush=True)
        elif only in ("", tool):
            print(f"{tool}: the index has no package with them")
    if only:
        for each in sorted(found, key=lambda each: (bool(each.cause), each.cause, each.shown)):
            print(f"  {each.cause or '-':30} {each.shown}")
