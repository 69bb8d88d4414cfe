"""Pointers that DVC leaves beside what it keeps: read here, removed where torn, never written."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import yaml

from dpal.errors import DpalError
from dpal.files.artifacts import CampaignFolder, damaged


def restore_command(folder: Path, phase: int, md5: str) -> str:
    """What brings back the files of a phase, pasted where the campaign was run.

    Args:
      folder: of the campaign.
      phase: its number.
      md5: under which DVC keeps the released files.
    """
    return f"dpal restore {shlex.quote(str(folder))} --phase {phase} --md5 {md5}"


def restore_commands(folder: CampaignFolder, phases: int) -> list[str]:
    """Those of a campaign's first phases, as far as they are versioned."""
    hashes = [(phase, pointed_at(folder.phase(phase).root)) for phase in range(phases)]
    return [restore_command(folder.root, phase, md5) for phase, md5 in hashes if md5 is not None]


def remove_torn_pointers(root: Path) -> None:
    """Removes pointers that DVC tore as it died: it reads all of a repository, and refuses them.

    The folders are versioned again by whoever goes on with their run. Empty pointers stay: DVC
    does not mind them, and it may have opened one just now.

    Args:
      root: of the repository.
    """
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".dvc"]  # where its cache is
        for pointer in (Path(place, name) for name in names if name.endswith(".dvc")):
            if pointer.stat().st_size and not _is_whole(pointer):
                pointer.unlink()


def pointed_at(place: Path) -> str | None:
    """The hash under which DVC keeps a folder, by the pointer beside it; None if it has none."""
    pointer = _pointer_of(place)
    if not pointer.is_file():
        return None
    try:
        output = yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"][0]
        # Only a pointer that ends with the folder's own name is whole: DVC writes that last.
        whole, md5 = output["path"] == place.name, str(output["md5"])
    except (UnicodeDecodeError, yaml.YAMLError, KeyError, IndexError, TypeError) as error:
        raise damaged(pointer) from error
    if not whole:
        raise damaged(pointer)
    return md5


def _pointer_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.dvc")


def _is_whole(pointer: Path) -> bool:
    try:
        return pointed_at(pointer.with_suffix("")) is not None
    except DpalError:
        return False
