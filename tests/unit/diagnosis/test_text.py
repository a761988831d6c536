"""Reading logs as they come."""

from __future__ import annotations

import io
import json
import random
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from cuwheel.diagnosis import inquiry, text
from cuwheel.diagnosis.explain import explain
from cuwheel.report import terminal
from cuwheel.report.answer import document_of

if TYPE_CHECKING:
    from cuwheel.diagnosis.answer import Explain

ERROR = (
    "/usr/include/crt/host_config.h:129:2: error: #error -- unsupported GNU version! "
    "gcc versions later than 11 are not supported!"
)
CAUSE = "host-compiler-too-new"


def cause_of(data: bytes) -> tuple[str, int]:
    found = explain(text.read_log(io.BytesIO(data))).causes
    return found[0].id, found[0].evidence[0].line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_encodings(encoding: str) -> None:
    log = f"Übersetzung läuft\r\n{ERROR}\r\nfertig\r\n"
    assert cause_of(log.encode(encoding)) == (CAUSE, 2)


def test_a_character_cut_in_two_is_no_other_encoding() -> None:
    data = ("é" * 3000).encode()[1:] + b"\n" + ERROR.encode()
    assert "é" in text.decode(data)


@pytest.mark.parametrize(
    "prefix",
    [
        "2025-09-23T05:22:31.4713801Z ",
        "build\tCompile kernels\t2025-09-23T05:22:31.4713801Z ",
        "2025-09-23T05:22:31.471380Z 00O ",
        "[2025-09-23T05:22:31.471Z] ",
        "12:01:33  ",
        "#14 32.18 ",
        "worker-1  | ",
        "##[error]",
        "cargo:warning=",
        "\x1b[31m",
        "_bk;t=1700000000000\x07",
        "      │ ",
    ],
)
def test_prefixes_of_ci_systems(prefix: str) -> None:
    log = text.parse(f"{prefix}first\n{prefix}{ERROR}\n")
    assert log.shown(1) == ERROR
    assert explain(log).causes[0].id == CAUSE


def test_progress_bars_hide_nothing() -> None:
    bar = "\r".join(f"{'#' * index:20} {index * 5} %" for index in range(20))
    assert cause_of(f"{bar}\r{ERROR}\rdone\nend\n".encode()) == (CAUSE, 1)


@pytest.mark.parametrize("width", [72, 80, 100])
def test_lines_cut_by_a_terminal(width: int) -> None:
    cut = "\n".join(ERROR[start : start + width] for start in range(0, len(ERROR), width))
    assert cause_of(f"make: entering\n{cut}\nmake: leaving\n".encode()) == (CAUSE, 2)


@pytest.mark.parametrize("width", [66, 80])
def test_lines_wrapped_between_words(width: int) -> None:
    wrapped = "\n".join(textwrap.wrap(ERROR, width))
    assert cause_of(f"make: entering\n{wrapped}\nmake: leaving\n".encode())[0] == CAUSE


def test_output_that_was_printed_as_one_string() -> None:
    packed = repr(f"{'compiling ' * 40}\n{ERROR}\nerror: 1\nend\n")
    assert cause_of(f"CalledProcessError: {packed}\n".encode()) == (CAUSE, 1)


def test_what_is_too_long_is_read_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "HALF", 1000)
    monkeypatch.setattr(text, "_CHUNK", 700)
    data = b"start\n" + b"nothing to see here\n" * 1000 + ERROR.encode() + b"\n"
    log = text.read_log(io.BytesIO(data))
    assert log.truncated > 800
    assert log.total == 1002
    found = explain(log).causes[0]
    assert (found.id, found.evidence[0].line) == (CAUSE, 1002)


@pytest.mark.parametrize("size", [999, 1000, 1001, 1999, 2000, 2001, 2700, 2701, 10_000])
def test_every_line_of_a_long_log_is_counted_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "HALF", 1000)
    monkeypatch.setattr(text, "_CHUNK", 700)
    data = (b"nothing to see here\n" * 1000)[:size]
    log = text.read_log(io.BytesIO(data))
    assert log.total == data.count(b"\n") + (not data.endswith(b"\n"))
    assert bool(log.truncated) == (size > 2020)


