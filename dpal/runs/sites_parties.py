"""The parties of a vote between sites, from their settings: what each command runs."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from dpal.canonical import digest
from dpal.capc.certificate_authority import Identity, PartyRole, load_identity
from dpal.capc.guardian_service import GuardianService
from dpal.capc.precomputed_shares import SharedQueries, ShareFolder, read_shares
from dpal.capc.querier_service import ask_sites
from dpal.capc.site_account import SiteAccount
from dpal.capc.site_service import SiteService
from dpal.capc.terms import Features, SiteModel, Terms
from dpal.config.capc import GuardianConfig, QuerierConfig, SiteConfig, SitesVoteConfig
from dpal.errors import CampaignBusy, DataError
from dpal.files.atomic_writes import atomic_write, writing

Say = Callable[[str], None]


def run_guardian(vote: SitesVoteConfig, config: GuardianConfig, say: Say) -> None:
    """Guards a vote until it is stopped.

    Raises:
      PlanRejected: the batches would cost more than is promised. Nothing is served.
      CampaignBusy: another guardian of this vote runs here.
    """
    from dpal.capc.batch_costs import certified_account  # the ledger is the guardian's alone
    from dpal.runs.sites_vote_account import open_sites_vote

    terms = vote.terms()
    identity = load_identity(config.keys, vote.guardian, PartyRole.GUARDIAN)
    certified = certified_account(vote.name, terms)
    host, port = vote.model_copy(update={"address": config.listen or vote.address}).place()

    async def serve() -> None:
        service = GuardianService(terms, identity, account, say, config.patience)
        async with service.listening(host, port) as listening:
            say(
                f"{vote.guardian} listens at {host}:{listening} for {len(terms.sites)} sites; "
                f"{account.answered()} of {terms.batches} batches are answered"
            )
            await asyncio.Event().wait()

    with open_sites_vote(certified, config.runtime) as account:
        account.certify()  # what a guardian that was killed may have left out
        asyncio.run(serve())


def run_site(vote: SitesVoteConfig, config: SiteConfig, say: Say) -> None:
    """Answers as a site until it is stopped.

    Raises:
      CampaignBusy: another process votes for this site by the same account. Of two, each would
        look whether a batch is new before the other has written that it votes in it.
    """
    identity = load_identity(config.keys, config.site, PartyRole.SITE)
    if config.site not in vote.sites:
        raise DataError.before_release(f"{config.site} is none of the sites of {vote.name}")
    own = (
        load_site_model(config.model) if config.model else ShareFolder(config.shares or Path(), say)
    )
    terms = vote.terms()
    account = SiteAccount(config.account, terms)
    account.voted()  # where it cannot be read, nothing is answered
    service = SiteService(
        terms, identity, own, vote.guardian, say, account, patience=config.patience
    )
    # Several votes may share the file of an account.
    lock = config.account.with_name(f".{config.account.name}.{digest(terms)[:16]}.lock")
    with _alone(lock, f"votes for {config.site} in {vote.name} by the account {config.account}"):
        asyncio.run(service.serve(*vote.place()))


def run_querier(vote: SitesVoteConfig, config: QuerierConfig, say: Say) -> Path:
    """Asks all queries that have no answer yet; writes answers batch by batch.

    Returns:
      The file of answers.

    Raises:
      VoteAborted: the vote ended before all were answered; those that were are in the file.
      CampaignBusy: another process asks for the same file of answers.
    """
    with only_asker(config.answers):
        _ask_unanswered(vote, config, say)
    return config.answers


def _ask_unanswered(vote: SitesVoteConfig, config: QuerierConfig, say: Say) -> None:
    terms = vote.terms()
    identity = load_identity(config.keys, config.querier, PartyRole.QUERIER)
    queries = _read_shared(config, terms) if terms.has_shares else _read_plain(config, terms)
    ids = queries.ids
    asked = dict(zip(ids, query_digests(terms, queries.told, identity), strict=True))
    answered = read_answers(config.answers, asked)
    todo = [place for place, name in enumerate(ids) if name not in answered]
    if not todo:
        say(f"all {len(ids):,} queries are answered in {config.answers}")
        return
    _write_answers(config.answers, answered)  # where it cannot be, nothing is asked
    parts = [todo[start : start + terms.queries] for start in range(0, len(todo), terms.queries)]

    def keep(place: int, released: NDArray[np.int64]) -> None:
        for query, row in zip(parts[place], released, strict=True):
            answered[ids[query]] = answer_of(terms, row, asked[ids[query]])
        _write_answers(config.answers, answered)
        say(f"{len(answered):,} of {len(ids):,} queries are answered")

    asyncio.run(
        ask_sites(
            terms,
            identity,
            vote.place(),
            vote.guardian,
            [queries.batch(part) for part in parts],
            keep,
            patience=config.patience,
        )
    )


class _Queries(NamedTuple):
    """What is asked.

    Attributes:
      ids: of all queries.
      told: (queries, ...) by which a query is told from others; private.
      batch: what is asked of some of them, by their places.
    """

    ids: list[str]
    told: NDArray[Any]
    batch: Callable[[list[int]], Features | SharedQueries]


def _read_plain(config: QuerierConfig, terms: Terms) -> _Queries:
    ids, features = read_queries(config.queries, terms.features)
    return _Queries(ids, features, lambda part: features[part])


def _read_shared(config: QuerierConfig, terms: Terms) -> _Queries:
    """Queries that sites' models were evaluated on before, and what who asks holds of it."""
    ids = _read_ids(config.queries)
    held = {site: read_shares(file) for site, file in config.shares.items()}
    if not held.keys() <= set(terms.sites) or len(held) < terms.least_live:
        raise DataError.before_release(
            f"shares are named of {len(held)} sites, and {terms.least_live} of those that vote are "
            "needed; evaluate their models (dpal capc cnn), and name the files in shares"
        )
    told = [shares.queries for shares in held.values()]
    first = told[0]
    if first is None or any(one is None or not np.array_equal(one, first) for one in told):
        raise DataError.before_release(
            "the files in shares are not all of who asks, or of different images; evaluate all "
            "sites on the same images (dpal capc cnn)"
        )
    if len(first) != len(ids):
        raise DataError.before_release(
            f"{config.queries} has {len(ids):,} ids, and {len(first):,} images were evaluated; "
            "it needs an id for each image, in their order"
        )
    return _Queries(ids, first, lambda part: SharedQueries(np.array(part, np.uint32), held))


