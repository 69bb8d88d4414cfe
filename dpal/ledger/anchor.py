"""What this machine remembers of a ledger, so that an older copy does not pass for it.

The chain shows that a ledger was not altered; it cannot show that it is the newest one.
An anchor can: a small signed file, away from the ledger and its backups, that names
the last entry written from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dpal.errors import AnchorError, LedgerError, LedgerTampered
from dpal.files.atomic_writes import write_text
from dpal.ledger.chain import VerifiedPrefix, known_keys
from dpal.ledger.entries import GENESIS, Entry, EntryKind
from dpal.ledger.signing_key import SigningKey, is_signed, one_process

_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A remembered entry of a ledger.

    Attributes:
      identity: which ledger.
      sequence: number of the last entry that was written from here; 0 before the first.
      digest: its digest.
      recorded_at: its day.
      key: public half of the key that signed this, hexadecimal.
      signature: Ed25519, over the canonical JSON of all of the others.
      topics: root of the tree of topics with this entry, if whoever wrote it had verified all of
        the ledger; empty, and not written, where it had not.
    """

    identity: str
    sequence: int
    digest: str
    recorded_at: str
    key: str
    signature: str
    topics: str = ""

    def is_authentic(self) -> bool:
        """Whether it is as it was signed."""
        return is_signed(
            {name: value for name, value in asdict(self).items() if value or name != "topics"}
        )


_FIELDS = get_type_hints(Anchor)


def identity_of(entries: Sequence[Entry]) -> str:
    """Returns what tells a ledger from all others, and is the same in all of its copies."""
    first = entries[0]
    named = first.body.get("identity") if first.kind is EntryKind.OPEN else None
    # A ledger that was made before ledgers had identities is known by its first entry.
    identity = first.digest[:32] if named is None else str(named)
    if not _IDENTITY.fullmatch(identity):  # it becomes a file's name
        raise LedgerTampered(first.sequence, "its identity is not 32 hexadecimal digits")
    return identity


