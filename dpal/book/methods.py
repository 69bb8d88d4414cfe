"""The ways in which a cell of a book is made, by name."""

from __future__ import annotations

PRIVATE = "private"
ONE_PHASE = "one_phase"
EXACT = "exact"
CORE_SET = "core_set"
BADGE = "badge"
NOT_PRIVATE = "not_private"
OWN_RECORDS = "own_records"
BOUGHT_LABELS = "bought_labels"
RELEASED_ANSWERS = "released_answers"

METHODS = {
    PRIVATE: "a run as settings say, with its ledger and certificate",
    ONE_PHASE: "the same promise and number of labels, all drawn by chance in one phase",
    EXACT: "selections by exact scores, which cost nothing: training is private, selecting is not",
    CORE_SET: "the same, by distance from all labeled records (Sener & Savarese 2018)",
    BADGE: "the same, by different and large gradients (Ash et al. 2020)",
    NOT_PRIVATE: "plain training on as many labels drawn by chance: protects nobody",
    OWN_RECORDS: "who buys labels between sites, before it does: few records of its own",
    BOUGHT_LABELS: "the same with labels that sites voted on, drawn by the law of their votes",
    RELEASED_ANSWERS: "what sites answer, beside the truth, and how many answers epsilon pays for",
}

SELECTING = (EXACT, CORE_SET, BADGE)  # without privacy, beside private training
# Settings of these are `sites.*`, and of no kind of run.
BETWEEN_SITES = (OWN_RECORDS, BOUGHT_LABELS, RELEASED_ANSWERS)
UNPROTECTED = (*SELECTING, NOT_PRIVATE, OWN_RECORDS)  # of these nothing is certified
