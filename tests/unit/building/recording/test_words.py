from __future__ import annotations

import re

import pytest

from cuwheel.building.recording import shims, words
from cuwheel.building.recording.calls import parse_phases


@pytest.mark.parametrize(
    ("given", "inputs", "output", "archs"),
    [
        (["-c", "a.cu", "-o", "a.o"], ("a.cu",), "a.o", ()),
        (["-arch=sm_90", "a.cu"], ("a.cu",), "", ("sm_90", "compute_90")),
        (["-arch", "sm_90a", "-code", "sm_90a,sm_100", "a.cu"], ("a.cu",), "", ("sm_90a", "sm_100")),
        (["-gencode", "arch=compute_90,code=[sm_90,compute_90]", "a.cu"], ("a.cu",), "", ("sm_90", "compute_90")),
        (['--generate-code=arch=compute_80,code="sm_80,sm_86"', "a.cu"], ("a.cu",), "", ("sm_80", "sm_86")),
        (["-gencode=arch=compute_80", "a.cu"], ("a.cu",), "", ("compute_80",)),
        (["-arch=native", "-x", "cu", "a.cu"], ("a.cu",), "", ("native",)),
        (["-shared", "a.o", "b.o", "-lcudart", "-o", "x.so"], ("a.o", "b.o"), "x.so", ()),
        (["-include", "pre.cu", "-MF", "a.c", "-I", "dir.c", "b.cpp", "c.o"], ("b.cpp",), "", ()),
        (["--version"], (), "", ()),
        (["-arch"], (), "", ("",)),
    ],
)
def test_what_is_compiled_for_what(
    given: list[str], inputs: tuple[str, ...], output: str, archs: tuple[str, ...]
) -> None:
    found = words.parse_words(given)
    assert (found.inputs, found.output, found.archs) == (inputs, output, archs)


def test_words_of_response_files_count() -> None:
    files = {"a.rsp": "-arch=sm_80 @b.rsp 'a b.cu'", "b.rsp": '"-o" out\\ put.o', "loop": "@loop x.cu"}
    found = words.parse_words(["-c", "@a.rsp"], files)
    assert (found.inputs, found.output, found.archs) == (("a b.cu",), "out put.o", ("sm_80", "compute_80"))
    assert words.parse_words(["--options-file", "a.rsp,b.rsp"], files).output == "out put.o"
    assert words.parse_words(["@loop"], files).inputs[0] == "x.cu"
    assert words.parse_words(["@unknown", "y.cu"], files).inputs == ("y.cu",)


def test_the_same_tools_in_c() -> None:
    everywhere, _, windows = (shims.SOURCES / "tools.h").read_text().partition("#ifdef _WIN32")
    for text, tools in ((everywhere, words.TOOLS), (windows, words.WINDOWS_TOOLS)):
        assert dict(re.findall(r'\{"([^"]+)", "([a-z]+)"\}', text)) == tools


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/usr/bin/g++-12", "compiler"),
        ("x86_64-conda-linux-gnu-c++", "compiler"),
        ("aarch64-linux-gnu-ld.gold", "linker"),
        ("gcc-ar", "linker"),
        ("nvcc", "nvcc"),
        ("gcc-wrapper", None),
        ("my-cc", None),
        ("ccache-12", "cache"),
        ("python3-gcc", None),
        ("c" * 4000, None),
        ("C:\\Program Files\\VC\\bin\\CL.EXE", "compiler"),
        ("nvcc.exe", "nvcc"),
        ("C:/x/link.exe", "linker"),
        ("link", None),
        ("cl", None),
        ("C:\\x\\tool.exe", None),
        ("", None),
        ("-", None),
    ],
)
def test_names_of_tools(name: str, kind: str | None) -> None:
    assert words.tool_kind(name) == kind


def test_a_call_in_two_words() -> None:
    assert words.call_label("nvcc", ["-c", "dir/a.cu", "b.cu"]) == "nvcc a.cu +1"
    assert words.call_label("nvcc", ["--version"]) == "nvcc"


def test_phases_of_nvcc() -> None:
    text = (
        "source file name , phase name , phase input files , phase output file , arch , tool, metric , unit\n"
        "a,b.cu , cicc ,  /tmp/x, y.ii  , /tmp/z.ptx , compute_90 , nvcc , 224.1190 , ms\n"
        "a.cu , ptxas , i , o , sm_90 , nvcc , nan , ms\n"
        "a.cu , ptxas , i , o , sm_90 , nvcc , 1e999 , ms\n"
        "a.cu , ptxas , i , o , sm_90 , nvcc , -1 , ms\n"
        "cut , off"
    )
    (phase,) = parse_phases(text.replace("a,b.cu", "b.cu"))
    assert (phase.name, phase.file, phase.arch) == ("cicc", "b.cu", "compute_90")
    assert phase.seconds == pytest.approx(0.224119)


@pytest.mark.parametrize(
    ("given", "inputs", "output", "compiles"),
    [
        (["/nologo", "/c", "a.cpp", "/Fox\\a.obj", "/EHsc"], ("a.cpp",), "x\\a.obj", True),
        (["-c", "-Fo:a b.obj", "C:\\s\\a.cpp"], ("C:\\s\\a.cpp",), "a b.obj", True),
        (["/OUT:x.dll", "/DLL", "a.obj", "b.lib"], ("a.obj", "b.lib"), "x.dll", False),
        (["-c", "k.cu", "-o", "k.obj"], ("k.cu",), "k.obj", True),
        (["/Fd:x.pdb", "/I", "inc", "a.c"], ("a.c",), "", True),
    ],
)
def test_microsofts_options_are_no_files(
    given: list[str], inputs: tuple[str, ...], output: str, *, compiles: bool
) -> None:
    found = words.parse_words(given, windows=True)
    assert (found.inputs, found.output, found.compiles) == (inputs, output, compiles)


def test_backslashes_in_response_files_of_windows_are_letters() -> None:
    text = 'C:\\s\\a.cpp "C:\\my work\\b.cpp" /D"X=\\"1\\"" \\\\srv\\x "end\\\\"'
    assert words.split_windows_text(text) == [
        "C:\\s\\a.cpp",
        "C:\\my work\\b.cpp",
        '/DX="1"',
        "\\\\srv\\x",
        "end\\",
    ]
    assert words.parse_words(["@x.rsp"], {"x.rsp": text}, windows=True).inputs == ("C:\\s\\a.cpp", "C:\\my work\\b.cpp")


def test_what_is_no_text_is_readable() -> None:
    """Bytes that a program was given, and half a pair, which only a made-up record can hold."""
    assert words.readable("a\udcffb") == "a\\xffb"
    assert words.readable("\ud800") == "\\ud800"
