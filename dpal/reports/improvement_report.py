"""The report of an improved model: what it cost, what was chosen, what it gained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.certificate.sentences import statements
from dpal.reports.annotator_agreement_tables import labeling_is_kept
from dpal.reports.report import Picture, Report, Table, section, table
from dpal.reports.run_report import RunFacts, run_report, spent_bars
from dpal.reports.validation_figures import figures_in, headline, percent

START = "start_"  # of the start's figures in the metrics

_METHODS = {
    "random": "drawn at random; free",
    "uncertain_entropy": "those of highest entropy; free",
    "uncertain_margin": "those with the smallest gap between the two largest logits; free",
    "diverse_public": "uncertain ones, spread over clusters of their embeddings; free",
    "near_private": "uncertain ones that private records lie near to, by a noisy vote; charged",
}


def improvement_table(summary: Mapping[str, Any], metrics: Mapping[str, Any]) -> Table:
    """Figures on the validation set before and after."""
    before, after = figures_in(metrics, prefix=START), figures_in(metrics)
    rows = [(name, percent(before[name]), percent(after[name])) for name in after if name in before]
    rows.append(("epsilon", f"{summary['start_epsilon']:.4f}", f"{summary['epsilon']:.4f}"))
    return Table("Before and after", ("validation", "start", "improved"), tuple(rows))


def spending_by_release_table(summary: Mapping[str, Any]) -> Table:
    """What was released about private records, and what all of it comes to."""
    rows = [("start", summary["start"] or "a model's file", f"{summary['start_epsilon']:.4f}")]
    for release in summary["releases"]:
        rows.append((release["release"], _mechanism(release), "in the total"))
    rows.append(("in all", f"delta {summary['delta']:.3g}", f"{summary['epsilon']:.4f}"))
    return Table("What private records have spent", ("release", "how", "epsilon"), tuple(rows))


def choice_table(summary: Mapping[str, Any]) -> Table:
    """Which public records will be labeled."""
    rows = [("method", str(summary["method"])), ("labels", f"{summary['labels']:,}")]
    if summary["method"] in ("diverse_public", "near_private"):
        rows.append(("most uncertain candidates", f"{summary['candidates']:,}"))
        rows.append(("uncertainty", str(summary["uncertainty"])))
        rows.append(("components of the embeddings", str(summary["components"])))
    if summary["method"] == "diverse_public":
        rows.append(("clusters x of each", f"{summary['clusters']:,} x {summary['each']:,}"))
    return Table("Public records to be labeled", ("setting", "value"), tuple(rows))


def pollution_table(metrics: Mapping[str, Any]) -> Table:
    """How many irrelevant records the choice let through."""
    shares = {"the public pool": "irrelevant_in_pool", "the chosen": "irrelevant_chosen"}
    rows = ({"of": of, "share": percent(metrics[key])} for of, key in shares.items())
    return table("Irrelevant public records", rows)


def improvement_report(
    facts: RunFacts,
    metrics: Mapping[str, Any],
    *,
    pictures: Sequence[Picture] = (),
    asks_people: bool = False,
) -> Report:
    """Tells an improvement.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      metrics: of the improvement's phase.
      pictures: of public records.
      asks_people: whether people gave the labels.
    """
    summary, said = facts.summary, statements("improvement")
    name, value = headline(metrics)
    before, spent = headline(metrics, prefix=START)[1], summary["epsilon"]
    declared = "The start's own cost is declared by its makers and was checked by nobody."
    beyond = (
        "Beyond the start two things were released, each charged before it was drawn."
        if summary["releases"]
        else "Beyond the start nothing was released: public records and a released model are all "
        "that was read."
    )
    bars = (("the start alone", summary["start_epsilon"]), ("all, the start included", spent))
    return run_report(
        facts,
        promised_by=(
            f"The start included, {summary['accountant'].upper()}, which keeps the promise, says "
            f"{spent:.4f}; second opinion (dp-accounting), for information: "
            f"{summary['epsilon_oracle']:.4f}.",
            *([declared] if summary["declared"] else []),
        ),
        spent=(
            beyond,
            spent_bars(bars, summary),
            spending_by_release_table(summary),
        ),
        sections=(
            section("What it bought", improvement_table(summary, metrics)),
            section(
                "Which public records were labeled",
                f"{metrics['labels']:,} public records were labeled: "
                f"{_METHODS[summary['method']]}.",
                choice_table(summary),
                pollution_table(metrics) if "irrelevant_chosen" in metrics else None,
                *pictures,
                labeling_is_kept(summary["name"]) if asks_people else None,
            ),
        ),
        uncovered=(
            said["public"],
            "the validation set and every metric computed on it are not protected",
            "how many labels, which method and how long to train were chosen by people; what they "
            "looked at for that is not accounted for",
            said["declared" if summary["declared"] else "start"],
            said["times"],
        ),
        cards=(
            (f"{metrics['labels']:,}", "public labels bought", "of records that nobody protects"),
            (percent(value), name, f"on the validation set; {percent(before)} before"),
        ),
    )


def _mechanism(release: Mapping[str, Any]) -> str:
    if release["mechanism"] == "noisy_moments":
        return f"Gaussian, noise multiplier {release['noise_multiplier']:.4g}"
    loss = release["epsilon"] * release["moved"]
    counts = "one count" if release["moved"] == 1 else "two counts"
    return f"Laplace, pure loss {loss:.4g} ({counts} a record)"
