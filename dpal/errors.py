"""Everything `dpal` may refuse, on one screen.

Each message says what was asked, what is possible and what to do; `dpal` prints it
as one sentence and exits with code 2. Arguments stay positional so that an error
survives pickling on its way out of a worker.
"""

from __future__ import annotations


class DpalError(Exception):
    """Base of all errors that a person can do something about."""


class ParameterError(DpalError, ValueError):
    """A value lies outside of what its definition allows. Nothing was computed."""


class ConfigError(DpalError):
    """A configuration is unknown, incomplete or contradicts itself. Nothing was started."""


class DataError(DpalError):
    """A data file is not what a campaign can read. Nothing was released."""


class StorageError(DpalError):
    """A file could not be written. Nothing was released: a release starts on disk."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{self.path} could not be written ({self.reason}); nothing was lost, make room or "
            "rights there and run the same command again"
        )


class LabelError(DpalError):
    """Delivered labels do not answer the query. Nothing was merged."""


class LabelsPending(DpalError):
    """The campaign waits for people to label a query. Nothing was lost."""

    def __init__(self, query: str, command: str) -> None:
        super().__init__(query, command)
        self.query, self.command = query, command

    def __str__(self) -> str:
        return f"labels are wanted for {self.query}; fill in the label column, then: {self.command}"


class PlanRejected(DpalError):
    """A plan would end above its target for some record. Nothing was touched."""


class BudgetExceeded(DpalError):
    """A release would take some record past its limit. Nothing was released."""

    def __init__(self, release: str, requested: float, limit: float) -> None:
        super().__init__(release, requested, limit)
        self.release, self.requested, self.limit = release, requested, limit

    def __str__(self) -> str:
        return (
            f"{self.release} could take a record to epsilon {self.requested:.4f} of the "
            f"{self.limit:.4f} promised; nothing was released, plan again within the limit"
        )


class LedgerError(DpalError):
    """The ledger does not allow this step. Nothing was released."""


class LedgerTampered(LedgerError):
    """An entry of the ledger does not carry the digest that its content has.

    Attributes:
      sequence: number of the first bad entry, or None when the file itself is unreadable.
    """

    def __init__(self, sequence: int | None, reason: str) -> None:
        super().__init__(sequence, reason)
        self.sequence, self.reason = sequence, reason

    def __str__(self) -> str:
        where = "the ledger" if self.sequence is None else f"ledger entry {self.sequence}"
        return f"{where} was altered: {self.reason}; nothing more can be spent on it"


class CampaignBusy(DpalError):
    """Another process runs this campaign. Nothing was started."""