class Anchors:
    """A folder of anchors, one file for each ledger.

    Attributes:
      folder: where they are.
      key: which signs them, in the same folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, SigningKey(folder)

    def read(self, identity: str) -> Any:
        """What a ledger's anchor says: None without one, an empty object if it is damaged."""
        try:
            return json.loads(self._path(identity).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}

    def authentic(self, identity: str) -> Anchor | None:
        """A ledger's anchor, if there is one and it is as it was signed."""
        anchor = _parse(self.read(identity))
        return anchor if anchor and anchor.identity == identity and anchor.is_authentic() else None

    def verified(self, identity: str) -> VerifiedPrefix | None:
        """The entries that were verified here when a ledger's anchor was signed.

        None where that is not known: without an anchor, with one of an earlier version, and with
        any that this machine's own key did not sign just so, for this very ledger.
        """
        anchor = self.authentic(identity)
        if anchor is None or not anchor.topics or not self.key.exists():
            return None
        if anchor.key != self.key.public_key():
            return None
        return VerifiedPrefix(sequence=anchor.sequence, digest=anchor.digest, topics=anchor.topics)

    def begin(self, identity: str) -> None:
        """Anchors a ledger before its first entry."""
        self._write(identity, self._signed(identity, 0, GENESIS, "", ""))

    def advance(self, identity: str, entry: Entry, *, topics: str = "", anew: bool = False) -> None:
        """Remembers an entry, unless a later one is remembered already.

        Args:
          identity: of the ledger.
          entry: just written.
          topics: root of the tree of topics with it, where all entries were verified.
          anew: whether what was remembered so far is given up.

        Raises:
          StorageError: it cannot be written; the entry stays in the ledger, which is then
            ahead of its anchor, and that is allowed.
        """
        # Before the block below, as a key is made in one of its own.
        signed = self._signed(identity, entry.sequence, entry.digest, entry.recorded_at, topics)
        with one_process(self.folder):  # so that no anchor runs backwards
            remembered = _parse(self.read(identity))
            if anew or remembered is None or remembered.sequence < entry.sequence:
                self._write(identity, signed)

    def require(
        self,
        name: str,
        entries: Sequence[Entry],
        remembered: Any,
        *,
        key: str | None = None,
        accepted: set[str] | None = None,
    ) -> None:
        """Requires that a ledger is the newest copy of itself that is known here.

        Args:
          name: of the ledger, for the refusal.
          entries: all of it, its chain verified.
          remembered: its anchor, read before the entries, or while nobody could append.
          key: public key that will sign the next anchor; None where nothing is written.
          accepted: public keys that the ledger names, where they were read already.

        Raises:
          AnchorError: what is wrong, and what to do.
        """
        finding, anchor = _examine(entries, remembered, key, accepted)
        if finding is not None:
            raise AnchorError(name, finding, *_named(anchor))

    def vouch(
        self,
        name: str,
        entries: Sequence[Entry],
        *,
        reason: str,
        despite: str | None,
        otherwise: str = "",
        accepted: set[str] | None = None,
    ) -> dict[str, Any]:
        """Returns what an ADOPT entry says, while nobody else can append.

        Args:
          name: of the ledger, for a refusal.
          entries: all of it, its chain verified.
          reason: why it is vouched for.
          despite: digest of the last entry that is known here and lost.
          otherwise: what there is to vouch for where the anchor finds nothing wrong.
          accepted: public keys that the ledger names, where they were read already.

        Raises:
          LedgerError: there is nothing to vouch for.
          AnchorError: an anchor proves a loss that `despite` does not name.
        """
        key = self.key.public_key()
        finding, anchor = _examine(entries, self.read(identity_of(entries)), key, accepted)
        if finding is None and not otherwise:
            raise LedgerError(
                f"the ledger {name} is the newest copy known here; there is nothing to adopt"
            )
        lost = anchor.digest if anchor and finding in ("behind", "forked") else None
        if despite != lost:
            if lost is None:
                raise LedgerError(
                    f"no anchor here proves that the ledger {name} lost an entry; adopt it "
                    "without naming one"
                )
            raise AnchorError(name, str(finding), *_named(anchor))
        return {
            "key": key,
            "reason": reason,
            "found": finding or otherwise,
            "despite": despite,
            "head": {"sequence": entries[-1].sequence, "digest": entries[-1].digest},
        }

    def _signed(
        self, identity: str, sequence: int, digest: str, recorded_at: str, topics: str
    ) -> dict[str, Any]:
        fields = {
            "identity": identity,
            "sequence": sequence,
            "digest": digest,
            "recorded_at": recorded_at,
        }
        return self.key.signed(fields | ({"topics": topics} if topics else {}))

    def _write(self, identity: str, signed: dict[str, Any]) -> None:
        write_text(self._path(identity), json.dumps(signed, indent=2) + "\n")

    def _path(self, identity: str) -> Path:
        return self.folder / f"{identity}.json"


def _parse(content: Any) -> Anchor | None:
    if not isinstance(content, dict) or content.keys() | {"topics"} != _FIELDS.keys():
        return None
    if any(type(value) is not _FIELDS[name] for name, value in content.items()):
        return None
    return Anchor(**content)


def _examine(
    entries: Sequence[Entry], remembered: Any, key: str | None, accepted: set[str] | None
) -> tuple[str | None, Anchor | None]:
    """What is wrong with a ledger as seen from here (None: nothing), and its anchor."""
    if remembered is None:
        return "missing", None
    anchor = _parse(remembered)
    if anchor is None or anchor.identity != identity_of(entries) or not anchor.is_authentic():
        return "altered", None
    if anchor.sequence > len(entries):
        return "behind", anchor
    there = entries[anchor.sequence - 1].digest if anchor.sequence > 0 else GENESIS
    if there != anchor.digest:
        return "forked", anchor
    # Last, because a lost ADOPT entry makes this machine's own anchor a foreign one.
    known = known_keys(entries) if accepted is None else accepted
    if not {anchor.key, key or anchor.key} <= known:
        return "foreign", anchor
    return None, anchor


def _named(anchor: Anchor | None) -> tuple[int, str]:
    return (0, "") if anchor is None else (anchor.sequence, anchor.digest)