def test_what_was_not_searched_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "HALF", 1000)
    answer = inquiry.inquire(io.BytesIO(b"nothing to see here\n" * 1000))
    assert answer.unread == 900
    assert "not the 900 lines between" in _shown(answer)
    short = inquiry.inquire(io.BytesIO(b"nothing to see here\n"))
    assert (short.unread, "lines between" in _shown(short)) == (0, False)


def _shown(answer: Explain) -> str:
    stream = io.StringIO()
    terminal.write(document_of(answer, verbose=False), stream)
    return " ".join(stream.getvalue().split())


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\x00" * 100, b"\xff\xfe", b"\xff\xfe\x00", b"\r\r\r", "\ufeff".encode()]
)
def test_nothing_to_read(data: bytes) -> None:
    assert explain(text.read_log(io.BytesIO(data))).causes == ()


def test_evidence_is_short_and_clean() -> None:
    found = explain(text.parse(f"\x1b[1m{ERROR}\x1b[0m {'x' * 5000}")).causes[0]
    assert len(found.evidence[0].text) <= 300
    assert "\x1b" not in found.evidence[0].text


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("/usr/bin/ld: 找不到 -lcudart: 没有那个文件或目录", "linker-cannot-find-cuda-lib"),
        ("/usr/bin/ld: kann -lcuda nicht finden", "linker-cannot-find-cuda-lib"),
        ("ops.cpp:(.text+0x1f): 对‘cudaMalloc’未定义的引用", "linker-cannot-find-cuda-lib"),  # noqa: RUF001
        ("ops.cpp:2:10: erreur fatale : cuda_runtime.h : Aucun fichier ou dossier de ce type", "cuda-headers-missing"),
        ("ops.cpp:2:10: фатальная ошибка: cuda_runtime.h: Нет такого файла или каталога", "cuda-headers-missing"),
        ("bash: nvcc: Kommando nicht gefunden.", "nvcc-missing"),
        ("a.cu:5: 错误：‘struct cudaDeviceProp’没有名为‘clockRate’的成员", "toolkit-too-new"),  # noqa: RUF001
        ("OSError: [WinError 126] Le module spécifié est introuvable", "windows-dll-dependency-missing"),
    ],
)
def test_other_languages_are_read_and_shown_as_they_were_printed(line: str, cause: str) -> None:
    first, *_ = explain(text.parse(f"make: all\n{line}\n")).causes
    assert (first.id, first.evidence[0].line, first.evidence[0].text) == (cause, 2, line)


@pytest.mark.parametrize(
    "line",
    [
        "cutlass/gemm.h: No such file or directory",
        'ops.cu(2): catastrophic error: cannot open source file "cutlass/gemm.h"',
        "ops.cpp(2): fatal error C1083: Cannot open include file: 'cutlass/gemm.h': No such file or directory",
        "ops.cpp:2:10: fatal error: 'cutlass/gemm.h' file not found",
        "ops.c:2: error: include file 'cutlass/gemm.h' not found",
    ],
)
def test_all_compilers_miss_a_header_alike(line: str) -> None:
    assert cause_of(line.encode()) == ("source-dependency-missing", 1)


@pytest.mark.parametrize("quote", ['"', r"\"", r"\\\"", "'"])
def test_quotation_marks_that_were_escaped(quote: str) -> None:
    line = f"ops.cu(3): error: identifier {quote}_Float32{quote} is undefined"
    first, *_ = explain(text.parse(line)).causes
    assert (first.id, first.evidence[0].text) == ("float-n-types-undefined", line)


@pytest.mark.parametrize(
    "line",
    [
        "SKIPPED [4] tests/test_gpu.py:5: CUDA is not available",
        "tests/test_gpu.py::test_copy SKIPPED (No CUDA GPUs are available) [ 25%]",
        "test_copy (tests.Gpu) ... skipped 'No CUDA GPUs are available'",
        "[  SKIPPED ] Gpu.NoCudaGpusAreAvailable: No CUDA GPUs are available (0 ms)",
    ],
)
def test_tests_that_were_skipped_are_no_failures(line: str) -> None:
    assert not explain(text.parse(line)).causes
    assert explain(text.parse(f"{line}\nRuntimeError: No CUDA GPUs are available")).causes[0].evidence[0].line == 2


def test_a_message_that_goes_on_below_its_first_line() -> None:
    log = (
        "-- Looking around\nCMake Error at CMakeLists.txt:3 (project):\n  CMAKE_CUDA_ARCHITECTURES:\n\n    90a-real\n\n"
        "  is not one of the following:\nCall Stack (most recent call first):\n"
    )
    assert cause_of(log.encode()) == ("cmake-too-old", 2)


