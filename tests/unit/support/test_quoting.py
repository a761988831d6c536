"""Commands to type: by the rules of the machine that they are for."""

from __future__ import annotations

import pytest

from cuwheel.support import process_groups, quoting

WORDS = ("cuwheel", "record", "replay", r"C:\two words\record:3")


@pytest.mark.parametrize(
    ("shell", "shown"),
    [
        ("cmd", r'"C:\two words\record:3"'),
        ("powershell", r"'C:\two words\record:3'"),
        ("posix", r"'C:\two words\record:3'"),
    ],
)
def test_a_command_for_the_shell_that_started_us(
    monkeypatch: pytest.MonkeyPatch, shell: quoting.Shell, shown: str
) -> None:
    monkeypatch.setattr(quoting, "shell_here", lambda: shell)
    assert quoting.here(WORDS) == f"cuwheel record replay {shown}"
    assert quoting.here(["cuwheel", "record", "replay", "two\nlines"]).startswith(
        "cuwheel record replay "
    )  # cmd takes no such line


MACHINES_OWN = r"C:\Program Files\WindowsPowerShell\Modules;C:\WINDOWS\system32\WindowsPowerShell\v1.0\Modules"
FOLDERS = {"ProgramFiles": r"C:\Program Files", "SystemRoot": r"C:\WINDOWS"}


@pytest.mark.parametrize(
    ("parents", "modules", "shell"),
    [
        (["cuwheel.exe", "pwsh.exe", "WindowsTerminal.exe"], MACHINES_OWN, "powershell"),
        (["PowerShell.EXE", "cmd.exe", "explorer.exe"], MACHINES_OWN, "powershell"),
        (
            ["python.exe", "cmd.exe", "powershell.exe"],
            rf"C:\Users\me\Documents\PowerShell\Modules;{MACHINES_OWN}",
            "cmd",
        ),
        (["bash.exe", "mintty.exe"], MACHINES_OWN, "posix"),
        (["Code.exe", "explorer.exe"], MACHINES_OWN, "cmd"),
        (["Code.exe"], rf"D:\OneDrive\Documents\WindowsPowerShell\Modules;{MACHINES_OWN}", "powershell"),
        ([], "", "cmd"),
    ],
)
def test_which_shell_of_windows_started_us(parents: list[str], modules: str, shell: str) -> None:
    """The nearest shell among the parents; what only PowerShell's sessions have, where there is none."""
    assert quoting.shell_of({**FOLDERS, "PSModulePath": modules}, parents) == shell


def test_parents_by_a_table_of_processes() -> None:
    table = {9: (8, "python.exe"), 8: (5, "cuwheel.exe"), 5: (2, "pwsh.exe"), 2: (9, "again.exe"), 1: (0, "other.exe")}
    assert process_groups.upwards(table, 9) == ["cuwheel.exe", "pwsh.exe", "again.exe"]
    assert process_groups.upwards(table, 1) == process_groups.upwards(table, 77) == []


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("cmd", r'set "PATH=%USERPROFILE%\cuda\bin;%PATH%" && set "CUDACXX=C:\a b\nvcc.exe"'),
        ("powershell", r"$env:PATH = $HOME + '\cuda\bin' + ';' + $env:PATH; $env:CUDACXX = 'C:\a b\nvcc.exe'"),
    ],
)
def test_variables_in_one_line(shell: quoting.Shell, line: str) -> None:
    variables = {"PATH": r"~\cuda\bin", "CUDACXX": r"C:\a b\nvcc.exe"}
    assert quoting.set_variables(variables, shell, prepend=("PATH",)) == line


def test_variables_that_go_and_lines_that_a_shell_evaluates() -> None:
    shells: tuple[quoting.Shell, ...] = ("posix", "cmd", "powershell")
    assert [quoting.unset_variable("A", each) for each in shells] == ["unset A", 'set "A="', "$env:A = $null"]
    assert [quoting.evaluate(["cuwheel", "toolchain", "env", "x"], each) for each in shells] == [
        'eval "$(cuwheel toolchain env x)"',
        "cuwheel toolchain env x > variables.bat && call variables.bat",
        "cuwheel toolchain env x | Out-String | Invoke-Expression",
    ]


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("nt", ("build.bat", r"C:\src\a b", r"D:\cuda\v13.0\bin", "x y", "#1")),
        ("posix", ("build.bat", r"C:\src\a b", "D:cudav13.0bin", "x y", "#1")),
    ],
)
def test_backslashes_of_windows_are_letters(
    monkeypatch: pytest.MonkeyPatch, system: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("os.name", system)
    assert quoting.split("build.bat 'C:\\src\\a b' D:\\cuda\\v13.0\\bin \"x y\" #1") == words
    with pytest.raises(ValueError, match="No closing quotation"):
        quoting.split("make 'x")
    with pytest.raises(ValueError, match="longer than"):  # taking it apart takes time by the square of its length
        quoting.split("make " + "x" * (8 << 20))
