"""The workflows of the examples, and the action of this repository, are what `cuwheel ci` would write and accept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuwheel import api
from cuwheel.delivery.request import CiRequest
from cuwheel.delivery.workflows import problems
from cuwheel.facts import services

pytestmark = pytest.mark.unit
_ROOT = Path(__file__).parents[4]
_EXAMPLES = sorted(path.parent.name for path in _ROOT.glob("examples/*/pyproject.toml"))


@pytest.mark.parametrize("name", _EXAMPLES)
def test_an_example_has_its_workflow(name: str) -> None:
    """Written anew by `cuwheel ci github --write` where this fails."""
    answer = api.ci_check(CiRequest("github", source=_ROOT / "examples" / name))
    assert [each.rule for each in answer.findings if each.severity != "note"] == []
    assert {each.state for each in answer.blocks} == {"same"}


def test_the_action_has_no_expression_in_a_script_and_uses_all_its_inputs() -> None:
    text = (_ROOT / "action.yml").read_text()
    action = problems.load_yaml(text, "action.yml")
    assert list(problems.expressions_in_scripts({"jobs": {"action": action["runs"]}})) == []
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == action["inputs"].keys()
    steps = {each["id"] for each in action["runs"]["steps"] if "id" in each}
    assert set(re.findall(r"steps\.([a-z-]+)\.", text)) == steps


@pytest.mark.parametrize("file", sorted((_ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_the_workflows_of_this_repository_are_sound(file: Path) -> None:
    """What `cuwheel ci --check` would find in them; their actions are those that are known."""
    workflow = problems.load_yaml(file.read_text(), file.name)
    assert list(problems.wrong_references(workflow, ())) == []
    assert list(problems.expressions_in_scripts(workflow)) == []
    used = {step["uses"] for job in workflow["jobs"].values() for step in problems.steps(job) if "uses" in step}
    assert used <= {f"{each.name}@{each.commit}" for each in services.workflow_actions().values()}
