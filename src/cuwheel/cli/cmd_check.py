from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import option_values, places, shared_options
from cuwheel.cli.cmd_inspect import add_html, add_where, write_html
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.machine.fleet import Refinement
    from cuwheel.report.check import Check

EXAMPLES = """\
  cuwheel check bitsandbytes.whl                    on this machine
  cuwheel check bitsandbytes.whl --on h100,l40 --torch-cuda 12.8
  cuwheel check libfoo.so --on 'rtx 5090' --driver 570.86.10
  cuwheel check *.whl --on fleet.toml --html matrix.html
  cuwheel check torch --env .venv --on gpu07.json   (from doctor --save)

exit status: 0 it runs, 1 it fails on one of the machines"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="+",
        help="a wheel or its facts file, a library or folder; an installed distribution; or name==version",
    )
    add_where(parser, env=places.environment)
    shared_options.add_on(parser)
    add_html(parser)
    shared_options.add_cluster(parser, "many wheels, read by the workers of a cluster")
    add_refinement(parser)


def add_refinement(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what else you know about the machines")
    group.add_argument(
        "--driver", metavar="VERSION", type=option_values.driver, help="version of the NVIDIA driver, such as 570.86.10"
    )
    group.add_argument(
        "--driver-cuda", metavar="VERSION", type=option_values.cuda, help="the CUDA version that nvidia-smi shows"
    )
    group.add_argument("--torch", metavar="VERSION", type=option_values.torch, help="the installed torch")
    group.add_argument(
        "--torch-cuda", metavar="VERSION", type=option_values.cuda_minor, help="the CUDA that torch was built for"
    )
    group.add_argument(
        "--jax-cuda", metavar="VERSION", type=option_values.cuda, help="the CUDA that jax's plugin was built for"
    )
    group.add_argument(
        "--python", metavar="VERSION", type=option_values.python, help="version of Python, such as 3.11 or 3.13t"
    )
    group.add_argument("--glibc", metavar="VERSION", type=option_values.glibc, help="version of glibc, such as 2.35")
    group.add_argument("--os", choices=("linux", "windows"), help="the operating system")
    group.add_argument("--cpu", metavar="NAME", type=option_values.cpu, help="x86_64 or aarch64")
    group.add_argument("--l4t", metavar="RELEASE", type=option_values.l4t, help="release on a Jetson, such as 36.4")
    group.add_argument("--no-jit", action="store_true", help="CUDA_DISABLE_PTX_JIT is set")
    group.add_argument("--force-jit", action="store_true", help="CUDA_FORCE_PTX_JIT is set")


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.no_jit and args.force_jit:
        raise UsageError("--no-jit and --force-jit cannot be used together")


def refinement(args: argparse.Namespace) -> Refinement:
    from cuwheel.machine.fleet import Refinement

    return Refinement(
        driver=args.driver,
        driver_cuda=args.driver_cuda,
        torch=args.torch,
        torch_cuda=args.torch_cuda,
        jax_cuda=args.jax_cuda,
        python=args.python,
        glibc=args.glibc,
        os=args.os,
        cpu=args.cpu,
        l4t=args.l4t,
        jit="disabled" if args.no_jit else "forced" if args.force_jit else None,
    )


def run(args: argparse.Namespace) -> Check:
    from cuwheel import api

    where = {"env": args.env, "platform": args.platform, "cluster": args.cluster}
    answer = api.check(*args.target, on=args.on, refine=refinement(args), **where)
    write_html(answer, args)
    return answer
