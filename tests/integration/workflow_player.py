"""Plays the runner: the jobs of a written workflow in order, its matrix expanded, every `run:` step really run.

Stood in for: fetching the source (a copy), setting up Python (the one that runs the tests), caches (nothing is kept),
artefacts (folders), Pages (a folder that is served), attestations (noted). Runners' labels are not looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([A-Za-z_][\w.-]*)|(==|!=|&&|\|\||[!()*,])|(\d+))")
_TIMEOUT_S = 900


class Expression:
    """What GitHub's expressions stand for, as far as the workflows use them."""

    def __init__(self, text: str, contexts: Mapping[str, Any]) -> None:
        self._tokens: list[str] = [next(each for each in found if each) for found in _TOKEN.findall(text) if any(found)]
        self._contexts = contexts
        self._at = 0

    def value(self) -> Any:
        found = self._or()
        assert self._at == len(self._tokens), self._tokens[self._at :]
        return found

    def _next(self, *wanted: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at] in wanted:
            self._at += 1
            return self._tokens[self._at - 1]
        return ""

    def _or(self) -> Any:
        found = self._and()
        while self._next("||"):
            other = self._and()
            found = found or other
        return found

    def _and(self) -> Any:
        found = self._equal()
        while self._next("&&"):
            other = self._equal()
            found = found and other
        return found

    def _equal(self) -> Any:
        found = self._one()
        while operator := self._next("==", "!="):
            other = self._one()
            found = (found == other) == (operator == "==")
        return found

    def _one(self) -> Any:
        if self._next("!"):
            return not self._one()
        if self._next("("):
            found = self._or()
            assert self._next(")")
            return found
        token = self._tokens[self._at]
        self._at += 1
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self._next("("):
            given = []
            while not self._next(")"):
                given.append(self._or())
                self._next(",")
            return self._call(token, given)
        value: Any = self._contexts
        for part in token.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        return value

    def _call(self, name: str, given: list[Any]) -> Any:
        known: dict[str, Callable[..., Any]] = {
            "fromJSON": json.loads,
            "always": lambda: True,
            "cancelled": lambda: False,
            "startsWith": lambda text, start: text.startswith(start),
        }
        return known[name](*given)


@dataclass
class Ran:
    """A step that was run."""

    job: str
    step: str
    status: int
    output: str


@dataclass
class Player:
    """`environ`: what the machine has; `github`: of its context, what the event brings."""

    workflow: dict[str, Any]
    repository: Path
    scratch: Path
    environ: Mapping[str, str]
    github: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    pages_url: str = ""
    ran: list[Ran] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def play(self) -> dict[str, str]:
        """How each job ended: `success`, `failure` or `skipped`."""
        jobs: dict[str, Any] = self.workflow["jobs"]
        results: dict[str, str] = {}
        outputs: dict[str, dict[str, str]] = {}
        while len(results) < len(jobs):
            name = next(each for each in jobs if each not in results and set(_needs(jobs[each])) <= results.keys())
            job = jobs[name]
            contexts = self._contexts({each: {"outputs": outputs.get(each, {})} for each in _needs(job)})
            failed = any(results[each] != "success" for each in _needs(job))
            if failed or not self._condition(job.get("if", "always()"), contexts):
                results[name] = "skipped"
                continue
            matrix = (job.get("strategy") or {}).get("matrix") or {"include": [{}]}
            rows = (self._text(matrix, contexts) if isinstance(matrix, str) else matrix)["include"]
            ends = [self._job(name, job, {**contexts, "matrix": row}, outputs) for row in rows]
            results[name] = "success" if all(ends) else "failure"
        return results

    def _contexts(self, needs: dict[str, Any]) -> dict[str, Any]:
        github = {
            "event_name": "workflow_dispatch",
            "ref": "refs/heads/main",
            "ref_type": "branch",
            "ref_name": "main",
            "run_id": "1",
            "repository": "ann/foo",
            "server_url": "https://github.example",
            "token": "none",
            **self.github,
        }
        return {"github": github, "inputs": self.inputs, "needs": needs, "matrix": {}, "steps": {}}

    def _text(self, text: Any, contexts: Mapping[str, Any]) -> Any:
        """With its expressions filled in; one that is the whole text keeps its kind."""
        if not isinstance(text, str):
            return text
        if (whole := _EXPRESSION.fullmatch(text.strip())) and text.count("${{") == 1:
            return Expression(whole[1], contexts).value()
        return _EXPRESSION.sub(lambda found: _written(Expression(found[1], contexts).value()), text)

    def _condition(self, text: object, contexts: Mapping[str, Any]) -> bool:
        bare = str(text).strip().removeprefix("${{").removesuffix("}}")
        return bool(Expression(bare, contexts).value())

    def _job(self, name: str, job: Mapping[str, Any], contexts: dict[str, Any], outputs: dict[str, Any]) -> bool:
        workspace = self.scratch / "work" / f"{name}-{len(list(self.scratch.glob('work/*')))}"
        workspace.mkdir(parents=True)
        contexts = {**contexts, "steps": {}}
        good = True
        for step in job["steps"]:
            if not (good or "always()" in str(step.get("if", ""))):
                continue
            if "if" in step and not self._condition(step["if"], contexts):
                continue
            made: dict[str, str] = {}
            given = {key: self._text(value, contexts) for key, value in (step.get("with") or {}).items()}
            if "uses" in step:
                self._action(step["uses"].split("@")[0], given, workspace, made)
            else:
                good = self._script(name, step, contexts, workspace, made) and good
            if "id" in step:
                contexts["steps"][step["id"]] = {"outputs": made}
        outputs[name] = {key: self._text(value, contexts) for key, value in (job.get("outputs") or {}).items()}
        return good

    def _script(
        self, job: str, step: Mapping[str, Any], contexts: Mapping[str, Any], workspace: Path, made: dict[str, str]
    ) -> bool:
        outputs = workspace.parent.parent / f"outputs-{len(self.ran)}"
        outputs.touch()
        own = {**(self.workflow.get("env") or {}), **(step.get("env") or {})}
        environ = {
            **self.environ,
            **{key: _written(self._text(value, contexts)) for key, value in own.items()},
            **self.overrides,
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_REPOSITORY": contexts["github"]["repository"],
            "RUNNER_ENVIRONMENT": "self-hosted",
        }
        script = outputs.with_suffix(".sh")
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "-e", str(script)],
            cwd=workspace, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        self.ran.append(Ran(job=job, step=step["name"], status=done.returncode, output=done.stdout))
        for line in outputs.read_text().splitlines():
            key, _, value = line.partition("=")
            made[key] = value
        return done.returncode == 0

    def _action(self, name: str, given: Mapping[str, Any], workspace: Path, made: dict[str, str]) -> None:
        self.used.append(name)
        artefacts, pages = self.scratch / "artefacts", self.scratch / "pages"
        stand_ins: dict[str, Callable[[], None]] = {
            "actions/checkout": partial(_checkout, self.repository, given, workspace),
            "actions/upload-artifact": partial(_upload, artefacts, given, workspace),
            "actions/download-artifact": partial(_download, artefacts, given, workspace),
            "actions/configure-pages": lambda: made.update(base_url=self.pages_url),
            "actions/upload-pages-artifact": lambda: _replace(workspace / given["path"], pages),
            "actions/deploy-pages": lambda: made.update(page_url=self.pages_url),
        }
        for each in ("setup-python", "cache/restore", "cache/save", "attest-build-provenance"):
            stand_ins[f"actions/{each}"] = lambda: None
        stand_ins[name]()


