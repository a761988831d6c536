"""cuwheel gets CUDA wheels to run. Verbs are functions here; requests, answers and errors are beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.api import (
        bench,
        build,
        build_editable,
        cache,
        catalogue,
        catalogue_list,
        causes,
        check,
        ci,
        ci_check,
        ci_matrix,
        ci_watch,
        cluster,
        cluster_init,
        cluster_scheduler,
        cluster_send,
        cluster_stop,
        cluster_worker,
        compare,
        doctor,
        explain,
        find,
        gpus,
        graft,
        inspect,
        install,
        install_undo,
        kernels,
        plan,
        plan_sizes,
        publish,
        publish_check,
        publish_upload,
        read_list,
        read_trace,
        record,
        record_matrix,
        repair,
        replay,
        replay_diff,
        replay_list,
        replay_print,
        save_trace,
        slim,
        slim_commit,
        slim_undo,
        toolchain,
        toolchain_env,
        toolchain_fetch,
        toolchain_list,
        toolchain_remove,
        toolchain_verify,
        toolkits,
        trace,
        trials,
        trials_bisect,
        trials_report,
        trials_service,
        verify,
        verify_fleet,
        verify_pack,
        verify_read,
    )
    from cuwheel.building.answer import Build
    from cuwheel.building.recording.command import Recorded
    from cuwheel.building.recording.matrix import Matrix
    from cuwheel.building.recording.replays import Replay
    from cuwheel.building.recording.shims import RecordOptions
    from cuwheel.building.request import (
        BuildRequest,
        BuildSettings,
        Fit,
    )
    from cuwheel.changes.graft.answer import Graft
    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.changes.repair.answer import Repair
    from cuwheel.changes.repair.request import RepairRequest
    from cuwheel.changes.slim.answer import Slim
    from cuwheel.changes.slim.request import SlimRequest
    from cuwheel.clusters.roster import Cluster
    from cuwheel.clusters.service import WorkerOptions
    from cuwheel.delivery.best_candidate import Find
    from cuwheel.delivery.cataloguing import Catalogue
    from cuwheel.delivery.install_answer import Install
    from cuwheel.delivery.publishing import Publish
    from cuwheel.delivery.request import (
        CatalogueRequest,
        CiRequest,
        Fallback,
        FindRequest,
        InstallRequest,
        LockFormat,
        PublishRequest,
    )
    from cuwheel.delivery.workflows.writing import Ci
    from cuwheel.device_code.compare import Compare
    from cuwheel.device_code.kernels import Kernels
    from cuwheel.device_code.libraries import Library
    from cuwheel.errors import (
        AmbiguousNameError,
        ConfigurationError,
        CuwheelError,
        FactsError,
        MalformedError,
        MissingExtraError,
        NetworkError,
        NewerSchemaError,
        NoHostCompilerError,
        NotInstalledError,
        NotStartedError,
        ToolError,
        ToolTimeoutError,
        UnavailableError,
        UnknownNameError,
        UnreadableError,
        UnsafeWheelError,
        UsageError,
    )
    from cuwheel.facts.arch import (
        Arch,
        Capability,
    )
    from cuwheel.machine.fleet import (
        Machine,
        Refinement,
    )
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.network.cluster_access import Certificates
    from cuwheel.proving.measuring.analysis import Trials
    from cuwheel.proving.measuring.bench import Bench
    from cuwheel.proving.measuring.bisection import (
        Bisection,
        Odds,
        Span,
    )
    from cuwheel.proving.measuring.service import ServiceChange
    from cuwheel.proving.on_cluster import Proofs
    from cuwheel.proving.outcomes import Verify
    from cuwheel.proving.proof import Proof
    from cuwheel.proving.request import (
        BenchRequest,
        FleetRequest,
        PackRequest,
        VerifyRequest,
    )
    from cuwheel.report.cache import Cache
    from cuwheel.report.explain import Explain
    from cuwheel.report.gpus import Gpus
    from cuwheel.report.inspect import Inspect
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.report.toolkits import Toolkits
    from cuwheel.support.finding import (
        Cause,
        Finding,
    )
    from cuwheel.toolchains.request import (
        CacheRequest,
        ToolchainRequest,
    )
    from cuwheel.tracing.traced import Traced
    from cuwheel.verdicts.examination import Doctor
    from cuwheel.verdicts.planning.plan import Plan
    from cuwheel.verdicts.verdict import Check, Verdict

__all__ = [
    "AmbiguousNameError",
    "Arch",
    "Bench",
    "BenchRequest",
    "Bisection",
    "Build",
    "BuildRequest",
    "BuildSettings",
    "Cache",
    "CacheRequest",
    "Capability",
    "Catalogue",
    "CatalogueRequest",
    "Cause",
    "Certificates",
    "Check",
    "Ci",
    "CiRequest",
    "Cluster",
    "Compare",
    "ConfigurationError",
    "CuwheelError",
    "Doctor",
    "Explain",
    "FactsError",
    "Fallback",
    "Find",
    "FindRequest",
    "Finding",
    "Fit",
    "FleetRequest",
    "Gpus",
    "Graft",
    "GraftRequest",
    "Inspect",
    "Install",
    "InstallRequest",
    "Kernels",
    "Library",
    "LockFormat",
    "Machine",
    "MachineProfile",
    "MalformedError",
    "Matrix",
    "MissingExtraError",
    "NetworkError",
    "NewerSchemaError",
    "NoHostCompilerError",
    "NotInstalledError",
    "NotStartedError",
    "Odds",
    "PackRequest",
    "Plan",
    "Proof",
    "Proofs",
    "Publish",
    "PublishRequest",
    "RecordOptions",
    "Recorded",
    "Refinement",
    "Repair",
    "RepairRequest",
    "Replay",
    "ServiceChange",
    "Slim",
    "SlimRequest",
    "Span",
    "ToolError",
    "ToolTimeoutError",
    "Toolchain",
    "ToolchainRequest",
    "Toolkits",
    "Traced",
    "Trials",
    "UnavailableError",
    "UnknownNameError",
    "UnreadableError",
    "UnsafeWheelError",
    "UsageError",
    "Verdict",
    "Verify",
    "VerifyRequest",
    "WorkerOptions",
    "__version__",
    "bench",
    "build",
    "build_editable",
    "cache",
    "catalogue",
    "catalogue_list",
    "causes",
    "check",
    "ci",
    "ci_check",
    "ci_matrix",
    "ci_watch",
    "cluster",
    "cluster_init",
    "cluster_scheduler",
    "cluster_send",
    "cluster_stop",
    "cluster_worker",
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
    "toolchain_list",
    "toolchain_remove",
    "toolchain_verify",
    "toolkits",
    "trace",
    "trials",
    "trials_bisect",
    "trials_report",
    "trials_service",
    "verify",
    "verify_fleet",
    "verify_pack",
    "verify_read",
]

if not TYPE_CHECKING:  # who would let every misspelt name pass

    def __getattr__(name: str) -> object:
        """Import what is named on first use: `cuwheel --version` must not pay for it."""
        if name in __all__:
            from importlib import import_module  # noqa: PLC0415

            from cuwheel.support.verbs import public_names  # noqa: PLC0415

            return getattr(import_module(public_names()[name]), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
