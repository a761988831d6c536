"""Words survive the shells: against parsers written from the documentation, and the real /bin/sh."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuwheel.errors import UsageError
from cuwheel.support import quoting
from tests.fixtures import foreign

# What shells trip over, often; anything else, too.
AWKWARD = st.text(alphabet=" \\\"'%^&|<>()!$`*?[]{};=,~#\t-@PATHab:0\u2018\u2019", max_size=12)
TEXT = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
WORD = (
    AWKWARD | TEXT | st.sampled_from(["", "\\", "\\\\", '"', '\\"', "a b\\", "%PATH%", "%PATH:~0,3%", "^", "--%", "\n"])
)
WORDS = st.lists(WORD, max_size=6)
ONE_LINE = st.lists(WORD.filter(lambda word: not set(word) & set("\r\n")), max_size=6)
DEFINED = {"PATH": "replaced", "a": "replaced", "": "%", "A": "replaced", "TH": "replaced", "b": "replaced"}


def argv(line: str) -> list[str]:
    """Microsoft: "Parsing C command-line arguments", and CommandLineToArgvW."""
    words, at, length = [], 0, len(line)
    # The program: up to its closing quote, or to the first blank; backslashes are nothing special.
    if line.startswith('"'):
        end = line.index('"', 1)
        words.append(line[1:end])
        at = end + 1
    else:
        at = next((index for index, character in enumerate(line) if character in " \t"), length)
        words.append(line[:at])
    while at < length:
        while at < length and line[at] in " \t":
            at += 1
        if at == length:
            break
        word, inside = "", False
        while at < length and (inside or line[at] not in " \t"):
            slashes = 0
            while at < length and line[at] == "\\":
                slashes, at = slashes + 1, at + 1
            if at < length and line[at] == '"':
                word += "\\" * (slashes // 2)
                if slashes % 2:
                    word, at = word + '"', at + 1
                elif inside and line[at + 1 : at + 2] == '"':
                    word, at = word + '"', at + 2
                else:
                    inside, at = not inside, at + 1
            else:
                word += "\\" * slashes
                if at < length and (inside or line[at] not in " \t"):
                    word, at = word + line[at], at + 1
        words.append(word)
    return words


def typed_into_cmd(line: str) -> str:
    """What cmd.exe hands on of a line typed at its prompt: variables first, then quotes and carets."""
    assert "\n" not in line

    def value(match: re.Match[str]) -> str:
        name = match[1].partition(":")[0]
        return DEFINED.get(name, match[0])  # at a prompt, what is not defined stays

    line = re.sub(r"%([^%]*)%", value, line)
    result, quoted, at = "", False, 0
    while at < len(line):
        character = line[at]
        if character == "^" and not quoted:
            at += 1
            result += line[at : at + 1]
        elif not quoted and character in "&|<>":
            pytest.fail(f"cmd.exe would act on {character} in {line}")
        else:
            quoted ^= character == '"'
            result += character
        at += 1
    assert not quoted, "a quote was left open"
    return result


def powershell_words(line: str) -> list[str] | str:
    """The words PowerShell sees after `&`; or, behind --%, the rest as it stands."""
    assert line.startswith("& ")
    words: list[str] = []
    at = 2
    while at < len(line):
        if line[at] == " ":
            at += 1
            if line.startswith("--% ", at):
                return windows_first(words[0]) + " " + line[at + 4 :]
        elif line[at] == "'":
            word, at = "", at + 1
            while True:
                if line[at] in "'\u2018\u2019\u201a\u201b":
                    if line[at + 1 : at + 2] and line[at + 1] in "'\u2018\u2019\u201a\u201b":
                        word, at = word + line[at], at + 2
                        continue
                    at += 1
                    break
                word, at = word + line[at], at + 1
            assert at == len(line) or line[at] == " ", "two texts would be joined"
            words.append(word)
        else:
            end = line.find(" ", at) if " " in line[at:] else len(line)
            word = line[at:end]
            assert not set(word) & set("'\"`$&|;<>(){}@#,*?[]~%:="), f"{word} is not a plain word"
            words.append(word)
            at = end
    return words


def windows_first(program: str) -> str:
    return f'"{program}"' if " " in program else program


def handed_on(words: list[str], *, old: bool) -> str:
    """How PowerShell makes a native program's line: since 7.3 rightly, before with quotes round blanks only."""
    if not old:
        return quoting.windows(words)
    rest = [f'"{word}"' if re.search(r"\s", word) and '"' not in word else word for word in words[1:]]
    return " ".join([windows_first(words[0]), *rest])


@given(WORDS)
def test_windows_programs_get_their_words(words: list[str]) -> None:
    program = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v13.0\\bin\\nvcc.exe"
    assert argv(quoting.windows([program, *words])) == [program, *words]


@given(ONE_LINE)
def test_through_cmd(words: list[str]) -> None:
    program = "C:\\Program Files (x86)\\a&b\\cl.exe"
    assert argv(typed_into_cmd(quoting.cmd([program, *words]))) == [program, *words]


