"""Published wheels: what `inspect` says of each library is what `check` says of it, GPU by GPU."""

from __future__ import annotations

import pytest

from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import judge
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts import predict
from tests.oracle import packages

pytestmark = pytest.mark.download


@pytest.mark.parametrize("package", packages.published(), ids=str)
def test_inspect_and_check_agree(package: packages.Published) -> None:
    found = survey(packages.wheel(package), detail="containers")
    known = [str(each) for each in gpus.current_capabilities()]
    verdicts = judge.judge_all(found, [Machine(name=each, capability=Capability.parse(each)) for each in known])
    judged = {
        (each.path, verdict.machine): each.outcome.replace("compatible", "native")
        for verdict in verdicts
        for each in verdict.libraries
    }
    problems, compared = [], 0
    for library in found.libraries:
        covered = predict.coverage_of(library)
        for device in known if covered else ():
            says = [name for name in ("native", "jit", "partial") if device in getattr(covered, name)] or ["fails"]
            if (library.path, device) not in judged:
                continue  # not loaded on such a machine: another of the package's libraries is
            compared += 1
            if [judged[library.path, device]] != says:
                problems.append(f"{library.path} on {device}: inspect {says[0]}, check {judged[library.path, device]}")
    assert problems == []
    assert compared > 0, "nothing was compared"
