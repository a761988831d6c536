"""Command lines to paste: words quoted so that a shell, and the program behind it, give back the same words.

Three shells: POSIX sh; cmd.exe, whose own rules come before those by which a Windows program takes its line apart; and
PowerShell, whose versions before 7.3 hand double quotes on unprotected. Which of them a person types into is found by
`shell_here`; `split` and `here` go by this machine, and the rest by what it is told.
"""

from __future__ import annotations

import functools
import ntpath
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from cuwheel.errors import UsageError
from cuwheel.support import process_groups
from cuwheel_core.support import printable
from cuwheel_core.support.patterns import lazy_pattern

# Paths that a record or a log names: of the machine where it was made, which may be Windows while this is Linux.

_OF_WINDOWS = lazy_pattern(r"[A-Za-z]:(?:[\\/]|$)|\\\\[^\\]|//[?.]/|~\\")


def is_of_windows(path: str) -> bool:
    """Whether it begins as only paths of Windows do: `C:\\`, `C:/`, `\\\\server\\share`, `\\\\?\\`, `~\\`."""
    return bool(_OF_WINDOWS.match(path))


def join_foreign_paths(folder: str, path: str) -> str:
    """`path` as seen from `folder`, both of one machine, by its rules."""
    if is_of_windows(path) or not path:
        return path or folder
    return ntpath.join(folder, path) if is_of_windows(folder) else posixpath.join(folder, path)


Shell: TypeAlias = Literal["posix", "cmd", "powershell"]

CMD_LONGEST = 8191  # characters of a line, Microsoft: "Command prompt line string limitation"

LONGEST_COMMAND = 1 << 17  # characters of a line in a file: Linux takes no longer word
# What a terminal, a report or a CI service would not show or would obey; of surrogates only bytes that were no text. A
# shell drops line feeds at the end of what it substitutes: what follows goes with them.
_HIDDEN = printable.CLASS.replace("\\U0000d800-\\U0000dfff", r"\udc80-\udcff")
_UNPRINTABLE = lazy_pattern(rf"(?:[{_HIDDEN}]|\n+[^\n]|(?<=#)#(?=[A-Za-z]*\[))+")
_NEEDS_QUOTES = lazy_pattern(r'[ \t\n\v"]')
_CMD_META = frozenset('()!^"<>&|')
_POWERSHELL_BARE = lazy_pattern(r"[A-Za-z_/\\][\w./\\-]*|-[A-Za-z-]+", re.ASCII)
_POWERSHELL_QUOTE = lazy_pattern("['\u2018\u2019\u201a\u201b]")  # it takes typographic ones for single quotes too
_PLAIN_NAME = lazy_pattern(r"[A-Za-z_]\w*", re.ASCII)
_POSIX_SPECIAL = lazy_pattern(r'[\\"$`]')
_POWERSHELL_SPECIAL = lazy_pattern(r'["$`]')
_VARIABLE = lazy_pattern(r"\$(?!ORIGIN|LIB\b|PLATFORM)([A-Z][A-Z0-9_]*)", re.ASCII)  # the loader has names of its own
_OF_CMD = r"%\g<1>%"
_LIST_OF_FOLDERS = lazy_pattern(r":(?=\$[A-Z])")
_HOME = lazy_pattern(r"(?<![^\s:])~(?=[/\\])")  # as a machine profile has it
# Programs of Windows that people type into.
_SHELLS: dict[str, Shell] = {
    "cmd.exe": "cmd",
    **dict.fromkeys(("powershell.exe", "pwsh.exe", "powershell_ise.exe"), "powershell"),
    **dict.fromkeys(("bash.exe", "sh.exe", "zsh.exe"), "posix"),
}
_MODULES = lazy_pattern(r"[\\/](?:Windows)?PowerShell[\\/]Modules[\\/]?", re.IGNORECASE)
_OWN_NAME = "cuwheel"


class Script(Struct, frozen=True, kw_only=True):
    """What to run: words, the program first; where; and how the environment differs from that of the shell."""

    words: tuple[str, ...]
    cwd: str = ""
    setting: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


def command(words: Sequence[str], shell: Shell) -> str:
    """One line."""
    return _COMMANDS[shell](words)


def shown(words: Sequence[str]) -> str:
    """A call as somebody on its own system reads it: one line, by the rules of a program of Windows or of sh."""
    if words and words[0][-4:].lower() == ".exe" and '"' not in words[0] and not any("\0" in word for word in words):
        return windows(words)
    return posix(words)


def here(words: Sequence[str]) -> str:
    """A command to type where cuwheel was started."""
    try:
        return command(words, shell_here())
    except UsageError:  # a line break, which cmd.exe does not take: to be read at least
        return windows(words)


