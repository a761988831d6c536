"""The verbs as functions: each sequences the stages and returns the value that report and JSON show.

Stages are imported when a verb is called: starting fast is a feature.
"""

from __future__ import annotations

from cuwheel.api.binaries import compare, inspect, kernels
from cuwheel.api.building import build
from cuwheel.api.diagnosis import causes, explain
from cuwheel.api.fleets import check, plan, read_list
from cuwheel.api.machines import doctor, gpus, toolkits
from cuwheel.api.matrices import record_matrix
from cuwheel.api.recording import record
from cuwheel.api.repairing import repair
from cuwheel.api.replaying import replay, replay_diff, replay_list, replay_print
from cuwheel.api.slimming import slim, slim_commit, slim_undo
from cuwheel.api.toolchains import (
    toolchain,
    toolchain_env,
    toolchain_fetch,
    toolchain_remove,
    toolchain_verify,
    toolchains,
)
from cuwheel.api.verifying import verify, verify_pack, verify_read

__all__ = [
    "build",
    "causes",
    "check",
    "compare",
    "doctor",
    "explain",
    "gpus",
    "inspect",
    "kernels",
    "plan",
    "read_list",
    "record",
    "record_matrix",
    "repair",
    "replay",
    "replay_diff",
    "replay_list",
    "replay_print",
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
    "verify",
    "verify_pack",
    "verify_read",
]
