"""What was predicted for this machine against what its driver answers to device code, and what became of the checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from .install import Place, destination

PROBE = "device code"
RUNS = ("native", "compatible", "jit")
_GUARD = "_cuwheel_guard.py"
_JIT_SWITCHES = ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT")


def prediction_here(
    wheel: Mapping[str, Any], machine: Mapping[str, Any], frameworks: Mapping[str, Sequence[Optional[str]]]
) -> Optional[dict[str, Any]]:
    """The row for the GPU that programs use unless they are told otherwise; None where nothing was predicted."""
    gpus = machine.get("gpus") or []
    if not gpus or wheel["override"] in machine["variables"]:
        return None
    capability = gpus[0]["capability"]
    rows = [each for each in wheel["rows"] if each["capability"] == capability]
    if not rows and _key(capability) > max((_key(each["capability"]) for each in wheel["rows"]), default=()):
        rows = wheel["newer_gpus"]
    framework = wheel["follows"]
    cuda = (frameworks.get(framework) or (None, None))[1] if framework else None
    group = wheel["groups"].get(".".join(cuda.split(".")[:2])) if cuda else None
    rows = [each for each in rows if each["group"] == group]
    driver = machine.get("driver_cuda")
    fitting = [step for row in rows for step in row["steps"] if not driver or _key(step["driver"]) <= _key(driver)]
    if not fitting:
        return None
    found = dict(fitting[-1])
    del found["driver"]
    found.update(capability=capability, driver_cuda=driver, follows=framework, framework_cuda=cuda)
    return found


def agreement(
    predicted: Optional[Mapping[str, Any]],
    results: Iterable[Mapping[str, Any]],
    probed: Mapping[str, Any],
    signs: Mapping[str, Sequence[str]],
    variables: Mapping[str, str],
) -> tuple[str, str]:
    """`agreed`, `contradicted`, `open` (no check could tell) or `none` (nothing was predicted), and why.

    `probed`: what the driver answered to the pieces of device code, which is the finest evidence.
    """
    if predicted is None:
        return "none", "nothing was predicted for this machine"
    switched = [name for name in _JIT_SWITCHES if variables.get(name, "0") not in ("", "0")]
    if switched:
        return "open", f"{switched[0]} is set here, which the prediction did not consider"
    if probed["against"]:
        more = f" (and {len(probed['against']) - 1} more)" if len(probed["against"]) > 1 else ""
        return "contradicted", probed["against"][0] + more
    count = probed["compared"]
    pieces = f"the driver answers as predicted to {count} piece{'s' if count != 1 else ''} of device code"
    agreement, why = _by_checks(predicted, results, signs)
    if agreement == "untried":
        return ("agreed", f"{pieces}; {why}") if probed["compared"] else ("open", why)
    return agreement, f"{why}; {pieces}" if probed["compared"] else why


def _by_checks(
    predicted: Mapping[str, Any], results: Iterable[Mapping[str, Any]], signs: Mapping[str, Sequence[str]]
) -> tuple[str, str]:
    ran = [each for each in results if each.get("gpu") and each["outcome"] != "skipped" and each["name"] != PROBE]
    if not ran:
        return "untried", f"the prediction was {predicted['outcome']}, but no other check used the GPU"
    seen = {each["name"]: _named_error(each, signs) for each in ran if each["outcome"] != "passed"}
    passed = [each["name"] for each in ran if each["outcome"] == "passed"]
    if predicted["outcome"] in RUNS:
        return _agreement_if_running(predicted, seen, passed)
    if predicted["outcome"] == "fails" and all(_GUARD in str(each.get("output", "")) for each in ran):
        # It goes by the same foresight: what it says proves nothing of the hardware.
        return "untried", "predicted to fail, and the guard of the package refused the import"
    if predicted["outcome"] == "fails":
        return _agreement_if_failing(predicted, seen, passed)
    open_end = f"the prediction was {predicted['outcome']}, which fits any outcome of these checks"
    return ("untried" if predicted["outcome"] == "partial" else "open"), open_end


def _agreement_if_running(
    predicted: Mapping[str, Any], seen: Mapping[str, Optional[str]], passed: Sequence[str]
) -> tuple[str, str]:
    words = f"predicted to run ({predicted['outcome']})"
    refused = {name: code for name, code in seen.items() if code}
    if refused:
        name, code = next(iter(refused.items()))
        return "contradicted", f"{words}, but {name} hit CUDA error {code}"
    if seen:
        return "open", f"{words}; {', '.join(seen)} did not pass, for another reason than the device code"
    return "agreed", f"{words}, and {len(passed)} check{'s' if len(passed) > 1 else ''} on the GPU passed"


def _agreement_if_failing(
    predicted: Mapping[str, Any], seen: Mapping[str, Optional[str]], passed: Sequence[str]
) -> tuple[str, str]:
    error = predicted.get("error") or {}
    words = f"predicted to fail{' with ' + error['name'] if error else ''}"
    if passed:
        return "contradicted", f"{words}, but {', '.join(passed)} passed on the GPU"
    codes = {code for code in seen.values() if code}
    if error and codes and str(error["code"]) not in codes:
        return "contradicted", f"{words}, and it failed with CUDA error {', '.join(sorted(codes))}"
    if codes or not error:
        return "agreed", f"{words}, and {', '.join(seen)} failed that way"
    return "open", f"{words}; {', '.join(seen)} failed without naming a CUDA error"


def _named_error(result: Mapping[str, Any], signs: Mapping[str, Sequence[str]]) -> Optional[str]:
    """The code of the CUDA error about device code that its output names."""
    output = str(result.get("output", "")) + str(result.get("problem", ""))
    for code, texts in signs.items():
        if any(text in output for text in texts):
            return code
    return None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version))


# Device code of a wheel given to this machine's driver, piece by piece.

_PROBES_S = 600.0
_FEW = 3
_LONGEST_OUTPUT = 400
_LOAD_PIECES = """\
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


