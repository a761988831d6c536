"""What this machine is, as far as a proof must say it. Nothing that names its owner, and no serial numbers."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from cuwheel_core.wheel.tags import processor_name

from ..runner import checks

# What the environment's own packages say, without importing them.
_FRAMEWORKS = """\
import importlib.metadata, importlib.util, json, os, re
found, spec = {}, None
try:
    spec = importlib.util.find_spec("torch")
except Exception:
    pass
if spec and spec.submodule_search_locations:
    try:
        with open(os.path.join(list(spec.submodule_search_locations)[0], "version.py")) as file:
            text = file.read(65536)
        version = re.search(r"__version__\\s*(?::[^=]*)?=\\s*['\\"]([^'\\"]+)", text)
        cuda = re.search(r"^cuda\\s*(?::[^=]*)?=\\s*['\\"]([0-9.]+)", text, re.M)
        found["torch"] = [version and version.group(1), cuda and cuda.group(1)]
    except OSError:
        pass
there = {}
for each in importlib.metadata.distributions():
    there[(each.metadata["Name"] or "").lower()] = each.version
plugin = [re.match("jax[-_.]+cuda([0-9]+)[-_.]+(plugin|pjrt)$", name) for name in there]
if "jax" in there:
    found["jax"] = [there["jax"], next((match.group(1) for match in plugin if match), None)]
print("cuwheel " + json.dumps(found))
"""
_SMI = ("--query-gpu=driver_version,name,compute_cap", "--format=csv,noheader")
_SMI_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin")
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "BNB_CUDA_VERSION")


def machine_profile(environ: Mapping[str, str]) -> dict[str, Any]:
    asked = checks.ask(checks.ASK_DRIVER, sys.executable, environ)
    smi = _smi(environ)
    libc = glibc()
    return {
        "os": platform.system(),
        "distribution": _distribution(),
        "kernel": platform.version() if os.name == "nt" else platform.release(),
        "cpu": cpu_name(),
        "glibc": f"{libc[0]}.{libc[1]}" if libc > (0, 0) else None,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "driver": smi[0][0] if smi else _kernel_module(),
        "driver_cuda": asked.get("cuda"),
        "driver_status": asked.get("status"),
        "gpus": asked.get("gpus") or [],
        "smi_gpus": [f"{name} ({capability})" for _, name, capability in smi],
        "variables": {name: environ[name] for name in _VARIABLES if name in environ},
    }


def frameworks_of(python: str, environ: Mapping[str, str], *, cut: bool = False) -> dict[str, list[Optional[str]]]:
    """Name → version and CUDA of the frameworks that an environment has."""
    return checks.ask(_FRAMEWORKS, python, environ, cut=cut)


def _smi(environ: Mapping[str, str]) -> list[list[str]]:
    """Driver, name and capability of each GPU, as nvidia-smi tells them."""
    path = os.pathsep.join([environ.get("PATH", ""), *_SMI_FOLDERS])
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return []
    rows = [
        [each.strip() for each in line.split(",")] for line in checks.printed([program, *_SMI], environ).splitlines()
    ]
    return [row for row in rows if len(row) == 3]  # noqa: PLR2004 - as many as were asked for


def _kernel_module() -> Optional[str]:
    for word in _read("/proc/driver/nvidia/version").split():
        if word.count(".") in (1, 2) and word.replace(".", "").isdigit():
            return word
    return None


def _distribution() -> str:
    if os.name == "nt":
        return f"Windows {platform.release()}"
    for line in _read("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip('"')
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_name() -> str:
    return processor_name(platform.machine())


def glibc() -> tuple[int, int]:
    """(0, 0) where the C library is another one."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        major, minor = version.split(".")[:2]
    except (AttributeError, OSError, ValueError):
        return (0, 0)
    return (int(major), int(minor)) if name == "glibc" else (0, 0)