def command_of_fix(words: Sequence[str], shell: Shell | Literal[""] = "") -> str:
    """A command of a `Fix` as a shell takes it, by default the one that cuwheel was started from.

    In its words `export` and `unset` are the shell's own, and `$NAME` is a variable of it, with capitals alone:
    `$ORIGIN` is the loader's.
    """
    shell = shell or shell_here()
    if words[0] == "export" and all("=" in word for word in words[1:]):
        pairs = [word.partition("=")[::2] for word in words[1:]]
        if shell == "posix":
            return "export " + " ".join(f"{name}={_with_variables(value, shell)}" for name, value in pairs)
        pairs = [(name, _LIST_OF_FOLDERS.sub(";", value)) for name, value in pairs]
        if shell == "cmd":
            return " && ".join(f"set {_with_variables(f'{name}={value}', shell)}" for name, value in pairs)
        return "; ".join(f"$env:{name} = {_with_variables(value, shell)}" for name, value in pairs)
    if words[0] == "unset":
        return ("; " if shell == "powershell" else " && ").join(unset_variable(name, shell) for name in words[1:])
    if any(map(_VARIABLE.search, words)):
        quote = _WORDS[shell]
        return " ".join(_with_variables(word, shell) if _VARIABLE.search(word) else quote(word) for word in words)
    try:
        return command(words, shell)
    except UsageError:  # a line break, which cmd.exe does not take: to be read at least
        return windows(words)


def _with_variables(word: str, shell: Shell) -> str:
    """A word in double quotes, in which the shell puts in its variables and reads nothing else."""
    if shell == "cmd":
        return f'"{_VARIABLE.sub(_OF_CMD, word)}"'
    parts = _VARIABLE.split(word)  # text and names by turns
    special, before = (_POSIX_SPECIAL, "$") if shell == "posix" else (_POWERSHELL_SPECIAL, "$env:")
    escape = "\\" if shell == "posix" else "`"
    spelled = [
        f"{before}{part}" if index % 2 else special.sub(lambda match: escape + match[0], part)
        for index, part in enumerate(parts)
    ]
    return f'"{"".join(spelled)}"'


def shell_here() -> Shell:
    """The shell that cuwheel was started from."""
    return _shell_of_windows() if os.name == "nt" else "posix"


@functools.cache
def _shell_of_windows() -> Shell:
    return shell_of(os.environ, process_groups.parents())


def shell_of(environ: Mapping[str, str], parents: Iterable[str]) -> Shell:
    """On Windows: the nearest of the programs that started us that is a shell.

    Where none is (an editor, a service), the module path tells: every program has that of the machine, and PowerShell
    puts the user's own folder before it.
    """
    if found := next((shell for name in parents if (shell := _SHELLS.get(name.lower()))), None):
        return found
    machines = tuple(
        environ[name].lower() for name in ("ProgramFiles", "SystemRoot", "ProgramW6432") if environ.get(name)
    )
    own = (each for each in environ.get("PSModulePath", "").split(";") if not each.lower().startswith(machines))
    return "powershell" if any(map(_MODULES.search, own)) else "cmd"


def set_variables(variables: Mapping[str, str], shell: Shell, *, prepend: Sequence[str] = ()) -> str:
    """One line that sets variables of the shell; those in `prepend` keep what they had behind it.

    A folder in the user's home may begin with ~, as in a machine profile.
    """
    spell = _SETTERS[shell]
    lines = [spell(name, value, name in prepend) for name, value in variables.items()]
    if shell == "posix":
        return "export " + " ".join(lines)
    return (" && " if shell == "cmd" else "; ").join(lines)


def unset_variable(name: str, shell: Shell) -> str:
    if shell == "posix":
        return f"unset {name}"
    return _cmd_set(name, "") if shell == "cmd" else _powershell_set(name, "$null")


def evaluate(words: Sequence[str], shell: Shell) -> str:
    """The line that runs a command and then, in the shell itself, what that printed."""
    line = command(words, shell)
    if shell == "posix":
        return f'eval "$({line})"'
    if shell == "cmd":
        return f"{line} > variables.bat && call variables.bat"  # `for /f` would not replace %PATH% in it
    return f"{line} | Out-String | Invoke-Expression"


def split(text: str) -> tuple[str, ...]:
    """A command line that a person wrote into a file, as words; a ValueError where a quote is not closed, or where it
    is longer than any that a system takes: shlex takes four times as long for twice the letters.

    Quotes are those of sh, but on Windows a backslash is a letter, as its own shells have it: C:\\a is no C:a.
    """
    if len(text) > LONGEST_COMMAND:
        raise ValueError(f"longer than {LONGEST_COMMAND:,} characters")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""
    return tuple(lexer)


