"""The verbs: one row each drives help, completion, the API, the schemas and README's list.

A new verb is a row here, a `Command` in `cli/cmd_<verb>.py`, a function of the API and its answer in `report/`; where
one of them is missing, tests/unit/support/test_verbs.py says so.
"""

# Without postponed annotations: NamedTuple compiles each of those, and every command reads this.
from typing import NamedTuple


class Verb(NamedTuple):
    """Functions are `module.function` of `cuwheel.api`, the first one named like the verb.

    Answers are `module.Class` of `cuwheel.report`, or `room.module.Class` of the stage that makes it; each has a
    schema. A request is `room.Class`, in the room's `request.py`. Of a verb of another distribution all of them are
    below its own package.
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
        ("reading.doctor",),
        ("verdicts.examination.Doctor",),
    ),
    Verb(
        "inspect",
        "show a file's device code: for which GPUs, how big, what it needs",
        "TARGET",
        ("reading.inspect", "reading.kernels", "reading.compare"),
        ("inspect.Inspect", "device_code.kernels.Kernels", "device_code.compare.Compare"),
    ),
    Verb(
        "check",
        "predict whether it runs on a machine; if not, which error and why",
        "TARGET --on …",
        ("reading.check",),
        ("verdicts.verdict.Check",),
    ),
    Verb(
        "plan",
        "find the smallest architecture list for a fleet, in every spelling",
        "--for …",
        ("reading.plan", "reading.plan_sizes", "reading.read_list"),
        ("verdicts.planning.plan.Plan",),
    ),
    Verb(
        "toolchain",
        "install nvcc and a host compiler it accepts, without root",
        "install VERSION",
        (
            "wheels.toolchain",
            "wheels.toolchain_env",
            "wheels.toolchain_fetch",
            "wheels.toolchain_list",
            "wheels.toolchain_remove",
            "wheels.toolchain_verify",
        ),
        ("toolchain.Toolchain",),
        "toolchains.ToolchainRequest",
    ),
    Verb(
        "build",
        "build wheels from source and check them against the plan",
        "SOURCE --for …",
        ("wheels.build", "wheels.build_editable"),
        ("building.answer.Build", "delivery.install_answer.Install"),
        "building.BuildRequest",
    ),
    Verb(
        "repair",
        "make a wheel portable, without NVIDIA's libraries inside",
        "WHEEL",
        ("wheels.repair",),
        ("changes.repair.answer.Repair",),
        "changes.repair.RepairRequest",
    ),
    Verb(
        "verify",
        "prove that a wheel works: install it alone, import it, test it",
        "WHEEL",
        ("wheels.verify", "wheels.verify_fleet", "wheels.verify_pack", "wheels.verify_read"),
        ("proving.outcomes.Verify", "proving.proof.Proof", "proving.on_cluster.Proofs"),
        "proving.VerifyRequest",
    ),
    Verb(
        "publish",
        "make a package index of wheels, or check one that was made",
        "WHEELS --to FOLDER",
        ("delivery.publish", "delivery.publish_check", "delivery.publish_upload"),
        ("delivery.publishing.Publish",),
        "delivery.PublishRequest",
    ),
    Verb(
        "ci",
        "write the workflow that builds, proves and publishes in CI",
        "github --write",
        ("delivery.ci", "delivery.ci_check", "delivery.ci_matrix", "delivery.ci_watch"),
        ("delivery.workflows.writing.Ci",),
        "delivery.CiRequest",
    ),
    Verb(
        "slim",
        "remove the device code that your GPUs never load",
        "TARGET --for …",
        ("wheels.slim", "wheels.slim_commit", "wheels.slim_undo"),
        ("changes.slim.answer.Slim",),
        "changes.slim.SlimRequest",
    ),
    Verb(
        "graft",
        "add architectures to a finished wheel, proven to fit",
        "BASE DONOR… -o OUT",
        ("wheels.graft",),
        ("changes.graft.answer.Graft",),
        "changes.graft.GraftRequest",
    ),
    Verb(
        "trace",
        "see which device code a program loads, and which kernel failed",
        "-- COMMAND",
        ("running.trace", "running.read_trace", "running.save_trace"),
        ("tracing.traced.Traced",),
    ),
    Verb(
        "find",
        "find the wheel that runs on a machine, or why there is none",
        "NAME --on …",
        ("delivery.find",),
        ("delivery.find_answer.Find",),
        "delivery.FindRequest",
    ),
    Verb(
        "install",
        "install the wheel that runs here; put everything back if it fails",
        "NAME",
        ("delivery.install", "delivery.install_undo"),
        ("delivery.install_answer.Install",),
        "delivery.InstallRequest",
    ),
    Verb(
        "catalogue",
        "collect which release of which package has code for which GPU",
        "add NAME --to FOLDER",
        ("delivery.catalogue", "delivery.catalogue_list"),
        ("delivery.cataloguing.Catalogue",),
        "delivery.CatalogueRequest",
    ),
    Verb(
        "record",
        "record every compiler call of a build, and why it failed",
        "-- COMMAND",
        ("running.record",),
        ("building.recording.command.Recorded",),
    ),
    Verb(
        "replay",
        "rerun a recorded compiler call, and find why it fails only there",
        "RECORD:N",
        ("running.replay", "running.replay_diff", "running.replay_list", "running.replay_print"),
        ("building.recording.replays.Replay",),
    ),
    Verb(
        "explain",
        "explain a failure from its log: cause, evidence, fix, ways out",
        "LOG",
        ("reading.explain", "reading.causes"),
        ("diagnosis.answer.Explain",),
    ),
    Verb(
        "cluster",
        "workers for build, check, catalogue and trials on many machines",
        "status ADDRESS",
        (
            "running.cluster",
            "running.cluster_init",
            "running.cluster_scheduler",
            "running.cluster_send",
            "running.cluster_stop",
            "running.cluster_worker",
        ),
        ("clusters.roster.Cluster", "network.cluster_access.Certificates"),
    ),
    Verb(
        "cache",
        "show what is kept on this machine, and remove what is old",
        "[--prune]",
        ("wheels.cache",),
        ("cache.Cache",),
        "toolchains.CacheRequest",
    ),
    Verb(
        "gpus",
        "look up GPUs and their compute capability",
        "[NAME]",
        ("reading.gpus",),
        ("gpus.Gpus",),
    ),
    Verb(
        "toolkits",
        "look up CUDA versions: compilers, architectures, driver",
        "[VERSION]",
        ("reading.toolkits",),
        ("toolkits.Toolkits",),
    ),
)
VERBS = {row.name: row for row in _ROWS}

# What people name beside the verbs, their requests and their answers: module → names.
OTHER_NAMES = {
    "cuwheel.building.recording.shims": ("RecordOptions",),
    "cuwheel.building.request": ("Fit",),
    "cuwheel.building.settings": ("BuildSettings",),
    "cuwheel.clusters.service": ("WorkerOptions",),
    "cuwheel.delivery.request": ("Fallback", "LockFormat"),
    "cuwheel_core.device_code.libraries": ("Library",),
    "cuwheel.errors": (
        "ConfigurationError",
        "MissingExtraError",
        "NetworkError",
        "NewerSchemaError",
        "NoHostCompilerError",
        "NotInstalledError",
        "NotStartedError",
        "ToolError",
        "ToolTimeoutError",
        "UnavailableError",
        "UsageError",
    ),
    "cuwheel_core.errors": (
        "AmbiguousNameError",
        "CuwheelError",
        "FactsError",
        "MalformedError",
        "UnknownNameError",
        "UnreadableError",
        "UnsafeWheelError",
    ),
    "cuwheel_core.facts.arch": ("Arch", "Capability"),
    "cuwheel.machine.fleet": ("Machine", "Machines", "Refinement"),
    "cuwheel.machine.profile": ("MachineProfile",),
    "cuwheel.proving.request": ("FleetRequest", "PackRequest"),
    "cuwheel.support.cause": ("Cause",),
    "cuwheel_core.support.finding": ("Finding",),
    "cuwheel.support.answer": ("Answer",),
    "cuwheel.verdicts.verdict": ("Verdict",),
}


class Family(NamedTuple):
    """A word of the command line whose next word is a command of its own. `commands`: that word → the command."""

    line: str
    takes: str
    commands: dict[str, str]


FAMILIES = {
    "lookup": Family(
        "look up GPUs and their capability, CUDA versions and what they need",
        "gpu [NAME]",
        {"gpu": "gpus", "cuda": "toolkits"},
    ),
    "record": Family(
        VERBS["record"].line,
        "-- COMMAND",
        {"run": "record", "replay": "replay", "diff": "record_diff"},
    ),
}
# As help shows them, of the last section their names alone. A row that is in none is a command of a family.
SECTIONS = {
    "something fails": ("doctor", "explain", "check", "trace"),
    "look inside": ("inspect", "lookup"),
    "make": ("plan", "build", "repair", "slim", "graft", "verify"),
    "ship": ("find", "install", "publish", "ci"),
    "more": ("toolchain", "record", "cluster", "catalogue", "cache"),
}
SHOWN: dict[str, Verb | Family] = {
    name: FAMILIES.get(name) or VERBS[name] for names in SECTIONS.values() for name in names
}


class Word(NamedTuple):
    """A word that stands behind `cuwheel`, and the rows of what it does.

    Of another distribution, the entry point of that name in the group `cuwheel.verbs` is such a value: see
    docs/reference/verbs-of-others.md for what its `package` has. `names`: what people name beside verbs, requests and
    answers, by the module that has it. `table`: `module.Class` of the package, what the table of that name in a
    configuration may say.
    """

    package: str
    shown: Verb | Family
    verbs: tuple[Verb, ...]
    names: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never changed
    table: str = ""

    @property
    def rows(self) -> dict[str, Verb]:
        return {each.name: each for each in self.verbs}

    def module_of_function(self, named: str) -> str:
        return ".".join(filter(None, (self.package, "api", named.rpartition(".")[0])))

    def module_of_answer(self, named: str) -> str:
        place = named.rpartition(".")[0]
        return f"{self.package}.{place}" if "." in place else f"{self.package}.report.{place}"

    def module_of_request(self, named: str) -> str:
        return f"{self.package}.{named.rpartition('.')[0]}.request"

    def public_names(self) -> dict[str, str]:
        """Every name that importing the package gives → the module that has it."""
        found = {name: module for module, names in self.names.items() for name in names}
        for verb in self.verbs:
            found |= {each.rpartition(".")[2]: self.module_of_function(each) for each in verb.functions}
            found |= {each.rpartition(".")[2]: self.module_of_answer(each) for each in verb.answers}
            if verb.request:
                found[verb.request.rpartition(".")[2]] = self.module_of_request(verb.request)
        return found


def own_word(name: str) -> Word:
    """A word of cuwheel itself; its rows are those of all."""
    return Word("cuwheel", SHOWN[name], _ROWS, OTHER_NAMES)


def public_names() -> dict[str, str]:
    """Every name that `import cuwheel` gives → the module that has it."""
    return own_word("check").public_names()


# Words that a distribution of ours brings: the distribution, and the extra of cuwheel that installs it.
OFFERED = {"lab": ("cuwheel-lab", "lab")}
