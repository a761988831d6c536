from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import option_values, places
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.ci import Ci

_ACTIONS = ("github", "gitlab", "cibuildwheel", "matrix", "watch")
EXAMPLES = """\
  cuwheel ci github                     show the workflow for this project
  cuwheel ci github --write             write it, or renew our part of it
  cuwheel ci github --check             what differs from it, and known traps
  cuwheel ci gitlab --write
  cuwheel ci cibuildwheel --write       the tables, in pyproject.toml
  cuwheel ci cibuildwheel --cuda 12.8 --write       for another CUDA, in ci/
  cuwheel ci watch torch --built https://wheels.example.com

What it does follows from [tool.cuwheel.ci] of pyproject.toml: docs/ci.md. Used
by the workflow itself: ci matrix plan.json --to FILE, ci watch … --to FILE.

exit status: 0 done, 1 --check found something"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument("what", metavar="WHAT", nargs="?", help="matrix: a plan; watch: a package or a git repository")
    parser.add_argument("--write", action="store_true", help="write the file, or renew what is cuwheel's in it")
    parser.add_argument("--check", action="store_true", help="say what differs in the file that is there")
    parser.add_argument("--source", metavar="FOLDER", type=places.folder, help="the repository (default: .)")
    parser.add_argument(
        "--file", metavar="FILE", type=places.new_file, help="where the workflow is, if not in the usual place"
    )
    parser.add_argument("--config", metavar="FILE", type=places.file, help="a cuwheel.toml to use instead")
    parser.add_argument(
        "--cuda", metavar="VERSION", type=option_values.toolkit, help="cibuildwheel: for this one; default: the first"
    )
    group = parser.add_argument_group("inside a workflow")
    group.add_argument("--cpu", metavar="CPUS", type=_cpus, help="matrix: x86_64,aarch64 (x86_64)")
    group.add_argument("--windows", action="store_true", help="matrix: jobs for Windows too")
    group.add_argument("--image", metavar="IMAGE", type=_image, help="matrix: of each job on Linux; {cuda}, {cpu}")
    group.add_argument("--built", metavar="PLACE", type=_place, help="watch: an index, or the version last built")
    group.add_argument(
        "--name", metavar="NAME", type=option_values.distribution, help="watch: the package in that index"
    )
    group.add_argument("--to", metavar="FILE", type=places.new_file, help="append the outputs of a step to this file")


def _cpus(text: str) -> tuple[str, ...]:
    from cuwheel.facts import services

    given = tuple(text.split(","))
    if unknown := [each for each in given if each not in services.linux_runners()]:
        raise UsageError(f"{unknown[0][:40]!r} is not one of {', '.join(services.linux_runners())}")
    return given


def _image(text: str) -> str:
    option_values.image(text.replace("{cuda}", "0").replace("{cpu}", "x"))
    return text


def _place(text: str) -> str:
    """An index, or a version."""
    return option_values.version(text) if text[:1].isdigit() else places.place(text)


def refuse_conflicts(args: argparse.Namespace) -> None:
    inside = args.action in ("matrix", "watch")
    if inside != (args.what is not None):
        message = f"{args.action} needs {'a plan' if args.action == 'matrix' else 'a package or a git repository'}"
        raise UsageError(message if inside else f"{args.action} takes no {args.what!r}", hint="cuwheel ci --help")
    if inside and (args.write or args.check or args.file or args.source or args.config or args.cuda):
        raise UsageError(f"{args.action} takes no --write, --check, --source, --file, --config and --cuda")
    if not inside and (args.cpu or args.windows or args.image or args.built or args.name or args.to):
        raise UsageError("--cpu, --windows, --image, --built, --name and --to belong to matrix and watch")
    if args.write and args.check:
        raise UsageError("--write and --check cannot be used together", hint="cuwheel ci github --check")
    if args.action == "watch" and not args.built:
        raise UsageError("watch needs --built", hint="cuwheel ci watch torch --built https://wheels.example.com")
    if args.action == "matrix" and (args.built or args.name):
        raise UsageError("--built and --name belong to watch")
    if args.action == "watch" and (args.cpu or args.windows or args.image):
        raise UsageError("--cpu, --windows and --image belong to matrix")


def run(args: argparse.Namespace) -> Ci:
    from cuwheel import api
    from cuwheel.delivery.workflows import rendering, watching
    from cuwheel.delivery.workflows.request import CiRequest
    from cuwheel.support import files

    if args.action == "matrix":
        image = args.image or ""
        answer = api.ci_matrix(Path(args.what), cpus=args.cpu or ("x86_64",), windows=args.windows, image=image)
        if args.to:
            files.append(args.to, rendering.matrix_output(answer.rows))
        return answer
    if args.action == "watch":
        answer = api.ci_watch(args.what, built=args.built, name=args.name or "")
        if args.to and answer.upstream:
            files.append(args.to, watching.output(answer.upstream))
        return answer
    request = CiRequest(
        args.action,
        source=args.source or Path(),
        file=args.file,
        config=args.config,
        cuda=args.cuda,
        write=args.write,
    )
    return api.ci_check(request) if args.check else api.ci(request)
