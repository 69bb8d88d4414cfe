"""The ways in which a cell of a book is made, by name."""

from __future__ import annotations

PRIVATE = "private"
ONE_PHASE = "one_phase"
EXACT = "exact"
NOT_PRIVATE = "not_private"

METHODS = {
    PRIVATE: "a run as settings say, with its ledger and certificate",
    ONE_PHASE: "the same promise and number of labels, all drawn by chance in one phase",
    EXACT: "selections by exact scores, which cost nothing: training is private, selecting is not",
    NOT_PRIVATE: "plain training on as many labels drawn by chance: protects nobody",
}

UNPROTECTED = (EXACT, NOT_PRIVATE)  # of these nothing is certified
