"""Which of a cause's fixes are told: those for this situation, that run there, the most specific first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.diagnosis.causes import placeholders
from cuwheel.diagnosis.conditions import CONDITIONS
from cuwheel.diagnosis.known import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.diagnosis.known import Known
    from cuwheel.diagnosis.rows import Fix
    from cuwheel.diagnosis.search import Search

# Programs, files and variables that Windows has not, cuwheel's own verbs that do not run there among them.
_NOT_ON_WINDOWS = re.compile(
    r"\b(?:apt|apt-get|dnf|yum|sudo|ldconfig|ldd|chmod|chown|usermod|modprobe|nvidia-modprobe|systemctl|dkms|dmesg|lsmod"
    r"|rmmod|nvidia-ctk|update-alternatives|auditwheel|patchelf|objdump|readelf|strace|gcc|g\+\+|glibc|libstdc\+\+)\b"
    r"|`(?:export|unset|which|ls|env|df|free|source|find|grep|ln|rm|ulimit) |`ls`|\bLD_(?:LIBRARY_PATH|PRELOAD)\b"
    r"|\.bashrc|\$(?:CUDA_HOME|PATH|CONDA_PREFIX|HOME)|(?<![\w.:])/(?:usr|etc|opt|lib|lib64|dev|proc|sys|tmp|var)\b|\.so\b"
    r"|\bcuwheel (?:toolchain|build|repair|slim|verify)\b|\b(?:NVCC_CCBIN|CUDAHOSTCXX)\b"
)


def runs_on_windows(text: str) -> bool:
    return not _NOT_ON_WINDOWS.search(text)


def fixes(rows: tuple[Fix, ...], filled: dict[str, str], known: Known, search: Search) -> Iterator[str]:
    """Those for this situation, the specific ones first; a general one that a specific one says better is last."""
    for fix in sorted((row for row in rows if _fits(row, filled, known, search)), key=_order):
        yield fix.text.format_map(filled)


def _order(fix: Fix) -> tuple[bool, bool]:
    """Inside a build its own options come first."""
    return "build" not in fix.when, not (placeholders(fix.text) - ALWAYS or fix.shown)


def _fits(fix: Fix, filled: dict[str, str], known: Known, search: Search) -> bool:
    return (
        known.situations.issuperset(fix.when)
        and not known.situations.intersection(fix.unless)
        and placeholders(fix.text) <= filled.keys()
        and not (fix.unless_known and filled.keys() >= set(fix.unless_known))
        and all(CONDITIONS[name](known) for name in fix.holds)
        and (not fix.shown or any(map(search.has, fix.shown)))
        and ("windows" not in known.situations or runs_on_windows(fix.text))
    )