def test_words_are_not_put_together_across_messages() -> None:
    assert not explain(text.parse("error:\n\n\nnamespace thrust\n\nhas no member\n")).causes


def test_lines_cut_inside_a_word_at_no_common_width() -> None:
    log = (
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:319] Loaded runtime CuDNN l\n"
        "ibrary: 7.4.1 but source was compiled with: 7.6.4.  CuDNN library major and minor version needs to match, up\n"
        "grade it.\n"
    )
    assert cause_of(log.encode()) == ("cudnn-version-mismatch", 1)


def printable(size: int) -> bytes:
    return bytes(random.Random(1).choices(b"abcdefghijklmnop \\/:[]{}'", k=1 << 16)) * (size >> 16)  # noqa: S311 - no secret


@pytest.mark.parametrize(
    "data",
    [
        random.Random(2).randbytes(3 << 20) * 32,  # noqa: S311 - no secret
        b"x" * (100 << 20),
        b"error: nvcc not found " * (5 << 20),
        printable(100 << 20),
        b"\x7fELF\x02\x01\x01" + bytes(3 << 20) + b"nvcc: command not found\x00" * 1000,
    ],
    ids=["random", "one letter", "one message", "one line of all kinds", "a program"],
)
def test_what_no_program_printed_is_answered_quickly_and_with_nothing(data: bytes) -> None:
    began = time.process_time()
    assert explain(text.read_log(io.BytesIO(data))).causes == ()
    assert time.process_time() - began < 3  # a second where nothing else runs


def test_no_more_lines_are_prose_than_there_are() -> None:
    notes = "TODO\n- fix: nvcc: command not found on the build box\n- ask Ann about torch\n- write docs\n"
    log = text.parse(notes)
    assert (log.prose, log.total) == (4, 4)


def test_a_hole_in_a_log_hides_nothing_beside_it() -> None:
    """Zeros, as a machine leaves them that died, or who cut a file that another writes to."""
    fatal = b"nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
    log = text.read_log(io.BytesIO(b"one\ntwo\n" + bytes(5000) + fatal + b"four\n"))
    assert log.lines[:4] == ("one", "two", fatal.decode().strip().replace("   ", " "), "four")
    assert log.numbers[:4] == (1, 2, 3, 4)


def test_a_log_with_binary_in_it_keeps_its_lines_and_their_numbers() -> None:
    noise = random.Random(3).randbytes(1 << 16)  # noqa: S311 - no secret
    before = b"make all\n" * 2000
    data = before + noise + b"\n" + b"cc -c a.c\n" * 2000 + ERROR.encode() + b"\n" + b"make: *** [all] Error 1\n"
    assert cause_of(data) == (CAUSE, 4002 + noise.count(b"\n"))


def test_a_long_log_as_one_string_is_many_lines() -> None:
    packed = json.dumps({"log": "compiling a.cu\n" * 5_000_000 + ERROR + "\nend\n"}).encode()
    began = time.process_time()
    assert cause_of(packed) == (CAUSE, 1)
    assert time.process_time() - began < 5


def test_a_sentence_that_ended_is_not_glued_to_what_follows() -> None:
    log = (
        "OSError: Can't load the tokenizer of 'team/model'. Make sure you don't have a folder with the same name.\n"
        "device: cuda:0 NVIDIA GeForce RTX 2080 Ti\n"
    )
    assert explain(text.parse(log)).causes == ()


def test_the_time_before_a_line_is_no_part_of_it() -> None:
    log = f"2026-05-02 11:02:11.114223: {ERROR}\n"  # as TensorFlow and XLA write it, with a colon
    (evidence, *_) = explain(text.read_log(io.BytesIO(log.encode()))).causes[0].evidence
    assert evidence.text == ERROR


def test_what_python_is_asked_and_answers_is_one_line() -> None:
    session = ">>> import torch\n>>> torch.cuda.is_available()\nFalse\n(venv) >>> torch.version.cuda\n'12.4'\n"
    lines = text.parse(session).lines
    assert "torch.cuda.is_available() False" in lines
    assert "torch.version.cuda '12.4'" in lines
    assert not [line for line in lines if line.startswith("import torch ")]