def only_asker(answers: Path) -> AbstractContextManager[None]:
    """Two that ask for the same answers at once would have each of them charged twice."""
    return _alone(answers.with_name(f".{answers.name}.lock"), f"asks for {answers}")


@contextmanager
def _alone(lock: Path, does: str) -> Iterator[None]:
    """Holds a file's lock, for as long as this process lives at most."""
    with writing(lock):
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with writing(lock):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CampaignBusy(
                    f"another process {does} now; wait for it to end, or stop it and run the same "
                    "command again"
                ) from error
        yield
    finally:
        os.close(descriptor)


def load_site_model(path: Path) -> SiteModel:
    """Reads a site's model.

    Raises:
      DataError: the file is missing or none.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError.before_release(f"{path} cannot be read as safetensors") from error
    if tensors.keys() != {"weights", "bias"} or tensors["bias"].dtype.kind != "i":
        raise DataError.before_release(
            f"{path} must hold `weights` of 8 bits and whole numbers `bias`, and nothing else"
        )
    return SiteModel(tensors["weights"], tensors["bias"].astype(np.int64))


def _read_ids(path: Path) -> list[str]:
    try:
        ids = [str(value) for value in pq.read_table(path, columns=["id"])["id"].to_pylist()]
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError.before_release(
            f"{path} cannot be read as Parquet with the column id"
        ) from error
    return _require_distinct(path, ids)


def _require_distinct(path: Path, ids: list[str]) -> list[str]:
    if len(set(ids)) < len(ids) or not ids:
        raise DataError.before_release(f"{path} has no queries, or two with one id")
    return ids


def read_queries(path: Path, features: int) -> tuple[list[str], Features]:
    """Reads ids and (queries, features) whole numbers of 8 bits.

    Raises:
      DataError: the file is missing or has other columns, sizes or numbers.
    """
    try:
        table = pq.read_table(path, columns=["id", "features"])
        ids = [str(value) for value in table["id"].to_pylist()]
        rows = table["features"].to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError.before_release(
            f"{path} cannot be read as Parquet with the columns id and features"
        ) from error
    _require_distinct(path, ids)
    for row, values in enumerate(rows):
        if not isinstance(values, list) or len(values) != features or None in values:
            raise DataError.before_release(
                f"row {{row}} of {path} has no {features:,} features", row=row
            )
    numbers = np.array(rows)
    if (
        numbers.ndim != 2
        or numbers.dtype.kind not in "iu"
        or numbers.min() < -128
        or numbers.max() > 127
    ):
        raise DataError.before_release(
            f"features in {path} are not whole numbers between -128 and 127"
        )
    return ids, numbers.astype(np.int8)


def query_digests(terms: Terms, told: NDArray[Any], identity: Identity) -> list[str]:
    """What tells a query of a vote from others that have its id, to who asked it alone.

    Keyed by who asks: answers may be handed on, and whoever could compute the digest of a query
    could try which one it was.

    Args:
      terms: of the vote.
      told: (queries, ...) features, or digests of images.
      identity: of who asks.
    """
    key, vote = identity.secret("digests of queries"), digest(terms).encode()
    return [
        hashlib.blake2b(vote + row.tobytes(), key=key, digest_size=32).hexdigest() for row in told
    ]


class QueryAnswer(NamedTuple):
    """What sites answered.

    Attributes:
      labels: 0 or 1 for each; of classes, 1 for the one that most sites named, by noisy counts.
      query: digest of the query, see `query_digests`.
      counts: noisy counts, in the order of `BallotRule.sets`; None where none are released.
    """

    labels: Sequence[int]
    query: str
    counts: Sequence[int] | None = None


def answer_of(terms: Terms, released: NDArray[np.int64], query: str) -> QueryAnswer:
    """The answer to a query.

    Args:
      terms: of the vote.
      released: (counts,) majorities, or noisy counts; of equal ones the first counts.
      query: its digest.
    """
    if not terms.tells_counts:
        return QueryAnswer(released.tolist(), query)
    return QueryAnswer(terms.rule.sets[released.argmax()].tolist(), query, released.tolist())


def read_answers(path: Path, asked: Mapping[str, str] | None = None) -> dict[str, QueryAnswer]:
    """Answers that were written before, by id; none where there is no file.

    Args:
      path: where they are.
      asked: by id, the digest of each query that is asked now; None takes whatever was asked.

    Raises:
      DataError: the file holds none, or those of other queries with the same ids.
    """
    if not path.exists():
        return {}
    try:
        table = pq.read_table(path)
        columns = [table[name].to_pylist() for name in ("id", "labels", "query")]
        told = "counts" in table.column_names
        columns.append(table["counts"].to_pylist() if told else [None] * table.num_rows)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError.before_release(
            f"{path} exists and holds no answers; move it away"
        ) from error
    found = {name: QueryAnswer(*answer) for name, *answer in zip(*columns, strict=True)}
    if asked is not None and any(
        asked.get(name, answer.query) != answer.query for name, answer in found.items()
    ):
        raise DataError.before_release(
            f"{path} holds answers to other queries with the same ids, of a vote with other terms, "
            "or asked with another key; move it away, or name another file of answers"
        )
    return found


def _write_answers(path: Path, answered: Mapping[str, QueryAnswer]) -> None:
    answers = answered.values()
    columns = {
        "id": pa.array(list(answered), pa.string()),
        "labels": pa.array([answer.labels for answer in answers], pa.list_(pa.int8())),
        "query": pa.array([answer.query for answer in answers], pa.string()),
    }
    if any(answer.counts is not None for answer in answers):
        columns["counts"] = pa.array([answer.counts for answer in answers], pa.list_(pa.int32()))
    table = pa.table(columns)
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)
