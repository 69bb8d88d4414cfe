"""Demonstrations of votes between sites: their keys and models are made once, and copied."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dpal.runs.sites_demo_files import Demo, prepare_demo
from tests.conftest import ROOT

DATA = ROOT / "data"


def copies_of_a_demo(made: Path) -> Callable[[Path], Demo]:
    """Makes a demonstration in a folder, and gives what copies it into others.

    Training the sites' models takes most of a second. Each copy has settings of its own: another
    port, and anchors beside it.
    """
    first = prepare_demo(made, DATA, _free_port())
    port = re.findall(r"127\.0\.0\.1:(\d+)", (made / "vote.yaml").read_text(encoding="utf-8"))

    def copied(folder: Path) -> Demo:
        shutil.copytree(made, folder)
        address = f"127.0.0.1:{_free_port()}"
        for file in folder.rglob("*.yaml"):
            text = file.read_text(encoding="utf-8").replace(str(made.resolve()), str(folder))
            file.write_text(text.replace(f"127.0.0.1:{port[0]}", address), encoding="utf-8")

        def moved(path: Path) -> Path:
            return folder / path.relative_to(made)

        return replace(
            first,
            folder=folder,
            guardian=moved(first.guardian),
            sites={name: moved(path) for name, path in first.sites.items()},
            querier=moved(first.querier),
            queries=moved(first.queries),
            answers=moved(first.answers),
            certificate=moved(first.certificate),
        )

    return copied


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port
