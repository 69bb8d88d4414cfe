"""Which figure keeps a promise is said, for every kind, beside what is for information."""

from __future__ import annotations

import pytest

from dpal.accounting.cohort_spending import Accountant
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.promise_checks import (
    CAMPAIGN,
    VOTES,
    check_promise,
    is_paper,
    pool_size_of,
    which_keeps,
)
from dpal.certificate.read_and_seal import sealed_certificate
from dpal.certificate.verify import verify_certificate
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import PrivacyTarget
from dpal.reports.plan_and_phase_tables import figures_in_words
from tests.certificate.certifying import certified, failures, run, with_delta
from tests.certificate.kinds import near
from tests.conftest import small_spec

TARGET = PrivacyTarget(epsilon=8.0, delta=1e-5)


def test_the_line_of_every_kind_names_the_keeper_and_the_other(certificate):
    document = certificate.document
    line = next(one for one in verify_certificate(document) if one.name == "promise")
    assert line.outcome is CheckOutcome.OK
    keeper = document["promise"]["accountant"]
    other = "rdp" if keeper == "pld" else "pld"
    assert document["epsilon"][keeper] <= document["promise"]["epsilon"]
    kept, _, rest = line.detail.partition("; ")
    assert "kept by " in kept
    assert f"({keeper.upper()})" in kept
    assert kept.endswith(f" at {document['epsilon'][keeper]:.4f}")
    assert rest.startswith(other.upper())
    assert f"{document['epsilon'][other]:.4f}" in rest
    assert rest.endswith("information")


def test_a_looser_bound_above_the_promise_is_no_fault():
    """As an account of votes has: 9.7411 of the noisy counts, where 8 is promised and kept."""
    costs = {"pld": 9.7411, "rdp": 8.0, "dp_accounting": 9.7411, "renyi_oracle": 8.0}
    line = check_promise(
        costs, TARGET, Accountant.RDP, VOTES, second={"renyi_oracle": 0.1}, pool_size=None
    )
    assert line.outcome is CheckOutcome.OK
    kept, _, looser = line.detail.partition("; ")
    assert "(RDP)" in kept and kept.endswith("released at 8.0000")
    assert looser.startswith("PLD ") and "counts, 9.7411" in looser and "looser" in looser


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({"pld": 8.0001, "rdp": 9.0, "dp_accounting": 8.0}, "loss distributions (PLD)"),
        ({"pld": float("nan"), "rdp": 9.0, "dp_accounting": 8.0}, "8 promised"),
        ({"pld": 7.9, "rdp": 9.0, "dp_accounting": 8.2}, "second opinion (dp_accounting)"),
    ],
)
def test_a_promise_that_its_own_figure_breaks_is_refused(costs, said):
    line = check_promise(
        costs, TARGET, Accountant.PLD, CAMPAIGN, second={"dp_accounting": 0.1}, pool_size=None
    )
    assert line.outcome is CheckOutcome.FAILED
    assert said in line.detail


def test_neither_bound_is_called_looser_where_it_is_not():
    assert "is another bound" in which_keeps({"pld": 2.0, "rdp": 3.0}, Accountant.RDP, CAMPAIGN)


def test_reports_say_the_same_in_a_sentence():
    assert figures_in_words("rdp") == (
        "The promise is kept by RDP; figures by PLD are tighter bounds, for information."
    )


@pytest.fixture(scope="module", params=["campaign", "near"])
def paper(request, tmp_path_factory):
    """A certificate whose delta is one over the 600 records of the pool, and where its word is."""
    place = tmp_path_factory.mktemp("paper")
    if request.param == "near":
        document = near(place, delta=1 / 600).document
        return document, document["statements"]
    plan = certified_plan(with_delta(1 / 600, small_spec(strategy="naive"))).plan
    document = certified(run(place, plan)[1], plan)
    return document, document


def test_a_delta_of_published_results_is_marked_in_the_certificate_and_its_line(paper):
    document, said = paper
    checks = verify_certificate(document)
    assert failures(checks) == {}
    line = next(one for one in checks if one.name == "promise")
    assert "PAPER: delta 0.001667" in line.detail and "1/600" in line.detail
    assert said["profile"].startswith("paper: ")


def test_the_mark_cannot_be_taken_off(paper):
    document, said = paper
    word = said.pop("profile")
    found = failures(verify_certificate(sealed_certificate(document)))
    said["profile"] = word
    assert "profile is missing" in found["statements"]


def test_no_other_certificate_is_marked(certificate):
    document = certificate.document
    size = pool_size_of(document)
    assert size == (600 if certificate.kind in ("campaign", "near", "free") else None)
    assert "PROFILE PAPER" not in str(verify_certificate(document))
    assert "profile" not in {**document, **document.get("statements", {})}


def test_one_over_the_pool_is_too_large_and_a_little_less_is_not():
    assert is_paper(1 / 600, 600) and is_paper(0.5, 600)
    assert not is_paper(0.999 / 600, 600)
    assert not is_paper(0.5, None)
