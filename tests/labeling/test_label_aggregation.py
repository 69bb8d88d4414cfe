from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.labeling.label_aggregation import UnlabeledReason, agree
from dpal.labeling.label_studio_rules import Agreement

WAITING, SKIPPED, DISPUTED = (
    UnlabeledReason.WAITING,
    UnlabeledReason.SKIPPED,
    UnlabeledReason.DISPUTED,
)


@pytest.mark.parametrize(
    ("answers", "majority", "adjudicate"),
    [
        ([1, 1], WAITING, WAITING),
        ([1, 1, 1], 1, 1),
        ([1, 1, 2], 1, DISPUTED),
        ([0, 1, 2], DISPUTED, DISPUTED),
        ([SKIPPED, SKIPPED, SKIPPED], SKIPPED, SKIPPED),
        ([SKIPPED, SKIPPED, 2], SKIPPED, DISPUTED),
        ([SKIPPED, 2, 2], 2, DISPUTED),
        ([SKIPPED, 1, 2], DISPUTED, DISPUTED),
        ([SKIPPED, SKIPPED, 2, 2], DISPUTED, DISPUTED),
        ([0, 0, 1, 2], 0, DISPUTED),
        ([(1, 0), (1, 1), (0, 0)], (1, 0), DISPUTED),
        ([(1, 0), (1, 0), (1, 1), (1, 1)], DISPUTED, DISPUTED),
    ],
)
def test_rules(answers, majority, adjudicate):
    assert agree(answers, annotators=3, agreement=Agreement.MAJORITY) == majority
    assert agree(answers, annotators=3, agreement=Agreement.ADJUDICATE) == adjudicate


@given(
    st.lists(st.one_of(st.integers(0, 3), st.just(SKIPPED)), max_size=6),
    st.randoms(use_true_random=False),
    st.sampled_from(Agreement),
)
def test_it_does_not_matter_who_said_what_first(answers, shuffler, agreement):
    shuffled = list(answers)
    shuffler.shuffle(shuffled)
    first, second = (agree(one, annotators=2, agreement=agreement) for one in (answers, shuffled))
    assert first == second