def script(what: Script, shell: Shell) -> tuple[str, ...]:
    """Lines to paste at a prompt; the shell's own folder is as before afterwards, but for cmd's."""
    return tuple(_SCRIPTS[shell](what))


# POSIX


def posix(words: Sequence[str]) -> str:
    return " ".join(map(_posix_word, words))


def _posix_word(word: str) -> str:
    _without_nul(word)
    at, pieces = 0, []
    for match in _UNPRINTABLE.finditer(word):
        if match.start() > at:
            pieces.append(shlex.quote(word[at : match.start()]))
        octal = "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))
        pieces.append(f"\"$(printf '{octal}')\"")
        at = match.end()
    if at < len(word) or not pieces:
        pieces.append(shlex.quote(word[at:]))
    return "".join(pieces)


def _posix_script(what: Script) -> Iterator[str]:
    changes = [f"-u {_posix_word(name)}" for name in what.unset]
    changes += [_posix_word(f"{name}={value}") for name, value in what.setting.items()]
    words = posix(what.words)
    if changes and "=" in what.words[0]:  # env would take the program for a variable
        words = 'sh -c \'exec "$0" "$@"\' ' + words
    parts = ["env", *changes, words] if changes else [words]
    if what.cwd:
        # A folder named -x is none of cd's options.
        folder = what.cwd if not what.cwd.startswith("-") else f"./{what.cwd}"
        parts[0] = f"(cd {_posix_word(folder)} && {parts[0]}"
        parts[-1] += ")"
    if not changes:
        yield parts[0]
        return
    *others, last = parts
    yield from (f"{'  ' if index else ''}{part} \\" for index, part in enumerate(others))
    yield f"  {last}"


def _posix_setter(name: str, value: str, prepend: bool) -> str:  # noqa: FBT001 - one signature
    text = _POSIX_SPECIAL.sub(r"\\\g<0>", _HOME.sub("\0", value)).replace("\0", "$HOME")
    if prepend and is_of_windows(value):
        text = f'$(cygpath -p "{text}")'  # Git's and MSYS' shells part PATH at colons
    # An empty element would be the current folder; PATH is never empty.
    rest = "" if not prepend else ":$PATH" if name == "PATH" else f"${{{name}:+:${name}}}"
    return f'{name}="{text}{rest}"'


# Windows: how a program takes its line apart


def windows(words: Sequence[str]) -> str:
    """Quotes the words by the rules of CommandLineToArgvW and of Microsoft's C runtime."""
    first, *rest = words
    return " ".join([_windows_program(first), *map(windows_word, rest)])


def windows_word(word: str, *, always: bool = False) -> str:
    _without_nul(word)
    if word and not always and not _NEEDS_QUOTES.search(word):
        return word
    # Backslashes count only before a quote: there, and before the closing one, each is doubled.
    inner = re.sub(r'(\\*)"', lambda match: match[1] * 2 + '\\"', word)
    return '"' + inner + "\\" * (len(inner) - len(inner.rstrip("\\"))) + '"'


def _windows_program(word: str) -> str:
    """The first word has rules of its own: a quote ends it whatever stands before."""
    _without_nul(word)
    if '"' in word:
        raise UsageError(f"{word!r} is not a valid program name on Windows")
    return f'"{word}"' if not word or _NEEDS_QUOTES.search(word) else word


# cmd.exe


def cmd(words: Sequence[str]) -> str:
    first, *rest = words
    return " ".join([_cmd_program(first), *map(_cmd_word, rest)])


def _cmd_program(word: str) -> str:
    """In quotes that cmd sees: escaped ones would let it end the name at the first space."""
    _in_one_line(word)
    if word.count("%") > 1:
        raise UsageError(
            f"cmd.exe would replace the text between the % signs of {word!r}", hint="use --shell powershell"
        )
    plain = _windows_program(word)
    return plain if plain.startswith('"') or not _CMD_META.intersection(word) else f'"{word}"'


def _cmd_word(word: str) -> str:
    _in_one_line(word)
    if not _CMD_META.intersection(word) and "%" not in word:
        return windows_word(word)
    if not {'"', "%", "!"}.intersection(word):
        return windows_word(word, always=True)  # between its quotes cmd leaves the rest alone
    return _with_carets(windows_word(word))


def _with_carets(text: str) -> str:
    """Outside of quotes all through. Variables are replaced before carets are looked at, so the caret stands
    behind a %: no variable's name begins with one."""
    result = []
    for before, character in zip(" " + text, text, strict=False):
        result.append("^" if before == "%" or character in _CMD_META else "")
        result.append(character)
    return "".join(result)


