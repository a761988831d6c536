"""What the tools can say, read off the tools: format strings, error tables of headers, sources. What is explained?

Nothing of it is kept: cuwheel ships its own patterns, and this shows what they cover and what they do not.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
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


class Source(NamedTuple):
    """Sources that a package ships: Python's, and CMake's modules."""

    tool: str
    package: str
    members: tuple[str, ...]


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
SOURCES = (
    Source(
        "torch",
        "torch",
        ("torch/utils/cpp_extension.py", "torch/cuda/__init__.py", "torch/__init__.py", "torch/hub.py"),
    ),
    Source("jax", "jax", ("jax/_src/xla_bridge.py", "jax/_src/lib/__init__.py", "jax/_src/distributed.py")),
    Source("cupy", "cupy-cuda13x", ("cupy/_environment.py", "cupy/cuda/compiler.py", "cupy/__init__.py")),
    Source(
        "bitsandbytes",
        "bitsandbytes",
        ("bitsandbytes/cextension.py", "bitsandbytes/cuda_specs.py", "diagnostics/cuda.py"),
    ),
    Source(
        "vllm", "vllm", ("vllm/platforms/cuda.py", "vllm/config/model.py", "device_communicators/pynccl_wrapper.py")
    ),
    Source(
        "triton",
        "triton",
        ("triton/backends/nvidia/driver.py", "triton/backends/nvidia/compiler.py", "runtime/build.py"),
    ),
    Source("numba", "numba-cuda", ("cuda/cudadrv/driver.py", "cuda/cudadrv/nvvm.py", "cuda/cudadrv/libs.py")),
    Source("flashinfer", "flashinfer-python", ("flashinfer/jit/cpp_ext.py", "flashinfer/compilation_context.py")),
    Source("transformer-engine", "transformer-engine", ("transformer_engine/common/__init__.py",)),
    Source(
        "cmake",
        "cmake",
        (
            "Modules/FindCUDAToolkit.cmake",
            "Modules/FindCUDA.cmake",
            "Modules/CMakeDetermineCUDACompiler.cmake",
            "Modules/CMakeTestCUDACompiler.cmake",
            "Internal/CMakeCUDAArchitecturesValidate.cmake",
        ),
    ),
)
_LOADERS = tuple(map(Path, ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")))  # glibc's, of this machine
_TOLD = frozenset({"warn", "warning", "warning_once", "warn_once", "error", "critical", "exception"})
_CMAKE = re.compile(r'message\s*\(\s*(?:FATAL_ERROR|SEND_ERROR|WARNING)\s+((?:"(?:[^"\\]|\\.)*"\s*)+)')
_IN_CMAKE = re.compile(r"\$\{[^}]*\}|@\w+@")
_ENDS = re.compile(
    r"(?:cannot|invalid|undefined|wrong|file too|failed to|object file|only ET|ELF |CPU |no version|version `)[^=\t]*$"
)
_OF_VERSION = re.compile(r"(?i)(?:version|capability|cuda|driver|sm_|>=|<=|[<>v])\s*[(']?$")
_FINE = re.compile(r"(?i)success|inprogress")
TOOLS = (*(each.tool for each in (*PROGRAMS, *HEADERS, *SOURCES)), "nvml", "loader")


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
    yield from _of_sources(only)
    if only in ("", "nvml"):
        for name in (each for each in dir(pynvml) if each.startswith("NVML_ERROR_")):
            code = getattr(pynvml, name)
            yield _judged("nvml", "nvidia-ml-py", f"pynvml.NVMLError: {pynvml.NVMLError(code)} ({name})")


def _of_sources(only: str) -> Iterator[Message]:
    """Of what is written in Python and CMake, and of the loader of this machine."""
    for source in SOURCES:
        if only in ("", source.tool) and (wheel := _newest(source.package)):
            for name in source.members:
                data = (index.member(wheel, name) or b"").decode(errors="replace")
                for each in dict.fromkeys(of_cmake(data) if name.endswith(".cmake") else of_python(data)):
                    yield _judged(source.tool, str(wheel), each)
    if only in ("", "loader") and (loader := next((each for each in _LOADERS if each.is_file()), None)):
        for each in of_loader(loader.read_bytes()):
            yield _judged("loader", str(loader), f"ImportError: libcublas.so.12: {filled(each)}")


def _newest(package: str) -> Wheel | None:
    found = [
        each for each in index.wheels(package) if each.platform == "any" or (not each.windows and each.cpu == "x86_64")
    ]
    return found[-1] if found else None


def format_strings(data: bytes) -> list[str]:
    """Those of a program that are sentences with a placeholder, each once."""
    texts = (match[0].decode() for match in _PRINTED.finditer(data))
    kept = (each.strip() for each in texts if _PLACEHOLDER.search(each) and each.count(" ") > 1 and "<" not in each[:1])
    return list(dict.fromkeys(each for each in kept if len(each) >= _SHORTEST and len(_WORD.findall(each)) >= _WORDS))


def of_python(source: str) -> Iterator[str]:
    """What is raised, warned or logged, as it is printed."""
    for node in ast.walk(ast.parse(source)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        said = _literal(call.args[0])
        if (isinstance(node, ast.Raise) or name in _TOLD) and len(_WORD.findall(said)) >= _WORDS:
            yield f"{name if isinstance(node, ast.Raise) else 'WARNING'}: {filled(said)}"


def _literal(node: ast.expr) -> str:
    """The text of an expression, with a version or a name in the places of what is worked out."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.BinOp):
        return _literal(node.left) + (_literal(node.right) if isinstance(node.op, ast.Add) else "")
    said = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        said += _literal(part) if isinstance(part, ast.Constant) else "12.1" if _OF_VERSION.search(said) else "name"
    return said


def of_loader(data: bytes) -> list[str]:
    """Sentences that it ends with: they have no placeholders, as the file is named before them."""
    texts = (match[0].decode() for match in _PRINTED.finditer(data))
    return list(dict.fromkeys(each for each in texts if _ENDS.match(each)))


def of_cmake(source: str) -> Iterator[str]:
    for match in _CMAKE.finditer(source):
        said = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])).replace("\\n", "\n")
        yield f"CMake Error at CMakeLists.txt:3 (message):\n  {_IN_CMAKE.sub('name', said).strip()}"


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
