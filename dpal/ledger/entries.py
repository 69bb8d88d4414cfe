"""What stands in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _as_json
from typing import Any

from dpal.canonical import digest

GENESIS = "0" * 64


class EntryKind(StrEnum):
    """What happened: to the ledger itself, to data sets, to a plan and its releases.

    OPEN: the first entry of a ledger: its random identity, the public key of its anchors.
    ADOPT: a person vouched for this copy of the ledger, with a reason.
    REGISTER: a data set, and the limit that its owner set.
    LIMIT: the data owner changed a limit.
    BLOCK: records that arrived together, with their full budget.
    INDEX: known records came under other names or with other contents; both are on file.
    HOLD: a plan's worst case is set aside, before any record is touched.
    RESERVE: one release may now be drawn, once.
    CHECKPOINT: so many steps of a training release are on disk, under these digests.
    COMMIT: the release is on disk, under this digest.
    FORFEIT: the release cannot be accounted for; it stays spent, with the reason.
    END: a campaign ended; what it did not use flows back.
    """

    OPEN = "open"
    ADOPT = "adopt"
    REGISTER = "register"
    LIMIT = "limit"
    BLOCK = "block"
    INDEX = "index"
    HOLD = "hold"
    RESERVE = "reserve"
    CHECKPOINT = "checkpoint"
    COMMIT = "commit"
    FORFEIT = "forfeit"
    END = "end"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger.

    Attributes:
      sequence: 1, 2, ... without gaps.
      campaign: whose entry it is; the empty string where it is nobody's, as for OPEN.
      kind: what happened.
      release: to which release, or to what else; the empty string for a hold.
      body: details as JSON values; for a reservation, its charges.
      recorded_at: a day in UTC, ISO 8601, as `dpal.ledger.stamped_day` says; a time in entries of
        earlier versions. What came first is said by `sequence` alone.
      previous: digest of the entry before, GENESIS for the first.
      digest: SHA-256 of the canonical JSON of all of the above.
    """

    sequence: int
    campaign: str
    kind: EntryKind
    release: str
    body: dict[str, Any]
    recorded_at: str
    previous: str
    digest: str


def seal_entry(
    *,
    sequence: int,
    campaign: str,
    kind: EntryKind,
    release: str,
    body: dict[str, Any],
    recorded_at: str,
    previous: str,
) -> Entry:
    """Makes an entry whose digest commits to its content and to all entries before it."""
    content = {
        "sequence": sequence,
        "campaign": campaign,
        "kind": kind.value,
        "release": release,
        "body": body,
        "recorded_at": recorded_at,
        "previous": previous,
    }
    return Entry(
        sequence=sequence,
        campaign=campaign,
        kind=kind,
        release=release,
        body=body,
        recorded_at=recorded_at,
        previous=previous,
        digest=digest(content),
    )


def row_digest(cells: dict[str, Any]) -> str:
    """The digest of an entry as it is stored, its body as canonical JSON; equals `sealed`'s.

    Twenty times quicker than taking the body apart, so that every row can be checked as it is read.
    """
    content = (
        f'{{"body":{cells["body"]},"campaign":{_as_json(cells["campaign"])},'
        f'"kind":{_as_json(cells["kind"])},"previous":{_as_json(cells["previous"])},'
        f'"recorded_at":{_as_json(cells["recorded_at"])},"release":{_as_json(cells["release"])},'
        f'"sequence":{cells["sequence"]}}}'
    )
    return sha256(content.encode()).hexdigest()
