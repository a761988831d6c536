"""`cuwheel lab trials run` and `report`: the document of what the trials tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.drawings import Chart, Point, Series
from cuwheel.report.tables import Column, Facts, Row, Table, figure, short, table
from cuwheel.support import quoting
from cuwheel_core.support import wording
from cuwheel_core.support.wording import a_few, duration, size

if TYPE_CHECKING:
    from cuwheel_lab.measuring.analysis import Group, Side, Trials
    from cuwheel_lab.measuring.journal import GpuUse

_FAILURES, _OUTPUT_LINES, _KERNELS, _LABEL = 3, 6, 5, 14
_PERCENT = (0.0, 0.25, 0.5, 0.75, 1.0)


def document(answer: Trials, *, verbose: bool) -> Document:
    if answer.planned:
        return Document(f"cuwheel lab trials {answer.file}", tuple(_planned(answer)))
    return Document(f"cuwheel lab trials {answer.file}", tuple(_blocks(answer, verbose=verbose)))


def _planned(answer: Trials) -> Iterator[Block]:
    count = len(answer.planned)
    yield Heading(
        f"{wording.counted(count, 'condition')}, {wording.counted(answer.repeats, 'time')} each: "
        f"{wording.counted(count * answer.repeats, 'trial')}"
    )
    for each in answer.planned:
        yield Verbatim((f"  {', '.join(each.axes.values()) or 'the command'}:", f"    {quoting.here(each.command)}"))
    yield Paragraph(f"In shuffled order. The journal goes to {answer.folder}.")


def _blocks(answer: Trials, *, verbose: bool) -> Iterator[Block]:
    yield Heading(_headline(answer))
    if not (answer.running or answer.done):
        yield Verbatim((f"  go on: {_going_on(answer)}",))
    columns: list[str | Column] = [*answer.axes, short("failed"), figure("rate"), short("95 %"), "how"]
    timed = any(each.seconds for each in answer.groups)
    rows = (_row(answer, each, timed=timed) for each in answer.groups)
    yield table([*columns, figure("mean")] if timed else columns, rows)
    # The rates with their intervals: of every condition, and of every value of every axis.
    conditions = [(" ".join(each.axes.values()) or "all", each) for each in answer.groups]
    values = [(f"{effect.axis} {side.value}", side) for effect in answer.effects for side in effect.sides]
    yield _chart("Failure rate by condition, with its 95 % interval", conditions)
    if values:
        yield _chart("Failure rate by each value of each axis", values)
    if answer.effects:
        yield Heading("Axis by axis")
        yield _effects(answer)
        # Of what is not decided the table says the counts, and the next section how many runs it takes.
        said = [each for each in answer.effects if verbose or each.verdict != "not decided"]
        yield Facts(tuple(Row(each.axis, each.says) for each in said))
        axes = f"{len(answer.effects)} axes and " if len(answer.effects) > 1 else ""
        yield Paragraph(
            f"p is corrected for {axes}for going on (look {answer.look}): a difference is claimed by chance in at "
            "most 5 of 100 campaigns, however often somebody goes on."
        )
    if answer.unknown:
        yield Heading("Not known yet")
        yield Facts(tuple(Row("-", each) for each in answer.unknown))
    yield from _kernels(answer)
    yield from _failures(answer, verbose=verbose)
    yield Heading("How it was tried")
    yield Facts(tuple(_circumstances(answer, verbose=verbose)))


def _headline(answer: Trials) -> str:
    state = "; still running" if answer.running else "" if answer.done else "; not finished"
    failed = (
        f"{answer.failures} of {answer.runs} runs failed" if answer.failures else f"no failure in {answer.runs} runs"
    )
    # Values that alone were enough.
    cures = [f"{each.axis} {' or '.join(each.prevented_by)}" for each in answer.effects if each.prevented_by]
    return f"{failed}{', none of those with ' if cures else ''}{' or with '.join(cures)}{state}"


def _going_on(answer: Trials) -> str:
    words = ["cuwheel", "lab", "trials", "run", answer.file, "-o", answer.folder, "--resume"]
    # Without these it would be another plan, and so another look.
    words += ["--repeats", str(answer.repeats)] if answer.look > 1 else []
    words += [word for axis, value in answer.only.items() for word in ("--only", f"{axis}={value}")]
    return quoting.here(words)


def _row(answer: Trials, each: Group, *, timed: bool) -> tuple[str, ...]:
    how = [f"{count} × {kind}" for kind, count in each.kinds.items()]
    how += [f"{each.ignored} ignored"] if each.ignored else []
    return (
        *(each.axes.get(axis, "") for axis in answer.axes),
        f"{each.failures} of {each.runs}",
        "" if each.rate is None else f"{wording.percent(each.rate)}",
        f"{wording.percent(each.interval[0])} to {wording.percent(each.interval[1])}",
        ", ".join(how),
        *([duration(each.seconds) if each.seconds else ""] if timed else []),
    )


def _chart(caption: str, rows: Sequence[tuple[str, Group | Side]]) -> Chart:
    points = (
        Point(index, each.rate or 0.0, each.interval[0], each.interval[1], f"{name}: {each.failures} of {each.runs}")
        for index, (name, each) in enumerate(rows)
    )
    return Chart(
        caption=caption,
        x_title="",
        y_title="failure rate",
        series=(Series("rate", tuple(points), joined=False),),
        x_ticks=tuple((index, name[:_LABEL]) for index, (name, _) in enumerate(rows)),
        y_ticks=tuple((each, f"{wording.percent(each)}") for each in _PERCENT),
    )


def _effects(answer: Trials) -> Table:
    return table(
        ("axis", "values", figure("p"), short("verdict")),
        (
            (
                each.axis,
                ", ".join(f"{side.value} {side.failures}/{side.runs}" for side in each.sides),
                "<0.0001" if each.p < 0.0001 else f"{each.p:.2g}",  # noqa: PLR2004
                f"at most {each.difference[1] * 100:.0f} points" if each.verdict == "close" else each.verdict,
            )
            for each in answer.effects
        ),
    )


def _kernels(answer: Trials) -> Iterator[Block]:
    if not answer.kernels:
        return
    yield Heading("What failed on the GPU")
    for each in answer.kernels[:_KERNELS]:
        call = each.call
        where = f" in {call.library}" if call.library else ""
        last = f"; launched last: {', '.join(call.last)}" if call.last and not call.kernel else ""
        yield Facts(
            (
                Row(
                    f"{each.trials} ×",
                    f"{call.api}: {call.code} {call.error}: {call.kernel or 'no kernel named'}{where}{last}",
                ),
            )
        )


def _failures(answer: Trials, *, verbose: bool) -> Iterator[Block]:
    if not answer.failed:
        return
    yield Heading("Failures to look at")
    for each in answer.failed[: None if verbose else _FAILURES]:
        name = " ".join(each.axes.values())
        yield Paragraph(f"  trial {each.trial}{f' ({name})' if name else ''}: {each.message or each.outcome}")
        lines = each.output.strip().splitlines()[None if verbose else -_OUTPUT_LINES :]
        if lines:
            yield Verbatim(tuple(f"    | {line}" for line in lines))


def _circumstances(answer: Trials, *, verbose: bool) -> Iterator[Row]:
    yield Row("order", f"shuffled in rounds by the seed {answer.seed}; {answer.repeats} repeats")
    for state, count in answer.cold.items():
        if not state.startswith("as it is"):
            yield Row("start", f"{state} ({wording.counted(count, 'trial')})")
    if answer.warm_ups and answer.warm_ups.runs:
        yield Row(
            "warm-up",
            f"{wording.counted(answer.warm_ups.runs, 'run')} not counted, {answer.warm_ups.failures} of them failed",
        )
    if answer.without_result:
        yield Row("repeated", f"{wording.counted(answer.without_result, 'trial')} killed or interrupted: no result")
    yield Row("machine", f"{wording.counted(answer.boots, 'boot')}; {_gpus(answer)}")
    for each in answer.gpu_use:
        if words := _use(each):
            yield Row(each.name, words)
    yield Row("traced", "yes" if answer.traced else "no")
    listed = [f"{each.name} {each.version}" for packages in answer.packages for each in packages if each.sha256]
    if listed:
        yield Row("wheels", a_few(listed, len(listed) if verbose else 5))
    yield Row("journal", answer.folder)


def _gpus(answer: Trials) -> str:
    return f"{a_few(answer.gpus)}, driver {answer.driver}" if answer.gpus else "no GPU that NVML tells of"


def _use(use: GpuUse) -> str:
    parts = [
        f"memory at most {size(use.memory_most)}" if use.memory_most is not None else "",
        f"{use.clock_least} to {use.clock_most} MHz" if use.clock_most is not None else "",
        f"{use.temperature_most} °C" if use.temperature_most is not None else "",
        f"{use.power_most:.0f} W of {use.power_limit:.0f}" if use.power_most and use.power_limit else "",
    ]
    return "at its hottest " + ", ".join(filter(None, parts)) if any(parts) else ""
