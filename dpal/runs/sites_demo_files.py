"""A vote between five sites on the sample data: their keys, models and settings, and a page."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray
from PIL import Image

from dpal.capc.batch_costs import certified_account
from dpal.capc.certificate_authority import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    REVOKED,
    PartyRole,
    enrol,
    make_authority,
    make_key,
    requested,
)
from dpal.capc.terms import Features
from dpal.config.capc import SitesVoteConfig, parse_capc
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.reports.render.html import html_of
from dpal.reports.report import Report, Table, Verdict, section
from dpal.reports.sites_vote_costs import sites_vote_facts, sites_vote_tables
from dpal.runs.site_model import LabeledFeatures, train_heads, write_site_model
from dpal.runs.sites_parties import read_answers

QUESTIONS = ("even", "five or more", "has a loop")
_LOOPS = (0, 6, 8, 9)
_SITES = ("north", "east", "south", "west", "centre")
_RECORDS = 2_000  # of each site
_QUERIES = 12
_STRENGTH = 0.01  # enough for so many records, and no time to look for another
_SIDE, _COARSER = 28, 2
_KEEPER, _ASKER = "keeper", "ministry"


@dataclass(frozen=True)
class Demo:
    """Where everything of it lies.

    Attributes:
      folder: of all.
      guardian: settings.
      sites: settings, by name.
      querier: settings.
      queries: what is asked, with the truth beside it.
      answers: what comes of it.
      certificate: the guardian's.
    """

    folder: Path
    guardian: Path
    sites: Mapping[str, Path]
    querier: Path
    queries: Path
    answers: Path
    certificate: Path


def prepare_demo(folder: Path, data: Path, port: int) -> Demo:
    """Makes keys, trains a model for each site on records of its own, writes all settings.

    Args:
      folder: new.
      data: of the sample data.
      port: at which the guardian listens on this machine.

    Raises:
      DataError: the folder is there already, or the sample data are not.
    """
    if folder.exists():
        raise DataError.before_release(f"{folder} is there already; name another --folder")
    images, digits = _read(data / "digits-pool.parquet", _RECORDS * len(_SITES))
    vote = folder / "vote.yaml"
    _settings(
        vote,
        {
            "name": "digits-between-sites",
            "guardian": _KEEPER,
            "address": f"127.0.0.1:{port}",
            "sites": list(_SITES),
            "labels": len(QUESTIONS),
            "features": images.shape[1],
            "queries": _QUERIES,
            "batches": 1,
            "sigma": 2.5,
            "epsilon": 20.0,
            "delta": 1e-4,
        },
    )
    terms = _vote_in(folder).terms()
    authority = folder / "authority"
    make_authority(authority, "digits")
    for name, role in _parties():
        _enrolled(authority, folder / name / "keys", name, role)
    for place, site in enumerate(_SITES):
        own = slice(place * _RECORDS, (place + 1) * _RECORDS)
        records = LabeledFeatures(images[own], questions_of(digits[own]).astype(np.int8))
        model = train_heads(records, terms, strengths=(_STRENGTH,))
        write_site_model(folder / site / "model.safetensors", model)
        values = {"site": site, "model": "model.safetensors"}
        _settings(folder / site / "site.yaml", {**_shared(), **values})
    # Anchors beside it, and not in the user's own folder: the demo may be thrown away.
    anchors = str((folder / _KEEPER / "anchors").resolve())
    runtime = {"runtime": {"artifacts": "artifacts", "anchors": anchors}}
    _settings(folder / _KEEPER / "guardian.yaml", {**_shared(), **runtime})
    queries = folder / _ASKER / "queries.parquet"
    _write_queries(queries, *_read(data / "digits-public.parquet", _QUERIES))
    values = {"querier": _ASKER, "queries": "queries.parquet", "answers": "answers.parquet"}
    _settings(folder / _ASKER / "query.yaml", {**_shared(), **values})
    return Demo(
        folder=folder,
        guardian=folder / _KEEPER / "guardian.yaml",
        sites={site: folder / site / "site.yaml" for site in _SITES},
        querier=folder / _ASKER / "query.yaml",
        queries=queries,
        answers=folder / _ASKER / "answers.parquet",
        certificate=folder / _KEEPER / "artifacts" / "digits-between-sites" / "certificate.json",
    )


def write_demo_page(demo: Demo) -> Path:
    """Writes what was asked, answered and spent, beside the truth, which only a demo knows."""
    vote = _vote_in(demo.folder)
    certified = certified_account(vote.name, vote.terms())
    answers = {name: answer.labels for name, answer in read_answers(demo.answers).items()}
    truth = {
        row["id"]: questions_of(np.array([row["digit"]]))[0].tolist()
        for row in pq.read_table(demo.queries, columns=["id", "digit"]).to_pylist()
    }
    right = sum(
        said == true
        for name, row in answers.items()
        for said, true in zip(row, truth[name], strict=True)
    )
    total = len(answers) * len(QUESTIONS)
    kept = certified.epsilon <= vote.epsilon and demo.certificate.is_file()
    rows = tuple(
        (name, *(_shown(said, true) for said, true in zip(row, truth[name], strict=True)))
        for name, row in answers.items()
    )
    page = demo.folder / "report.html"
    report = Report(
        title=f"Vote {vote.name}",
        about="Five sites, a guardian and who asks, each a process of its own with its own keys.",
        promise=f"epsilon {vote.epsilon:g} at delta {vote.delta:g} for every record of every site",
        verdict=Verdict(
            "Nobody saw the queries, a model or a vote" if kept else "The vote did not end well",
            "kept" if kept else "broken",
            (
                (kept, f"all that can be asked costs epsilon {certified.epsilon:.4f}"),
                (demo.certificate.is_file(), f"certified in {demo.certificate}"),
            ),
        ),
        cards=(
            (f"{len(answers)}", "queries answered", f"{len(QUESTIONS)} questions each"),
            (f"{right} of {total}", "answers are the truth", "with noise, from five sites"),
            (f"{certified.epsilon:.2f}", "epsilon", f"of {vote.epsilon:g} promised"),
        ),
        sections=(
            section(
                "What was answered",
                Table("Noisy majorities", ("query", *QUESTIONS), rows),
                note="The truth is shown where an answer differs from it; who asks has no truth.",
            ),
            section("What it costs", *sites_vote_tables(sites_vote_facts(certified, vote.terms()))),
        ),
        digests=(("plan", certified.plan.digest),),
    )
    write_text(page, html_of(report))
    return page


def questions_of(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, questions) the truth about digits."""
    answers = [digits % 2 == 0, digits >= 5, np.isin(digits, _LOOPS)]
    return np.stack(answers, axis=1).astype(np.int64)


