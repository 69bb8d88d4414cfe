"""Which ledger was written at which place, so that one that is gone is missed.

Anchors are kept by a ledger's own identity, and a new ledger has a new one: nothing would ask for
the anchor of a ledger whose file was deleted, or whose log was lost before it was folded in. So it
is remembered, too, where a ledger was: in which database, and beside which folder of campaigns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpal.errors import AnchorError
from dpal.files.atomic_writes import write_text
from dpal.ledger.anchor import Anchor, Anchors
from dpal.ledger.signing_key import is_signed


@dataclass(frozen=True)
class Places:
    """Where one ledger is, as this machine remembers it.

    Attributes:
      anchors: of this machine; they sign what is remembered.
      name: of the ledger, for refusals.
      where: its database, and the folder whose campaigns it is about.
    """

    anchors: Anchors
    name: str
    where: tuple[str, ...]

    def require_nothing_lost(self) -> None:
        """Requires that no ledger was written here before; to be asked before a new one begins.

        Raises:
          AnchorError: the last entry of one that was.
        """
        if lost := self.last_lost():
            raise AnchorError(self.name, "lost", lost.sequence, lost.digest)

    def last_lost(self) -> Anchor | None:
        """What is remembered of the last ledger that was written here; None where none was."""
        remembered = [anchor for place in self.where for anchor in self._written(place)]
        return remembered[-1] if remembered else None

    def require_known(self, identity: str) -> None:
        """Requires that a ledger is one that was written here before, or that none was.

        Raises:
          AnchorError: another one was.
        """
        if self._is_another(identity):
            raise AnchorError(self.name, "another")

    def knows(self, identity: str) -> bool:
        """The same as an answer; no where what is remembered was damaged."""
        return self.are_sound() and not self._is_another(identity)

    def are_sound(self) -> bool:
        """Whether what is remembered is as it was written."""
        try:
            for place in self.where:
                self._written(place)
        except AnchorError:
            return False
        return True

    def remember(self, identity: str, *, anew: bool = False) -> None:
        """Notes that a ledger is written here.

        Args:
          identity: of the ledger.
          anew: whether all others that were written here are given up.
        """
        for place in self.where:
            identities = [] if anew else self._read(place)
            if identity not in identities:
                content = {"place": place, "identities": [*identities, identity]}
                text = json.dumps(self.anchors.key.signed(content), indent=2)
                write_text(self._path(place), text + "\n")

    def _is_another(self, identity: str) -> bool:
        read = {place: self._read(place) for place in self.where}
        return any(identity not in there for there in read.values() if self._anchored(there))

    def _written(self, place: str) -> list[Anchor]:
        """See `_anchored`."""
        return self._anchored(self._read(place))

    def _anchored(self, identities: Sequence[str]) -> list[Anchor]:
        """Anchors of the ledgers of a place that had entries: a beginning may have been undone.

        Raises:
          AnchorError: what is remembered was altered or damaged.
        """
        remembered = []
        for identity in identities:
            anchor = self.anchors.authentic(identity)
            if anchor is None:
                raise AnchorError(self.name, "altered")
            if anchor.sequence > 0:
                remembered.append(anchor)
        return remembered

    def _read(self, place: str) -> list[str]:
        """Identities of the ledgers that were written at a place, the last one at the end.

        Raises:
          AnchorError: what is remembered was altered or damaged.
        """
        try:
            content: Any = json.loads(self._path(place).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            content = None
        if not is_signed(content) or content.get("place") != place:
            raise AnchorError(self.name, "altered")
        return [str(identity) for identity in content["identities"]]

    def _path(self, place: str) -> Path:
        return self.anchors.folder / f"place-{sha256(place.encode()).hexdigest()[:32]}"


def ledger_places(anchors: Anchors, name: str, *, file: Path | None, folder: Path | None) -> Places:
    """Where a ledger is.

    Args:
      anchors: of this machine.
      name: of the ledger: its path, or its URL without a password.
      file: of the database; None for a server.
      folder: of the campaigns that it is about; None where nobody says.
    """
    database = name if file is None else str(file.resolve())
    where: Sequence[str] = (f"database {database}",)
    if folder is not None:
        where = (*where, f"campaigns {folder.resolve()}")
    return Places(anchors, name, tuple(where))
