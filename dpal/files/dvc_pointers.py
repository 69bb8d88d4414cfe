"""Pointers that DVC leaves beside what it keeps: read here, written by DVC alone."""

from __future__ import annotations

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


def remove_torn_pointer(place: Path) -> None:
    """Removes the pointer beside a folder if DVC died while writing it.

    DVC refuses to add a folder over a torn pointer; over none it writes it anew.
    """
    try:
        pointed_at(place)
    except DpalError:
        _pointer_of(place).unlink(missing_ok=True)


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
