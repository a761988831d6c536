"""The variables that a check sees: its own home, and of the caller's what is let through by name."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

# What would lead a check out of its environment, or change what Python does in it: -O takes its asserts away.
_LED_ASTRAY = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONOPTIMIZE",
    "PYTHONINSPECT",
    "__PYVENV_LAUNCHER__",
)
# Settings for text, time, processors and GPUs: every check needs them, and none is private.
LET_THROUGH = (
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "NO_COLOR", "CUWHEEL_CHECK"),
    *("LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "CUDNN_*", "CUBLAS_*", "CUPY_*", "BNB_*"),
    *("JAX_*", "XLA_*", "TF_*", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*"),
    *("OMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "BLIS_*"),
)
_SYSTEM = importlib.import_module(f"{__package__.partition('.')[0]}.support.system_calls")  # of cuwheel, or of the kit
_NOBODY = "cuwheel"  # some packages ask for the user's name and fail without one


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _LED_ASTRAY}


def clean(
    environ: Mapping[str, str],
    folder: Path,
    scratch: Path,
    *,
    passed: Iterable[str] = (),
    is_secret: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """`folder`: of the environment. `scratch`: where its home and its temporary files are. `passed`: more names.

    LD_LIBRARY_PATH is kept: the driver may lie there. `is_secret`: names that go through only if they are asked for.
    """
    home, temporary = scratch / "home", scratch / "tmp"
    for each in (home, temporary):
        each.mkdir(parents=True, exist_ok=True)
    wanted = set(passed)
    through = (*LET_THROUGH, *_SYSTEM.NEEDED_VARIABLES)
    let = {
        name: value
        for name, value in plain(environ).items()
        if name in wanted or (any(fnmatchcase(name, each) for each in through) and not is_secret(name))
    }
    # An empty entry of PATH would mean the current folder.
    path = [str(folder / ("Scripts" if os.name == "nt" else "bin")), *filter(None, [environ.get("PATH", os.defpath)])]
    own = {
        **_SYSTEM.home_variables(home, temporary),
        **dict.fromkeys(("USER", "USERNAME") if os.name == "nt" else ("USER",), _NOBODY),
        "LOGNAME": _NOBODY,
        "PATH": os.pathsep.join(path),
        "VIRTUAL_ENV": str(folder),
        "PYTHONNOUSERSITE": "1",
    }
    return {**own, **let}
