"""The compute capabilities of the GPUs that a program started now would see, asked of the driver in another process."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Mapping

from . import child
from .capture import Capture

_ASK = """\
import ctypes, os
cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
count, number = ctypes.c_int(), ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for index in range(count.value):
        device, parts = ctypes.c_int(), []
        if cuda.cuDeviceGet(ctypes.byref(device), index) == 0:
            for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
                cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
                parts.append(str(number.value))
            print("capability " + ".".join(parts))
"""
_ANSWER = re.compile(r"^capability (\d+\.\d+)$", re.MULTILINE)
_LIMITS = child.Limits(seconds=60.0, memory=4 << 30, guarded=False)


def seen(python: str, environ: Mapping[str, str], *, cut: bool = False) -> tuple[str, ...]:
    """One for each GPU, such as `9.0`. None at all where there is no driver, or it does not answer."""
    capture = Capture(())
    with tempfile.TemporaryDirectory() as folder:
        end = child.run(
            [python, "-c", _ASK], environ, folder, _LIMITS._replace(cut=cut), capture, secrets.token_hex(16)
        )
    return tuple(_ANSWER.findall(capture.whole.text())) if end.status == 0 else ()
