from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import options

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import ToolKind


@pytest.mark.parametrize(
    "words",
    [
        ["-arch=sm_90"],
        ["-arch", "sm_90"],
        ["--gpu-architecture=sm_90"],
        ["--gpu-architecture", "sm_90"],
    ],
)
def test_every_spelling_of_nvcc_is_one_option(words: list[str]) -> None:
    (option,) = options.parse_options(words, "nvcc")
    assert option.key == ("--gpu-architecture", "sm_90")
    assert list(option.words) == words


@pytest.mark.parametrize(
    ("words", "tool", "keys"),
    [
        (["-Ia b", "-I", "c", "--include-path=d"], "nvcc", [("--include-path", value) for value in ("a b", "c", "d")]),
        (["-DX=1", "-D", "Y"], "nvcc", [("--define-macro", "X=1"), ("--define-macro", "Y")]),
        (["-O3", "-lineinfo", "-lcudart", "-link", "-lto"], "nvcc",
         [("--optimize", "3"), ("--generate-line-info", None), ("--library", "cudart"), ("--link", None),
          ("--lto", None)]),
        (["-Xcompiler", "-fPIC", "-Xcompiler=-Wall,-O1"], "nvcc",
         [("--compiler-options", "-fPIC"), ("--compiler-options", "-Wall,-O1")]),
        (["-objtemp", "-odir", "x", "-ofile"], "nvcc",
         [("--objdir-as-tempdir", None), ("--output-directory", "x"), ("-ofile", None)]),
        (["-march=native", "-m64", "-std=c++17", "-Wl,-rpath,/x"], "compiler",
         [("-march", "native"), ("-m", "64"), ("-std", "c++17"), ("-Wl,-rpath,/x", None)]),
        (["@flags.rsp", "a.cu", "-"], "compiler", [("@", "@flags.rsp"), ("", "a.cu"), ("", "-")]),
        (["-o"], "nvcc", [("--output-file", None)]),
        (["-gencode=arch=compute_90,code=sm_90"], "nvcc", [("--generate-code", "arch=compute_90,code=sm_90")]),
    ],
)  # fmt: skip
def test_what_belongs_together(words: list[str], tool: ToolKind, keys: list[tuple[str, str | None]]) -> None:
    parsed = options.parse_options(words, tool)
    assert [option.key for option in parsed] == keys
    assert [word for option in parsed for word in option.words] == words


@pytest.mark.parametrize(
    ("words", "tool", "expected", "written"),
    [
        (["-c", "a.cu", "-o", "b/a.o"], "nvcc", ["-c", "a.cu", "-o", "T/0-a.o"], [("b/a.o", "T/0-a.o")]),
        (["-c", "a.cu", "--output-file=b/a.o", "-MD", "-MF", "b/a.d"], "nvcc",
         ["-c", "a.cu", "-o", "T/0-a.o", "-MD", "-MF", "T/1-a.d"], [("b/a.o", "T/0-a.o"), ("b/a.d", "T/1-a.d")]),
        (["--ptx", "a.cu"], "nvcc", ["--ptx", "a.cu", "-odir", "T"], []),
        (["--ptx", "a.cu", "-odir", "out dir"], "nvcc", ["--ptx", "a.cu", "-odir", "T/0"], [("out dir", "T/0")]),
        (["a.cu"], "nvcc", ["a.cu", "-o", "T/a.out"], []),
        (["--version"], "nvcc", ["--version"], []),
        (["-E", "a.cu"], "nvcc", ["-E", "a.cu"], []),
        (["-c", "x/a.cpp"], "compiler", ["-c", "x/a.cpp", "-o", "T/a.o"], []),
        (["-c", "a.c", "-Wp,-MD,d/a.d", "-oa.o"], "compiler",
         ["-c", "a.c", "-Wp,-MD,T/0-a.d", "-o", "T/1-a.o"], [("d/a.d", "T/0-a.d"), ("a.o", "T/1-a.o")]),
        (["-c", "a.c", "-o", "/dev/null"], "compiler", ["-c", "a.c", "-o", "/dev/null"], []),
        (["a.o", "b.o", "-lm"], "linker", ["a.o", "b.o", "-lm", "-o", "T/a.out"], []),
    ],
)  # fmt: skip
def test_everything_written_is_led_elsewhere(
    words: list[str], tool: ToolKind, expected: list[str], written: list[tuple[str, str]]
) -> None:
    found = options.redirect_outputs(words, tool, "T")
    assert list(found.words) == expected
    assert list(found.written) == written
    assert not found.leaks


def test_what_cannot_be_led_elsewhere_is_said() -> None:
    assert options.redirect_outputs(["-c", "a.c", "b.c"], "compiler", "T").leaks
    assert options.redirect_outputs(["d", "x/liba.a", "a.o"], "linker", "T", "/usr/bin/ar").leaks
    assert options.redirect_outputs(["rb", "b.o", "x/liba.a", "a.o"], "linker", "T", "/usr/bin/ar").leaks
    assert options.redirect_outputs(["a.c"], "cache", "T", "/usr/bin/sccache").leaks
    assert not options.redirect_outputs(["a.o", "-o", "a.so"], "linker", "T", "/usr/bin/ld.bfd").leaks


def test_archives_are_made_elsewhere() -> None:
    archived = options.redirect_outputs(["rcs", "x/liba.a", "a.o"], "linker", "T", "/usr/bin/x86_64-linux-gnu-gcc-ar")
    assert archived.words == ("rcs", "T/liba.a", "a.o")
    assert not archived.leaks
    assert not options.redirect_outputs(["t", "x/liba.a"], "linker", "T", "/usr/bin/ar").leaks


def test_what_is_kept_is_kept_elsewhere() -> None:
    assert options.redirect_outputs(["-c", "a.cu", "-keep", "-o", "a.o"], "nvcc", "T").words[-2:] == ("--keep-dir", "T")
    assert "-save-temps=obj" in options.redirect_outputs(["-c", "a.c", "-save-temps", "-v"], "compiler", "T").words
    assert options.redirect_outputs(["-c", "a.c", "-v"], "compiler", "T").words[-2:] == ("-o", "T/a.o")


def test_inputs_and_outputs() -> None:
    words = ["-c", "src/a.cu", "-o", "a.o", "-I", "inc", "@more.rsp", "b.o"]
    assert options.input_files(words, "nvcc") == ("src/a.cu", "b.o")
    assert options.output_files(words, "nvcc") == ("a.o",)
