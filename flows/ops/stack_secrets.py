"""The passwords of a local stack: made at its first start, each in a file for its owner alone."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from flows.ops.supervisor import ServeError

# What an earlier version kept there, for Prefect and for MLflow's only account. Prefect's stays the
# same, so that workers on other machines go on.
_EARLIER = "password"
_EARLIER_NAME = "dpal"


class StackSecrets:
    """One folder with a file for each secret.

    A person who wants another password writes it into its file before the stack is started.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str) -> Path:
        """Where a secret is read by a person: `cat` that file."""
        return self.folder / name

    def read(self, name: str, *, prefix: str = "") -> str:
        """A secret; it is made where there is none yet.

        Args:
          name: of its file.
          prefix: what a secret that is made now begins with.

        Raises:
          ServeError: others can read the file or the folder, or it is empty.
        """
        self._require_folder()
        file = self.file(name)
        if not file.exists():
            earlier = self.file(_EARLIER)
            kept = name == "prefect" and earlier.is_file()
            earlier_secret = earlier.read_text(encoding="utf-8").strip() if kept else ""
            self._write(file, prefix + (earlier_secret or secrets.token_hex(20)))
            if kept:
                earlier.unlink()  # else it would come back once this one is removed
        _require_own(file)
        text = file.read_text(encoding="utf-8").strip()
        if not text:
            raise ServeError(f"{file} is empty; write a password into it, or remove it")
        return text

    def _require_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.folder.stat().st_uid == os.geteuid():
            self.folder.chmod(0o700)  # its files were for their owner alone in any case
        _require_own(self.folder)

    def _write(self, file: Path, text: str) -> None:
        """Writes a secret whole: a start that is cut off leaves none that is half."""
        half = file.with_name(f".{file.name}.new")
        half.unlink(missing_ok=True)
        descriptor = os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        half.rename(file)


def prefect_login(stack_secrets: StackSecrets) -> str:
    """What Prefect's page asks for, and workers are told: NAME:PASSWORD."""
    return stack_secrets.read("prefect", prefix=f"{_EARLIER_NAME}:")


def require_own_folder(folder: Path) -> None:
    """Requires that nobody else can put files into a stack's folder.

    Raises:
      ServeError: others can.
    """
    if _own_mode(folder) & (stat.S_IWGRP | stat.S_IWOTH):
        raise ServeError(
            f"others can write into {folder}, where passwords and settings of the servers are; "
            f"nothing was started, see that nobody did and say: chmod go-w {folder}"
        )


def _own_mode(path: Path) -> int:
    about = path.stat()
    if about.st_uid != os.geteuid():
        raise ServeError(f"{path} belongs to another user; nothing was started, choose --folder")
    return about.st_mode


def _require_own(path: Path) -> None:
    if _own_mode(path) & (stat.S_IRWXG | stat.S_IRWXO):
        raise ServeError(
            f"{path} can be read by others, so what is in it is known; write another password into "
            f"it and say: chmod 600 {path}"
        )
