"""Cells of a book in which a model learns from labels that were bought between sites.

Sites hold disjoint parts of the pool, a model each. Who buys has some labeled records of the
validation part and asks for as many public ones as epsilon pays for. What is released is drawn by
its law (`dpal.capc`: plain ballots, the sites' own shares of the noise), not by the protocol, which
releases the same and would take longer. Nothing is chosen on test records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, ValidationError

from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism
from dpal.book.cells import BookCell
from dpal.book.methods import OWN_RECORDS
from dpal.book.parts import DataParts
from dpal.book.results import CellPhase
from dpal.capc.account import certified_account
from dpal.capc.terms import SiteModel, Terms, batch_of, noise_share
from dpal.config.help import settings_refusal
from dpal.config.section import Count, Fraction, Section
from dpal.errors import ConfigError, PlanRejected
from dpal.planning.release_list import CertifiedList
from dpal.randomness import secure, seeded
from dpal.runs.site_model import LabeledFeatures, train_heads
from dpal.runs.sites_parties import answer_of
from dpal.training.label_metrics import answers_in, label_figures

SECTION = "sites"


class SitesCell(Section):
    """Who votes, on what, and how much noise there is; `sites.*` in a book."""

    count: Annotated[int, Field(ge=2, le=1000)] = 25
    """Sites; each has as many records of the pool as every other."""
    own: Count = 30
    """Labeled records of who buys."""
    mechanism: Mechanism = Mechanism.BINARY
    limit: PositiveFloat | None = None
    """Of the mechanisms that have one; of powerset see below."""
    largest_set: Count | None = None
    """Of powerset: labels of a set, at most."""
    sigma: PositiveFloat = 5.0
    epsilon: PositiveFloat = 10.0
    delta: Fraction = 1e-5
    batch: Count = 5
    """Queries that are charged together."""


def sites_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a book says of such a cell, in full.

    Args:
      given: by dotted key; keys of runs do not count.

    Raises:
      ConfigError: a key is unknown, or a value impossible.
    """
    prefix = f"{SECTION}."
    own = {key.removeprefix(prefix): value for key, value in given.items()
           if key.startswith(prefix)}  # fmt: skip
    if "privacy.epsilon" in given:
        own.setdefault("epsilon", given["privacy.epsilon"])
    try:
        found = SitesCell.model_validate(own)
    except ValidationError as error:
        raise settings_refusal(error, SitesCell) from error
    return {SECTION: found.model_dump(mode="json")}


def make_sites_cell(cell: BookCell, parts: DataParts) -> dict[str, Any]:
    """Makes a cell: what of a `CellResult` it decides."""
    about = SitesCell.model_validate(cell.settings[SECTION])
    if parts.public is None:
        raise ConfigError("sites are asked about public records; set public of the set")
    files = (parts.validation, parts.public)
    known, asked = (_in_any_order(_read(file), cell.seed) for file in files)
    test = _read(parts.test)
    terms = _terms(about, labels=test.labels.shape[1], features=test.features.shape[1])
    own = _rows(known, slice(about.own))
    if cell.method == OWN_RECORDS:
        figures = _figures(train_heads(own, terms), test)
        return {"figures": figures, "curve": (_point(len(own.features), figures),)}
    certified = _most_batches(about, terms, len(asked.features))
    terms = replace(terms, batches=len(certified.plan.listed))
    queries = terms.batches * about.batch
    asked = _rows(asked, slice(queries))
    models = _site_models(parts.pool, cell.seed, _of_models(terms))
    bought = _bought(terms, models, asked)
    figures = _figures(train_heads(own.joined(bought), terms), test)
    summary = certified.summary()
    right = (bought.labels == asked.labels).mean()
    return {
        "figures": figures,
        "curve": (_point(len(own.features) + queries, figures),),
        "told": {"queries": float(queries), "right_answers": float(right)},
        "plan": certified.plan.digest,
        "promise": {
            "epsilon": terms.epsilon, "spent": certified.epsilon, "delta": terms.delta,
            "adjacency": summary["adjacency"], "unit": summary["unit"],
        },
    }  # fmt: skip


