"""cuwheel gets CUDA wheels to run. The verbs of the command line are the functions of this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.api import (
        bench,
        build,
        cache,
        catalogue,
        check,
        ci,
        cluster,
        compare,
        doctor,
        explain,
        find,
        gpus,
        graft,
        inspect,
        install,
        kernels,
        plan,
        publish,
        record,
        repair,
        replay,
        slim,
        toolchain,
        toolkits,
        trace,
        trials,
        verify,
    )
    from cuwheel.building.request import BuildRequest
    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.changes.repair.request import RepairRequest
    from cuwheel.changes.slim.request import SlimRequest
    from cuwheel.delivery.request import CatalogueRequest, FindRequest, InstallRequest, PublishRequest
    from cuwheel.delivery.workflows.request import CiRequest
    from cuwheel.proving.request import BenchRequest, VerifyRequest
    from cuwheel.toolchains.request import CacheRequest, ToolchainRequest

__all__ = [
    "BenchRequest",
    "BuildRequest",
    "CacheRequest",
    "CatalogueRequest",
    "CiRequest",
    "FindRequest",
    "GraftRequest",
    "InstallRequest",
    "PublishRequest",
    "RepairRequest",
    "SlimRequest",
    "ToolchainRequest",
    "VerifyRequest",
    "__version__",
    "bench",
    "build",
    "cache",
    "catalogue",
    "check",
    "ci",
    "cluster",
    "compare",
    "doctor",
    "explain",
    "find",
    "gpus",
    "graft",
    "inspect",
    "install",
    "kernels",
    "plan",
    "publish",
    "record",
    "repair",
    "replay",
    "slim",
    "toolchain",
    "toolkits",
    "trace",
    "trials",
    "verify",
]

if not TYPE_CHECKING:  # who would let every misspelt name pass

    def __getattr__(name: str) -> object:
        """Import the API on first use: `cuwheel --version` must not pay for it."""
        if name in __all__:
            from importlib import import_module  # noqa: PLC0415

            from cuwheel.support.verbs import VERBS  # noqa: PLC0415

            for verb in VERBS.values():
                room, _, request = verb.request.rpartition(".")
                if request == name:
                    return getattr(import_module(f"cuwheel.{room}.request"), name)
            return getattr(import_module("cuwheel.api"), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
