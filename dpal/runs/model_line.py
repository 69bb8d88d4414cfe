"""Versions of one registered model: which line a run is in, and what a version is.

Everything here is public: what a certificate, a plan and released figures say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.certificate.check_against import tags_of
from dpal.certificate.promise_checks import pool_size_of
from dpal.files.artifacts import CampaignFolder
from dpal.reports.report import Table
from dpal.reports.validation_figures import (
    STANDARD_ERROR,
    figure_in,
    headline,
    headline_key,
    interval_words,
    is_protected,
    most_labels,
    percent,
    worthless,
)
from dpal.runs.protected_validation_overlap import VALIDATION_FILES, validation_commitment
from dpal.runs.run import Run

PROTECTED = "protected"  # in place of a digest: one of protected records must not leave

_PROMISE = ("epsilon", "delta", "adjacency", "unit")


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """The registered model of which runs make versions.

    Attributes:
      registered: its name in the registry.
      origin: what its versions have in common, in words.
    """

    registered: str
    origin: str


def registered_name(line: str) -> str:
    """The name in the registry of a line, or of the model of one run.

    >>> registered_name("clinic")
    'dpal-clinic'
    """
    return f"dpal-{line}"


def line_of(run: Run[Any]) -> ModelLine:
    """The line of a run's model: as settings say, else that of its data set, else its own."""
    named = run.runtime.registry.line
    if named is not None:
        return ModelLine(registered=registered_name(named), origin=f"line {named}")
    if run.dataset is not None:
        return ModelLine(registered=registered_name(run.dataset), origin=f"data set {run.dataset}")
    return ModelLine(registered=registered_name(run.name), origin=f"{run.noun} {run.name}")


@dataclass(frozen=True, kw_only=True)
class VersionFacts:
    """What sets a version apart from others of its line.

    Attributes:
      run: that made it.
      origin: of its line; None for a version that was registered before there were lines.
      promise: epsilon, delta, adjacency and unit, as tags say them.
      certificate: its digest.
      records: of the private pool; None where it was not said.
      labels: that were bought at most, as planned; None likewise.
      figure: the name of its headline figure on the validation set; None where there is none.
      value: that figure, between 0 and 1.
      interval: where validation records are protected, its 95 % interval in words.
      standard_error: of the figure.
      measured_on: digest of a public validation set, or `PROTECTED`.
      worthless: what is said of a model that is no better than the most frequent answer.
    """

    run: str
    origin: str | None
    promise: Mapping[str, str]
    certificate: str
    records: int | None = None
    labels: int | None = None
    figure: str | None = None
    value: float | None = None
    interval: str | None = None
    standard_error: float | None = None
    measured_on: str | None = None
    worthless: str | None = None

    def as_tags(self) -> dict[str, str]:
        """What the registry shows beside the tags that a certificate is compared with."""
        tags = {
            "dpal.line": self.origin,
            "dpal.records": self.records,
            "dpal.labels": self.labels,
            "dpal.figure": self.figure,
            "dpal.value": None if self.value is None else repr(self.value),
            "dpal.interval": self.interval,
            "dpal.standard_error": self.standard_error,
            "dpal.measured_on": self.measured_on,
            "dpal.worthless": self.worthless,
        }
        return {key: str(value) for key, value in tags.items() if value is not None}

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> VersionFacts:
        """Reads them back; of a version of earlier times there is the promise alone."""

        def number(key: str) -> float | None:
            return float(tags[key]) if key in tags else None

        records, labels = number("dpal.records"), number("dpal.labels")
        return cls(
            run=tags.get("dpal.campaign", "somebody"),
            origin=tags.get("dpal.line"),
            promise={key: tags.get(key, "unknown") for key in _PROMISE},
            certificate=tags.get("dpal.certificate", ""),
            records=None if records is None else int(records),
            labels=None if labels is None else int(labels),
            figure=tags.get("dpal.figure"),
            value=number("dpal.value"),
            interval=tags.get("dpal.interval"),
            standard_error=number("dpal.standard_error"),
            measured_on=tags.get("dpal.measured_on"),
            worthless=tags.get("dpal.worthless"),
        )

    def in_words(self) -> str:
        """What it is worth, in half a sentence."""
        if self.figure is None or self.value is None:
            return "no figure on a validation set"
        if self.interval is not None:
            return f"{self.figure} {percent(self.value)} ({self.interval}, records protected)"
        error = self.standard_error
        sure = "" if error is None else f" (standard error {100 * error:.2f} points)"
        return f"{self.figure} {percent(self.value)}{sure}"


