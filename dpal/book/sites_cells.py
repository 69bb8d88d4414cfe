"""Cells of a book in which sites vote: what they answer, and what a model learns from it.

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
from dpal.book.data_set_splits import DataParts
from dpal.book.methods import OWN_RECORDS, RELEASED_ANSWERS
from dpal.book.results import CellPhase
from dpal.capc.batch_costs import certified_account
from dpal.capc.terms import SiteModel, Terms, batch_of, noise_share
from dpal.config.section import Count, Fraction, Section
from dpal.config.settings_errors import settings_refusal
from dpal.errors import ConfigError, PlanRejected
from dpal.planning.release_list import CertifiedList
from dpal.randomness import secure, seeded
from dpal.runs.site_model import LabeledFeatures, train_heads
from dpal.runs.sites_parties import answer_of
from dpal.training.label_metrics import answers_in, label_figures

SECTION = "sites"

_MOST_QUERIES = 100_000  # where no more are counted, whatever epsilon pays for


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
    labels: Count | None = None
    """How many of the set's labels, in order; null is all of them."""


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
    values = found.model_dump(mode="json")
    if found.labels is None:  # cells made before it could be said keep their names
        del values["labels"]
    return {SECTION: values}


def make_sites_cell(cell: BookCell, parts: DataParts) -> dict[str, Any]:
    """Makes a cell: what of a `CellResult` it decides."""
    about = SitesCell.model_validate(cell.settings[SECTION])
    if parts.public is None:
        raise ConfigError("sites are asked about public records; set public of the set")
    files = (parts.validation, parts.public)
    known, asked = (_in_any_order(_read(file, about.labels), cell.seed) for file in files)
    if cell.method == RELEASED_ANSWERS:
        return _answers(about, cell, parts.pool, asked)
    test = _read(parts.test, about.labels)
    terms = _terms(about, test)
    own = _rows(known, slice(about.own))
    if cell.method == OWN_RECORDS:
        figures = _figures(train_heads(own, terms), test)
        return {"figures": figures, "curve": (_point(len(own.features), figures),)}
    certified = _most_batches(about, terms, len(asked.features))
    terms = replace(terms, batches=len(certified.plan.listed))
    queries = terms.batches * about.batch
    asked = _rows(asked, slice(queries))
    bought = _bought(terms, _models(parts.pool, about, cell.seed, terms), asked)
    figures = _figures(train_heads(own.joined(bought), terms), test)
    right = (bought.labels == asked.labels).mean()
    return {
        "figures": figures,
        "curve": (_point(len(own.features) + queries, figures),),
        "told": {"queries": float(queries), "right_answers": float(right)},
        **_promise(terms, certified),
    }


