"""The guardian's account of a vote between sites: held once, a batch at a time, whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dpal.accounting.events import Release
from dpal.canonical import digest, plain
from dpal.capc.batch_costs import batch_name
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.release_list import LISTED
from dpal.config.runtime import RuntimeConfig
from dpal.errors import LedgerError, ParameterError
from dpal.files.atomic_writes import atomic_write
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_json import release_from
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.release_list import CertifiedList, ListedPlan
from dpal.runs.run import Run, hold


@dataclass(frozen=True, kw_only=True)
class SitesVote(Run[ListedPlan]):
    """The account, while its folder is locked: one guardian at a time.

    Attributes:
      certified: all batches that may ever be asked, and their proof.
      runtime: where ledger and files are.
      working: numbers of batches that somebody works on.
    """

    kind, noun = "sites vote", "account"

    certified: CertifiedList
    runtime: RuntimeConfig
    working: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """In the ledger, and of the folder."""
        return self.plan.spec.name

    @property
    def batches(self) -> int:
        """That may ever be asked."""
        return len(self.plan.listed)

    def reserve(self) -> int:
        """As `VoteAccount.reserve`."""
        with self.ledger() as ledger:
            committed = _committed(ledger)
            opened = _reserved(ledger) - committed
            self.settle_kept(ledger, (int(name.rpartition("/")[2]) for name in opened))
            if opened:
                committed = _committed(ledger)
            free = (
                number
                for number in range(1, self.batches + 1)
                if batch_name(number) not in committed and number not in self.working
            )
            if (number := next(free, None)) is None:
                raise ParameterError.before_release(
                    f"all {self.batches} batches of {self.name} are answered or being answered, "
                    "and its promise covers no more"
                )
            ledger.reserve(self._release(number), inputs=[])
        self.working.add(number)
        return number

    def commit(self, number: int, answer: bytes) -> None:
        """As `VoteAccount.commit`."""
        with self.ledger() as ledger:
            self._settle(ledger, number, answer)

    def leave(self, number: int) -> None:
        """As `VoteAccount.leave`."""
        self.working.discard(number)

    def certify(self) -> None:
        """As `VoteAccount.certify`."""
        # torch, which it knows of, takes seconds to import.
        from dpal.runs.write_certificate import keep_certificate, program_versions

        with self.ledger() as ledger:
            committed = _committed(ledger)
            if not committed or committed != _reserved(ledger):
                return  # an open batch is certified once it is committed, by whoever answers it
            entries = ledger.store.verified()
        evidence, versions = evidence_in(entries, self.name, plain(self.plan)), program_versions()

        def certified(form: int) -> dict[str, Any]:
            return LISTED.build(evidence, versions=versions, form=form)

        keep_certificate(self.folder, certified, self.runtime)

    def answered(self) -> int:
        """Batches that are committed."""
        with self.ledger() as ledger:
            return len(_committed(ledger))

    def _release(self, number: int) -> Release:
        return release_from(self.plan.listed[number - 1])

    def _settle(self, ledger: CampaignLedger, number: int, answer: bytes | None) -> None:
        path = self.folder.root / f"votes-{number}" / "answer.bin"

        def draw() -> None:
            if answer is None:
                raise ParameterError.before_release("there is no answer to keep")
            with atomic_write(path) as temporary:
                temporary.write_bytes(answer)

        release = self._release(number)
        ledger.release_once(release, draw, inputs=[], artifacts=[path])
        if answer is not None and path.read_bytes() != answer:
            raise LedgerError.before_release(
                f"batch {number} of {self.name} has an answer already, which is not this one; ask "
                "again, under another number"
            )

    def settle_kept(self, ledger: CampaignLedger, numbers: Iterable[int]) -> None:
        """Commits what was kept and not committed, as when a guardian died: it may have been told.

        Its number is not free: an answer of other noise would have no charge. What was committed
        is compared with the ledger.
        """
        for number in numbers:
            kept = self.folder.root / f"votes-{number}" / "answer.bin"
            if number not in self.working and kept.exists():
                self._settle(ledger, number, None)


@contextmanager
def open_sites_vote(certified: CertifiedList, runtime: RuntimeConfig) -> Iterator[SitesVote]:
    """Holds the account, for one guardian at a time.

    Raises:
      CampaignBusy: another guardian has it.
      LedgerError: other terms are held under this name, or its files are gone.
    """
    vote = SitesVote(certified=certified, runtime=runtime)
    with lock_folder(vote.folder.root):
        with vote.ledger() as ledger:
            hold(
                vote,
                ledger,
                digest(certified.plan.spec),
                data=None,
                compared=None,
                changes="its terms: sites, noise, batches or promise",
            )
            vote.settle_kept(ledger, range(1, vote.batches + 1))
        yield vote


def _committed(ledger: CampaignLedger) -> set[str]:
    return _of_kind(ledger, EntryKind.COMMIT)


def _reserved(ledger: CampaignLedger) -> set[str]:
    return _of_kind(ledger, EntryKind.RESERVE)


def _of_kind(ledger: CampaignLedger, kind: EntryKind) -> set[str]:
    return {entry.release for entry in ledger.store.entries(ledger.campaign, kind)}
