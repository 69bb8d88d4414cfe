"""What labels bought between sites were worth to who bought them, and what they cost the sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.reports.report import Report, Table, Verdict, section
from dpal.reports.validation_figures import percent


def retraining_report(
    facts: Mapping[str, Any], figures: Mapping[str, float], *, digest: str
) -> Report:
    """The report of a retraining.

    Args:
      facts: what came of it.
      figures: balanced accuracy `before` and `after`; empty where there are none to show.
      digest: of the facts.
    """
    gain = figures["after"] - figures["before"] if figures else 0.0
    bought = (f"{facts['answers']:,}", "answers bought", f"of {facts['sites']:,} sites")
    cards = [bought, (f"{facts['records']:,}", "own records", "that were labeled before")]
    if figures:
        cards += [
            (percent(figures["before"]), "balanced accuracy before", "own records alone"),
            (percent(figures["after"]), "balanced accuracy after", "own records and answers"),
        ]
    kept = facts["epsilon"] <= facts["promised"]
    return Report(
        title=f"Retraining {facts['name']}",
        about=(
            f"Labels that sites gave in the vote `{facts['vote']}`, none of which trusts another, "
            "and what a model learned from them."
        ),
        promise=(
            f"epsilon {facts['promised']:g} at delta {facts['delta']:.3g} for every record of "
            "every site, over all who ask"
        ),
        verdict=Verdict(
            _verdict(facts, figures, gain),
            "mind" if gain < 0 else "kept",
            (
                (kept, f"all that can be asked costs every record epsilon {facts['epsilon']:.4f}"),
                (True, "answers have noise already: learning from them costs the sites nothing"),
            ),
        ),
        cards=tuple(cards),
        sections=(
            section("What the answers were worth", _worth(figures), _where(facts, figures)),
            section("What was asked", _asked(facts)),
            section(
                "What is not promised",
                "The model is trained without noise on own records: nothing protects these, and it "
                "stays with its owner.",
                "The guardian's certificate says what the sites lost (`dpal verify`); this page "
                "repeats the plan.",
            ),
        ),
        digests=(("plan of the vote", facts["plan"]), ("this retraining", digest)),
    )


def _verdict(facts: Mapping[str, Any], figures: Mapping[str, float], gain: float) -> str:
    if not figures:
        return f"{facts['answers']:,} answers were bought and learned from"
    if gain < 0:
        return "The model is worse with the answers than without them: do not use it"
    return f"The answers are worth {100 * gain:.1f} points of balanced accuracy"


def _worth(figures: Mapping[str, float]) -> Table | None:
    if not figures:
        return None
    rows = (
        ("own records alone", percent(figures["before"])),
        ("own records and answers", percent(figures["after"])),
    )
    return Table("Balanced accuracy on the test records", ("trained on", "figure"), rows)


def _where(facts: Mapping[str, Any], figures: Mapping[str, float]) -> str:
    if not facts["judged"]:
        return "No test records were named: nothing says what the answers are worth."
    public = facts["why_public"], facts.get("why_own_public", "")
    if not figures:
        return (
            "Nobody declared both own and test records public, so that figures are in the owner's "
            "own report, below `confidential/retrained`."
        )
    if not all(public):
        return "Nobody declared both own and test records public: this page is for their owner."
    return f"The test records are public: {public[0]}. So are the own records: {public[1]}."


def _asked(facts: Mapping[str, Any]) -> Table:
    rows = (
        ("sites", f"{facts['sites']:,}"),
        ("mechanism", facts["mechanism"]),
        ("labels or classes", f"{facts['labels']:,}"),
        ("noise on a count (sigma)", f"{facts['sigma']:g} votes"),
        ("sites that may collude", f"{facts['colluding']:,}"),
        ("sites that may be absent", f"{facts['absent']:,}"),
        ("cost of all batches", f"epsilon {facts['epsilon']:.4f} of {facts['promised']:g}"),
    )
    return Table("The vote", ("what", "value"), rows)
