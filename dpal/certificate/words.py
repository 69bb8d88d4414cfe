"""The sentences of a certificate. They belong to its format: other words, another number."""

from __future__ import annotations

from typing import Any

WHO_SEES = {
    "hidden": "nobody: models leave, and neither who was selected nor how many",
    "visible": "anyone: the ids of the selected leave",
    "paper": "anyone: every noisy score and the ids of the selected leave",
    "random": "anyone: records are drawn by chance and none is read",
}

NO_DATA_SET = "no data set registered: campaigns on the same records are not summed"
DATA_SET = "summed with the other campaigns that the ledger holds for this data set"

STATEMENTS: dict[str, Any] = {
    "assumptions": {
        "R1": "a record's score depends on that record and on released models only",
        "R2": "scores lie in a public range",
        "R3": "a label depends on its own record; people who label are trusted to it",
        "R4": "sizes, steps, rates, noise and thresholds' aims were fixed before the start",
        "R5": "each record joins a batch independently, by a cryptographic source; batches "
        "never leave",
        "R6": "the noisy sum is divided by a public constant; an empty batch releases noise",
        "R7": "every record's gradient is clipped; one without finite gradient counts as zero",
        "R8": "no statistic of private records enters anything without being charged",
        "R9": "the unit is what is protected: under unit record, one record, so that a person "
        "with several is not protected as a person",
        "R10": "the optimizer sees released gradients only",
    },
    "exceptions": [
        "metrics on the validation set are not charged, and that set is not protected",
        "hyperparameters are not charged, on whatever data they were chosen",
        "who is in the pool, its size and the plan are public",
        "checks of the data before the start (a missing value, a repeated id) are not charged",
        "what the labeler sees is not protected from the labeler",
    ],
    "tuning": "one campaign is certified, not a search: where several were run on the same "
    "records to choose between them, each has its own certificate and their losses add up",
}
