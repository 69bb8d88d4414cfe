"""What labels are worth that a site buys of others: balanced accuracy before and after.

Fifty sites (25 in smaller sets) have a model each, on records of their own. One more has few
labeled records and many without a label, and buys labels for as many of these as epsilon pays for,
by the protocol itself (`dpal.capc`, all parties in one process, real keys, real noise). It trains
again, and a test part that nothing else looks at judges. Beside it: plain private voting, where one
trusted machine sees every ballot, draws the least noise that the same queries need for the same
epsilon, and is charged by the answers alone. Noise is a seventh of the sites (a fifth of 25), and
was not tried out; everybody chooses the penalty of a model by cross-validation on what it is
trained on. In `usps-by-mnist` sites know other people's digits, by another camera, than are asked.

    python -m tests.accuracy.sites docs/results/sites.json [SET ...]
    python -m tests.accuracy.sites --table docs/results/sites.json
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.capc.batch_costs import certified_account
from dpal.capc.terms import SiteModel, Terms, batch_of, noise_share
from dpal.errors import PlanRejected
from dpal.planning.voting_plan import VotingSpec, least_sigma
from dpal.privacy import PrivacyTarget
from dpal.randomness import secure
from dpal.runs.site_model import LabeledFeatures, balanced_accuracy, train_heads
from dpal.runs.sites_parties import answer_of
from dpal.simulation.paired_comparison import estimate_mean
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import release
from tests.capc.together import hold_vote
from tests.conftest import SHARED

RUNS = 5
EPSILONS = (10.0, 20.0)
DELTA = 1e-5
SIDE = 14
BATCH = 5


@dataclass(frozen=True, eq=False)
class Setting:
    """One experiment.

    Attributes:
      mechanism: of the votes; with its limit.
      sites: how many there are.
      each: records of a site.
      own: labeled records of who buys.
      sigma: as in `Terms`.
      source: reads (records of sites, records of who buys, test records).
    """

    mechanism: Mechanism
    sites: int
    each: int
    own: int
    sigma: float
    source: Callable[[], tuple[LabeledFeatures, LabeledFeatures, LabeledFeatures]]
    limit: int | None = None

    def terms(self, records: LabeledFeatures, **more: Any) -> Terms:
        """Of the vote."""
        return Terms(
            sites=tuple(f"site-{number}" for number in range(self.sites)),
            labels=records.labels.shape[1], features=records.features.shape[1], queries=BATCH,
            sigma=self.sigma, delta=DELTA, mechanism=self.mechanism, limit=self.limit, **more,
        )  # fmt: skip


@cache
def digits(name: str, split: str | None = None) -> LabeledFeatures:
    """Pictures of digits at 14 x 14 pixels of 7 bits, in the middle of as much black."""
    table = pq.read_table(SHARED / f"{name}.parquet")
    if split is not None:
        table = table.filter(np.array(table["split"].to_pylist()) == split)
    shown = (Image.open(io.BytesIO(data)).convert("L") for data in table["image"].to_pylist())
    small = Image.Resampling.BOX
    pictures = [np.asarray(picture.resize((SIDE, SIDE), small)) for picture in shown]
    features = (np.stack(pictures).reshape(len(pictures), -1) // 2).astype(np.int8)
    return LabeledFeatures(features, np.eye(10, dtype=np.int8)[table["label"].to_numpy()])


@cache
def numbers(name: str, split: str) -> LabeledFeatures:
    """Features between -1 and 1, in steps of 1/127."""
    table = pq.read_table(SHARED / f"{name}.parquet")
    table = table.filter(np.array(table["split"].to_pylist()) == split)
    features = np.rint(127 * np.stack(table["features"].to_pylist())).clip(-127, 127)
    return LabeledFeatures(features.astype(np.int8), np.array(table["label"].to_pylist(), np.int8))


def _mnist() -> tuple[LabeledFeatures, LabeledFeatures, LabeledFeatures]:
    return digits("mnist-train"), digits("mnist-train"), digits("mnist-test")


def _usps() -> tuple[LabeledFeatures, LabeledFeatures, LabeledFeatures]:
    return digits("mnist-train"), digits("usps", "train"), digits("usps", "test")


def _multi(name: str) -> Callable[[], tuple[LabeledFeatures, LabeledFeatures, LabeledFeatures]]:
    return lambda: (numbers(name, "train"), numbers(name, "train"), numbers(name, "test"))


SETTINGS = {
    "mnist": Setting(Mechanism.GNMAX, 50, 1_000, 100, 7.0, _mnist),
    "usps-by-mnist": Setting(Mechanism.GNMAX, 50, 1_000, 100, 7.0, _usps),
    "scene, sets": Setting(Mechanism.POWERSET, 25, 30, 30, 5.0, _multi("scene"), limit=2),
    "scene, labels": Setting(Mechanism.BINARY, 25, 30, 30, 5.0, _multi("scene")),
    "yeast, labels": Setting(Mechanism.BINARY, 25, 40, 40, 5.0, _multi("yeast")),
    "yeast, first 4": Setting(Mechanism.TOP_M, 25, 40, 40, 5.0, _multi("yeast"), limit=4),
}


def run(name: str, epsilon: float, seed: int) -> dict[str, float]:
    """One draw of who has which records; noise is never seeded."""
    setting = SETTINGS[name]
    for_sites, for_buyer, test = setting.source()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(for_sites.features))
    shared = name.partition("-by-")[2] == ""  # one source: nobody has another's record
    held = setting.sites * setting.each
    rest = order[held:] if shared else rng.permutation(len(for_buyer.features))
    terms = setting.terms(test, epsilon=epsilon)
    many = most_batches(terms, len(rest) - setting.own)
    if many == 0:
        return {"queries": 0}
    terms = replace(terms, batches=many)
    models = site_models("mnist" if name == "usps-by-mnist" else name, seed)  # the same sites
    own = _rows(for_buyer, rest[: setting.own])
    asked = _rows(for_buyer, rest[setting.own : setting.own + many * BATCH])
    bought = LabeledFeatures(asked.features, _bought(terms, models, asked))
    plain = LabeledFeatures(asked.features, _plain(terms, models, asked))
    known = balanced_accuracy(train_heads(own, terms), test, terms)
    return {
        "queries": len(asked.features),
        "right": float((bought.labels == asked.labels).all(axis=1).mean()),
        "plain_right": float((plain.labels == asked.labels).all(axis=1).mean()),
        "site": balanced_accuracy(models[terms.sites[0]], test, terms),
        "before": known,
        "after": balanced_accuracy(train_heads(own.joined(bought), terms), test, terms),
        "plain": balanced_accuracy(train_heads(own.joined(plain), terms), test, terms),
        "truth": balanced_accuracy(train_heads(own.joined(asked), terms), test, terms),
    }


@cache
def site_models(name: str, seed: int) -> dict[str, SiteModel]:
    """A model for each site, on records of its own; the same at every epsilon."""
    setting = SETTINGS[name]
    records, _, test = setting.source()
    order = np.random.default_rng(seed).permutation(len(records.features))
    terms, each = setting.terms(test), setting.each
    return {
        site: train_heads(_rows(records, order[at * each : (at + 1) * each]), terms)
        for at, site in enumerate(terms.sites)
    }


def most_batches(terms: Terms, records: int) -> int:
    """So many batches epsilon pays for, and no more than there are records."""
    many = 0
    while (many + 1) * BATCH <= records:
        try:
            certified_account("study", replace(terms, batches=many + 1))
        except PlanRejected:
            break
        many += 1
    return many


def _bought(terms: Terms, models: dict[str, SiteModel], asked: LabeledFeatures) -> NDArray[np.int8]:
    answers = []
    for number in range(1, terms.batches + 1):
        part = asked.features[(number - 1) * BATCH : number * BATCH]
        batch = batch_of(terms, number, len(part), terms.sites)
        noise = {site: noise_share(terms, batch, rng=secure()) for site in terms.sites}
        vote = hold_vote(terms, models, part, noise, number=number)
        answers += [answer_of(terms, row, "").labels for row in vote.answers]
    return np.array(answers, dtype=np.int8)


def _plain(terms: Terms, models: dict[str, SiteModel], asked: LabeledFeatures) -> NDArray[np.int8]:
    rule = VotingRule(
        mechanism=terms.mechanism, teachers=len(models), labels=terms.labels, sigma=1.0,
        limit=terms.limit,
    ).charged(by_answers=True)  # fmt: skip
    target = PrivacyTarget(epsilon=terms.epsilon, delta=terms.delta)
    spec = VotingSpec(name="plain", target=target, rule=rule, blocks=(len(asked.features),))
    rule = replace(rule, sigma=least_sigma(spec, len(asked.features)))
    cast: Ballots | Choices
    if terms.mechanism is Mechanism.GNMAX:
        ballots = [model.ballots(asked.features, terms.rule) for model in models.values()]
        cast = Choices(np.stack([one.argmax(axis=1) for one in ballots], axis=1), terms.labels)
        chosen = release(rule, cast, rng=secure()).labels
        return np.asarray(np.eye(terms.labels, dtype=np.int8)[chosen])
    labels = replace(terms, mechanism=Mechanism.BINARY, limit=None).rule
    votes = [model.ballots(asked.features, labels) for model in models.values()]
    cast = Ballots.of(np.stack(votes, axis=1))
    return release(rule, cast, rng=secure()).labels.astype(np.int8)


def _rows(records: LabeledFeatures, rows: NDArray[np.int64]) -> LabeledFeatures:
    return LabeledFeatures(records.features[rows], records.labels[rows])


def study(file: Path, names: list[str]) -> None:
    """Runs what is missing; what is done stays done."""
    done: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    for seed in range(RUNS):
        for name in names:
            for epsilon in EPSILONS:
                key = f"{name} | {epsilon:g} | {seed}"
                if key not in done:
                    done[key] = run(name, epsilon, seed)
                    file.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
                    print(key, done[key], flush=True)


def table(file: Path) -> str:
    """Markdown, means with the half width of their 95 % interval."""
    done = json.loads(file.read_text())
    rows = ["| set | epsilon | queries | answers right | plain | before | after | plain | truth |",
            "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in SETTINGS:
        for epsilon in EPSILONS:
            runs = [done[key] for key in done if key.startswith(f"{name} | {epsilon:g} | ")]
            if runs and not runs[0]["queries"]:
                rows.append(f"| {name} | {epsilon:g} | none |" + " |" * 6)
            elif runs:
                shown = ("right", "plain_right", "before", "after", "plain", "truth")
                figures = [estimate_mean([100 * one[key] for one in runs]) for key in shown]
                told = " | ".join(f"{one.mean:.1f} ± {one.half_width:.1f}" for one in figures)
                rows.append(f"| {name} | {epsilon:g} | {runs[0]['queries']:g} | {told} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print(table(Path(sys.argv[2])))
    else:
        study(Path(sys.argv[1]), sys.argv[2:] or list(SETTINGS))
