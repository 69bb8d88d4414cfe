"""The only module that calls DVC.

The artifacts folder is a DVC repository of its own, without source control: phases are
versioned wherever a campaign runs, and no git history is touched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import yaml
from prefect import task
from prefect.cache_policies import NO_CACHE

from dpal.errors import DpalError
from dpal.planning.plan import Phase
from tasks.context import Campaign

_REMOTE = "campaigns"
_BUSY = ("Unable to acquire lock", "is busy")
_PATIENCE_SECONDS = 60.0


class VersioningError(DpalError):
    """DVC could not version or push a phase. The phase itself is finished and kept."""


@task(cache_policy=NO_CACHE)
def version_phase(campaign: Campaign, phase: Phase) -> str:
    """Adds a finished phase to DVC, pushes it if a remote is set, and returns its hash.

    What says who was selected, and how they were labeled, is versioned apart from what was
    released and never pushed: others may read the remote, and labels are no release in any
    mode.
    """
    root, files = campaign.config.runtime.artifacts, campaign.files(phase)
    _open_repository(root, campaign.config.runtime.dvc_remote)
    released, confidential = (one.relative_to(root) for one in (files.root, files.confidential))
    _dvc(root, "add", str(released), str(confidential))
    pointer = released.with_name(f"{released.name}.dvc")
    if campaign.config.runtime.dvc_remote:
        _dvc(root, "push", str(pointer))
    outputs = yaml.safe_load((root / pointer).read_text(encoding="utf-8"))["outs"]
    return str(outputs[0]["md5"])


def remote_reachable(root: Path) -> str | None:
    """What keeps the sample data's remote from answering, or None."""
    try:
        _dvc(root, "status", "--cloud", "--quiet", "data.dvc")
    except VersioningError as error:
        return str(error)
    return None


def _open_repository(root: Path, remote: str | None) -> None:
    if not (root / ".dvc" / "config").is_file() or not (root / ".dvc" / "tmp").is_dir():
        _dvc(root, "init", "--no-scm", "--force")
    if remote:
        place = remote if "://" in remote else str(Path(remote).resolve())
        _dvc(root, "remote", "add", "--quiet", "--default", "--force", _REMOTE, place)


def _dvc(root: Path, *arguments: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (refusal := _try_dvc(root, *arguments)) is not None:
        # A run that was killed may have left a DVC behind that still finishes its work.
        if not any(sign in refusal for sign in _BUSY) or time.monotonic() > deadline:
            raise VersioningError(
                f"dvc {arguments[0]} failed ({refusal}); nothing was lost, correct it and run "
                "the same command again"
            )
        time.sleep(0.5)


def _try_dvc(root: Path, *arguments: str) -> str | None:
    """Calls DVC once; returns what kept it from doing its work, or None."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        umask=0o077,  # the cache holds private files, too
    )
    if not done.returncode:
        return None
    reason = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
    said = next((line for line in reason if line.startswith("ERROR")), reason[-1])
    return said.removeprefix("ERROR: ")
