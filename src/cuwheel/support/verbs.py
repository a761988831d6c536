"""The verbs: one row each drives help, completion, the API, the schemas and README's list.

A new verb is a row here, `cli/cmd_<verb>.py`, a function of the API and its answer in `report/`; where one of them is
missing, tests/unit/support/test_verbs.py says so.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """Functions are `module.function` of `cuwheel.api`, the first one named like the verb.

    Answers are `module.Class` of `cuwheel.report`, each with a schema named after the module. A request is
    `room.Class`, in the room's `request.py`.
    """

    name: str
    line: str  # as `cuwheel --help` shows it
    takes: str  # the words behind it, as README shows them
    functions: tuple[str, ...]
    answers: tuple[str, ...]
    request: str = ""


_ROWS = (
    Verb(
        "doctor",
        "describe this machine, what is wrong with it and how to fix it",
        "",
        ("machines.doctor",),
        ("doctor.Doctor",),
    ),
    Verb(
        "inspect",
        "show a file's device code: for which GPUs, how big, what it needs",
        "TARGET",
        ("binaries.inspect",),
        ("inspect.Inspect",),
    ),
    Verb(
        "kernels",
        "show which kernels are in which cubin, and where one is missing",
        "TARGET [NAME]",
        ("binaries.kernels",),
        ("kernels.Kernels",),
    ),
    Verb(
        "compare",
        "show what an architecture, or a change, costs in bytes",
        "A B",
        ("binaries.compare",),
        ("compare.Compare",),
    ),
    Verb(
        "check",
        "predict whether it runs on a machine; if not, which error and why",
        "TARGET --on …",
        ("fleets.check",),
        ("check.Check",),
    ),
    Verb(
        "plan",
        "find the smallest architecture list for a fleet, in every spelling",
        "--for …",
        ("fleets.plan", "fleets.plan_sizes", "fleets.read_list"),
        ("plan.Plan",),
    ),
    Verb(
        "toolchain",
        "install nvcc and a host compiler it accepts, without root",
        "install VERSION",
        (
            "toolkit_store.toolchain",
            "toolkit_store.toolchain_env",
            "toolkit_store.toolchain_fetch",
            "toolkit_store.toolchain_remove",
            "toolkit_store.toolchain_verify",
            "toolkit_store.toolchains",
        ),
        ("toolchain.Toolchain",),
        "toolchains.ToolchainRequest",
    ),
    Verb(
        "build",
        "build wheels from source and check them against the plan",
        "SOURCE --for …",
        ("wheels.build", "wheels.build_editable"),
        ("build.Build", "install.Install"),
        "building.BuildRequest",
    ),
    Verb(
        "repair",
        "make a wheel portable, without NVIDIA's libraries inside",
        "WHEEL",
        ("wheels.repair",),
        ("repair.Repair",),
        "changes.repair.RepairRequest",
    ),
    Verb(
        "verify",
        "prove that a wheel works: install it alone, import it, test it",
        "WHEEL",
        ("wheels.verify", "wheels.verify_pack", "wheels.verify_read"),
        ("verify.Verify", "proof.Proof"),
        "proving.VerifyRequest",
    ),
    Verb(
        "publish",
        "make a package index of wheels, or check one that was made",
        "WHEELS --to FOLDER",
        ("delivery.publish", "delivery.publish_check", "delivery.publish_upload"),
        ("publish.Publish",),
        "delivery.PublishRequest",
    ),
    Verb(
        "ci",
        "write the workflow that builds, proves and publishes in CI",
        "github --write",
        ("workflows.ci", "workflows.ci_check", "workflows.ci_matrix", "workflows.ci_watch"),
        ("ci.Ci",),
        "delivery.workflows.CiRequest",
    ),
    Verb(
        "slim",
        "remove the device code that your GPUs never load",
        "TARGET --for …",
        ("wheels.slim", "wheels.slim_commit", "wheels.slim_undo"),
        ("slim.Slim",),
        "changes.slim.SlimRequest",
    ),
    Verb(
        "graft",
        "add architectures to a finished wheel, proven to fit",
        "BASE DONOR… -o OUT",
        ("wheels.graft",),
        ("graft.Graft",),
        "changes.graft.GraftRequest",
    ),
    Verb(
        "trace",
        "see which device code a program loads, and which kernel failed",
        "-- COMMAND",
        ("records.trace", "records.read_trace", "records.save_trace"),
        ("trace.Traced",),
    ),
    Verb(
        "find",
        "find the wheel that runs on a machine, or why there is none",
        "NAME --on …",
        ("delivery.find",),
        ("find.Find",),
        "delivery.FindRequest",
    ),
    Verb(
        "install",
        "install the wheel that runs here; put everything back if it fails",
        "NAME",
        ("delivery.install", "delivery.install_undo"),
        ("install.Install",),
        "delivery.InstallRequest",
    ),
    Verb(
        "catalogue",
        "collect which release of which package has code for which GPU",
        "add NAME --to FOLDER",
        ("delivery.catalogue", "delivery.catalogue_list"),
        ("catalogue.Catalogue",),
        "delivery.CatalogueRequest",
    ),
    Verb(
        "record",
        "record every compiler call of a build, and why it failed",
        "-- COMMAND",
        ("records.record", "records.record_matrix"),
        ("record.Recorded", "matrix.Matrix"),
    ),
    Verb(
        "replay",
        "rerun a recorded compiler call, and find why it fails only there",
        "RECORD:N",
        ("records.replay", "records.replay_diff", "records.replay_list", "records.replay_print"),
        ("replay.Replay",),
    ),
    Verb(
        "explain",
        "explain a failure from its log: cause, evidence, fix, ways out",
        "LOG",
        ("diagnosis.explain", "diagnosis.causes"),
        ("explain.Explain",),
    ),
    Verb(
        "trials",
        "find how often a program fails, and under which condition",
        "run TRIALS.toml",
        (
            "measurements.trials",
            "measurements.trials_bisect",
            "measurements.trials_report",
            "measurements.trials_service",
        ),
        ("trials.Trials", "bisection.Bisection", "service.ServiceChange"),
    ),
    Verb(
        "bench",
        "measure a function or command under load, and against another",
        "FILE:NAME",
        ("measurements.bench",),
        ("bench.Bench",),
        "proving.BenchRequest",
    ),
    Verb(
        "cluster",
        "workers for build, check, catalogue and trials on many machines",
        "status ADDRESS",
        (
            "clusters.cluster",
            "clusters.cluster_init",
            "clusters.cluster_scheduler",
            "clusters.cluster_stop",
            "clusters.cluster_worker",
        ),
        ("cluster.Cluster", "certificates.Certificates"),
    ),
    Verb(
        "cache",
        "show what is kept on this machine, and remove what is old",
        "[--prune]",
        ("toolkit_store.cache",),
        ("cache.Cache",),
        "toolchains.CacheRequest",
    ),
    Verb(
        "gpus",
        "look up GPUs and their compute capability",
        "[NAME]",
        ("machines.gpus",),
        ("gpus.Gpus",),
    ),
    Verb(
        "toolkits",
        "look up CUDA versions: compilers, architectures, driver",
        "[VERSION]",
        ("machines.toolkits",),
        ("toolkits.Toolkits",),
    ),
)
VERBS = {row.name: row for row in _ROWS}
