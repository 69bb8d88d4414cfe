"""How dpal is packaged: by setuptools; wheels from a copy in which every package lies in `dpal`.

`flows` and `tasks` are names that other projects use for packages of their own, so that a wheel
must not bring them: there they are `dpal.flows` and `dpal.tasks`, renamed wherever modules name
them. Editable installs are of the checkout as it is. docs/decisions/0005-one-name-in-wheels.md
says why.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

MOVED = ("flows", "tasks")
SAMPLES = Path("dpal", "flows", "samples")

Settings = Mapping[str, Any] | None


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """PEP 517: builds the wheel, and returns its name."""
    target = str(Path(wheel_directory).resolve())
    known = metadata_directory and str(Path(metadata_directory).resolve())
    with _in_copy():
        return str(build_meta.build_wheel(target, config_settings, known))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """PEP 517: writes the metadata of the wheel, and returns its folder's name."""
    target = str(Path(metadata_directory).resolve())
    with _in_copy():
        return str(build_meta.prepare_metadata_for_build_wheel(target, config_settings))


@contextmanager
def _in_copy() -> Iterator[None]:
    """Works in a copy of the project with its packages moved, for the length of a block."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dpal-wheel-") as folder:
        copy_moved(root, Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(root)


def copy_moved(root: Path, copy: Path) -> None:
    """Copies what a wheel is made of, with all packages below `dpal`, and the sample data.

    Args:
      root: of the project.
      copy: an empty folder.
    """
    forget = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "dpal", copy / "dpal", ignore=forget)
    for room in MOVED:
        shutil.copytree(root / room, copy / "dpal" / room, ignore=forget)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(root / name, copy / name)
    moved = _moved_names(root)
    for path in [copy / "pyproject.toml", *(copy / "dpal").rglob("*.py")]:
        text = moved.sub(r"dpal.\g<0>", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".py":
            _require_moved(path.relative_to(copy), text)
    (copy / SAMPLES).mkdir()
    for name, content in samples(root).items():
        (copy / SAMPLES / name).write_bytes(content)


def _moved_names(root: Path) -> re.Pattern[str]:
    """What names a moved package: before one of its modules, or before what `from` imports.

    Code and texts alike, as modules are also named in commands, entry points and messages. A
    variable that is called `tasks` is followed by no module's name; `flows/configs` is a folder.
    """
    names = []
    for room in MOVED:
        modules = sorted(path.stem for path in (root / room).iterdir() if path.stem[0] not in "_.")
        names.append(rf"{room}(?=\.(?:{'|'.join(modules)})\b)")
        names.append(rf"(?<=from ){room}(?= import\b)")
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(names)})")


def _require_moved(path: Path, text: str) -> None:
    """Requires that a module imports nothing by a name that wheels do not have.

    Raises:
      ValueError: it does.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [node.module or ""]
        else:
            continue
        if left := [name for name in named if name.split(".")[0] in MOVED]:
            raise ValueError(f"{path}, line {node.lineno}: {left[0]} is no module to move")


def samples(root: Path) -> dict[str, bytes]:
    """Contents of the sample data's files by name, as `data.dvc` pins them.

    Raises:
      FileNotFoundError: they are neither in the repository nor in DVC's cache.
      ValueError: a file is not the one that is pinned.
    """
    pinned = re.search(r"md5: (\S+\.dir)$", (root / "data.dvc").read_text("utf-8"), re.MULTILINE)
    if pinned is None:
        raise ValueError("data.dvc pins no folder")
    listed = json.loads(_stored(root, pinned[1]))
    return {entry["relpath"]: _stored(root, entry["md5"]) for entry in listed}


def _stored(root: Path, digest: str) -> bytes:
    """A file that DVC keeps by its MD5 digest."""
    for folder in (".dvc/samples", ".dvc/cache"):
        path = root / folder / "files" / "md5" / digest[:2] / digest[2:]
        if path.is_file():
            content = path.read_bytes()
            if hashlib.md5(content, usedforsecurity=False).hexdigest() != digest.split(".")[0]:
                raise ValueError(f"{path} is damaged; restore it: git checkout .dvc/samples")
            return content
    raise FileNotFoundError(f"the sample data {digest} is missing; restore it: dvc pull")
