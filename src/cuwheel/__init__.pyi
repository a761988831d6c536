# Written by ./run docs.

from cuwheel.api.delivery import catalogue as catalogue
from cuwheel.api.delivery import catalogue_list as catalogue_list
from cuwheel.api.delivery import ci as ci
from cuwheel.api.delivery import ci_check as ci_check
from cuwheel.api.delivery import ci_matrix as ci_matrix
from cuwheel.api.delivery import ci_watch as ci_watch
from cuwheel.api.delivery import find as find
from cuwheel.api.delivery import install as install
from cuwheel.api.delivery import install_undo as install_undo
from cuwheel.api.delivery import publish as publish
from cuwheel.api.delivery import publish_check as publish_check
from cuwheel.api.delivery import publish_upload as publish_upload
from cuwheel.api.reading import causes as causes
from cuwheel.api.reading import check as check
from cuwheel.api.reading import compare as compare
from cuwheel.api.reading import doctor as doctor
from cuwheel.api.reading import explain as explain
from cuwheel.api.reading import gpus as gpus
from cuwheel.api.reading import inspect as inspect
from cuwheel.api.reading import kernels as kernels
from cuwheel.api.reading import plan as plan
from cuwheel.api.reading import plan_sizes as plan_sizes
from cuwheel.api.reading import read_list as read_list
from cuwheel.api.reading import toolkits as toolkits
from cuwheel.api.running import cluster as cluster
from cuwheel.api.running import cluster_init as cluster_init
from cuwheel.api.running import cluster_scheduler as cluster_scheduler
from cuwheel.api.running import cluster_send as cluster_send
from cuwheel.api.running import cluster_stop as cluster_stop
from cuwheel.api.running import cluster_worker as cluster_worker
from cuwheel.api.running import read_trace as read_trace
from cuwheel.api.running import record as record
from cuwheel.api.running import replay as replay
from cuwheel.api.running import replay_diff as replay_diff
from cuwheel.api.running import replay_list as replay_list
from cuwheel.api.running import replay_print as replay_print
from cuwheel.api.running import save_trace as save_trace
from cuwheel.api.running import trace as trace
from cuwheel.api.wheels import build as build
from cuwheel.api.wheels import build_editable as build_editable
from cuwheel.api.wheels import cache as cache
from cuwheel.api.wheels import graft as graft
from cuwheel.api.wheels import repair as repair
from cuwheel.api.wheels import slim as slim
from cuwheel.api.wheels import slim_commit as slim_commit
from cuwheel.api.wheels import slim_undo as slim_undo
from cuwheel.api.wheels import toolchain as toolchain
from cuwheel.api.wheels import toolchain_env as toolchain_env
from cuwheel.api.wheels import toolchain_fetch as toolchain_fetch
from cuwheel.api.wheels import toolchain_list as toolchain_list
from cuwheel.api.wheels import toolchain_remove as toolchain_remove
from cuwheel.api.wheels import toolchain_verify as toolchain_verify
from cuwheel.api.wheels import verify as verify
from cuwheel.api.wheels import verify_fleet as verify_fleet
from cuwheel.api.wheels import verify_pack as verify_pack
from cuwheel.api.wheels import verify_read as verify_read
from cuwheel.building.answer import Build as Build
from cuwheel.building.recording.command import Recorded as Recorded
from cuwheel.building.recording.replays import Replay as Replay
from cuwheel.building.recording.shims import RecordOptions as RecordOptions
from cuwheel.building.request import BuildRequest as BuildRequest
from cuwheel.building.request import Fit as Fit
from cuwheel.building.settings import BuildSettings as BuildSettings
from cuwheel.changes.graft.answer import Graft as Graft
from cuwheel.changes.graft.request import GraftRequest as GraftRequest
from cuwheel.changes.repair.answer import Repair as Repair
from cuwheel.changes.repair.request import RepairRequest as RepairRequest
from cuwheel.changes.slim.answer import Slim as Slim
from cuwheel.changes.slim.request import SlimRequest as SlimRequest
from cuwheel.clusters.roster import Cluster as Cluster
from cuwheel.clusters.service import WorkerOptions as WorkerOptions
from cuwheel.delivery.cataloguing import Catalogue as Catalogue
from cuwheel.delivery.find_answer import Find as Find
from cuwheel.delivery.install_answer import Install as Install
from cuwheel.delivery.publishing import Publish as Publish
from cuwheel.delivery.request import CatalogueRequest as CatalogueRequest
from cuwheel.delivery.request import CiRequest as CiRequest
from cuwheel.delivery.request import Fallback as Fallback
from cuwheel.delivery.request import FindRequest as FindRequest
from cuwheel.delivery.request import InstallRequest as InstallRequest
from cuwheel.delivery.request import LockFormat as LockFormat
from cuwheel.delivery.request import PublishRequest as PublishRequest
from cuwheel.delivery.workflows.writing import Ci as Ci
from cuwheel.device_code.compare import Compare as Compare
from cuwheel.device_code.kernels import Kernels as Kernels
from cuwheel.diagnosis.answer import Explain as Explain
from cuwheel.errors import ConfigurationError as ConfigurationError
from cuwheel.errors import MissingExtraError as MissingExtraError
from cuwheel.errors import NetworkError as NetworkError
from cuwheel.errors import NewerSchemaError as NewerSchemaError
from cuwheel.errors import NoHostCompilerError as NoHostCompilerError
from cuwheel.errors import NotInstalledError as NotInstalledError
from cuwheel.errors import NotStartedError as NotStartedError
from cuwheel.errors import ToolError as ToolError
from cuwheel.errors import ToolTimeoutError as ToolTimeoutError
from cuwheel.errors import UnavailableError as UnavailableError
from cuwheel.errors import UsageError as UsageError
from cuwheel.machine.fleet import Machine as Machine
from cuwheel.machine.fleet import Machines as Machines
from cuwheel.machine.fleet import Refinement as Refinement
from cuwheel.machine.profile import MachineProfile as MachineProfile
from cuwheel.network.cluster_access import Certificates as Certificates
from cuwheel.proving.on_cluster import Proofs as Proofs
from cuwheel.proving.outcomes import Verify as Verify
from cuwheel.proving.proof import Proof as Proof
from cuwheel.proving.request import FleetRequest as FleetRequest
from cuwheel.proving.request import PackRequest as PackRequest
from cuwheel.proving.request import VerifyRequest as VerifyRequest
from cuwheel.report.cache import Cache as Cache
from cuwheel.report.gpus import Gpus as Gpus
from cuwheel.report.inspect import Inspect as Inspect
from cuwheel.report.toolchain import Toolchain as Toolchain
from cuwheel.report.toolkits import Toolkits as Toolkits
from cuwheel.support.answer import Answer as Answer
from cuwheel.support.cause import Cause as Cause
from cuwheel.toolchains.request import CacheRequest as CacheRequest
from cuwheel.toolchains.request import ToolchainRequest as ToolchainRequest
from cuwheel.tracing.traced import Traced as Traced
from cuwheel.verdicts.examination import Doctor as Doctor
from cuwheel.verdicts.planning.plan import Plan as Plan
from cuwheel.verdicts.verdict import Check as Check
from cuwheel.verdicts.verdict import Verdict as Verdict
from cuwheel.version import __version__ as __version__
from cuwheel_core.device_code.libraries import Library as Library
from cuwheel_core.errors import AmbiguousNameError as AmbiguousNameError
from cuwheel_core.errors import CuwheelError as CuwheelError
from cuwheel_core.errors import FactsError as FactsError
from cuwheel_core.errors import MalformedError as MalformedError
from cuwheel_core.errors import UnknownNameError as UnknownNameError
from cuwheel_core.errors import UnreadableError as UnreadableError
from cuwheel_core.errors import UnsafeWheelError as UnsafeWheelError
from cuwheel_core.facts.arch import Arch as Arch
from cuwheel_core.facts.arch import Capability as Capability
from cuwheel_core.support.finding import Finding as Finding

__all__ = [
    "AmbiguousNameError",
    "Answer",
    "Arch",
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
    "Machines",
    "MalformedError",
    "MissingExtraError",
    "NetworkError",
    "NewerSchemaError",
    "NoHostCompilerError",
    "NotInstalledError",
    "NotStartedError",
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
    "Slim",
    "SlimRequest",
    "ToolError",
    "ToolTimeoutError",
    "Toolchain",
    "ToolchainRequest",
    "Toolkits",
    "Traced",
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
    "verify",
    "verify_fleet",
    "verify_pack",
    "verify_read",
]
