"""Which figure keeps a promise is said, for every kind, beside what is for information."""

from __future__ import annotations

import pytest

from dpal.accounting.cohorts import Accountant
from dpal.certificate.checks import Outcome
from dpal.certificate.promise import CAMPAIGN, VOTES, check_promise, which_keeps
from dpal.certificate.verify_improvement import verify_any
from dpal.privacy import PrivacyTarget
from dpal.reports.summary import figures_in_words

TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)


def test_the_line_of_every_kind_names_the_keeper_and_the_other(certificate):
    document = certificate.document
    line = next(one for one in verify_any(document) if one.name == "promise")
    assert line.outcome is Outcome.OK
    keeper = document["promise"]["accountant"]
    other = "rdp" if keeper == "pld" else "pld"
    assert document["epsilon"][keeper] <= document["promise"]["epsilon"]
    kept, _, rest = line.detail.partition("; ")
    assert "kept by " in kept
    assert f"({keeper.upper()})" in kept
    assert kept.endswith(f" at {document['epsilon'][keeper]:.4f}")
    assert rest.startswith(other.upper())
    assert f"{document['epsilon'][other]:.4f}" in rest
    assert rest.endswith(" bound, for information")


def test_a_looser_bound_above_the_promise_is_no_fault():
    """As an account of votes has: 9.7411 of the noisy counts, where 8 is promised and kept."""
    costs = {"pld": 9.7411, "rdp": 8.0, "dp_accounting": 9.7411, "renyi_oracle": 8.0}
    line = check_promise(costs, TARGET, Accountant.RDP, VOTES, second={"renyi_oracle": 0.1})
    assert line.outcome is Outcome.OK
    assert line.detail.endswith(
        "kept by Rényi divergences (RDP) of the released answers at 8.0000; PLD of the noisy "
        "counts, 9.7411, is a looser bound, for information"
    )


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({"pld": 8.0001, "rdp": 9.0, "dp_accounting": 8.0}, "by privacy loss distributions (PLD)"),
        ({"pld": float("nan"), "rdp": 9.0, "dp_accounting": 8.0}, "more than the 8 promised"),
        ({"pld": 7.9, "rdp": 9.0, "dp_accounting": 8.2}, "by a second opinion (dp_accounting)"),
    ],
)
def test_a_promise_that_its_own_figure_breaks_is_refused(costs, said):
    line = check_promise(costs, TARGET, Accountant.PLD, CAMPAIGN, second={"dp_accounting": 0.1})
    assert line.outcome is Outcome.FAILED
    assert said in line.detail


def test_neither_bound_is_called_looser_where_it_is_not():
    assert "is another bound" in which_keeps({"pld": 2.0, "rdp": 3.0}, Accountant.RDP, CAMPAIGN)


def test_reports_say_the_same_in_a_sentence():
    assert figures_in_words("rdp") == (
        "The promise is kept by RDP; figures by PLD are tighter bounds, for information."
    )