def probe_check(wheel: Mapping[str, Any], place: Place) -> Optional[dict[str, Any]]:
    """A check as the runner takes it; None where there is no device code to load."""
    pieces = [[str(destination(each["path"], place)[0]), each["offset"], each["size"]] for each in wheel["probes"]]
    if not pieces:
        return None
    return {
        "name": PROBE,
        "kind": "python",
        "text": f"PIECES = {json.dumps(pieces)!r}\n{_LOAD_PIECES}",
        "gpu": True,
        "timeout": _PROBES_S,
        # Lazily, PTX would be compiled when a kernel is asked for, and no error seen before.
        "environment": {"CUDA_MODULE_LOADING": "EAGER"},
    }


def judge_probes(
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
        expected = _expected_code(wheel["answers"][probe["answers"]], capability, driver)
        learnt["compared"] += expected is not None
        if expected is not None and expected != code:
            message = f"the prediction was {_error_in_words(expected)}, but the driver gives {_error_in_words(code)}"
            words = f"{probe['path']} ({probe['holds']}): {message}"
            learnt["against"] += [] if words in learnt["against"] else [words]
    found = dict(result)
    if result["outcome"] == "passed":
        output = _probe_output(learnt, refused)
        found.update(output=output, output_bytes=len(output))
        if learnt["against"]:
            found.update(outcome="failed", problem="; ".join(learnt["against"][:_FEW])[:_LONGEST_OUTPUT])
    return found, learnt


def _probe_output(learnt: Mapping[str, Any], refused: Mapping[int, Sequence[str]]) -> str:
    total = learnt["loaded"] + learnt["refused"]
    lines = [f"{learnt['loaded']} of {total} pieces of device code loaded"]
    for code, paths in sorted(refused.items()):
        lines.append(f"error {code} for {len(paths)} of {', '.join(list(dict.fromkeys(paths))[:_FEW])}")
    return "\n".join(lines)


def _error_in_words(code: int) -> str:
    return f"error {code}" if code else "no error"


def _expected_code(answers: Sequence[Mapping[str, Any]], capability: str, driver: Optional[str]) -> Optional[int]:
    for each in answers:
        if each["capability"] == capability and driver:
            fitting = [step["code"] for step in each["steps"] if _key(step["driver"]) <= _key(driver)]
            return fitting[-1] if fitting else None
    return None
