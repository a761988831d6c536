# Written by ./run docs.

from cuwheel_lab.api import bench as bench
from cuwheel_lab.api import matrix as matrix
from cuwheel_lab.api import trials as trials
from cuwheel_lab.api import trials_bisect as trials_bisect
from cuwheel_lab.api import trials_report as trials_report
from cuwheel_lab.api import trials_service as trials_service
from cuwheel_lab.measuring.analysis import Trials as Trials
from cuwheel_lab.measuring.bench import Bench as Bench
from cuwheel_lab.measuring.bisection import Bisection as Bisection
from cuwheel_lab.measuring.bisection import Odds as Odds
from cuwheel_lab.measuring.bisection import Span as Span
from cuwheel_lab.measuring.matrix import Matrix as Matrix
from cuwheel_lab.measuring.request import BenchRequest as BenchRequest
from cuwheel_lab.measuring.service import ServiceChange as ServiceChange
from cuwheel_lab.version import __version__ as __version__

__all__ = [
    "Bench",
    "BenchRequest",
    "Bisection",
    "Matrix",
    "Odds",
    "ServiceChange",
    "Span",
    "Trials",
    "__version__",
    "bench",
    "matrix",
    "trials",
    "trials_bisect",
    "trials_report",
    "trials_service",
]
