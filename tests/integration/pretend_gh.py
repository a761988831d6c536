"""Stands in for GitHub's `gh`: releases, issues and runs of workflows as files of a folder, within a job's rights.

PRETEND_GITHUB: the folder. PRETEND_RIGHTS: what the job may, such as `issues:write`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["PRETEND_GITHUB"])


def may(right: str) -> None:
    if right not in os.environ["PRETEND_RIGHTS"].split(","):
        sys.exit(f"HTTP 403: this job does not have {right}")


def parsed(*words: str, **options: Any) -> argparse.Namespace:
    """The words after the command; an option that `gh` does not have ends it."""
    parser = argparse.ArgumentParser(prog="gh", allow_abbrev=False)
    for word in words:
        parser.add_argument(word, nargs="+" if word == "files" else None)
    parser.add_argument("--repo", required=True)
    for name, more in options.items():
        parser.add_argument(f"--{name}", **more)
    return parser.parse_args(sys.argv[3:])


def noted(name: str, value: dict[str, str]) -> None:
    path = ROOT / name
    path.write_text(json.dumps([*json.loads(path.read_text()), value] if path.exists() else [value]))


def main() -> None:
    if not os.environ.get("GH_TOKEN"):
        sys.exit("gh: To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable.")
    text: dict[str, Any] = {"required": True}
    command = " ".join(sys.argv[1:3])
    if command == "release view":
        given = parsed("tag")
        sys.exit(0 if _release(given).is_dir() else "release not found")
    elif command == "release create":
        given = parsed("tag", title=text, notes=text)
        may("contents:write")
        _release(given).mkdir(parents=True)
    elif command == "release upload":
        given = parsed("tag", "files", clobber={"action": "store_true"})
        may("contents:write")
        for each in given.files:
            assert given.clobber or not (_release(given) / Path(each).name).exists()
            shutil.copy(each, _release(given))
    elif command == "issue list":
        given = parsed(state=text, search=text, json=text, jq=text)
        may("issues:write")
        wanted, _, place = given.search.partition(" in:")
        assert (place, given.jq, given.state) == ("body", "length", "all")
        issues = json.loads((ROOT / "issues.json").read_text()) if (ROOT / "issues.json").exists() else []
        sys.stdout.write(f"{sum(wanted in each['body'] for each in issues)}\n")
    elif command == "issue create":
        given = parsed(title=text, body=text)
        may("issues:write")
        noted("issues.json", {"title": given.title, "body": given.body})
    elif command == "workflow run":
        given = parsed("workflow", field={"default": ""})
        may("actions:write")
        noted("runs.json", {"workflow": given.workflow, "field": given.field})
    else:
        sys.exit(f"unknown command {command!r} for gh")


def _release(given: argparse.Namespace) -> Path:
    """Its files have the address that GitHub gives them, below the folder."""
    return Path(ROOT, given.repo, "releases", "download", given.tag)


main()
