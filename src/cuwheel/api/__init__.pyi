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

__all__ = [
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