def _cmd_script(what: Script) -> Iterator[str]:
    if what.cwd:
        _in_one_line(what.cwd)
        simple = "%" not in what.cwd
        yield f'cd /d "{what.cwd}"' if simple else f"cd /d {_with_carets(what.cwd)}"
    yield from (_cmd_set(name, "") for name in what.unset)
    yield from (_cmd_set(name, value) for name, value in what.setting.items())
    line = cmd(what.words)
    if len(line) > CMD_LONGEST:
        yield f"rem {len(line)} characters, but cmd.exe takes {CMD_LONGEST}: use PowerShell"
    yield line


def _cmd_set(name: str, value: str) -> str:
    _in_one_line(name + value)
    simple = not {'"', "%", "!"}.intersection(name + value)
    return f'set "{name}={value}"' if simple else f"set {_with_carets(f'{name}={value}')}"


def _cmd_setter(name: str, value: str, prepend: bool) -> str:  # noqa: FBT001 - one signature
    line = _cmd_set(name, value)
    if _HOME.match(value):
        line = line.replace("=~", "=%USERPROFILE%", 1)
    if not prepend:
        return line
    return f'{line[:-1]};%{name}%"' if line.endswith('"') and line.startswith('set "') else f"{line};%{name}%"


# PowerShell


def powershell(words: Sequence[str]) -> str:
    first, *rest = words
    # Other bare words may be aliases, or belong to its language.
    called = first if first == _OWN_NAME else f"& {_powershell_text(first)}"
    if any(map(_lost_by_old_powershell, rest)) and (raw := _as_it_stands(rest)):
        return f"{called} --% {raw}"
    return " ".join([called, *map(_powershell_word, rest)])


def _as_it_stands(words: Sequence[str]) -> str:
    """What every version hands on unread behind --%; nothing where there is a character that it reads even there."""
    raw = " ".join(map(windows_word, words))
    return "" if set("|&%\r\n").intersection(raw) else raw


def _lost_by_old_powershell(word: str) -> bool:
    """Before 7.3 it put quotes round words with blanks, and protected nothing in them."""
    return not word or '"' in word or (word.endswith("\\") and _NEEDS_QUOTES.search(word) is not None)


def _powershell_word(word: str) -> str:
    return word if _POWERSHELL_BARE.fullmatch(word) else _powershell_text(word)


def _powershell_text(word: str) -> str:
    _without_nul(word)
    return "'" + _POWERSHELL_QUOTE.sub(lambda match: match[0] * 2, word) + "'"


def _powershell_script(what: Script) -> Iterator[str]:
    if what.cwd:
        yield f"Push-Location -LiteralPath {_powershell_text(what.cwd)}"
    yield from (_powershell_set(name, "$null") for name in what.unset)
    yield from (_powershell_set(name, _powershell_text(value)) for name, value in what.setting.items())
    line = powershell(what.words)
    if any(map(_lost_by_old_powershell, what.words[1:])) and not _as_it_stands(what.words[1:]):
        yield "# PowerShell 7.3 or later: older ones lose double quotes"
    yield line
    if what.cwd:
        yield "Pop-Location"


def _powershell_set(name: str, value: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return f"$env:{name} = {value}"
    return f"[Environment]::SetEnvironmentVariable({_powershell_text(name)}, {value}, 'Process')"


def _powershell_setter(name: str, value: str, prepend: bool) -> str:  # noqa: FBT001 - one signature
    text = f"$HOME + {_powershell_text(value[1:])}" if _HOME.match(value) else _powershell_text(value)
    return _powershell_set(name, f"{text} + ';' + $env:{name}" if prepend else text)


def _in_one_line(text: str) -> None:
    _without_nul(text)
    if "\n" in text or "\r" in text:
        raise UsageError("cmd.exe does not allow a line break in a command", hint="use --shell powershell")


def _without_nul(text: str) -> None:
    if "\0" in text:
        raise UsageError("a command line cannot contain a NUL character")


_COMMANDS: dict[Shell, Callable[[Sequence[str]], str]] = {"posix": posix, "cmd": cmd, "powershell": powershell}
_SETTERS: dict[Shell, Callable[[str, str, bool], str]] = {
    "posix": _posix_setter,
    "cmd": _cmd_setter,
    "powershell": _powershell_setter,
}
_WORDS: dict[Shell, Callable[[str], str]] = {
    "posix": _posix_word,
    "cmd": _cmd_word,
    "powershell": _powershell_word,
}
_SCRIPTS: dict[Shell, Callable[[Script], Iterator[str]]] = {
    "posix": _posix_script,
    "cmd": _cmd_script,
    "powershell": _powershell_script,
}
