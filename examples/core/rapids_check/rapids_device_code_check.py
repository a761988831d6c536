"""A check for `rapids doctor`: do RAPIDS' own libraries have device code for the GPUs of this machine?"""

import sysconfig
from pathlib import Path

import cuwheel_core

PACKAGES = ("libcudf", "libcuml", "libraft", "librmm", "libcugraph", "libcuvs", "cudf", "cuml", "cupy")


def device_code_check(verbose=False, **_kwargs):
    """RAPIDS' libraries have code for these GPUs."""
    from rapids_cli.providers import get_gpu_info

    info = get_gpu_info()
    capabilities = sorted({f"{major}.{minor}" for major, minor in (each.compute_capability for each in info.devices)})
    site = Path(sysconfig.get_paths()["purelib"])
    failing = []
    for folder in (site / name for name in PACKAGES if (site / name).is_dir()):
        for library in cuwheel_core.read_package(folder).libraries:
            for capability in capabilities if library.device_code else ():
                told = cuwheel_core.outcome(library, cuwheel_core.device(capability, driver=info.driver_version))
                if told.outcome == "fails":
                    error = told.predicted_error.name if told.predicted_error else "not known"
                    failing.append(f"{folder.name}/{library.path} on {capability}: {error}")
    if failing:
        raise ValueError("no device code that runs: " + "; ".join(failing))
    return f"device code fits {', '.join(capabilities)}" if verbose else True
