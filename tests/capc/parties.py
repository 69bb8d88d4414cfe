"""Parties with certificates of their own, connected over TLS on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpal.capc.certificate_authority import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    REVOKED,
    Identity,
    PartyRole,
    enrol,
    load_identity,
    make_authority,
    make_key,
    requested,
)
from dpal.capc.guardian_service import GuardianService
from dpal.capc.precomputed_shares import ShareFolder
from dpal.capc.querier_service import ask_sites
from dpal.capc.site_account import SiteAccount
from dpal.capc.site_service import SiteService
from dpal.capc.terms import Terms, VoteMode
from tests.capc.shared_outcomes import in_mode, shared
from tests.capc.together import random_models


@dataclass
class Authority:
    """An authority, and the folders of those that it enrolled."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Authority:
        make_authority(folder, "test")
        return cls(folder)

    def enrolled(self, name: str, role: PartyRole, folder: Path | None = None) -> Identity:
        place = folder or self.folder.parent / f"{name}-keys"
        make_key(place, name, role)
        request = place / REQUEST
        shutil.copy(enrol(self.folder, request, requested(request)[2]), place / CERTIFICATE)
        self.copy_to(place)
        return load_identity(place, name, role)

    def copy_to(self, place: Path) -> None:
        for file in (AUTHORITY, REVOKED):
            shutil.copy(self.folder / file, place / file)


@dataclass
class FreeAccount:
    """An account that pays for everything, and remembers."""

    batches: int = 100
    committed: dict[int, bytes] = field(default_factory=dict)
    reserved: list[int] = field(default_factory=list)
    working: set[int] = field(default_factory=set)

    def reserve(self) -> int:
        taken = self.committed.keys() | self.working
        number = next(n for n in range(1, self.batches + 1) if n not in taken)
        self.reserved.append(number)
        self.working.add(number)
        return number

    def commit(self, number: int, answer: bytes) -> None:
        assert number in self.working and number not in self.committed
        self.committed[number] = answer

    def leave(self, number: int) -> None:
        self.working.discard(number)

    def certify(self) -> None:
        pass


@dataclass
class Stage:
    """A guardian and its sites, up and running."""

    terms: Terms
    authority: Authority
    account: Any
    service: GuardianService
    models: dict[str, Any]
    sites: dict[str, SiteService]
    tasks: dict[str, asyncio.Task[None]]
    port: int
    said: list[str]

    async def ask(
        self,
        batches: Sequence[np.ndarray],
        identity: Identity | None = None,
        patience: float = 6.0,
        name: str = "ministry",
    ) -> list[np.ndarray]:
        asked: list[Any] = list(batches)
        if self.terms.has_shares:
            asked = [shared(self.models, batch, self.folder)[0] for batch in batches]
        return await self.ask_shares(asked, identity, patience, name)

    async def ask_shares(
        self,
        asked: Sequence[Any],
        identity: Identity | None = None,
        patience: float = 6.0,
        name: str = "ministry",
    ) -> list[np.ndarray]:
        """The same, of batches as they are."""
        asker = identity or self.authority.enrolled(
            name, PartyRole.QUERIER, self.authority.folder.parent / f"{name}-{len(self.said)}"
        )
        found: list[np.ndarray] = []
        await ask_sites(
            self.terms, asker, ("127.0.0.1", self.port), "keeper", asked,
            lambda _, answers: found.append(answers), patience=patience,
        )  # fmt: skip
        return found

    @property
    def folder(self) -> Path:
        """Of folders of shares, one for each site."""
        return self.authority.folder.parent / "shares"

    async def settled(self, sites: int | None = None) -> None:
        """Waits until so many sites are there."""
        wanted = len(self.terms.sites) if sites is None else sites
        async with asyncio.timeout(20):
            while len(self.service._sites) != wanted:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def staged(
    folder: Path, terms: Terms, account: Any = None, *, patience: float = 6.0
) -> AsyncIterator[Stage]:
    """Starts a guardian and all sites; ends them."""
    authority = Authority.made(folder / "authority")
    said: list[str] = []
    account = FreeAccount() if account is None else account
    keeper = authority.enrolled("keeper", PartyRole.GUARDIAN)
    service = GuardianService(terms, keeper, account, said.append, patience)
    if terms.has_shares:
        for name in terms.sites:
            (folder / "shares" / name).mkdir(parents=True)
    plain = replace(in_mode(terms, VoteMode.HELPER), features=terms.features or 8)
    models = random_models(plain, np.random.default_rng(1))
    shares = {name: ShareFolder(folder / "shares" / name, said.append) for name in terms.sites}
    async with service.listening("127.0.0.1", 0) as port:
        sites, tasks = {}, {}
        for name in terms.sites:
            identity = authority.enrolled(name, PartyRole.SITE)
            own = shares[name] if terms.has_shares else models[name]
            sites[name] = SiteService(
                terms, identity, own, "keeper", said.append,
                SiteAccount(folder / f"{name}.jsonl", terms),
            )  # fmt: skip
            tasks[name] = asyncio.create_task(sites[name].serve("127.0.0.1", port))
        stage = Stage(terms, authority, account, service, models, sites, tasks, port, said)
        try:
            await stage.settled()
            yield stage
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
