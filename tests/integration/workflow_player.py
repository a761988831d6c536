"""Plays the runner: the jobs of a written workflow in order, its matrix expanded, every `run:` step really run.

Stood in for: fetching the source (a copy), setting up Python (the one that runs the tests), caches (nothing is kept),
artefacts (folders), Pages (a folder that is served), attestations (noted), images. Of runners' labels only those of
Windows and arm64 are looked at: their jobs are not played. A job has the rights that its `permissions` give it, and no
others.
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
_ELSEWHERE = re.compile(r"windows|-arm\b")  # what this machine is not
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
            "format": lambda text, *values: text.format(*values),
            "startsWith": lambda text, start: text.startswith(start),
        }
        return known[name](*given)


@dataclass
class Ran:
    """A step that was run; `summary`: what it wrote for the page of the job."""

    job: str
    step: str
    status: int
    output: str
    summary: str = ""


@dataclass
class Player:
    """`environ`: what the machine has. `github`: of its context, what the event brings.

    `repositories`: by `owner/name`. `id_tokens`: the variables of a job that may have an identity.
    """

    workflow: dict[str, Any]
    repository: Path
    scratch: Path
    environ: Mapping[str, str]
    github: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    pages: Path = Path()
    pages_url: str = ""
    repositories: dict[str, Path] = field(default_factory=dict)
    id_tokens: dict[str, str] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def play(self, *chosen: str) -> dict[str, str]:
        """How each job ended: `success`, `failure` or `skipped`; of the chosen ones, if some are."""
        jobs: dict[str, Any] = self.workflow["jobs"]
        results = {each: "success" for each in jobs if chosen and each not in chosen}
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
            matrix = self._text(matrix, contexts)
            rows = matrix.get("include") or [{key: each} for key, values in matrix.items() for each in values]
            played = [row for row in rows if not _ELSEWHERE.search(row.get("runner", ""))]
            ends = [self._job(name, job, {**contexts, "matrix": row}, outputs) for row in played]
            results[name] = "success" if all(ends) else "failure"
        return {name: end for name, end in results.items() if not chosen or name in chosen}

    def _contexts(self, needs: dict[str, Any]) -> dict[str, Any]:
        github = {
            "event_name": "workflow_dispatch",
            "ref": "refs/heads/main",
            "ref_type": "branch",
            "ref_name": "main",
            "run_id": "1",
            "run_number": "7",
            "run_attempt": "1",
            "repository": "ann/foo",
            "server_url": "https://github.example",
            "token": "none",
            **self.github,
        }
        runner = {"temp": str(self.scratch / "runner")}
        return {"github": github, "inputs": self.inputs, "needs": needs, "matrix": {}, "steps": {}, "runner": runner}

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
                rights = {**(self.workflow.get("permissions") or {}), **job["permissions"]}
                good = self._script(name, {**step, "rights": rights}, contexts, workspace, made) and good
            if "id" in step:
                contexts["steps"][step["id"]] = {"outputs": made}
        outputs[name] = {key: self._text(value, contexts) for key, value in (job.get("outputs") or {}).items()}
        return good

    def _script(
        self, job: str, step: Mapping[str, Any], contexts: Mapping[str, Any], workspace: Path, made: dict[str, str]
    ) -> bool:
        outputs = workspace.parent.parent / f"outputs-{len(self.ran)}"
        outputs.touch()
        outputs.with_suffix(".md").touch()
        own = {**(self.workflow.get("env") or {}), **(step.get("env") or {})}
        environ = {
            **self.environ,
            **{key: _written(self._text(value, contexts)) for key, value in own.items()},
            **self.overrides,
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_PATH": str(outputs.with_suffix(".path")),
            "GITHUB_STEP_SUMMARY": str(outputs.with_suffix(".md")),
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_REPOSITORY": contexts["github"]["repository"],
            "GITHUB_ACTIONS": "true",
            "RUNNER_ENVIRONMENT": "self-hosted",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.scratch / "runner"),
            "PRETEND_RIGHTS": ",".join(f"{name}:{value}" for name, value in step["rights"].items()),
            **(self.id_tokens if step["rights"].get("id-token") == "write" else {}),
        }
        script = outputs.with_suffix(".sh")
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=workspace, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        summary = outputs.with_suffix(".md").read_text()
        self.ran.append(Ran(job=job, step=step["name"], status=done.returncode, output=done.stdout, summary=summary))
        for line in outputs.read_text().splitlines():
            key, _, value = line.partition("=")
            made[key] = value
        return done.returncode == 0

    def _action(self, name: str, given: Mapping[str, Any], workspace: Path, made: dict[str, str]) -> None:
        self.used.append(name)
        artefacts = self.scratch / "artefacts"
        source = self.repositories[given["repository"]] if "repository" in given else self.repository
        stand_ins: dict[str, Callable[[], None]] = {
            "actions/checkout": partial(_checkout, source, given, workspace),
            "actions/upload-artifact": partial(_upload, artefacts, given, workspace),
            "actions/download-artifact": partial(_download, artefacts, given, workspace),
            "actions/configure-pages": lambda: made.update(base_url=self.pages_url),
            "actions/upload-pages-artifact": lambda: _replace(workspace / given["path"], self.pages),
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