def _answers(
    about: SitesCell, cell: BookCell, pool: Path, asked: LabeledFeatures
) -> dict[str, Any]:
    """What sites answer, beside the truth.

    Queries are counted as far as epsilon pays, also where there are fewer public records; those
    that there are judge the answers.
    """
    terms = _terms(about, asked)
    certified = _most_batches(about, terms, _MOST_QUERIES)
    paid = len(certified.plan.listed)
    terms = replace(terms, batches=min(paid, len(asked.features) // about.batch))
    asked = _rows(asked, slice(terms.batches * about.batch))
    answers = _bought(terms, _models(pool, about, cell.seed, terms), asked)
    figures = _averages(answers.labels.astype(np.float64), asked.labels)
    queries = paid * about.batch
    # Answers are yes or no: an area below their curve would say no more than they do.
    figures = {name: figures[name] for name in ("bac", "acc")}
    return {
        "figures": figures,
        "curve": (_point(queries, figures),),
        "told": {"queries": float(queries), "judged_answers": float(len(asked.features))},
        **_promise(replace(terms, batches=paid), certified),
    }


def _promise(terms: Terms, certified: CertifiedList) -> dict[str, Any]:
    summary = certified.summary()
    return {
        "plan": certified.plan.digest,
        "promise": {
            "epsilon": terms.epsilon, "spent": certified.epsilon, "delta": terms.delta,
            "adjacency": summary["adjacency"], "unit": summary["unit"],
        },
    }  # fmt: skip


def _terms(about: SitesCell, records: LabeledFeatures) -> Terms:
    powerset = about.mechanism is Mechanism.POWERSET
    return Terms(
        sites=tuple(f"site-{number}" for number in range(about.count)),
        labels=records.labels.shape[1],
        features=records.features.shape[1],
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
    most = max(1, records // about.batch)
    certified, beyond = certified_account("book", replace(terms, batches=1)), 2
    while beyond <= most and (found := _account(terms, beyond)) is not None:
        certified, beyond = found, 2 * beyond
    least, beyond = len(certified.plan.listed), min(beyond, most + 1)
    while beyond - least > 1:
        middle = (least + beyond) // 2
        found = _account(terms, middle)
        if found is None:
            beyond = middle
        else:
            certified, least = found, middle
    return certified


def _account(terms: Terms, batches: int) -> CertifiedList | None:
    """What so many batches cost; None where epsilon does not pay for them."""
    try:
        return certified_account("book", replace(terms, batches=batches))
    except PlanRejected:
        return None


def _of_models(terms: Terms) -> Terms:
    """The same for all votes that sites have the same models for."""
    if terms.mechanism is Mechanism.GNMAX:
        return replace(terms, batches=1, epsilon=1.0)
    return replace(terms, batches=1, epsilon=1.0, mechanism=Mechanism.BINARY, limit=None)


def _models(pool: Path, about: SitesCell, seed: int, terms: Terms) -> tuple[SiteModel, ...]:
    return _site_models(pool, about.labels, seed, _of_models(terms))


@lru_cache(maxsize=4)
def _site_models(pool: Path, labels: int | None, seed: int, terms: Terms) -> tuple[SiteModel, ...]:
    """A model for each site, on records of its own: the longest part of a cell."""
    records = _in_any_order(_read(pool, labels), seed)
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
    return _averages(1 / (1 + np.exp(-8 * numbers / scale)), test.labels)


def _averages(guesses: NDArray[np.float64], labels: NDArray[np.int8]) -> dict[str, float]:
    cuts = np.full(guesses.shape[1], 0.5)
    averages = label_figures(guesses, answers_in(labels), cuts).averages()
    found = {key: float(value) for key, value in averages.items()}
    return {"bac": found.pop("bac"), **found}


def _point(labels: int, figures: Mapping[str, float]) -> CellPhase:
    return CellPhase(labels=labels, figures=figures, validation=0.0)


def _read(path: Path, first: int | None = None) -> LabeledFeatures:
    """Records with features between -1 and 1, in steps of 1/127, and lists of 0 and 1.

    Args:
      path: of a Parquet file.
      first: how many of its labels; None for all.
    """
    table = pq.read_table(path, columns=["features", "label"])
    features = np.rint(127 * np.stack(table["features"].to_pylist())).clip(-127, 127)
    labels: NDArray[np.int8] = np.array(table["label"].to_pylist(), dtype=np.int8)
    if first is not None and first > labels.shape[1]:
        raise ConfigError(
            f"sites.labels is {first}, and the set has {labels.shape[1]} labels; set it to at most "
            "that")  # fmt: skip
    return LabeledFeatures(features.astype(np.int8), labels[:, :first])


def _in_any_order(records: LabeledFeatures, seed: int) -> LabeledFeatures:
    """Files are in the order of their source, which may be that of labels."""
    order = seeded(seed, "records of sites").permutation(len(records.features))
    return _rows(records, order)


def _rows(records: LabeledFeatures, rows: slice | NDArray[np.int64]) -> LabeledFeatures:
    return LabeledFeatures(records.features[rows], records.labels[rows])
