"""A site's private heads: trained on its own records, and on answers that it bought.

A site that asks others becomes a better one. What it trains on is its own, so nothing here is
private towards it; its model stays with it, and is protected by the votes that it takes part in.
Answers were released with noise and may be used freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc.ballots_by_comparison import ballot_rule
from dpal.capc.terms import Features, SiteModel, Terms
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write
from dpal.runs.sites_parties import read_answers, read_queries

STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # inverse, of the penalty on weights of features in [-1, 1]
_PARTS = 3  # of the cross-validation that chooses one
_LARGEST_WEIGHT = 127


@dataclass(frozen=True, eq=False)
class LabeledFeatures:
    """Records of one owner.

    Attributes:
      features: (n, features) whole numbers of 8 bits.
      labels: (n, labels) of 0 and 1; of classes exactly one is 1.
    """

    features: Features
    labels: NDArray[np.int8]

    def joined(self, other: LabeledFeatures) -> LabeledFeatures:
        """Both, one after the other."""
        return LabeledFeatures(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.labels, other.labels]),
        )


def read_labeled(path: Path, terms: Terms) -> LabeledFeatures:
    """Reads records with `id`, `features` and `label` (a class number) or `labels` (0 or 1 each).

    Raises:
      DataError: the file is missing, or has other columns, sizes or numbers.
    """
    _require_features(terms)
    _, features = read_queries(path, terms.features)
    one = terms.mechanism is Mechanism.GNMAX
    name = "label" if one else "labels"
    try:
        values = pq.read_table(path, columns=[name])[name].to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError.before_release(
            f"{path} has no column {name}; {terms.mechanism} votes are on "
            f"{'class numbers' if one else 'lists of 0 and 1'}"
        ) from error
    for row, value in enumerate(values):
        if not _fits(value, terms.labels, one=one):
            wanted = f"a class from 0 to {terms.labels - 1}" if one else f"{terms.labels} of 0 or 1"
            raise DataError.before_release(f"row {{row}} of {path} does not have {wanted}", row=row)
    labels = np.eye(terms.labels)[values] if one else np.array(values)
    return LabeledFeatures(features, labels.astype(np.int8))


def _require_features(terms: Terms) -> None:
    if terms.has_shares:
        raise DataError.before_release(
            "heads learn from features, and a vote in mode shares has none; ask by dpal capc "
            "query, and train on the images and their answers as you like"
        )


def read_bought(queries: Path, answers: Path, terms: Terms) -> LabeledFeatures:
    """Queries that were answered, with their answers.

    Raises:
      DataError: a file is missing or holds something else, or no query has an answer.
    """
    names, features = read_queries(queries, terms.features)
    found = read_answers(answers)
    rows = [row for row, name in enumerate(names) if name in found]
    if not rows:
        raise DataError.before_release(
            f"{answers} answers no query of {queries}; ask first: dpal capc query"
        )
    labels = [found[names[row]].labels for row in rows]
    if not all(_fits(one, terms.labels, one=False) for one in labels):
        raise DataError.before_release(
            f"{answers} holds answers of a vote on other labels; name those of this one"
        )
    return LabeledFeatures(features[rows], np.array(labels, dtype=np.int8))


def train_heads(
    records: LabeledFeatures, terms: Terms, *, strengths: Sequence[float] = STRENGTHS
) -> SiteModel:
    """Logistic regression, a head for each label or class, in whole numbers of 8 bits.

    Rare answers weigh as much in all as frequent ones. A label of which all have the same answer is
    answered so always; a class of which there is no record is named never.

    Args:
      records: at least one.
      terms: of the vote.
      strengths: of these, inverses of the penalty on weights, cross-validation on the records
        chooses one for each head.
    """
    most = terms.rule.largest_bias // 2
    if terms.mechanism is Mechanism.GNMAX:
        weights, bias = _classes(records, strengths)
        scale = np.full(terms.labels, _scale(weights))  # heads are compared with each other
    else:
        heads = [_head(records.features, answers, strengths) for answers in records.labels.T]
        weights, bias = np.stack([one for one, _ in heads]), np.array([two for _, two in heads])
        scale = np.array([_scale(one) for one in weights])
    scaled = np.nan_to_num(bias * scale, neginf=-most)
    return SiteModel(
        np.rint(weights * scale[:, None]).astype(np.int8),
        np.rint(scaled.clip(-most, most)).astype(np.int64),
    )


def train_site(
    terms: Terms,
    records: Path,
    to: Path,
    *,
    bought: tuple[Path, Path] | None = None,
    test: Path | None = None,
) -> dict[str, Any]:
    """Trains a site's model and writes it.

    Args:
      terms: of the vote.
      records: the site's own, as `read_labeled` reads them.
      to: the model's file; private.
      bought: queries and their answers.
      test: records that judge, which nothing else looks at.

    Returns:
      How many `records` and `bought` answers there were, and with `test` the `balanced_accuracy`;
      where answers were bought, it `without_bought`, too.
    """
    own = read_labeled(records, terms)
    more = None if bought is None else read_bought(*bought, terms)
    held = None if test is None else read_labeled(test, terms)
    model = train_heads(own if more is None else own.joined(more), terms)
    write_site_model(to, model)
    found: dict[str, Any] = {
        "records": len(own.features),
        "bought": 0 if more is None else len(more.features),
    }
    if held is not None:
        found["balanced_accuracy"] = balanced_accuracy(model, held, terms)
        if more is not None:
            alone = train_heads(own, terms)
            found["balanced_accuracy_without_bought"] = balanced_accuracy(alone, held, terms)
    return found


def balanced_accuracy(model: SiteModel, records: LabeledFeatures, terms: Terms) -> float:
    """Mean recall of the classes; of several labels the mean over labels of that of yes and no."""
    from sklearn.metrics import recall_score

    if terms.mechanism is Mechanism.GNMAX:
        said = model.ballots(records.features, terms.rule).argmax(axis=1)
        true = records.labels.argmax(axis=1)
        there = np.unique(true)
        return float(recall_score(true, said, labels=there, average="macro", zero_division=0))
    each = ballot_rule(Mechanism.BINARY, terms.labels)
    said_of_each = model.ballots(records.features, each).astype(int)
    recalls = [
        recall_score(true, said, labels=np.unique(true), average="macro", zero_division=0)
        for true, said in zip(records.labels.T, said_of_each.T, strict=True)
    ]
    return float(np.mean(recalls))


def write_site_model(path: Path, model: SiteModel) -> None:
    """Writes a model as `load_site_model` reads it; private."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(bytes(save({"weights": model.weights, "bias": model.bias})))


