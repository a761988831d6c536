"""`cuwheel completion`: what makes a shell complete verbs, options and files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import shtab

from cuwheel.cli.options import command_of, described_command, flat
from cuwheel.cli.parser import action_of, add_rows, rows_of
from cuwheel.errors import UsageError
from cuwheel.support import extensions
from cuwheel.support.verbs import SHOWN, Family, own_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.cli.options import Command

_HELP = """\
usage: cuwheel completion {shells}

Print what makes a shell complete verbs and options with the Tab key.

examples:
  eval "$(cuwheel completion bash)"                    in this shell
  cuwheel completion bash >> ~/.bashrc                 in every new one
  cuwheel completion zsh > ~/.zsh/completions/_cuwheel  a folder of $fpath
  cuwheel completion fish > ~/.config/fish/completions/cuwheel.fish
  cuwheel completion powershell | Out-String | Invoke-Expression
                                                       in PowerShell's $PROFILE
"""
_NO_FILES = ("NAME", "VERSION", "UPSTREAM", "ADDRESS")  # words that are no files; `COMMAND` is left to the shell


def completion_script(words: Sequence[str]) -> str:
    shells: tuple[str, ...] = tuple(shtab.SUPPORTED_SHELLS)
    if words in (["-h"], ["--help"]):
        return _HELP.format(shells="|".join(shells))
    if len(words) != 1 or words[0] not in shells:
        raise UsageError("completion needs the name of a shell: " + ", ".join(shells), hint="cuwheel completion bash")
    parser = argparse.ArgumentParser(prog="cuwheel")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers(dest="verb")
    words_shown = {**{name: own_word(name) for name in SHOWN}, **extensions.all_words()}
    for name, word in words_shown.items():
        verb = verbs.add_parser(name, help=word.shown.line)
        command = command_of(name, word.package) if name in word.rows else None
        commands = word.shown.commands if isinstance(word.shown, Family) else {}
        if not commands and command:
            _add_command(verb, f"cuwheel {name}", command)
            continue
        if command:  # `record` by itself: its options; the words of a build come behind `--`
            _add_completed(verb, command._replace(options=tuple(row for row in flat(command.options) if row.flags)))
        seconds = verb.add_subparsers(dest="action")
        for second, other in commands.items():
            line, each = described_command(word, other)
            _add_command(seconds.add_parser(second, help=line), f"cuwheel {name} {second}", each)
    return str(shtab.complete(parser, shell=words[0]))


def _add_command(parser: argparse.ArgumentParser, prog: str, command: Command) -> None:
    if not command.actions:
        _add_completed(parser, command)
        return
    actions = parser.add_subparsers(dest="action")
    for action, line in command.actions.items():
        _add_completed(actions.add_parser(action, help=line), action_of(prog, command, action))


def _add_completed(parser: argparse.ArgumentParser, command: Command) -> None:
    """Its options; where they name files, the shell offers those that are there."""
    rows = rows_of(command)
    add_rows(parser, rows)
    kinds = {row.dest: row.kind for row in flat(rows)}
    for action in parser._actions:  # noqa: SLF001 - shtab reads them, too
        kind = kinds.get(action.dest)
        named = getattr(kind, "__name__", "")
        if getattr(kind, "__module__", "") == "cuwheel.cli.places":
            only_folders = named in ("folder", "new_folder", "environment")
            action.complete = shtab.DIRECTORY if only_folders else shtab.FILE  # type: ignore[attr-defined]
        elif not action.option_strings and kind is None and str(action.metavar) not in _NO_FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
