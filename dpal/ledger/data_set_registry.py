"""Registering data sets and their blocks, and finding a pool's records among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.canonical import file_digest
from dpal.data.find_record_blocks import PlacedRecords, place_records
from dpal.data.known_records import COINCIDENCE, KnownRecords, MarkKey, OverlapCount, slabs
from dpal.data.likeness import KINDS
from dpal.data.parquet import schema_of
from dpal.data.recognition_index import (
    FORMAT,
    NARROW_BITS,
    WIDE_BITS,
    Blocks,
    IndexPart,
    IndexPartMaker,
    open_index,
    write_index,
)
from dpal.data.sources import Source
from dpal.errors import DataError, LedgerError, RecordsRegistered
from dpal.files.atomic_writes import sweep, write_once
from dpal.ledger.data_set_accounts import (
    PART,
    SALT,
    DataSet,
    IndexFile,
    Limit,
    data_set,
    data_sets,
    parts_added,
    register_body,
)
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.past_campaigns_of_records import PastCampaigns, counted
from dpal.ledger.topics import is_uncounted
from dpal.ledger.verified_entries import EntriesSoFar

OnRows = Callable[[int], object]
EarlierOn = Callable[
    [NDArray[np.bool_]], PastCampaigns
]  # of the (n,) rows of a source that are meant


def _quietly(count: int) -> None:
    """Nobody watches."""


def _none_earlier(rows: NDArray[np.bool_]) -> PastCampaigns:
    """Nothing was ever made of these records."""
    return PastCampaigns()


@dataclass(frozen=True, kw_only=True)
class Added:
    """What came of adding files to a data set.

    Attributes:
      block: the new block's number; None when nothing was new.
      new: owners in it.
      known: rows of the files whose owner or content was known already.
      copied: those among them that only look like a known record.
      unread: contents that an earlier version put on file as they were stored, and that came in
        no file since: no copies of them are recognised.
      earlier: campaigns without a data set whose spending the new block counts.
    """

    block: int | None
    new: int
    known: int
    copied: int
    unread: int
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Located:
    """A pool's records among a data set's blocks.

    Attributes:
      blocks: (n,) block of each row.
      eligible: (n,) rows that may take part: the first of each owner whose content belongs
        to the owner's block, too.
      disputed: (n,) rows whose content belongs to another block than their owner.
      owners: (n,) the eligible row of the same owner; `OUTSIDE` for a disputed row.
    """

    blocks: Blocks
    eligible: NDArray[np.bool_]
    disputed: NDArray[np.bool_]
    owners: NDArray[np.signedinteger[Any]]

    def sizes(self) -> dict[int, int]:
        """Owners by block."""
        numbers, counts = np.unique(self.blocks[self.eligible], return_counts=True)
        return {int(number): int(count) for number, count in zip(numbers, counts, strict=True)}


@dataclass(frozen=True)
class Registry:
    """Data sets of a ledger.

    Attributes:
      store: the ledger.
      folder: one folder a data set, with its salt and its index files; trusted.
    """

    store: LedgerStore
    folder: Path

    def register(self, name: str, limit: Limit, *, earlier: Sequence[str] = ()) -> None:
        """Registers a data set; doing it again with the same limit changes nothing.

        Args:
          name: of the data set.
          limit: over everything that is made of its records.
          earlier: campaigns without a data set that its first records were in.

        Raises:
          LedgerError: it is registered with another limit, or in another ledger; or earlier
            campaigns took more than the limit.
        """
        with lock_folder(self.folder / name):
            registered = data_sets(self.store.entries()).get(name)
            if registered is None:
                if any((self.folder / name).glob(f"{PART}*")):
                    raise self._lost(name)

                salt = sha256(self._make_salt()).hexdigest()

                def affordable(so_far: EntriesSoFar) -> dict[str, Any]:
                    _count(so_far.spending(earlier), earlier, name, limit)
                    return {**register_body(name, limit), "salt": salt}

                self.store.append(
                    campaign="", kind=EntryKind.REGISTER, release=name, body=affordable
                )
            elif registered.limit != limit:
                filter_ = registered.limit.filter
                raise LedgerError(
                    f"data set {name} is registered with epsilon {filter_.epsilon:g}, delta "
                    f"{filter_.delta:g}, {registered.limit.adjacency}, {registered.limit.unit}; to "
                    f"add records: dpal data add {name} FILE, to change the limit: dpal data limit "
                    f"{name} --epsilon E --reason TEXT (nothing was changed)"
                )

    def change_limit(self, name: str, epsilon: float, *, reason: str) -> Limit:
        """Records the data owner's new epsilon; the order stays as it was chosen at first.

        Raises:
          LedgerError: campaigns have taken more than that already. Nothing was changed.
        """
        limits: list[Limit] = []

        def decided(so_far: EntriesSoFar) -> dict[str, Any]:
            registered = data_set(so_far.of_data_sets(name), name)
            limit = replace(
                registered.limit, filter=replace(registered.limit.filter, epsilon=epsilon)
            )
            for account in registered.blocks:
                taken = (
                    account.epsilon_taken(registered.limit)
                    if account.sole
                    else registered.limit.filter.epsilon_of(account.taken)
                )
                fits = (
                    taken <= epsilon if account.sole else account.taken.within(limit.filter.limit)
                )
                if not fits:
                    raise LedgerError(
                        f"campaigns have taken block {account.block} of data set {name} up to "
                        f"epsilon {taken:.4f}, as it is counted for several; its limit cannot be "
                        f"{epsilon:g}, nothing was changed"
                    )
            limits.append(limit)
            return {**register_body(name, limit), "reason": reason}

        limits_so_far = self.store.entries("", EntryKind.LIMIT)
        changes = sum(entry.body["dataset"] == name for entry in limits_so_far)
        self.store.append(
            campaign="", kind=EntryKind.LIMIT, release=f"{name}/{changes + 1}", body=decided
        )
        return limits[-1]

    def add(
        self,
        name: str,
        source: Source,
        *,
        similar: str | None = None,
        earlier: EarlierOn = _none_earlier,
        on_rows: OnRows = _quietly,
    ) -> Added:
        """Makes the records of files that are not known yet a new block, with a limit of its own.

        Doing it again with the same files changes nothing.

        Args:
          name: of the data set.
          source: the files.
          similar: why records that look like known ones are other people's all the same, as the
            data owner says; stands in the ledger. Those that do look like one belong to its
            block in any case.
          earlier: is asked which campaigns without a data set the rows of the new block were in.
          on_rows: told how many more rows were read.

        Raises:
          LedgerError: no data set of this name is registered.
          DataError: a file or an index cannot be read, or too many of the records that came as
            new ones look like known ones.
        """
        with lock_folder(self.folder / name):
            registered = self._require(name)
            self.require_unregistered(source, besides=name)
            salt, kind, folder = self._make_salt(), KINDS[source.content], self.folder / name
            sweep(folder)
            maker = IndexPartMaker(folder, way=kind.WAY, width=kind.WIDTH, salt=salt)
            records = self._known(registered, registered.limit.owner_column)
            placed = place_records(source, records, folder, maker=maker, on_rows=on_rows)
            if similar is None:
                _require_few_copies(name, source, placed)
            fresh, block = placed.fresh, len(registered.blocks)
            added = Added(
                block=block if fresh.any() else None,
                new=placed.new,
                known=int((~fresh).sum()),
                copied=placed.copied,
                unread=placed.unread,
            )
            if not maker.size:
                return added
            holds = self.store.entries(None, EntryKind.HOLD)
            begun = sum(is_uncounted(entry.body) for entry in holds)
            spent = earlier(fresh) if fresh.any() else PastCampaigns()
            _count(self.store.entries(), spent.campaigns, name, registered.limit)
            part = len(registered.index)
            path = folder / f"{PART}{part}.arrow"
            blocks = placed.blocks
            blocks[fresh] = block
            write_index(maker.part(blocks), path)
            facts = {"dataset": name, "records": maker.size, "index": file_digest(path)}
            facts |= {"format": FORMAT, "salt": sha256(salt).hexdigest()}
            if fresh.any():
                facts |= {"block": added.block, "size": added.new}
                facts |= {"apart": dict(spent.apart)} if spent.apart else {}
            if similar is not None:
                facts |= {"similar": added.copied, "reason": similar}

            def counting(so_far: EntriesSoFar) -> dict[str, Any]:
                if begun != so_far.count_uncounted():
                    raise LedgerError(
                        f"a run began while records were added to {name}, and may be about them "
                        "or measured on them; nothing was added or released, type the same again"
                    )
                so_far.about_data_set(name)  # by which the new block's number was chosen
                entries = so_far.spending(spent.campaigns)
                taken = _count(entries, spent.campaigns, name, registered.limit)
                return {**facts, "earlier": taken} if taken else facts

            self.store.append(
                campaign="",
                kind=EntryKind.BLOCK if fresh.any() else EntryKind.INDEX,
                release=f"{name}/{PART}{part}",
                body=counting,
            )
            return replace(added, earlier=tuple(spent.campaigns))

    def require_new(self, name: str, source: Source) -> None:
        """Requires that few of the records that would come as new ones look like known ones.

        Raises:
          DataError: too many do.
          LedgerError: no data set of this name is registered.
        """
        _require_few_copies(name, source, self._placed(self._require(name), source, _quietly))

    def locate(self, name: str, source: Source, *, on_rows: OnRows = _quietly) -> Located:
        """Finds the block of every row of a pool.

        Raises:
          LedgerError: no data set of this name is registered.
          DataError: a record is in none of its blocks.
        """
        placed = self._placed(self._require(name), source, on_rows)
        if placed.strange:
            raise DataError.before_release(
                f"{{count}} rows of {source.name} are not in data set {name}, or have changed; its "
                f"owner can add them (new ones as a new block): dpal data add {name} "
                f"{' '.join(str(path) for path in source.paths)}",
                count=f"{placed.strange:,} of {placed.blocks.size:,}",
            )
        return Located(
            blocks=placed.blocks,
            eligible=placed.eligible,
            disputed=placed.disputed,
            owners=placed.owners,
        )

    def require_unregistered(
        self,
        source: Source,
        *,
        besides: str | None = None,
        coincidence: float = COINCIDENCE,
        on_rows: OnRows = _quietly,
    ) -> int:
        """Requires that no record belongs to a data set, whose limit would hold.

        Args:
          source: a pool, or records whose metrics are published.
          besides: a data set that is not asked about.
          coincidence: share of the contents that may be known under other names, or be like
            known ones. Contents that say little may be known more often.
          on_rows: told how many more rows were read; once for all data sets.

        Returns:
          With how many parts of data sets they were compared, for `CampaignLedger.hold`.

        Raises:
          RecordsRegistered: one does.
          LedgerError: there are data sets here that this ledger does not know.
        """
        entries = self.store.entries()
        registered = data_sets(entries)
        for place in sorted(self.folder.glob(f"*/{PART}*")):
            if place.parent.name not in registered:
                raise self._lost(place.parent.name)
        names, known = {*schema_of(source.paths[0]).names}, {}
        for name, dataset in registered.items():
            if name != besides and dataset.index:
                column = dataset.limit.owner_column
                known[name] = self._known(dataset, column if column in names else None)
        if not known:
            return parts_added(entries)
        counts = {name: OverlapCount() for name in known}
        keys = [key for records in known.values() for key in records.keys]
        for _, marks in slabs(source, keys, on_rows=on_rows):
            for name, records in known.items():
                counts[name].add(records.look_up(marks), marks[records.current])
        for name, count in counts.items():
            if count.result().is_more_than(coincidence):
                raise RecordsRegistered(
                    f"{source.name} holds records of data set {name}, or copies of them, and its "
                    "limit counts everything together that is made of them; a campaign on them "
                    f"sets data.dataset: {name}, and nothing else may use them"
                )
        return parts_added(entries)

    def _require(self, name: str) -> DataSet:
        return data_set(self.store.entries(), name)

    def _placed(self, registered: DataSet, source: Source, on_rows: OnRows) -> PlacedRecords:
        known = self._known(registered, registered.limit.owner_column)
        return place_records(source, known, self.folder / registered.name, on_rows=on_rows)

    def _known(self, registered: DataSet, owner_column: str | None) -> KnownRecords:
        """Opens all index files, after their digests were compared."""
        parts: dict[MarkKey, list[IndexPart]] = {}
        folder = self.folder / registered.name
        for file in registered.index:
            path = folder / file.name
            if file.format > FORMAT:
                raise LedgerError.before_release(
                    f"{path} was written by a later version of dpal (format {file.format}, this "
                    f"one reads {FORMAT}); use that version"
                )
            if path.is_file() and file_digest(path) != file.digest:
                raise LedgerError.before_release(
                    f"{path} is not the index that the ledger knows; restore it"
                )
            salt = self._salt(registered, file)
            bits = NARROW_BITS if file.has_own_salt else WIDE_BITS
            key = MarkKey(salt, bits, owner_column)
            parts.setdefault(key, []).append(open_index(path, salt=salt, folder=folder))
        path = self.folder / SALT
        if path.is_file():
            current = MarkKey(path.read_bytes(), WIDE_BITS, owner_column)
        else:  # nothing is written then, and earlier files are under salts of their own
            current = next(iter(parts), MarkKey(bytes(32), WIDE_BITS, owner_column))
        return KnownRecords(parts, current)

    def _make_salt(self) -> bytes:
        """The salt of all data sets together, which there is from the first one on.

        Raises:
          LedgerError: the ledger knows another one.
        """
        path = self.folder / SALT
        registered = data_sets(self.store.entries()).values()
        known = {file.salt for each in registered for file in each.index if not file.has_own_salt}
        if path.exists() or not known:
            write_once(path, os.urandom(32))
        if not path.is_file() or not known <= {sha256(path.read_bytes()).hexdigest()}:
            raise self._unrecognised(path)
        return path.read_bytes()

    def _salt(self, registered: DataSet, file: IndexFile) -> bytes:
        own = self.folder / registered.name / SALT
        path = own if file.has_own_salt else self.folder / SALT
        if not path.is_file() or sha256(path.read_bytes()).hexdigest() != file.salt:
            raise self._unrecognised(path)
        return path.read_bytes()

    def _unrecognised(self, path: Path) -> LedgerError:
        return LedgerError.before_release(
            f"{path} is missing or not the one that the ledger knows; without it records of data "
            "sets cannot be recognised, restore the folder"
        )

    def _lost(self, name: str) -> LedgerError:
        return LedgerError(
            f"{self.folder / name} holds records and the ledger {self.store.name} does not know "
            f"data set {name}: it is not the ledger that its budget was spent in; restore that "
            "one, nothing was registered or released"
        )


def _count(
    entries: Sequence[Entry], earlier: Sequence[str], name: str, limit: Limit
) -> list[dict[str, Any]]:
    return counted(entries, earlier, name, limit.filter, adjacency=limit.adjacency, unit=limit.unit)


def _require_few_copies(name: str, source: Source, placed: PlacedRecords) -> None:
    """Requires that what looks like known records is no more than coincidence explains.

    Copies that are recognised spend their originals' budget. Where there are many of them, some
    may have changed too much to be recognised, and would get a budget of their own.
    """
    copied = placed.copied
    came_as_new = copied + int(placed.fresh.sum())
    if copied > COINCIDENCE * came_as_new:
        raise DataError(
            f"{copied:,} of {came_as_new:,} new rows of {source.name} look like records of data "
            f"set {name} under other ids, and {COINCIDENCE:.0%} may by coincidence; take them "
            "out, give them the ids under which they are known, or, where they are other "
            f"people's, say so: dpal data add {name} FILE --similar REASON (nothing was added or "
            "released)"
        )