def _fits(value: object, labels: int, *, one: bool) -> bool:
    if one:
        return isinstance(value, int) and 0 <= value < labels
    return isinstance(value, list) and len(value) == labels and all(one in (0, 1) for one in value)


def _scale(weights: NDArray[np.float64]) -> float:
    return float(_LARGEST_WEIGHT / max(float(np.abs(weights).max()), 1e-12))


def _head(
    features: Features, answers: NDArray[np.int8], strengths: Sequence[float]
) -> tuple[NDArray[np.float64], float]:
    """Weights on whole numbers, and bias, of one label; constant where all answers are."""
    if (answers == answers[0]).all():
        return np.zeros(features.shape[1]), 1.0 if answers[0] else -1.0
    weights, bias = _fitted(features, answers, strengths)
    return weights[0], float(bias[0])


def _classes(
    records: LabeledFeatures, strengths: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (classes, features) on whole numbers, and biases; of absent classes -inf."""
    classes = records.labels.argmax(axis=1)
    there = np.unique(classes)
    weights = np.zeros((records.labels.shape[1], records.features.shape[1]))
    bias = np.full(len(weights), -np.inf)
    bias[there] = 0.0
    if there.size > 1:
        found, shifts = _fitted(records.features, classes, strengths)
        named = there[1:] if there.size == 2 else there  # of two, one head says which
        weights[named], bias[named] = found, shifts
    return weights, bias


def _fitted(
    features: Features, answers: NDArray[np.integer], strengths: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.linear_model import LogisticRegression  # a second to import
    from sklearn.model_selection import GridSearchCV

    fewest = int(np.unique(answers, return_counts=True)[1].min())
    # Rare labels are what sites are asked about: each answer weighs as much as the other.
    head = LogisticRegression(C=strengths[0], max_iter=500, class_weight="balanced")
    scaled = features / np.float64(_LARGEST_WEIGHT)
    if fewest >= _PARTS and len(strengths) > 1:
        search = GridSearchCV(head, {"C": list(strengths)}, cv=_PARTS, scoring="balanced_accuracy")
        head = search.fit(scaled, answers).best_estimator_
    else:
        head.fit(scaled, answers)
    return head.coef_ / _LARGEST_WEIGHT, head.intercept_
