"""Wheels to publish, and a reader of published folders that shares nothing with the one under test."""

from __future__ import annotations

import hashlib
import html
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin

from cuwheel.delivery.catalogue import Listed, Store
from cuwheel.device_code import wheel_facts
from cuwheel.support import files
from cuwheel.wheel.file import WheelFile
from tests.fixtures import manifest, small_wheel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ANCHOR = re.compile(r'<a href="([^"]*)"([^>]*)>([^<]*)</a>')


def wheel(folder: Path, version: str = "1.0", name: str = "foo", **options: Any) -> Path:
    """Without CUDA."""
    return small_wheel.Wheel(name=name, version=version, files={f"{name}/__init__.py": ""}, **options).write(folder)


def cuda_wheel(
    folder: Path, version: str = "1.0", name: str = "foo", library: str = "plain-130.so", **options: Any
) -> Path:
    data = (manifest.HERE / "bin" / library).read_bytes()
    made = small_wheel.Wheel(
        name=name,
        version=version,
        tag=options.pop("tag", "py3-none-linux_x86_64"),
        files={f"{name}/__init__.py": "", f"{name}/lib{name}.so": data},
        **options,
    )
    return made.write(folder)


def catalogue_of(folder: Path, wheels: Iterable[Path]) -> Path:
    """A catalogue that holds these wheels."""
    store = Store(folder)
    for path in wheels:
        with WheelFile(path) as opened:
            facts = wheel_facts.of_wheel(opened, sha256=files.sha256(path))
        store.add(Listed(file=path.name, name=facts.name, version=facts.version, sha256=facts.sha256), facts)
    store.save("2026-11-16")
    return folder


def page(root: Path, relative: str) -> Any:
    return json.loads((root / relative / "index.json").read_text())


def names(root: Path, relative: str = "simple/foo") -> list[str]:
    return [each["filename"] for each in page(root, relative)["files"]]


def anchors(root: Path, relative: str) -> list[tuple[str, str, str]]:
    """Link, attributes and text."""
    text = (root / relative / "index.html").read_text()
    return [
        (html.unescape(link), html.unescape(rest), html.unescape(label)) for link, rest, label in _ANCHOR.findall(text)
    ]


def state(root: Path) -> dict[str, str]:
    """What every file holds."""
    found = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def problems(root: Path) -> list[str]:
    """Whatever an installer would stumble over: a link to nothing, a hash that is wrong, a list without its page."""
    found = []
    for listing in root.rglob("simple"):
        if not (listing / "index.json").exists() and not (listing / "index.html").exists():
            continue  # a page that no list has: nobody gets there
        relative = listing.relative_to(root).as_posix()
        for name in (
            [each["name"] for each in page(root, relative)["projects"]] if (listing / "index.json").exists() else []
        ):
            found += _of_project(root, f"{relative}/{name}", "index.json")
        for link, _, _ in anchors(root, relative) if (listing / "index.html").exists() else []:
            found += _of_project(root, f"{relative}/{link.rstrip('/')}", "index.html")
    return found


def _of_project(root: Path, relative: str, file: str) -> list[str]:
    if not (root / relative / file).exists():
        return [f"{relative}/{file} is listed but missing"]
    if file == "index.json":
        links = [
            (each["url"], each["hashes"]["sha256"], each["core-metadata"]["sha256"])
            for each in page(root, relative)["files"]
        ]
    else:
        links = []
        for link, rest, _ in anchors(root, relative):
            match = re.search(r'data-core-metadata="sha256=(\w+)"', rest)
            links.append((link.partition("#")[0], link.partition("#sha256=")[2], match[1] if match else ""))
    found = [] if links else [f"{relative}/{file} has no files"]
    for link, sha256, metadata in links:
        path = root / unquote(urljoin(f"http://x/{relative}/", link)).removeprefix("http://x/")
        for each, digest in ((path, sha256), (path.with_name(path.name + ".metadata"), metadata)):
            if not each.exists():
                found.append(f"{relative}/{file} links to {each.name}, which is not there")
            elif hashlib.sha256(each.read_bytes()).hexdigest() != digest:
                found.append(f"{relative}/{file} has a wrong hash for {each.name}")
    return found
