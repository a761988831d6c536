"""Gives device code of a wheel to this machine's driver, piece by piece, and compares its answers with the "
"predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from .compare import PROBE
from .install import Place, destination

_TIMEOUT_S = 600.0
_FEW = 3
_LONGEST_OUTPUT = 400
_ASK = """\
import ctypes, json, os
pieces = json.loads(PIECES)
cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
for step in (lambda: cuda.cuInit(0), lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
             lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
             lambda: cuda.cuCtxSetCurrent(context)):
    status = step()
    if status:
        raise SystemExit("the driver gives error %d before anything is loaded" % status)
for index, (path, offset, size) in enumerate(pieces):
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(size)
    image = ctypes.create_string_buffer(data + bytes(64), size + 64)
    module = ctypes.c_void_p()
    status = cuda.cuModuleLoadData(ctypes.byref(module), image)
    print("piece %d %d" % (index, status), flush=True)
    if status == 0:
        cuda.cuModuleUnload(module)
"""
_ANSWER = re.compile(r"^piece (\d+) (\d+)$", re.MULTILINE)


def check(wheel: Mapping[str, Any], place: Place) -> Optional[dict[str, Any]]:
    """A check as the runner takes it; None where there is no device code to load."""
    pieces = [[str(destination(each["path"], place)[0]), each["offset"], each["size"]] for each in wheel["probes"]]
    if not pieces:
        return None
    return {
        "name": PROBE,
        "kind": "python",
        "text": f"PIECES = {json.dumps(pieces)!r}\n{_ASK}",
        "gpu": True,
        "timeout": _TIMEOUT_S,
        # Lazily, PTX would be compiled when a kernel is asked for, and no error seen before.
        "environment": {"CUDA_MODULE_LOADING": "EAGER"},
    }


def judged(
    result: Mapping[str, Any], wheel: Mapping[str, Any], capability: str, driver: Optional[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result in the form of a check, and what was learnt: how many answers were predicted, and which contradict.

    It passes if the driver answers as predicted, even with an error: the prediction says whether that is enough.
    """
    codes = {int(index): int(code) for index, code in _ANSWER.findall(result["output"])}
    learnt: dict[str, Any] = {"loaded": 0, "refused": 0, "compared": 0, "against": []}
    refused: dict[int, list[str]] = {}
    for index, probe in enumerate(wheel["probes"]):
        code = codes.get(index)
        if code is None:
            continue
        learnt["refused" if code else "loaded"] += 1
        if code:
            refused.setdefault(code, []).append(probe["path"])
        expected = _expected(wheel["answers"][probe["answers"]], capability, driver)
        learnt["compared"] += expected is not None
        if expected is not None and expected != code:
            message = f"the prediction was {_word(expected)}, but the driver gives {_word(code)}"
            words = f"{probe['path']} ({probe['holds']}): {message}"
            learnt["against"] += [] if words in learnt["against"] else [words]
    found = dict(result)
    if result["outcome"] == "passed":
        output = _output(learnt, refused)
        found.update(output=output, output_bytes=len(output))
        if learnt["against"]:
            found.update(outcome="failed", problem="; ".join(learnt["against"][:_FEW])[:_LONGEST_OUTPUT])
    return found, learnt


def _output(learnt: Mapping[str, Any], refused: Mapping[int, Sequence[str]]) -> str:
    total = learnt["loaded"] + learnt["refused"]
    lines = [f"{learnt['loaded']} of {total} pieces of device code loaded"]
    for code, paths in sorted(refused.items()):
        lines.append(f"error {code} for {len(paths)} of {', '.join(list(dict.fromkeys(paths))[:_FEW])}")
    return "\n".join(lines)


def _word(code: int) -> str:
    return f"error {code}" if code else "no error"


def _expected(answers: Sequence[Mapping[str, Any]], capability: str, driver: Optional[str]) -> Optional[int]:
    for each in answers:
        if each["capability"] == capability and driver:
            fitting = [step["code"] for step in each["steps"] if _key(step["driver"]) <= _key(driver)]
            return fitting[-1] if fitting else None
    return None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version))
