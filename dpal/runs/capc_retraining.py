"""Who asks sites and learns from their answers: what it has, what comes of it, and its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpal.canonical import digest, file_digest
from dpal.capc.batch_costs import certified_account
from dpal.capc.certificate_authority import PartyRole, load_identity
from dpal.capc.terms import Terms
from dpal.config.capc import QuerierConfig, SitesVoteConfig, parse_capc
from dpal.config.capc_retraining import RetrainingConfig
from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import CONFIDENTIAL
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.reports.retraining import retraining_report
from dpal.reports.write_report_files import write_report_files
from dpal.runs.site_model import read_labeled, train_site
from dpal.runs.sites_parties import Say, read_queries, run_querier

_RELEASED = "retrained"


@dataclass(frozen=True)
class RetrainingFolder:
    """Files of a retraining: what may be seen, and apart from it what stays with its owner.

    Attributes:
      root: of all, below the folder of artifacts.
    """

    root: Path

    @property
    def released(self) -> Path:
        """Folder of what may be seen, and is versioned and pushed."""
        return self.root / _RELEASED

    @property
    def confidential(self) -> Path:
        """Folder of what is versioned and never pushed: the model, answers, the owner's report."""
        return self.root / CONFIDENTIAL / _RELEASED

    @property
    def model(self) -> Path:
        """The model, trained without noise; private."""
        return self.confidential / "model.safetensors"

    @property
    def facts(self) -> Path:
        """What came of it, for programs."""
        return self.released / "retraining.json"

    def reports(self, *, owner: bool = False) -> tuple[Path, Path]:
        """The text and the page of the report: everybody's, or the owner's."""
        place = self.confidential if owner else self.released
        return place / "report.md", place / "report.html"


@dataclass(frozen=True, kw_only=True)
class Retraining:
    """What a retraining begins with: all of it was read and can be used.

    Attributes:
      config: its settings.
      vote: settings of the vote, as all parties have them.
    """

    config: RetrainingConfig
    vote: SitesVoteConfig

    @property
    def terms(self) -> Terms:
        """Of the vote."""
        return self.vote.terms()

    @property
    def folder(self) -> RetrainingFolder:
        """Its files."""
        return RetrainingFolder(self.config.runtime.artifacts / self.config.name)

    @property
    def title(self) -> str:
        """What pages call it."""
        return f"Retraining {self.config.name}"


@dataclass(frozen=True, kw_only=True)
class Retrained:
    """What came of a retraining.

    Attributes:
      facts: for everybody; with `figures` where own and test records are public.
      figures: balanced accuracy on the test records, `before` and `after`; empty without any.
        Of records that nobody declared public these are for their owner alone.
    """

    facts: Mapping[str, Any]
    figures: Mapping[str, float]

    @property
    def digest(self) -> str:
        """By which what came of it is told from what comes of other answers or records."""
        return digest(self.facts)

    def in_words(self) -> str:
        """What is told of it, in a line."""
        said = f"{self.facts['answers']:,} answers were bought and learned from"
        if shown := self.facts["figures"]:
            return (
                f"{said}: balanced accuracy {shown['before']:.2%} before and "
                f"{shown['after']:.2%} after"
            )
        return said


def begin_retraining(config: RetrainingConfig) -> Retraining:
    """Reads all that is needed, before anything is asked.

    Raises:
      ConfigError, DataError: a file is missing or cannot be used, or test records are also asked or
        learned from.
    """
    retraining = Retraining(config=config, vote=_vote_of(config.vote))
    terms = retraining.terms
    load_identity(config.key_folder, config.querier, PartyRole.QUERIER)
    read_labeled(config.records, terms)
    asked = _rows(config.queries, terms)
    if config.test is not None:
        read_labeled(config.test, terms)
        known = asked | _rows(config.records, terms)
        if both := known & _rows(config.test, terms):
            raise DataError.before_release(
                f"{{count}} records of {config.test} are also queries or own records; test on "
                "records that nothing else looks at",
                count=f"{len(both):,}",
            )
    return retraining


def buy_labels(retraining: Retraining, say: Say) -> None:
    """Asks the sites all queries that have no answer yet.

    Raises:
      VoteAborted: the vote ended before all were answered; those that were are kept.
    """
    config = retraining.config
    asking = QuerierConfig(
        vote=config.vote,
        keys=config.key_folder,
        querier=config.querier,
        queries=config.queries,
        answers=config.answers,
        patience=config.patience,
    )
    run_querier(retraining.vote, asking, say)


def learn_from_bought(retraining: Retraining) -> Retrained:
    """Trains on own records and on answers, and measures what these are worth."""
    config, vote, terms = retraining.config, retraining.vote, retraining.terms
    folder = retraining.folder
    found = train_site(
        terms,
        config.records,
        folder.model,
        bought=(config.queries, config.answers),
        test=config.test,
    )
    with atomic_write(folder.confidential / "answers.parquet") as temporary:
        shutil.copyfile(config.answers, temporary)
    figures: dict[str, float] = {}
    if config.test is not None:
        figures = {
            "before": found["balanced_accuracy_without_bought"],
            "after": found["balanced_accuracy"],
        }
    certified = certified_account(vote.name, terms)
    facts = {
        "name": config.name,
        "vote": vote.name,
        "plan": certified.plan.digest,
        "mechanism": terms.mechanism.value,
        "sites": len(terms.sites),
        "labels": terms.labels,
        "sigma": terms.sigma,
        "colluding": terms.colluding,
        "absent": terms.absent,
        "records": found["records"],
        "answers": found["bought"],
        "answers_digest": file_digest(config.answers),
        "promised": terms.epsilon,
        "delta": terms.delta,
        "epsilon": certified.epsilon,
        "judged": config.test is not None,
        "why_public": config.why_public,
        "figures": figures if config.figures_are_public else {},
    }
    if config.why_own_public:
        facts["why_own_public"] = config.why_own_public
    return Retrained(facts=facts, figures=figures)


def write_retraining(retraining: Retraining, retrained: Retrained) -> Path:
    """Writes what came of it, for programs and people; the owner's own report where figures are.

    Returns:
      The page to read first.
    """
    folder = retraining.folder
    write_text(folder.facts, json.dumps(dict(retrained.facts), indent=2, sort_keys=True) + "\n")
    pages = {False: retrained.facts["figures"]}
    if retrained.figures and not retrained.facts["figures"]:
        pages[True] = retrained.figures
    for owner, figures in pages.items():
        text, page = folder.reports(owner=owner)
        report = retraining_report(retrained.facts, figures, digest=retrained.digest)
        write_report_files(report, text=text, page=page, figures=page.parent / "figures")
    return folder.reports(owner=True in pages)[1]


def _rows(path: Path, terms: Terms) -> set[tuple[str, bytes]]:
    """Ids with their features."""
    ids, features = read_queries(path, terms.features)
    return {(name, row.tobytes()) for name, row in zip(ids, features, strict=True)}


def _vote_of(file: Path) -> SitesVoteConfig:
    try:
        values = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read as the settings of a vote") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no settings of a vote; see docs/capc.md")
    return parse_capc(SitesVoteConfig, values, file.parent)