@given(TEXT | AWKWARD)
def test_a_line_break_is_refused_by_cmd(word: str) -> None:
    with pytest.raises(UsageError, match="line break"):
        quoting.cmd(["nvcc", word + "\n"])


@example(["", " --% "])
@given(WORDS)
def test_through_powershell(words: list[str]) -> None:
    program = "C:\\Program Files\\x\\nvcc.exe"
    line = quoting.powershell([program, *words])
    seen = powershell_words(line)
    if isinstance(seen, str):  # both versions hand on what stands behind --%
        assert not set(seen) & set("|&%\n")
        assert argv(seen) == [program, *words]
        return
    assert seen == [program, *words]
    told = quoting.script(quoting.Script(words=(program, *words)), "powershell")
    if not told[0].startswith("#"):  # then old ones must not lose anything
        assert argv(handed_on(seen, old=True)) == [program, *words]


ONE = WORD.filter(lambda word: not set(word) & set("\r\n"))


@given(ONE, ONE)
def test_variables_and_the_folder_through_cmd(value: str, folder: str) -> None:
    what = quoting.Script(words=("cl.exe",), cwd=f"C:\\{folder}", setting={"A B%": value}, unset=("GONE",))
    if '"' in folder:  # no folder of Windows is named so
        return
    moved, unset, set_, called = (typed_into_cmd(line) for line in quoting.script(what, "cmd"))
    assert (unset, called) == ('set "GONE="', "cl.exe")
    assert moved.removeprefix("cd /d ").strip('"') == what.cwd
    text = set_.removeprefix("set ")
    assert (text[1 : text.rindex('"')] if text.startswith('"') else text) == f"A B%={value}"


@given(WORD, WORD)
def test_variables_and_the_folder_through_powershell(value: str, folder: str) -> None:
    what = quoting.Script(words=("x",), cwd=folder or ".", setting={"A": value, "B(x86)": value}, unset=("C",))
    text = "\n".join(quoting.script(what, "powershell"))
    quoted = r"'((?:[^'\u2018\u2019\u201a\u201b]|(['\u2018\u2019\u201a\u201b])\2)*)'"
    match = re.fullmatch(
        rf"Push-Location -LiteralPath {quoted}\n\$env:C = \$null\n\$env:A = {quoted}\n"
        rf"\[Environment\]::SetEnvironmentVariable\('B\(x86\)', {quoted}, 'Process'\)\n& 'x'\nPop-Location".replace(
            "\\2", "['\u2018\u2019\u201a\u201b]"
        ),
        text,
    )
    assert match, text
    texts = [
        re.sub("(['\u2018\u2019\u201a\u201b])['\u2018\u2019\u201a\u201b]", r"\1", match[index]) for index in (1, 3, 5)
    ]
    assert texts == [what.cwd, value, value]


@given(WORDS)
def test_posix_words_by_the_library(words: list[str]) -> None:
    line = quoting.posix(["nvcc", *words])
    if "$(printf" not in line:
        assert shlex.split(line) == ["nvcc", *words]


@pytest.mark.skipif(os.name != "posix", reason="there is no /bin/sh")
@settings(max_examples=40, deadline=None)
@given(WORDS, st.dictionaries(st.from_regex(r"\A[A-Z][A-Z_0-9]{0,8}[(%.]?\Z"), WORD, max_size=3))
def test_posix_words_by_the_real_shell(words: list[str], setting: dict[str, str]) -> None:
    """The whole script: words, variables set and unset, and the folder."""
    setting.pop("PWD", None)
    show = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, [os.getcwd(), "
    show += (
        "os.environ.get('GONE', '-'), *(os.environ.get(name, '?') for name in sys.argv[1].split()), *sys.argv[2:]])))"
    )
    names = list(setting)
    what = quoting.Script(
        words=(sys.executable, "-I", "-c", show, " ".join(names), *words), cwd="/usr", setting=setting, unset=("GONE",)
    )
    text = "\n".join(quoting.script(what, "posix"))
    done = subprocess.run(
        ["/bin/sh"], input=os.fsencode(text), capture_output=True, check=True, env={**os.environ, "GONE": "here"}
    )
    shown = [os.fsdecode(each) for each in done.stdout.split(b"\0")]
    assert shown == [os.path.realpath("/usr"), "-", *setting.values(), *words]


@pytest.mark.skipif(os.name != "posix", reason="there is no /bin/sh")
def test_bytes_that_are_no_text_and_characters_that_terminals_obey() -> None:
    words = [os.fsdecode(b"caf\xe9"), "\x1b[31m", "a\u202eb", "\x07", "a\u2028\u200b\ufeff", "a\n\n::error::b\n\x07c"]
    words += ["##[error]a", "###vso[b]##[c]"]
    line = quoting.posix(["printf", "%s|", *words])
    assert line.isprintable()
    assert not foreign.wrong(line)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
    assert done.stdout == b"".join(os.fsencode(word) + b"|" for word in words)