def _needs(job: Mapping[str, Any]) -> Sequence[str]:
    needed = job.get("needs") or []
    return [needed] if isinstance(needed, str) else needed


def _written(value: Any) -> str:
    return {True: "true", False: "false", None: ""}.get(value, str(value)) if not isinstance(value, str) else value


def _replace(source: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)


def _checkout(repository: Path, given: Mapping[str, Any], workspace: Path) -> None:
    shutil.copytree(repository, workspace / given.get("path", "."), dirs_exist_ok=True)


def _upload(artefacts: Path, given: Mapping[str, Any], workspace: Path) -> None:
    found = [path for path in workspace.glob(given["path"]) if path.is_file()]
    assert found or given.get("if-no-files-found") != "error", given
    place = artefacts / given["name"]
    assert not place.exists(), f"two artefacts are called {place.name}"
    place.mkdir(parents=True)
    for path in found:
        shutil.copy(path, place)


def _download(artefacts: Path, given: Mapping[str, Any], workspace: Path) -> None:
    to = workspace / given.get("path", ".")
    to.mkdir(parents=True, exist_ok=True)
    for place in sorted(artefacts.glob(given.get("name") or given["pattern"])):
        flat = "name" in given or given.get("merge-multiple")
        shutil.copytree(place, to if flat else to / place.name, dirs_exist_ok=True)


def machine(**more: str) -> dict[str, str]:
    """A runner's environment, with the Python that runs the tests first."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **more}


def play_gitlab(pipeline: dict[str, Any], repository: Path, scratch: Path, environ: Mapping[str, str]) -> list[Ran]:
    """The jobs of a GitLab pipeline, stage by stage, each on a clean copy with the artefacts of the stages before.

    Stood in for: images (this machine), `apt-get` (nothing is installed), caches, tags of runners, rules.
    """
    tools = scratch / "tools"
    tools.mkdir()
    (tools / "apt-get").write_text("#!/bin/sh\n")
    (tools / "apt-get").chmod(0o755)
    artefacts = scratch / "artefacts"
    artefacts.mkdir()
    variables = {name: str(value).replace("$CI_PROJECT_DIR", ".") for name, value in pipeline["variables"].items()}
    ran = []
    for stage in pipeline["stages"]:
        made: list[tuple[Path, str]] = []
        for name, job in pipeline.items():
            if not isinstance(job, dict) or job.get("stage") != stage:
                continue
            workspace = scratch / "work" / name
            shutil.copytree(repository, workspace)
            shutil.copytree(artefacts, workspace, dirs_exist_ok=True)
            script = scratch / f"{name}.sh"
            script.write_text("\n".join([*job.get("before_script", []), *job["script"]]))
            env = {**variables, **environ, "PATH": f"{tools}:{environ['PATH']}"}
            done = subprocess.run(
                ["bash", "-e", str(script)], cwd=workspace, env=env, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
            ran.append(Ran(job=name, step="script", status=done.returncode, output=done.stdout))
            made += [(workspace, each) for each in job["artifacts"]["paths"]]
        for workspace, pattern in made:
            for path in workspace.glob(pattern):
                to = artefacts / path.relative_to(workspace)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(path, to, dirs_exist_ok=True) if path.is_dir() else shutil.copy(path, to)
    return ran
