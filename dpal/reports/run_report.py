"""The report of a run of any kind: what all of them tell, in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.plain_language import declared_public, promised
from dpal.reports.plan_and_phase_tables import kept_so_far, promise, terms
from dpal.reports.report import (
    Aside,
    Block,
    Commands,
    Facts,
    Report,
    ReportSection,
    Rows,
    Table,
    Verdict,
    capital,
    section,
    sentences,
    spent_bar,
)
from dpal.reports.validation_figures import (
    against_majority,
    is_protected,
    protection_words,
    worthless,
)
from dpal.reports.verify_commands import TRUSTED, check_commands
from dpal.reports.worth_tables import calibration_words, classes_table, worth_table


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What every kind of run has.

    Attributes:
      run: what a person calls it, such as "campaign".
      summary: of its certified plan.
      spent: epsilon that anybody protected may have lost.
      finished: whether it is done with all of its plan.
      head: sequence and digest of the last ledger entry that it shows.
      certificate: digest of its certificate; None before there is one.
      files: what lies in its folder, and what that is.
      has_model: whether a model is verified with it.
      restore: commands that bring back the files of its phases.
      reached: metrics of the phase whose model is released; None where there is none.
      calibration: of the model's probabilities, with its temperature; None where none was fitted.
      class_names: names in class order; empty when the data has none.
      why_public: why everybody may see the held-out records; empty where these are protected.
    """

    run: str
    summary: Mapping[str, Any]
    spent: float
    finished: bool
    head: Mapping[str, Any]
    certificate: str | None
    files: Rows = ()
    has_model: bool = True
    restore: Sequence[str] = ()
    reached: Mapping[str, Any] | None = None
    calibration: Mapping[str, Any] | None = None
    class_names: Sequence[str] = ()
    why_public: str = ""


def run_report(
    facts: RunFacts,
    *,
    promised_by: Sequence[Block],
    spent: Sequence[Block],
    sections: Sequence[ReportSection],
    uncovered: Sequence[str],
    cards: Sequence[tuple[str, str, str]],
    points: Sequence[tuple[bool, str]] = (),
    defect: str = "",
    checks: Rows = (),
    covered: str = "",
) -> Report:
    """Composes the report of a run.

    Args:
      facts: what every kind has.
      promised_by: who computed that the promise is kept, and how.
      spent: what was spent, in detail.
      sections: what this kind alone has to tell.
      uncovered: what the promise does not speak of.
      cards: further ones beside promise and spending.
      points: further ones of the verdict.
      defect: title of the verdict where something else than the ledger says not to rely on it.
      checks: further commands that check the run, and what they do.
      covered: what the promise is about; left out, everything that left the run.
    """
    about = covered or f"everything that left this {facts.run}"
    summary, number = facts.summary, facts.head["sequence"]
    public = facts.why_public
    digests = {
        "last ledger entry": f"entry {number}, {facts.head['digest']}" if number else "",
        "plan": summary["plan_digest"],
        "certificate": facts.certificate,
    }
    as_of = f"ledger entry {number}" if number else "its certificate; no ledger was written"
    own = (
        (f"{summary['target_epsilon']:g}", "epsilon promised", f"delta {summary['delta']:.3g}"),
        (f"{facts.spent:.4f}", "epsilon spent", f"by any {summary['unit']}, at most"),
    )
    return Report(
        title=f"{capital(facts.run)} {summary['name']}",
        about=f"Privacy report, as of {as_of}",
        promise=promise(summary),
        verdict=_verdict(facts, points, defect),
        cards=(*own, *cards),
        sections=(
            section("What was promised", Facts(promised(summary, about)), *promised_by),
            section("What was spent", *spent, note=f"Epsilon at {terms(summary)}."),
            *sections,
            *_worth(facts),
            section(
                "What this does not protect",
                sentences([*uncovered, *([declared_public(public)] if public else [])]),
            ),
            _how_to_check(facts, checks),
        ),
        digests=tuple((what, digest) for what, digest in digests.items() if digest),
    )


def spent_bars(rows: Sequence[tuple[str, float]], summary: Mapping[str, Any]) -> Table:
    """Epsilons of anybody under the promise: after what, and how much."""
    target = summary["target_epsilon"]
    return Table(
        f"Epsilon of any {summary['unit']}",
        ("after", "epsilon"),
        tuple((name, f"{epsilon:.4f}") for name, epsilon in rows),
        bars=tuple(spent_bar(epsilon, target) for _, epsilon in rows),
        bars_title=f"of the promise (red: {target:g})",
    )


def _verdict(facts: RunFacts, points: Sequence[tuple[bool, str]], defect: str) -> Verdict:
    kept, said = kept_so_far(facts.spent, facts.summary)
    titles = {
        (True, True): "The promise is kept.",
        (True, False): f"The promise is kept so far; the {facts.run} is not finished.",
    }
    title = titles.get((kept, facts.finished), "More was spent than promised.")
    certified = (
        f"It is certified: whoever has the certificate can check it. {TRUSTED}"
        if facts.certificate
        else f"There is no certificate yet; a finished {facts.run} has one."
    )
    tone = "broken" if not kept or defect else "kept" if facts.certificate else "mind"
    useless = None if facts.reached is None else worthless(facts.reached)
    model = () if useless is None else ((False, useless),)
    every = ((kept, said), (facts.certificate is not None, certified), *model, *points)
    return Verdict(defect if kept and defect else title, tone, every)


def _worth(facts: RunFacts) -> tuple[ReportSection, ...]:
    """What the released model is worth; nothing of runs that earlier versions measured."""
    if facts.reached is None or against_majority(facts.reached) is None:
        return ()
    tables = (worth_table(facts.reached), classes_table(facts.reached, facts.class_names))
    note = (
        f"Measured on {protection_words(facts.reached)}. The most frequent answer is the same for "
        "every record: the class that most records have, or of each label what most have."
    )
    said = worthless(facts.reached)
    sure = calibration_words(facts.calibration, protected=is_protected(facts.reached))
    return (section("What the model is worth", said, *tables, sure, note=note),)


def _how_to_check(facts: RunFacts, checks: Rows) -> ReportSection:
    commands = check_commands(
        facts.summary["name"], certificate=facts.certificate, has_model=facts.has_model
    )
    blocks: list[Block] = [
        "This page is a copy for reading and proves nothing by itself. These commands do, beside "
        f"the files of the {facts.run}:",
        Commands((*commands, *checks)),
    ]
    if facts.restore:
        back = Commands(tuple((command, "") for command in facts.restore))
        without = (
            "The pool's state, the selection and the labels come with them where their cache is, "
            "and nowhere else."
        )
        blocks += ["Bring back the files of a phase:", back, Aside(without)]
    if facts.files:
        blocks += ["Files beside this one:", Facts(facts.files)]
    return section("How to check it", *blocks)
