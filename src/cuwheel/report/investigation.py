"""The investigation as a Markdown document: to keep, to send, and to start an upstream report from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.machine import profile
from cuwheel.machine.system import VARIABLE_NAMES
from cuwheel.support import files, quoting
from cuwheel.support.quoting import is_of_windows
from cuwheel.version import __version__
from cuwheel_core.support import printable, wording
from cuwheel_core.verdicts.condition import outcome_in_words

if TYPE_CHECKING:
    from cuwheel.diagnosis.answer import Explain
    from cuwheel.diagnosis.case import Setting

_FENCE = "~~~"
_SYSTEMS = ("linux", "windows", "macos", "wsl", "jetson", "arm64", "container", "conda")


def save(answer: Explain, path: Path) -> None:
    files.write(path, printable.text(markdown(answer)))


def markdown(answer: Explain) -> str:
    """Without the names of people's home folders: such documents are made to be sent."""
    cleaned = profile.scrub(answer, home="", names=())
    return "\n".join(line for section in _SECTIONS for line in section(cleaned)) + "\n"


def _title(answer: Explain) -> Iterator[str]:
    first = answer.causes[0].id if answer.causes else "no known cause"
    yield from (
        f"# Investigation: {first}",
        "",
        f"Of {printable.markdown(answer.log)} ({answer.lines} lines), by cuwheel {__version__}.",
        "",
    )


def _environment(answer: Explain) -> Iterator[str]:
    yield from ("## Environment", "")
    for each in answer.versions:
        where = f" (line {each.line})" if each.line else ""
        yield f"- {each.name}: {printable.markdown(each.value)}{where}"
    if answer.situations:
        yield f"- seen: {', '.join(answer.situations)}"
    if not (answer.versions or answer.situations):
        yield "- the log says nothing about it; `cuwheel doctor --save machine.json` records it"
    yield ""


def _tried(answer: Explain) -> Iterator[str]:
    yield from ("## What was tried", "")
    yield from _fenced([each.text for each in answer.tried] or ["(the log shows no command)"])
    for each in answer.verdicts:
        error = f", error {each.predicted_error.code} ({each.predicted_error.name})" if each.predicted_error else ""
        asked = f"{printable.markdown(each.target)} on {printable.markdown(each.machine)}"
        yield f"- `cuwheel check`: {asked}: {outcome_in_words(each.outcome, each.requires)}{error}"
    yield ""


def _call(answer: Explain) -> Iterator[str]:
    """What the build may have hidden: the call itself, what it was given, and what it really printed."""
    call = answer.call
    if call is None:
        return
    yield from (f"## The call that failed (number {call.number} of the record)", "")
    yield from _fenced([_into(call.directory), call.command])
    yield from (f"It ended: {printable.markdown(call.ended)}. What it printed:", "")
    yield from _fenced(list(call.output) or ["(nothing)"])
    changed = [each for each in call.settings if each.changed]
    if changed:
        yield from ("How its environment differed from the one the build was started in:", "")
        yield from _fenced([_setting(each) for each in changed])
    others = [each for each in call.settings if not each.changed and each.name != "PATH"]
    if others:
        yield from ("Other variables in it that affect compilers:", "")
        yield from _fenced([_setting(each) for each in others])


def _setting(setting: Setting) -> str:
    text = f"{setting.name}={setting.value}" if setting.value is not None else f"{setting.name} is not set"
    return text + (f"    (by {setting.origin})" if setting.origin else "")


def _causes(answer: Explain) -> Iterator[str]:
    yield from ("## Cause", "")
    if not answer.causes:
        yield from ("None that cuwheel knows.", "")
    for index, cause in enumerate(answer.causes):
        label = "" if index == 0 else "Less likely: "
        yield from (
            f"### {label}{cause.id} ({wording.percent(cause.confidence)})",
            "",
            cause.title[:1].upper() + cause.title[1:] + ".",
            "",
        )
        if cause.when:
            yield from (f"So it is when {cause.when}.", "")
        if index == 0 or not cause.when:
            yield from _fenced([f"{each.line}: {each.text}" for each in cause.evidence])


