"""What was predicted for this machine against what became of the checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

PROBE = "device code"
RUNS = ("native", "compatible", "jit")
_GUARD = "_cuwheel_guard.py"
_JIT_SWITCHES = ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT")


def prediction(
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
    seen = {each["name"]: _error(each, signs) for each in ran if each["outcome"] != "passed"}
    passed = [each["name"] for each in ran if each["outcome"] == "passed"]
    if predicted["outcome"] in RUNS:
        return _predicted_to_run(predicted, seen, passed)
    if predicted["outcome"] == "fails" and all(_GUARD in str(each.get("output", "")) for each in ran):
        # It goes by the same foresight: what it says proves nothing of the hardware.
        return "untried", "predicted to fail, and the guard of the package refused the import"
    if predicted["outcome"] == "fails":
        return _predicted_to_fail(predicted, seen, passed)
    open_end = f"the prediction was {predicted['outcome']}, which fits any outcome of these checks"
    return ("untried" if predicted["outcome"] == "partial" else "open"), open_end


def _predicted_to_run(
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


def _predicted_to_fail(
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


def _error(result: Mapping[str, Any], signs: Mapping[str, Sequence[str]]) -> Optional[str]:
    """The code of the CUDA error about device code that its output names."""
    output = str(result.get("output", "")) + str(result.get("problem", ""))
    for code, texts in signs.items():
        if any(text in output for text in texts):
            return code
    return None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version))
