"""The only module that calls DVC.

The artifacts folder is a DVC repository of its own, without source control: phases are
versioned wherever a campaign runs, and no git history is touched.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import yaml
from prefect.cache_policies import NO_CACHE

from dpal.config.runtime import RuntimeConfig
from dpal.errors import DpalError
from dpal.files.artifacts import CONFIDENTIAL
from dpal.files.atomic_writes import close_to_others
from dpal.files.dvc_pointers import pointed_at, remove_torn_pointers
from dpal.planning.campaign_plan import Phase
from dpal.runs.campaign import Campaign
from tasks.boundary import task

_REMOTE = "campaigns"
# The packages that DVC needs, by how an address begins.
_PACKAGES = {
    "azure": "dvc-azure", "gdrive": "dvc-gdrive", "gs": "dvc-gs", "hdfs": "dvc-hdfs",
    "http": "dvc-http", "https": "dvc-http", "oss": "dvc-oss", "s3": "dvc-s3", "ssh": "dvc-ssh",
    "webdav": "dvc-webdav", "webdavs": "dvc-webdav", "webhdfs": "dvc-webhdfs",
}  # fmt: skip
_BUSY = ("Unable to acquire lock", "is busy")
_PATIENCE_SECONDS = 60.0

# Loading DVC takes a second, most commands a tenth of that: one process runs several. It lives
# too briefly to be worth a search for garbage, which would be a third of it.
_SEVERAL = """
import gc
gc.disable()
import json, sys
from dvc.cli import main
{prepared}code = next((code for one in json.loads(sys.argv[1]) if (code := main(one))), 0)
gc.freeze()
sys.exit(code)
"""

# What DVC takes into its cache it makes readable by all, 0444; confidential files are in there.
_FOR_THE_OWNER = """
from dvc_data.hashfile.db.local import LocalHashFileDB
LocalHashFileDB.CACHE_MODE = 0o400
"""


class VersioningError(DpalError):
    """DVC could not version or push a phase, which is finished and kept; or it never could."""

    code = "versioning"


def require_remote(runtime: RuntimeConfig) -> None:
    """Requires a remote of a kind that DVC can push to here, before anything is spent.

    Raises:
      VersioningError: DVC knows no such address, or lacks a package.
    """
    if lack := what_dvc_lacks_for(runtime.dvc_remote or ""):
        said, advice = lack
        raise VersioningError.before_release(f"runtime.dvc_remote {said}; {advice}")


def what_dvc_lacks_for(remote: str) -> tuple[str, str] | None:
    """What keeps DVC from using a remote, and what to do; None where nothing is known to."""
    scheme, is_address, _ = remote.partition("://")
    if not is_address or scheme.lower() == "remote":  # remote://name is one of DVC's own settings
        return None
    package = _PACKAGES.get(scheme.lower())
    if package is None:
        known = ", ".join(f"{one}://" for one in sorted(_PACKAGES))
        return f"is no address that DVC knows ({known})", "use one of them, or name a folder"
    if find_spec(package.replace("-", "_")) is None:
        return f"needs the package {package}, which is not here", f"pip install {package}"
    return None


@task(cache_policy=NO_CACHE)
def version_phase(campaign: Campaign, phase: Phase) -> str:
    """Adds a finished phase to DVC, pushes it if a remote is set, and returns its hash.

    What says who was selected, and how they were labeled, is versioned apart from what was
    released and never pushed: others may read the remote, and labels are no release in any
    mode.
    """
    return version_files(campaign.config.runtime, campaign.files(phase).root)


def version_files(runtime: RuntimeConfig, place: Path) -> str:
    """Adds a folder of released files to DVC and pushes it, and what is confidential about it.

    Args:
      runtime: where DVC keeps files.
      place: the folder, of a run; confidential files about it are not pushed.

    Returns:
      The hash under which the released files are kept.
    """
    root = runtime.artifacts
    released, hidden = place.relative_to(root), place.parent / CONFIDENTIAL / place.name
    added = [str(released), *([str(hidden.relative_to(root))] if hidden.exists() else [])]
    pointer = released.with_name(f"{released.name}.dvc")
    with _alone(root):
        commands = [*_to_open(root, runtime.dvc_remote), ("add", *added)]
        commands += [("push", str(pointer))] if runtime.dvc_remote else []
        remove_torn_pointers(root)
        try:
            _dvc_all(root, commands)
        finally:
            # Of earlier versions, or after a `dvc checkout` by hand, too.
            for folder in (root / ".dvc", place.parent / CONFIDENTIAL):
                close_to_others(folder)
    return str(pointed_at(place))


def version_released(runtime: RuntimeConfig, places: Sequence[Path]) -> str:
    """Adds all folders that a run released to DVC; the hash of the last, "" where there is none."""
    return next(reversed([version_files(runtime, place) for place in places]), "")


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One campaign at a time: two that make the repository at once break each other's."""
    with (root / ".versioning").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bring_back(
    artifacts: Path, scratch: Path, name: str, md5: str, remote: str | None, *, pull: bool = True
) -> None:
    """Lays out a versioned folder elsewhere, from the cache, else from the remote.

    Args:
      artifacts: the folder of all campaigns, whose cache and remote are used.
      scratch: an empty folder to lay it out in.
      name: the folder's path below `scratch`.
      md5: under which DVC keeps it.
      remote: where it was pushed to; None is what DVC is set to in `artifacts`.
      pull: whether the remote may be asked.

    Raises:
      VersioningError: it is neither in the cache nor in the remote, or is damaged there.
    """
    has_remote = _borrow(artifacts, scratch, remote)
    pointer = scratch / f"{name}.dvc"
    pointer.parent.mkdir(parents=True, exist_ok=True)
    output = {"md5": md5, "hash": "md5", "path": pointer.stem}
    pointer.write_text(yaml.safe_dump({"outs": [output]}), encoding="utf-8")
    target = str(pointer.relative_to(scratch))
    try:
        _dvc(scratch, "checkout", target)
    except VersioningError as error:
        if not pull:
            raise
        if not has_remote:
            raise VersioningError(
                f"{name} is not in the cache of {artifacts}, and no remote is set; name the one "
                f"that it was pushed to with --remote, nothing was written ({error})"
            ) from error
        _dvc(scratch, "pull", target)
    close_to_others(artifacts / ".dvc")
    if (found := folder_md5(scratch / name)) != md5:
        raise VersioningError(
            f"{name} in DVC's cache or remote has hash {found} and not {md5}; it was altered or "
            "damaged there, nothing was written"
        )


