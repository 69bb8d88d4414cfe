"""One look into a watched folder: new files are accepted or put into quarantine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from dpal.canonical import file_digest
from dpal.config.validation import require_public
from dpal.config.watch import WatchConfig
from dpal.data.importing.same_columns import first_imported, require_same_columns
from dpal.data.inbox.folder import (
    LONGEST_NAME,
    FileObservation,
    Inbox,
    ListedFile,
    Listing,
    observe,
)
from dpal.data.inbox.linked_pool import (
    NameHashes,
    follow_renamed,
    name_hashes,
    require_new_names,
)
from dpal.data.inbox.quarantine import free_place, put_away
from dpal.data.inbox.state import Accepted, Quarantined, WatchFolder, WatchState
from dpal.data.inspect_rows import Inventory, inspect, require_match
from dpal.data.known_records import owners_in
from dpal.data.sources import Content, Source
from dpal.data.validation_checks import require_same_names
from dpal.errors import DataError
from dpal.ledger.data_set_accounts import DataSet
from dpal.runs.labelers import NamedLabeler, labeler_of
from dpal.runs.open_ledger import open_ledger
from dpal.runs.open_sources import (
    open_pool_alone,
    open_sources,
    open_validation,
    require_alike,
)
from dpal.runs.plan_new_campaign import registry_of
from dpal.runs.progress_logging import notify

_NAME = "to-look-at-files"  # of a campaign that is never run


@dataclass
class InboxScan:
    """A look into the folder; the state is written whenever something must not be forgotten.

    Attributes:
      config: of the watch.
      folder: the watch's own files.
      known: the data set that new records are added to.
      inbox: the watched folder.
      state: what the watch remembers; grows on the way.
    """

    config: WatchConfig
    folder: WatchFolder
    known: DataSet
    inbox: Inbox
    state: WatchState
    _names: NameHashes | None = None

    def finish_quarantine(self) -> None:
        """Puts away what a crash left half put away."""
        for position, file in enumerate(self.state.quarantined):
            if not file.done:
                self._put_away(position)

    def at_all(self, listing: Listing, *, now: float) -> None:
        """Looks at every file that is new and has settled.

        Raises:
          DataError: the validation set cannot be read. No file was moved for it.
          LedgerError: data sets here are not the ledger's.
        """
        before = self.state
        self.state = replace(before, seen=observe(listing.files, before.seen, now=now))
        waiting = sum(
            not self._take(name, listing.files[name], observation, age=now - observation.since)
            for name, observation in self.state.seen.items()
            if not observation.digest
        )
        taken = len(self.state.accepted) - len(before.accepted)
        put = len(self.state.quarantined) - len(before.quarantined)
        files = (
            "1 Parquet file" if len(listing.files) == 1 else f"{len(listing.files):,} Parquet files"
        )
        others = "1 file is" if listing.others == 1 else f"{listing.others} files are"
        remark = (
            f"{files}: {taken} accepted, {put} put into quarantine, "
            f"{waiting} still arriving"
            + (
                f"; {others} left alone: only *.parquet is read, by names of at most "
                f"{LONGEST_NAME} bytes of UTF-8"
                if listing.others
                else ""
            )
        )
        # Nothing is written where nothing is new, or each idle look would cost a disk write.
        if replace(self.state, remark="") != replace(before, remark="") or not before.remark:
            self.state = replace(self.state, remark=remark)
            self.folder.write(self.state)
        notify(f"{self.config.folder}: {remark}")

    def _take(self, name: str, listed: ListedFile, seen: FileObservation, *, age: float) -> bool:
        """Accepts a file or puts it away; False while that has to wait."""
        if age < self.config.settle_seconds:
            return False
        path = Path(self.inbox.path(name))
        if not self.inbox.is_local:
            path = self.folder.files / f"{len(self.state.accepted):05d}-{name}"
        try:
            whole = self.inbox.looks_whole(name, listed.size)
            if whole is False and age < self.config.unfinished_seconds:
                return False
            if not self.inbox.is_local:
                self.inbox.fetch(name, path)
            digest = file_digest(path)
            if self.inbox.stamp(name) != seen.stamp:
                return False  # it changed while it was read
        except (DataError, OSError) as error:
            notify(f"{name} cannot be read yet ({type(error).__name__}); the next look tries again")
            return False
        judged = self._judge(name, path, digest, whole=bool(whole))
        if judged:
            observations = {**self.state.seen, name: replace(seen, digest=digest)}
            self.state = replace(self.state, seen=observations)
        if not self.inbox.is_local and all(file.path != str(path) for file in self.state.accepted):
            path.unlink(missing_ok=True)  # a copy that no campaign will read
        return judged

    def _judge(self, name: str, path: Path, digest: str, *, whole: bool) -> bool:
        if self._is_repeat(name, path, digest):
            return True
        if not whole:
            return self._quarantine(name, digest, f"{name} is not a whole Parquet file")
        if any(file.name == name for file in self.state.accepted):
            reason = (
                f"another file came before under the name {name}, and campaigns read it; put that "
                "one back, and bring new records under a new name"
            )
            return self._quarantine(name, digest, reason)
        if missing := missing_files(self.state.accepted):
            notify(f"{name} waits: {missing}")
            return False
        validation, earlier = self._validation, self._earlier_names()
        try:
            records, names = self._examine(name, path, validation, earlier)
        except DataError as error:
            reason, detail = (
                self._by_names(said.replace(str(path), name))
                for said in (str(error), error.for_owner())
            )
            return self._quarantine(name, digest, reason, detail)
        self._names = np.concatenate([earlier, names])
        accepted = Accepted(name=name, path=str(path), digest=digest, records=records)
        self.state = replace(self.state, accepted=(*self.state.accepted, accepted))
        return True

    def _by_names(self, said: str) -> str:
        """A message in which accepted files have their names in the folder."""
        for file in self.state.accepted:
            said = said.replace(file.path, file.name)
        return said

    def _is_repeat(self, name: str, path: Path, digest: str) -> bool:
        """Whether the same content was accepted before; a renamed file keeps its place."""
        every = self.state.accepted
        position = next((index for index, file in enumerate(every) if file.digest == digest), None)
        if position is None:
            return False
        if every[position].name not in self.state.seen and self.inbox.is_local:
            follow_renamed(Path(every[position].path), path, self.folder.pools)
            renamed = replace(every[position], name=name, path=str(path))
            self.state = replace(
                self.state, accepted=(*every[:position], renamed, *every[position + 1 :])
            )
        return True

    def _examine(
        self, name: str, path: Path, validation: Inventory, earlier: NameHashes
    ) -> tuple[int, NameHashes]:
        """Number of records and hashes of their ids, if a campaign can use the file.

        Raises:
          DataError: it cannot.
        """
        config = self.config.campaign_on(_NAME, path)
        source, judged = open_pool_alone(config), open_validation(config)
        require_alike(judged, source)  # in this order: what is new is imported like what stands
        require_same_names(source, judged)
        if self.state.accepted:
            first = self.state.accepted[0]
            if _kind(self._source(Path(first.path))) != _kind(source):
                raise DataError(
                    f"{name} and {first.name} differ in columns or class names; files of one pool "
                    "need the same id, content, label and split columns"
                )
            if source.content is Content.FEATURES:
                imported = first_imported(Path(file.path) for file in self.state.accepted)
                require_same_columns([path] if imported is None else [imported, path])
        if source.label_column is None:
            source = replace(source, task=validation.task)
        holds = inspect(source)
        require_match(holds, validation)
        labeler = labeler_of(self.config.campaign_on(_NAME, path).labeler)
        if labeler.reads_pool:
            _require_labels(labeler, name, holds, validation)
        names = name_hashes(source)
        require_new_names(name, names, earlier)
        owner = self.known.limit.owner_column
        if owner != "id":
            owners_in(source, owner)
        runtime = self.config.campaign.runtime
        with closing(open_ledger(runtime, create=False)) as store:
            registry = registry_of(runtime.artifacts, store)
            registry.require_unregistered(source, besides=self.config.dataset)
            registry.require_new(self.config.dataset, source)
        return holds.rows, names

    def _source(self, path: Path) -> Source:
        return open_sources(self.config.campaign_on(_NAME, path))[0]

    @cached_property
    def _validation(self) -> Inventory:
        """What the validation set holds; read once a look."""
        config = self.config.campaign_on(_NAME, Path())
        place = require_public(config)
        _, validation = open_sources(self.config.campaign_on(_NAME, place))
        inventory = inspect(validation)
        return replace(inventory, classes=max(inventory.classes, len(validation.class_names)))

    def _earlier_names(self) -> NameHashes:
        """Hashes of all ids that were accepted so far; read once a look."""
        if self._names is None:
            parts = [name_hashes(self._source(Path(file.path))) for file in self.state.accepted]
            self._names = np.concatenate([np.zeros(0, np.uint64), *parts])
        return self._names

    def _quarantine(self, name: str, digest: str, reason: str, detail: str = "") -> bool:
        free = free_place(Inbox.at(self.config.quarantine_place), name)
        quarantined = Quarantined(
            name=name, digest=digest, reason=reason, place=free, detail=detail
        )
        self.state = replace(self.state, quarantined=(*self.state.quarantined, quarantined))
        self.folder.write(self.state)  # before it is moved: a crash is then gone on from
        self._put_away(len(self.state.quarantined) - 1)
        return True

    def _put_away(self, position: int) -> None:
        every = self.state.quarantined
        file = every[position]
        place = put_away(
            self.inbox,
            file.name,
            Inbox.at(self.config.quarantine_place),
            file.place,
            file.detail or file.reason,
            here=self.folder.quarantine,
            stays=self._is_used_by_others(file),
        )
        done = replace(file, place=place, done=True)
        self.state = replace(
            self.state, quarantined=(*every[:position], done, *every[position + 1 :])
        )
        self.folder.write(self.state)
        notify(f"{file.name} was put into quarantine: {file.reason}")

    def _is_used_by_others(self, file: Quarantined) -> bool:
        """Whether another watch here accepted a file, whose campaigns then read it where it is."""
        for state in self.folder.root.parent.glob(f"*/{self.folder.state.name}"):
            if state == self.folder.state:
                continue
            try:
                accepted = WatchFolder(state.parent).read().accepted
            except DataError:  # it is damaged, and may have been among them
                return True
            if any((one.name, one.digest) == (file.name, file.digest) for one in accepted):
                return True
        return False


def missing_files(accepted: Iterable[Accepted]) -> str:
    """Says which accepted files are not where they were; empty when all are."""
    missing = [file.name for file in accepted if not Path(file.path).is_file()]
    if not missing:
        return ""
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    return (
        f"{missing[0]}{more}, which campaigns read, left the folder; put back what was accepted, "
        "as every later campaign is about all of it"
    )


def _kind(source: Source) -> Source:
    """A source without its files and what reads them."""
    return replace(source, paths=(), encoding=None, extractor=None)


def _require_labels(
    labeler: NamedLabeler, name: str, holds: Inventory, validation: Inventory
) -> None:
    """Requires the labels that a labeler reads in a file."""
    if not holds.fully_labeled:
        raise DataError(
            f"{name} has records without a label, and labeler.kind {labeler.name} reads them there"
        )
    if holds.classes > validation.classes:
        raise DataError(
            f"{name} has labels above {validation.classes - 1}, the highest class of the "
            "validation set"
        )
