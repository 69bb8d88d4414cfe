"""What a site has voted in, kept by the site itself: it need not believe the guardian's account.

A line is on the disk before the vote leaves. The guardian begins a batch again that ended early,
under its number, so that a site may vote in one more than once although it is charged once; in
strict mode it never does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.canonical import digest
from dpal.capc.batch_costs import batch_event, batch_release
from dpal.capc.terms import Terms
from dpal.errors import DataError, StorageError
from dpal.files.atomic_writes import sync_to_disk, writing
from dpal.privacy import Accountant, PrivacyTarget


@dataclass(frozen=True)
class SiteAccount:
    """A site's own account of one vote.

    Attributes:
      path: of its file; the lines of other votes in it are left alone.
      terms: of the vote.
    """

    path: Path
    terms: Terms

    def voted(self) -> list[int]:
        """Numbers of the batches in which the site has voted, one for each time.

        Raises:
          StorageError: the file is there and cannot be read.
          DataError: a line of it is neither a vote nor a part of one.
        """
        try:
            lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        except OSError as error:
            raise StorageError(str(self.path), error.strerror or type(error).__name__) from error
        vote, found = digest(self.terms), []
        for number, line in enumerate(lines, start=1):
            try:
                said = json.loads(line)
            except ValueError:  # torn: that vote did not leave
                continue
            except RecursionError:
                said = None
            whole = isinstance(said, dict) and isinstance(said.get("batch"), int)
            if not whole:
                raise DataError.before_release(
                    f"line {number} of {self.path} is none that a site writes into its account; "
                    "take it out, or move the file back from where it was saved"
                )
            if said.get("vote") == vote:
                found.append(said["batch"])
        return found

    def note(self, number: int, querier: str) -> None:
        """Writes down that the site votes in a batch now, for good once it returns.

        Raises:
          StorageError: it cannot be written; the vote must not leave.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        said = {"vote": digest(self.terms), "batch": number, "asked_by": querier, "at": now}
        with writing(self.path):
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
                line = ("\n" if torn else "") + json.dumps(said) + "\n"
                left = line.encode()
                while left:  # a full disk takes a part of it, and says so the next time alone
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not size:  # the name of a new file is lost with a folder that says nothing of it
                sync_to_disk(self.path.parent)

    def spent(self) -> Mapping[str, Any]:
        """What all votes that left may tell of a record; the contract of `dpal capc spent --json`.

        `epsilon` is what the guardian charges for these batches, `epsilon_of_all_votes` what they
        tell if each vote is counted, also those that the guardian says told nobody anything.
        """
        voted = self.voted()
        return {
            "vote": self.terms.name,
            "batches": len(set(voted)),
            "batches_that_may_be_asked": self.terms.batches,
            "votes": len(voted),
            "epsilon": self._epsilon(len(set(voted))),
            "epsilon_of_all_votes": self._epsilon(len(voted)),
            "promised": self.terms.epsilon,
            "delta": self.terms.delta,
        }

    def _epsilon(self, batches: int) -> float:
        if not batches:
            return 0.0
        tighter = batch_event(self.terms).renyi_is_tighter
        return campaign_epsilon(
            [batch_release(self.terms, number) for number in range(1, batches + 1)],
            PrivacyTarget(epsilon=self.terms.epsilon, delta=self.terms.delta),
            accountant=Accountant.RDP if tighter else Accountant.PLD,
        )