def facts_of_version(
    run: Run[Any],
    certificate: Mapping[str, Any],
    released: Mapping[str, Any] | None,
    *,
    measured_on: str | None,
) -> VersionFacts:
    """What a run's model is as a version of its line.

    Args:
      run: finished.
      certificate: its certificate.
      released: metrics of the phase whose model is released; None where nothing was measured.
      measured_on: digest of the public validation set; None where there is none, or it is
        protected.
    """
    tags, metrics = tags_of(certificate), dict(released or {})
    measured = any(key.startswith("validation_") for key in metrics)
    protected = measured and is_protected(metrics)
    return VersionFacts(
        run=run.name,
        origin=line_of(run).origin,
        promise={key: tags[key] for key in _PROMISE},
        certificate=tags["dpal.certificate"],
        records=pool_size_of(certificate),
        labels=most_labels(metrics) if "labels" in metrics else None,
        figure=headline_key(metrics) if measured else None,
        value=headline(metrics)[1] if measured else None,
        interval=interval_words(metrics) if protected else None,
        standard_error=figure_in(metrics, STANDARD_ERROR),
        measured_on=PROTECTED if protected else measured_on,
        worthless=worthless(metrics) if measured else None,
    )


def is_measured_alike(run: Run[Any], now: VersionFacts, before: VersionFacts) -> bool:
    """Whether the figures of two versions are of the same records.

    That two protected validation sets are the same is known only where the files of both runs
    are, as no digest of one ever leaves.

    Args:
      run: that made the newer version.
      now: the newer version.
      before: the older one.
    """
    if now.figure is None or (now.figure, now.measured_on) != (before.figure, before.measured_on):
        return False
    if now.measured_on != PROTECTED:
        return now.measured_on is not None
    earlier, validation = CampaignFolder(run.folder.root.parent / before.run), run.protected_records
    if validation is None or not earlier.salt.is_file():
        return False
    recorded = earlier.read_record().get(VALIDATION_FILES)
    return recorded is not None and recorded == validation_commitment(earlier, validation)


def changes_table(before: tuple[str, VersionFacts], now: tuple[str, VersionFacts]) -> Table:
    """What changed since the version before, as a table.

    Args:
      before: number and facts of that version.
      now: of this one.
    """
    (older, was), (newer, is_now) = before, now
    rows: list[tuple[str, str, str, str]] = [("run", was.run, is_now.run, "")]
    for name, before_it, after_it in (
        ("records", was.records, is_now.records),
        ("labels, at most", was.labels, is_now.labels),
    ):
        if before_it is not None or after_it is not None:
            known = before_it is not None and after_it is not None
            change = f"{(after_it or 0) - (before_it or 0):+,}" if known else ""
            rows.append((name, _count(before_it), _count(after_it), change))
    if is_now.figure is not None:
        same = was.figure == is_now.figure and None not in (was.value, is_now.value)
        gain = 100 * ((is_now.value or 0.0) - (was.value or 0.0)) if same else 0.0
        rows.append(
            (
                is_now.figure,
                percent(was.value) if same and was.value is not None else "unknown",
                percent(is_now.value or 0.0),
                f"{gain:+.2f} points" if same else "",
            )
        )
    for key in _PROMISE:
        first, second = was.promise[key], is_now.promise[key]
        rows.append((key, first, second, "" if first == second else f"{first} to {second}"))
    columns = ("what", f"version {older}", f"version {newer}", "change")
    return Table("What changed", columns, tuple(rows))


def changes_in_words(rows: Sequence[Sequence[str]]) -> str:
    """The rows that changed, in a line.

    >>> changes_in_words([("run", "a", "b", ""), ("records", "600", "900", "+300")])
    'records +300'
    """
    return ", ".join(f"{row[0]} {row[3]}" for row in rows if row[3]) or "nothing but the run"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