def _terms(about: SitesCell, *, labels: int, features: int) -> Terms:
    powerset = about.mechanism is Mechanism.POWERSET
    return Terms(
        sites=tuple(f"site-{number}" for number in range(about.count)),
        labels=labels,
        features=features,
        queries=about.batch,
        sigma=about.sigma,
        epsilon=about.epsilon,
        delta=about.delta,
        mechanism=about.mechanism,
        limit=about.largest_set if powerset else about.limit,
    )


def _most_batches(about: SitesCell, terms: Terms, records: int) -> CertifiedList:
    """As many batches as epsilon pays for, and no more than there are records.

    Raises:
      PlanRejected: it does not pay for one.
    """
    certified_account("book", replace(terms, batches=1))
    least, beyond = 1, records // about.batch + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        try:
            certified_account("book", replace(terms, batches=middle))
        except PlanRejected:
            beyond = middle
        else:
            least = middle
    return certified_account("book", replace(terms, batches=least))


def _of_models(terms: Terms) -> Terms:
    """The same for all votes that sites have the same models for."""
    if terms.mechanism is Mechanism.GNMAX:
        return replace(terms, batches=1, epsilon=1.0)
    return replace(terms, batches=1, epsilon=1.0, mechanism=Mechanism.BINARY, limit=None)


@lru_cache(maxsize=4)
def _site_models(pool: Path, seed: int, terms: Terms) -> tuple[SiteModel, ...]:
    """A model for each site, on records of its own: the longest part of a cell."""
    records = _in_any_order(_read(pool), seed)
    each = len(records.features) // len(terms.sites)
    return tuple(
        train_heads(_rows(records, slice(at * each, (at + 1) * each)), terms)
        for at in range(len(terms.sites))
    )


def _bought(terms: Terms, models: Sequence[SiteModel], asked: LabeledFeatures) -> LabeledFeatures:
    """Labels that the vote releases; noise is drawn as sites draw it, and never seeded."""
    votes = np.sum([model.ballots(asked.features, terms.rule).astype(np.int64)
                    for model in models], axis=0)  # fmt: skip
    labels = []
    for number in range(1, terms.batches + 1):
        rows = slice((number - 1) * terms.queries, number * terms.queries)
        batch = batch_of(terms, number, terms.queries, terms.sites)
        noise = [noise_share(terms, batch, rng=secure()) for _ in terms.sites]
        counts = votes[rows] + np.sum(noise, axis=0)
        if terms.mechanism not in PLURALITY:
            counts = (2 * counts > len(models) * terms.rule.parts).astype(np.int64)
        labels += [answer_of(terms, row, "").labels for row in counts]
    return LabeledFeatures(asked.features, np.array(labels, dtype=np.int8))


def _figures(model: SiteModel, test: LabeledFeatures) -> dict[str, float]:
    """Figures of the test records, averaged over labels; a yes is where a number is at least 0."""
    numbers = test.features.astype(np.float64) @ model.weights.T.astype(np.float64) + model.bias
    scale = np.maximum(np.abs(numbers).max(axis=0), 1.0)
    guesses = 1 / (1 + np.exp(-8 * numbers / scale))
    cuts = np.full(guesses.shape[1], 0.5)
    averages = label_figures(guesses, answers_in(test.labels), cuts).averages()
    found = {key: float(value) for key, value in averages.items()}
    return {"bac": found.pop("bac"), **found}


def _point(labels: int, figures: Mapping[str, float]) -> CellPhase:
    return CellPhase(labels=labels, figures=figures, validation=0.0)


def _read(path: Path) -> LabeledFeatures:
    """Records with features between -1 and 1, in steps of 1/127, and lists of 0 and 1."""
    table = pq.read_table(path, columns=["features", "label"])
    features = np.rint(127 * np.stack(table["features"].to_pylist())).clip(-127, 127)
    labels: NDArray[np.int8] = np.array(table["label"].to_pylist(), dtype=np.int8)
    return LabeledFeatures(features.astype(np.int8), labels)


def _in_any_order(records: LabeledFeatures, seed: int) -> LabeledFeatures:
    """Files are in the order of their source, which may be that of labels."""
    order = seeded(seed, "records of sites").permutation(len(records.features))
    return _rows(records, order)


def _rows(records: LabeledFeatures, rows: slice | NDArray[np.int64]) -> LabeledFeatures:
    return LabeledFeatures(records.features[rows], records.labels[rows])
