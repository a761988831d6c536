"""A fix is a value: its sentence is made from its parts, and its commands are quoted where they are shown."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace

from cuwheel.report import html, markdown, terminal
from cuwheel.report.document import Document, Findings
from cuwheel.support import quoting
from cuwheel.support.cause import Cause
from cuwheel.support.finding import finding
from cuwheel_core.support.finding import Fix

pytestmark = pytest.mark.unit

REPAIR = Fix(
    text="leave the driver's library out", commands=(("cuwheel", "repair", "my wheel.whl"),), changes=("file",)
)


def test_the_sentence_names_the_commands() -> None:
    assert REPAIR.words == "leave the driver's library out: `cuwheel repair 'my wheel.whl'`"
    assert Fix(commands=(("pip", "uninstall", "torch"), ("pip", "install", "torch"))).words == (
        "pip uninstall torch, then pip install torch"
    )


def test_a_finding_keeps_its_sentence_in_step_with_its_fixes() -> None:
    first = finding("gpu-not-known", "no GPU", fix=(REPAIR, Fix(text="build it without")))
    assert first.fix == f"{REPAIR.words}, or build it without"
    assert replace(first, fixes=(Fix(text="none needed"),)).fix == "none needed"
    assert replace(first, fixes=()).fix == ""


def test_a_text_alone_is_a_fix_too() -> None:
    assert finding("gpu-not-known", "no GPU", fix="name it").fixes == (Fix(text="name it"),)


def test_a_rule_has_a_fix_of_its_own() -> None:
    assert finding("gpu-not-known", "no GPU").fixes[0].text
    assert finding("gpu-not-known", "no GPU", fix="").fixes == ()


def test_a_cause_shows_the_words_of_each() -> None:
    cause = Cause(id="x", confidence=1.0, title="t", evidence=(), fixes=(REPAIR, Fix(text="build it without")))
    assert cause.fix == (REPAIR.words, "build it without")


@pytest.mark.parametrize(
    ("words", "shell", "line"),
    [
        (("export", "CUDA_HOME=/opt/cuda 12"), "posix", 'export CUDA_HOME="/opt/cuda 12"'),
        (("export", "CUDA_HOME=C:\\cuda"), "cmd", 'set "CUDA_HOME=C:\\cuda"'),
        (("export", "CUDA_HOME=C:\\cuda"), "powershell", '$env:CUDA_HOME = "C:\\cuda"'),
        (("export", "PATH=/opt/cuda/bin:$PATH"), "posix", 'export PATH="/opt/cuda/bin:$PATH"'),
        (("export", "CUDA_HOME=$CUDA_PATH"), "cmd", 'set "CUDA_HOME=%CUDA_PATH%"'),
        (("export", "CUDA_HOME=$CUDA_PATH"), "powershell", '$env:CUDA_HOME = "$env:CUDA_PATH"'),
        (("export", "PATH=$CUDA_HOME/bin:$PATH"), "cmd", 'set "PATH=%CUDA_HOME%/bin;%PATH%"'),
        (("ls", "$CUDA_HOME/lib `x`"), "posix", 'ls "$CUDA_HOME/lib \\`x\\`"'),
        (("ls", "$CUDA_PATH/a b"), "powershell", 'ls "$env:CUDA_PATH/a b"'),
        (("patchelf", "--set-rpath", "$ORIGIN/../lib"), "posix", "patchelf --set-rpath '$ORIGIN/../lib'"),
        (("unset", "LD_LIBRARY_PATH"), "posix", "unset LD_LIBRARY_PATH"),
        (("unset", "A", "B"), "powershell", "$env:A = $null; $env:B = $null"),
        (("pip", "install", "torch>=2.9"), "posix", "pip install 'torch>=2.9'"),
        (("pip", "install", "torch>=2.9"), "cmd", 'pip install "torch>=2.9"'),
    ],
)
def test_a_command_is_spelled_for_its_shell(words: tuple[str, ...], shell: quoting.Shell, line: str) -> None:
    assert quoting.command_of_fix(words, shell) == line


def test_every_renderer_shows_text_and_command_apart() -> None:
    long = ("cuwheel", "repair", "a" * 90 + ".whl")
    document = Document("t", (Findings((finding("gpu-not-known", "m", fix=(replace(REPAIR, commands=(long,)),)),)),))
    stream = StringIO()
    terminal.write(document, stream)
    assert f"      cuwheel repair {'a' * 90}.whl\n" in stream.getvalue()  # a line of its own, unbroken
    assert f"`cuwheel repair {'a' * 90}.whl`" in markdown.text(document)
    assert f'<code class="command">cuwheel repair {"a" * 90}.whl</code>' in html.page(document)