def _next_steps(answer: Explain) -> Iterator[str]:
    yield from ("## Next steps", "")
    steps = [fix for cause in answer.causes[:1] for fix in cause.fix]
    yield from (f"{index}. {step}" for index, step in enumerate(steps, start=1))
    if answer.ways_out:
        yield from ("", "Ways out, if that does not help:", "")
        yield from (f"- **{way.title}**: {way.text}" for way in answer.ways_out)
    if not steps:
        yield "1. `cuwheel doctor --save machine.json` on the machine, and this log with `--on machine.json`"
    yield ""


def _draft(answer: Explain) -> Iterator[str]:
    first = answer.causes[0] if answer.causes else None
    yield from ("## Draft for an upstream report", "")
    yield f"**Title:** {printable.markdown(_headline(answer))}"
    yield from ("", "**What happens**", "")
    yield from _fenced(_symptom(answer))
    yield from ("**Environment**", "")
    # What maintainers ask for first: the system and the GPU, known or not, then every version.
    known = {each.name for each in answer.versions}
    systems = [each for each in answer.situations if each in _SYSTEMS]
    if "system" not in known:
        yield f"- system: {', '.join(systems) or 'not known (run explain --on this on that machine)'}"
    if "gpu" not in known:
        yield "- gpu: not known (explain --on NAME, or --on this)"
    yield from (f"- {each.name}: {printable.markdown(each.value)}" for each in answer.versions)
    yield f"- cuwheel: {__version__}"
    yield from ("", "**How to reproduce**", "")
    yield from _fenced(_reproduction(answer))
    reason = f"cuwheel explain names `{first.id}`: {first.title}." if first else "No known cause was found."
    yield from ("**What was found out**", "", reason)
    if answer.call and answer.call.blame:
        yield from ("", f"`cuwheel record diff`: {printable.markdown(answer.call.blame)}")
    elif answer.call:
        words = ["cuwheel", "record", "diff", f"{answer.call.record}:{answer.call.number}"]
        yield from ("", f"Not tried yet: `{quoting.here(words)}` finds which variable makes the difference.")


_IN_TITLE = ("torch", "nvcc", "gcc", "msvc", "gpu", "driver")


def _headline(answer: Explain) -> str:
    """One sentence, and what it happened with: a line of the log has folders of that machine in it, and says less."""
    seen = {each.name: each.value for each in reversed(answer.versions)}
    with_ = ", ".join(f"{name} {seen[name]}" for name in _IN_TITLE if name in seen)
    if answer.causes:
        what = answer.causes[0].title
    else:
        what = f"{answer.understood[0].speaker} fails" if answer.understood else "build or import fails"
    return what[:1].upper() + what[1:] + (f" ({with_})" if with_ else "")


def _symptom(answer: Explain) -> list[str]:
    if answer.call and answer.call.output:
        return list(answer.call.output)
    if answer.causes:
        return [each.text for each in answer.causes[0].evidence]
    return [each.text for each in answer.understood] or ["(the first error of the log)"]


def _reproduction(answer: Explain) -> list[str]:
    """The lines that run a record's call again, with what the build changed; without a record, what the log shows."""
    call = answer.call
    if call is None:
        commands = (*answer.tried, *((answer.command,) if answer.command else ()))
        return list(dict.fromkeys(each.text for each in commands)) or ["(the command that fails)"]
    steering = [each for each in call.settings if each.steers and each.name != "PATH"]
    counting = [each for each in steering if each.changed or each.name in VARIABLE_NAMES]
    if is_of_windows(call.directory):
        settings = [quoting.unset_variable(each.name, "cmd") for each in counting if each.value is None]
        settings += [quoting.set_variables({each.name: each.value}, "cmd") for each in counting if each.value]
        return [_into(call.directory), *settings, call.command]
    shown = [f"-u {quoting.posix([each.name])}" for each in counting if each.value is None]
    shown += [quoting.posix([f"{each.name}={each.value}"]) for each in counting if each.value]
    return [_into(call.directory), " ".join(["env", *shown, call.command] if shown else [call.command])]


def _into(folder: str) -> str:
    """For the shell of the machine where the call was made."""
    return f"cd /d {quoting.windows_word(folder)}" if is_of_windows(folder) else f"cd {quoting.posix([folder])}"


_SECTIONS = (_title, _environment, _tried, _call, _causes, _next_steps, _draft)


def _fenced(lines: list[str]) -> Iterator[str]:
    """Text of the log as it is; nothing in it can end the block or start markup."""
    yield _FENCE
    yield from (printable.line(line).replace(_FENCE, "~ ~ ~") for line in lines)
    yield from (_FENCE, "")