def _vote_in(folder: Path) -> SitesVoteConfig:
    values = yaml.safe_load((folder / "vote.yaml").read_text(encoding="utf-8"))
    return parse_capc(SitesVoteConfig, values, folder)


def _shown(said: int, true: int) -> str:
    words = ("no", "yes")
    return words[said] if said == true else f"{words[said]} (truth: {words[true]})"


def _parties() -> Sequence[tuple[str, PartyRole]]:
    sites = [(site, PartyRole.SITE) for site in _SITES]
    return [*sites, (_KEEPER, PartyRole.GUARDIAN), (_ASKER, PartyRole.QUERIER)]


def _shared() -> dict[str, str]:
    return {"vote": "../vote.yaml", "keys": "keys"}


def _enrolled(authority: Path, keys: Path, name: str, role: PartyRole) -> None:
    make_key(keys, name, role)
    request = keys / REQUEST
    shutil.copy(enrol(authority, request, requested(request)[2]), keys / CERTIFICATE)
    for file in (AUTHORITY, REVOKED):
        shutil.copy(authority / file, keys / file)


def _read(path: Path, rows: int) -> tuple[Features, NDArray[np.int64]]:
    """Coarse pixels as whole numbers of 8 bits, and digits."""
    if not path.is_file():
        raise DataError.before_release(
            f"{path} is missing; get the sample data: `make data`, or `dpal demo`"
        )
    table = pq.read_table(path, columns=["image", "label"]).slice(0, rows)
    pictures = [
        np.asarray(Image.open(io.BytesIO(data)), dtype=np.float64)
        for data in table["image"].to_pylist()
    ]
    coarse = _SIDE // _COARSER
    blocks = np.stack(pictures).reshape(-1, coarse, _COARSER, coarse, _COARSER)
    features = (blocks.mean(axis=(2, 4)) / 2).astype(np.int8)
    return features.reshape(len(pictures), -1), table["label"].to_numpy().astype(np.int64)


def _write_queries(path: Path, features: Features, digits: NDArray[np.int64]) -> None:
    table = pa.table(
        {
            "id": [f"query-{number}" for number in range(1, len(features) + 1)],
            "features": pa.array(list(features), pa.list_(pa.int8())),
            "digit": digits,
        }
    )
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)


def _settings(path: Path, values: Mapping[str, object]) -> None:
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False))