def folder_md5(place: Path) -> str:
    """The hash under which DVC keeps a folder: of the hashes and names of all its files."""
    files = sorted(path for path in place.rglob("*") if path.is_file())
    listed = [
        {"md5": _md5(path.read_bytes()), "relpath": path.relative_to(place).as_posix()}
        for path in files
    ]
    text = json.dumps(sorted(listed, key=lambda one: one["relpath"]), sort_keys=True)
    return f"{_md5(text.encode())}.dir"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _borrow(artifacts: Path, scratch: Path, remote: str | None) -> bool:
    """Makes a repository that uses another one's cache and remote; whether it has a remote.

    The other one is not touched: a campaign may be using it.
    """
    own, theirs = scratch / ".dvc", artifacts / ".dvc"
    (own / "tmp").mkdir(parents=True, exist_ok=True)
    settings = configparser.ConfigParser(interpolation=None)
    settings.read([theirs / "config", theirs / "config.local"])
    wished = {"core": {"no_scm": "True"}}
    if (theirs / "cache").is_dir():
        wished["cache"] = {"dir": str((theirs / "cache").resolve())}
    if remote is not None:
        place = remote if "://" in remote else str(Path(remote).resolve())
        wished["core"]["remote"] = _REMOTE
        wished[f"'remote \"{_REMOTE}\"'"] = {"url": place}
    for section, values in wished.items():
        if not settings.has_section(section):
            settings.add_section(section)
        settings[section].update(values)
    with (own / "config").open("w", encoding="utf-8") as stream:
        settings.write(stream)
    return settings.has_option("core", "remote")


def remote_reachable(root: Path) -> str | None:
    """What keeps the sample data's remote from answering, or None."""
    try:
        _dvc_all(root, [("status", "--cloud", "--quiet", "data.dvc")], private=False)
    except VersioningError as error:
        return str(error)
    return None


def _to_open(root: Path, remote: str | None) -> Iterator[tuple[str, ...]]:
    """What makes a folder a repository, and names its remote."""
    if not (root / ".dvc" / "config").is_file() or not (root / ".dvc" / "tmp").is_dir():
        yield "init", "--no-scm", "--force"
    if remote:
        place = remote if "://" in remote else str(Path(remote).resolve())
        yield "remote", "add", "--quiet", "--default", "--force", _REMOTE, place


def _dvc(root: Path, *arguments: str) -> None:
    _dvc_all(root, [arguments])


def _dvc_all(root: Path, commands: Sequence[Sequence[str]], *, private: bool = True) -> None:
    """Calls DVC with one command after the other, up to the first that fails.

    Args:
      root: a DVC repository.
      commands: arguments of each.
      private: whether what comes into its cache is for its owner only.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    program = _SEVERAL.format(prepared=_FOR_THE_OWNER if private else "")
    while (refusal := _try_dvc(root, program, commands)) is not None:
        # A run that was killed may have left a DVC behind that still finishes its work.
        if not any(sign in refusal for sign in _BUSY) or time.monotonic() > deadline:
            raise VersioningError(
                f"DVC failed ({refusal}); nothing was lost, correct it and run "
                "the same command again"
            )
        time.sleep(0.5)


def _try_dvc(root: Path, program: str, commands: Sequence[Sequence[str]]) -> str | None:
    """Starts DVC once; returns what kept it from doing its work, or None."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, json.dumps(commands)],
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
