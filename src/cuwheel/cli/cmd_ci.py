from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import places, streams, values
from cuwheel.cli.options import Command, Conflict, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_SERVICES = ("github", "gitlab", "cibuildwheel")
_ACTIONS = {
    "github": "show or write the workflow for GitHub",
    "gitlab": "show or write the pipeline for GitLab",
    "cibuildwheel": "show or write cibuildwheel's tables, in pyproject.toml or ci/",
    "matrix": "print the jobs of a workflow's matrix, from a plan",
    "watch": "tell whether a package has a release that is not built yet",
}


def cpus(text: str) -> tuple[str, ...]:
    from cuwheel.facts import services

    given = tuple(text.split(","))
    known = (*services.linux_runners(), "windows")
    if unknown := [each for each in given if each not in known]:
        raise UsageError(f"{unknown[0][:40]!r} is not one of {', '.join(known)}")
    return given


def image(text: str) -> str:
    values.image(text.replace("{cuda}", "0").replace("{cpu}", "x"))
    return text


def built(text: str) -> str:
    """An index, or a version."""
    return values.version(text) if text[:1].isdigit() else places.place(text)


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.action == "watch" and not args.built:
        yield UsageError("watch needs --built", hint="cuwheel ci watch torch --built https://wheels.example.com")


def _ci(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.delivery.request import CiRequest
    from cuwheel.delivery.workflows import rendering, writing

    if args.action == "matrix":
        places = args.cpu or ("x86_64",)
        linux = tuple(each for each in places if each != "windows")
        answer = api.ci_matrix(Path(args.what), cpus=linux, windows="windows" in places, image=args.image or "")
        text = rendering.matrix_output(answer.rows)
    elif args.action == "watch":
        answer = api.ci_watch(args.what, built=args.built, name=args.name or "")
        text = writing.output(answer.upstream) if answer.upstream else ""
    elif args.check:
        return api.ci_check(request_of(CiRequest, args, service=args.action))
    else:
        answer = api.ci(request_of(CiRequest, args, service=args.action))
        if args.write:
            return answer
        text = answer.text
    if not args.json:  # `> wheels.yml`, `>> "$GITHUB_OUTPUT"`: that to the letter, and all else beside it
        streams.write_utf8(text)
        args.aside = True
    return answer


CI = Command(
    """\
  cuwheel ci github                     show the workflow for this project
  cuwheel ci github --write             write it, or renew our part of it
  cuwheel ci github --check             what differs from it, and known traps
  cuwheel ci gitlab --write
  cuwheel ci cibuildwheel --write       the tables, in pyproject.toml
  cuwheel ci cibuildwheel --cuda 12.8 --write       for another CUDA, in ci/
  cuwheel ci watch torch --built https://wheels.example.com
  cuwheel ci matrix plan.json >> "$GITHUB_OUTPUT"

[tool.cuwheel.ci] in pyproject.toml says what the workflow does. The workflow
itself runs ci matrix and ci watch, which print the outputs of a step.

exit status: 0 done, 1 --check found something""",
    (
        Option("PLAN", "what `cuwheel build --dry-run --json` wrote", field="what", of=("matrix",)),
        Option("[SOURCE]", "the repository (default: .)", places.folder, default=Path(), of=_SERVICES),
        Option("UPSTREAM", "a package or a git repository", field="what", of=("watch",)),
        Option("--write", "write the file, or renew cuwheel's part of it", of=_SERVICES),
        Option("--check", "show how the existing file differs", of=_SERVICES),
        Option("--file FILE", "where the workflow is, if not in the usual place", places.new_file, of=_SERVICES),
        Option("--cuda VERSION", "for this CUDA version (default: the first)", values.toolkit, of=("cibuildwheel",)),
        group(
            "inside a workflow",
            Option("--cpu CPUS", "x86_64, aarch64 and windows, with commas (default: x86_64)", cpus, of=("matrix",)),
            Option("--image IMAGE", "container image of jobs on Linux; with {cuda} and {cpu}", image, of=("matrix",)),
            Option("--built PLACE", "an index, or the version last built", built, of=("watch",)),
            Option("--name NAME", "the package in that index", values.distribution, of=("watch",)),
        ),
    ),
    _ci,
    actions=_ACTIONS,
    conflicts=(Conflict(("--write", "--check"), hint="cuwheel ci github --check"),),
    refuse=_refuse,
    exits=dict.fromkeys(_SERVICES, "0 done, 1 --check found something"),
)
