"""What is asked next may depend on released answers: whole laws of small ensembles."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpal.accounting.events import MajorityVotes
from dpal.accounting.rdp import ORDERS
from dpal.privacy import Adjacency

TEACHERS, SIGMA = 3, 1.3
SHOWN = [int(np.argmin(np.abs(ORDERS - order))) for order in (1.25, 2.0, 4.0, 16.0)]


def chances(ballots):
    """Chance of yes on each question, (questions,), from (teachers, questions) votes."""
    return ndtr((2 * ballots.sum(axis=0) - TEACHERS) / (math.sqrt(2) * SIGMA))


def neighbours(questions):
    """Pairs of ensembles of which one ballot differs, up to the order of teachers."""
    rows = list(itertools.product((0, 1), repeat=questions))
    for others in itertools.combinations_with_replacement(rows, TEACHERS - 1):
        for first, second in itertools.permutations(rows, 2):
            yield np.array([first, *others]), np.array([second, *others])


def divergences(law, other):
    p, q = np.array(law), np.array(other)
    return np.array(
        [math.log((p ** ORDERS[at] * q ** (1 - ORDERS[at])).sum()) / (ORDERS[at] - 1)
         for at in SHOWN]
    )  # fmt: skip


def bound(answers):
    event = MajorityVotes(answers=answers, teachers=TEACHERS, sigma=SIGMA)
    return event.renyi(Adjacency.ZERO_OUT)[SHOWN]


def law_of_choice(ballots, choice):
    """One question, and another that the answer decides on."""
    p = chances(ballots)
    law = []
    for first in (0, 1):
        one = p[0] if first else 1 - p[0]
        two = p[choice[first]]
        law += [one * (1 - two), one * two]
    return law


def test_queries_that_a_student_chooses_cost_what_fixed_ones_do():
    """Every way to choose among two further questions, or the same one once more."""
    worst = np.zeros(len(SHOWN))
    for choice in itertools.product(range(3), repeat=2):
        for first, second in neighbours(3):
            found = divergences(law_of_choice(first, choice), law_of_choice(second, choice))
            worst = np.maximum(worst, found)
    assert (worst <= bound(2) * (1 + 1e-9)).all()
    assert (worst > bound(1)).all()  # and it is no cost of one answer


def law_of_gate(ballots, answers, *, queries):
    """All that a gated vote may release: gate and one other are asked, two hang on the gate."""
    p = chances(ballots)
    law = []

    def ask(query, left, chance):
        if query == queries or left < 4:
            law.append(chance)
            return
        gate, free, *dependents = p[4 * query : 4 * query + 4]
        for said in itertools.product((0, 1), repeat=2):
            here = chance * (gate if said[0] else 1 - gate) * (free if said[1] else 1 - free)
            if not said[0]:
                ask(query + 1, left - 2, here)
                continue
            for rest in itertools.product((0, 1), repeat=2):
                more = here
                for yes, one in zip(rest, dependents, strict=True):
                    more *= one if yes else 1 - one
                ask(query + 1, left - 4, more)

    ask(0, answers, 1.0)
    assert sum(law) == pytest.approx(1)
    return law


def test_labels_behind_a_gate_cost_no_more_than_the_answers_that_are_held():
    """Two queries of four labels on six answers; ballots drawn, as all are too many."""
    rng = np.random.default_rng(0)
    worst = np.zeros(len(SHOWN))
    for trial in range(3_000):
        others = rng.integers(0, 2, size=(TEACHERS - 1, 8))
        first = rng.integers(0, 2, size=8)
        second = 1 - first if trial % 2 else rng.integers(0, 2, size=8)
        laws = [law_of_gate(np.vstack([row, others]), 6, queries=2) for row in (first, second)]
        worst = np.maximum(worst, divergences(*laws))
    assert (worst <= bound(6) * (1 + 1e-9)).all()
    assert (worst > bound(3)).all()
