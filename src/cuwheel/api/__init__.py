"""The verbs as functions: each puts stages in a row and returns the value that report and JSON show.

A verb's module, and the stages that it needs, are imported when it is asked for: starting fast is a feature.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cuwheel.verbs import VERBS

if TYPE_CHECKING:
    from cuwheel.api.benchmarks import bench
    from cuwheel.api.binaries import compare, inspect, kernels
    from cuwheel.api.building import build
    from cuwheel.api.catalogues import catalogue, catalogue_list
    from cuwheel.api.diagnosis import causes, explain
    from cuwheel.api.fleets import check, plan, plan_sizes, read_list
    from cuwheel.api.grafting import graft
    from cuwheel.api.installing import find, install, install_undo
    from cuwheel.api.machines import doctor, gpus, toolkits
    from cuwheel.api.matrices import record_matrix
    from cuwheel.api.publishing import publish, publish_check, publish_upload
    from cuwheel.api.recording import record
    from cuwheel.api.repairing import repair
    from cuwheel.api.replaying import replay, replay_diff, replay_list, replay_print
    from cuwheel.api.slimming import slim, slim_commit, slim_undo
    from cuwheel.api.toolkit_store import (
        toolchain,
        toolchain_env,
        toolchain_fetch,
        toolchain_remove,
        toolchain_verify,
        toolchains,
    )
    from cuwheel.api.tracing import read_trace, save_trace, trace
    from cuwheel.api.trying import trials, trials_bisect, trials_report, trials_service
    from cuwheel.api.verifying import verify, verify_pack, verify_read
    from cuwheel.api.workflows import ci, ci_check, ci_matrix, ci_watch

__all__ = [
    "bench",
    "build",
    "catalogue",
    "catalogue_list",
    "causes",
    "check",
    "ci",
    "ci_check",
    "ci_matrix",
    "ci_watch",
    "compare",
    "doctor",
    "explain",
    "find",
    "gpus",
    "graft",
    "inspect",
    "install",
    "install_undo",
    "kernels",
    "plan",
    "plan_sizes",
    "publish",
    "publish_check",
    "publish_upload",
    "read_list",
    "read_trace",
    "record",
    "record_matrix",
    "repair",
    "replay",
    "replay_diff",
    "replay_list",
    "replay_print",
    "save_trace",
    "slim",
    "slim_commit",
    "slim_undo",
    "toolchain",
    "toolchain_env",
    "toolchain_fetch",
    "toolchain_remove",
    "toolchain_verify",
    "toolchains",
    "toolkits",
    "trace",
    "trials",
    "trials_bisect",
    "trials_report",
    "trials_service",
    "verify",
    "verify_pack",
    "verify_read",
]

if not TYPE_CHECKING:  # who would let every misspelt name pass

    def __getattr__(name: str) -> object:
        for verb in VERBS.values():
            for each in verb.functions:
                module, _, function = each.partition(".")
                if function == name:
                    return getattr(importlib.import_module(f"cuwheel.api.{module}"), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
