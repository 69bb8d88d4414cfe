"""A vote between many sites as processes of this machine: queries a second, CPU, bytes.

python -m tests.benchmarks.sites_vote --sites 50 --batches 5
python -m tests.benchmarks.sites_vote --sites 50 --batches 3 --mode strict
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dpal.capc.batch_costs import bytes_of_batch, certified_account
from dpal.capc.certificate_authority import Identity, PartyRole
from dpal.capc.guardian_service import GuardianService
from dpal.capc.querier_service import ask_sites
from dpal.capc.site_account import SiteAccount
from dpal.capc.site_service import SiteService
from dpal.capc.terms import Terms, VoteMode
from dpal.config.runtime import RuntimeConfig
from dpal.runs.sites_vote_account import open_sites_vote
from tests.capc.parties import Authority
from tests.capc.together import random_models

PATIENCE = 60.0


def measured(
    sites: int,
    batches: int,
    labels: int = 20,
    features: int = 512,
    mode: VoteMode = VoteMode.HELPER,
) -> dict[str, Any]:
    """Asks batches of 20 queries; the first is not timed, as everybody begins with it."""
    terms = Terms(
        sites=tuple(f"site-{number}" for number in range(sites)), labels=labels,
        features=features, queries=20, sigma=100.0, batches=batches + 1, epsilon=20.0, delta=1e-5,
        mode=mode,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        place = Path(folder)
        authority = Authority.made(place / "authority")
        keeper = authority.enrolled("keeper", PartyRole.GUARDIAN)
        asker = authority.enrolled("asker", PartyRole.QUERIER)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        ready = multiprocessing.get_context("fork").Event()
        guardian = running.enter_context(_forked(_guard, terms, keeper, place, port, ready))
        models = random_models(terms, np.random.default_rng(1))
        answering = [
            running.enter_context(
                _forked(_answer, terms, authority.enrolled(name, PartyRole.SITE), model, port)
            )
            for name, model in models.items()
        ]
        assert ready.wait(300), "not all sites are there"
        queries = np.random.default_rng(2).integers(-128, 128, (20, features), dtype=np.int8)
        parties = {"who asks": [psutil.Process()], "guardian": [guardian], "sites": answering}
        seen: list[tuple[float, dict[str, float]]] = []

        def keep(_place: int, answers: np.ndarray) -> None:
            assert answers.shape == (20, labels)
            seen.append((time.perf_counter(), {name: _cpu(all_of) for name, all_of in
                                               parties.items()}))  # fmt: skip

        at_rest = psutil.Process().memory_info().rss / (1 << 20)
        address, many = ("127.0.0.1", port), [queries] * (batches + 1)
        asyncio.run(ask_sites(terms, asker, address, "keeper", many, keep, patience=PATIENCE))
    (began, before), (ended, after) = seen[0], seen[-1]
    count = 20 * batches
    received, sent = bytes_of_batch(terms)["querier"]
    per_query = {name: 1000 * (after[name] - before[name]) / count for name in after}
    return {
        "mode": str(mode),
        "sites": sites,
        "processes": sites + 2,
        "labels": labels,
        "features": features,
        "queries": count,
        "queries_per_second": count / (ended - began),
        "cpu_ms_per_query": per_query,
        "cpu_ms_per_query_and_site": {name: each / sites for name, each in per_query.items()},
        "megabytes_per_query_of_who_asks": {"receives": received / 20e6, "sends": sent / 20e6},
        "megabytes_per_query_and_site": (received + sent) / 20e6 / sites,
        "most_memory_of_who_asks_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "memory_of_who_asks_before_mb": at_rest,
    }


def _guard(terms: Terms, keeper: Identity, place: Path, port: int, ready: Any) -> None:
    runtime = RuntimeConfig(artifacts=place / "artifacts", anchors=place / "anchors")

    async def serve() -> None:
        service = GuardianService(terms, keeper, vote, lambda _: None, PATIENCE)
        async with service.listening("127.0.0.1", port):
            while len(service._sites) < len(terms.sites):
                await asyncio.sleep(0.05)
            ready.set()
            await asyncio.Event().wait()

    with open_sites_vote(certified_account("benchmark", terms), runtime) as vote:
        asyncio.run(serve())


def _answer(terms: Terms, identity: Identity, model: Any, port: int) -> None:
    account = SiteAccount(identity.folder / "account.jsonl", terms)
    service = SiteService(terms, identity, model, "keeper", lambda _: None, account, PATIENCE)
    asyncio.run(service.serve("127.0.0.1", port))


@contextmanager
def _forked(target: Callable[..., None], *arguments: object) -> Iterator[psutil.Process]:
    process = multiprocessing.get_context("fork").Process(
        target=target, args=arguments, daemon=True
    )
    process.start()
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=50)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--mode", choices=list(VoteMode), type=VoteMode, default=VoteMode.HELPER)
    asked = parser.parse_args()
    print(json.dumps(measured(asked.sites, asked.batches, mode=asked.mode), indent=2))
