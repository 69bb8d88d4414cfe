"""Everything `dpal` may refuse, in one file.

Each message says what was asked, what is possible and what to do; `dpal` prints it
as one sentence and exits with code 2. Arguments stay positional so that an error
survives pickling on its way out of a worker.

What an error is stands in its `code`, which outlives every better wording. That nothing was
released is a fact of it, `released`, and said once, at the end of its message. Where nobody can be
sure nothing is said, and the ledger knows.

Messages and arguments are public: they end on pages of Prefect and in MLflow. Which record, row
or label an error is about is given by keyword, and is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self


class DpalError(Exception):
    """Base of all errors that a person can do something about.

    What only the owner of the data may read, such as which row is damaged, is named in braces and
    given by keyword. It is in no message, argument or pickle.

    Attributes:
      code: what kind of error it is, for programs and tests; each class has its own.
      released: False where it is certain that nothing was, by what this error stopped; else None.
      closing: how the message says so.
      detail: the message with what is left out of it; empty where it is all public.
      kept: the confidential file that holds the detail, once the error left a task.

    Examples:
      >>> error = DpalError("row {row} of pool.parquet has no label; fill it in", row=17)
      >>> print(error)
      row [...] of pool.parquet has no label; fill it in
      >>> print(error.for_owner())
      row 17 of pool.parquet has no label; fill it in
      >>> print(DataError.before_release("a teacher has no record"))
      a teacher has no record; nothing was released
    """

    code: ClassVar[str] = "error"
    closing: ClassVar[str] = "nothing was released"
    released: bool | None = None

    def __init__(self, *arguments: object, **private: object) -> None:
        self.detail = self.kept = ""
        if private:
            message, *others = arguments
            self.detail = _filled(str(message), private)
            arguments = (_filled(str(message), dict.fromkeys(private, "[...]")), *others)
        super().__init__(*arguments)

    @classmethod
    def before_release(cls, *arguments: object, **private: object) -> Self:
        """The error, raised where it is certain that nothing was released."""
        error = cls(*arguments, **private)
        error.released = False
        return error

    def _sentence(self) -> str:
        """What was asked, what is possible, what to do."""
        return super().__str__()

    def __str__(self) -> str:
        said = self._closed(self._sentence())
        return f"{said} (in full in {self.kept})" if self.kept else said

    def __reduce__(self) -> tuple[object, ...]:
        private = {"detail", "__notes__"}
        return type(self), self.args, {k: v for k, v in vars(self).items() if k not in private}

    def for_owner(self) -> str:
        """All of the message, for the terminal of the person who owns the data."""
        return self._closed(self.detail) if self.detail else str(self)

    def _closed(self, said: str) -> str:
        return said if self.released is not False else f"{said}; {self.closing}"


def _filled(message: str, values: Mapping[str, object]) -> str:
    """A message with its named fields; other braces, as paths may have them, stay."""
    for name, value in values.items():
        message = message.replace(f"{{{name}}}", str(value))
    return message


class UnexpectedError(DpalError):
    """Something broke that nobody foresaw. Nothing beyond the ledger's entries was released.

    Attributes:
      step: the task or flow that broke.
      number: by which its page and the file are found to belong together.
      place: the confidential file that holds what happened; empty if it could not be written.
    """

    code = "unexpected"

    def __init__(self, step: str, number: str, place: str) -> None:
        super().__init__(step, number, place)
        self.step, self.number, self.place = step, number, place

    def _sentence(self) -> str:
        kept = f"is in {self.place}" if self.place else "could not be written down"
        return (
            f"{self.step} ended by an unexpected error (number {self.number}); nothing beyond the "
            f"ledger's entries was released, and what happened {kept}"
        )


class ServerLost(DpalError):
    """Prefect's server does not answer. Nothing was lost."""

    code = "server-lost"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def _sentence(self) -> str:
        return (
            f"Prefect's server does not answer ({self.reason}); nothing was lost, run the same "
            "command again once it answers"
        )


class StoredResult(DpalError):
    """Prefect's server names a stored result of a run, and dpal stores none. It was not read."""

    code = "stored-result"

    def _sentence(self) -> str:
        return (
            "Prefect's server says that this run is over and names a stored result, and dpal "
            "stores none: somebody who can write to the server set the run's state. It was not "
            "read; start the run again"
        )


class ParameterError(DpalError, ValueError):
    """A value lies outside of what its definition allows. Nothing was computed.

    Attributes:
      parameter: whose value it is, where one value alone is wrong by itself; else empty.
    """

    code = "parameter"
    parameter = ""

    def about(self, parameter: str) -> Self:
        """Names the parameter, for programs and tests; the message names it for people."""
        self.parameter = parameter
        return self


class NoiseReused(DpalError):
    """A stream of noise was carried into a forked process. Nothing was drawn."""

    code = "noise-reused"
    closing = "nothing was drawn or released"
    released = False

    def _sentence(self) -> str:
        return (
            "this process was forked from one that holds a stream of noise, and both would draw "
            "the same; make a fresh stream in each process (dpal.randomness.secure)"
        )


class ConfigError(DpalError):
    """A configuration is unknown, incomplete or contradicts itself. Nothing was started.

    Attributes:
      setting: the dotted name of the first setting that is wrong by itself; empty where settings
        contradict each other.
      fault: what is wrong with it, as pydantic calls it: extra_forbidden, missing, enum,
        greater_than, value_error ...
      meant: the setting, or the value of it, that is nearest to what was given; empty if none is.
    """

    code = "settings"
    setting = fault = meant = ""

    def about(self, setting: str, fault: str, meant: str = "") -> Self:
        """Names the setting, for programs and tests; the message names it for people."""
        self.setting, self.fault, self.meant = setting, fault, meant
        return self


class AllowListError(DpalError):
    """The list of what runs from Prefect may use cannot be relied on. Nothing was read."""

    code = "allow-list"
    closing = "nothing was read or released"
    released = False

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _sentence(self) -> str:
        return (
            f"{self.path} {self.reason}; runs from Prefect are refused until its owner corrects it"
        )


class NotAllowed(DpalError):
    """A run from Prefect wants what the data's owner has not allowed. Nothing was read."""

    code = "not-allowed"
    closing = "nothing was read or released"
    released = False

    def __init__(
        self, setting: str, value: str, line: str, path: str, others: int = 0, group: str = ""
    ) -> None:
        super().__init__(setting, value, line, path, others, group)
        self.setting, self.value, self.line = setting, value, line
        self.path, self.others, self.group = path, others, group

    def _sentence(self) -> str:
        more = f" (nor are {self.others} more settings)" if self.others else ""
        if self.group:
            return (
                f"{self.setting} {self.value} is not allowed to runs from Prefect on this machine "
                f"together with the other settings{more}; of the groups in {self.path}, "
                f"{self.group} comes nearest, and its owner adds one by: dpal allow FILE.yaml"
            )
        return (
            f"{self.setting} {self.value} is not allowed to runs from Prefect on this machine"
            f"{more}; the data's owner allows it by the line "
            f"`{self.line}` in {self.path}, or all that a configuration needs by: dpal allow "
            "FILE.yaml"
        )


class DataError(DpalError):
    """A data file is not what a campaign can read."""

    code = "data"


class RecordsRegistered(DataError):
    """Records are in a data set, whose limit this would pass by. Nothing was released."""

    code = "records-registered"
    released = False


class DataChanged(DataError):
    """A file is not what it was when a plan was made for it. Nothing was released.

    Attributes:
      place: of the file.
      row_groups: numbers of those that changed; empty where that cannot be said.
    """

    code = "data-changed"
    released = False

    def __init__(self, place: str, row_groups: tuple[int, ...] = (), rows: str = "") -> None:
        super().__init__(place, row_groups, rows)
        self.place, self.row_groups, self.rows = place, row_groups, rows

    def _sentence(self) -> str:
        groups = ", ".join(map(str, self.row_groups))
        part = f"row group {groups} of {self.place}" if groups else self.place
        where = f" (rows {self.rows})" if self.rows else ""
        return f"{part}{where} is not what it was when the plan was made; restore the file"


class StorageError(DpalError):
    """A file could not be written. Nothing was released: a release starts on disk."""

    code = "storage"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _sentence(self) -> str:
        return (
            f"{self.path} could not be written ({self.reason}); nothing was lost, make room or "
            "rights there and run the same command again"
        )


class LabelError(DpalError):
    """Delivered labels do not answer the query. Nothing was merged."""

    code = "labels"


class LabelsPending(DpalError):
    """The campaign waits for people to label a query. Nothing was lost."""

    code = "labels-pending"

    def __init__(self, query: str, command: str) -> None:
        super().__init__(query, command)
        self.query, self.command = query, command

    def _sentence(self) -> str:
        return f"labels are wanted for {self.query}; fill in the label column, then: {self.command}"


class PlanRejected(DpalError):
    """A plan would end above its target for some record. Nothing was touched."""

    code = "plan-rejected"
    released = False


class CertificateError(DpalError):
    """A certificate cannot be read, written or found."""

    code = "certificate"


class BudgetExceeded(DpalError):
    """A release would take some record past its limit. Nothing was released."""

    code = "budget-exceeded"
    released = False

    def __init__(
        self,
        release: str,
        requested: float,
        limit: float,
        advice: str = "plan again within the limit",
    ) -> None:
        super().__init__(release, requested, limit, advice)
        self.release, self.requested, self.limit = release, requested, limit
        self.advice = advice

    def _sentence(self) -> str:
        return (
            f"{self.release} could take a record to epsilon {self.requested:.4f} of the "
            f"{self.limit:.4f} promised; {self.advice}"
        )


class DataBudgetExceeded(DpalError):
    """A campaign would take records of a data set past their limit. Nothing was held."""

    code = "data-budget-exceeded"
    closing = "nothing was held or released"
    released = False

    def __init__(
        self,
        campaign: str,
        block: str,
        asked: float,
        taken: float,
        allowed: str,
        holders: str,
        fits: float,
        running: str = "",
    ) -> None:
        super().__init__(campaign, block, asked, taken, allowed, holders, fits, running)
        self.campaign, self.block, self.asked, self.taken = campaign, block, asked, taken
        self.allowed, self.holders, self.fits, self.running = allowed, holders, fits, running

    def _sentence(self) -> str:
        by = f" by {self.holders}" if self.holders else ""
        ways = [f"set privacy.epsilon to {self.fits:g}"] if self.fits else []
        if self.running:
            ways.append(f"wait for the end of {self.running} (dpal end), which gives back the rest")
        ways.append("add new records (dpal data show lists what is left)")
        return (
            f"campaign {self.campaign} would take {self.block} to epsilon {self.asked:.4f} of "
            f"{self.allowed}, where {self.taken:.4f} is taken{by}; "
            f"{', or '.join(ways)}"
        )


class LedgerError(DpalError):
    """The ledger does not allow this step."""

    code = "ledger"


class LedgerMissing(LedgerError):
    """No ledger was ever made there. Nothing was spent."""

    code = "ledger-missing"


class LedgerTampered(LedgerError):
    """An entry of the ledger does not carry the digest that its content has.

    Attributes:
      sequence: number of the first bad entry, or None when the file itself is unreadable.
    """

    code = "ledger-tampered"
    ANOTHER_CONTENT = "its content does not match its digest"
    ANOTHER_BEFORE = "it does not follow from the entry before it"

    def __init__(self, sequence: int | None, reason: str) -> None:
        super().__init__(sequence, reason)
        self.sequence, self.reason = sequence, reason

    def _sentence(self) -> str:
        where = "the ledger" if self.sequence is None else f"ledger entry {self.sequence}"
        return f"{where} was altered: {self.reason}; nothing more can be spent on it"


class AnchorError(LedgerError):
    """A copy of the ledger is not the newest, as far as this machine knows. Nothing was released.

    Attributes:
      ledger: where it is.
      finding: missing, altered, foreign (the anchor itself), behind, forked, lost or another
        (the ledger).
      sequence: number of the entry that was last written from here, 0 if unknown.
      digest: its digest, empty if unknown.
    """

    code = "ledger-anchor"
    released = False

    def __init__(self, ledger: str, finding: str, sequence: int = 0, digest: str = "") -> None:
        super().__init__(ledger, finding, sequence, digest)
        self.ledger, self.finding, self.sequence, self.digest = ledger, finding, sequence, digest

    def _sentence(self) -> str:
        adopt = "dpal ledger adopt DIR --reason TEXT"
        lost = (
            "what its lost entries spent would be forgotten; put the newest copy back, or if that "
            f"is gone for good: {adopt} --despite {self.digest}"
        )
        newest = f"if you know that it is the newest copy: {adopt}"
        said = {
            "missing": "has no anchor on this machine: it is a copy, a restored ledger, or was "
            f"written from another machine; {newest}",
            "altered": f"has an anchor on this machine that was altered or damaged; {newest}",
            "foreign": "does not know the key that anchors it on this machine; " + newest,
            "behind": f"lacks entry {self.sequence}, which was written from this machine: it was "
            f"restored from an older copy or cut short, and {lost}",
            "forked": f"has another entry {self.sequence} than the one that was written from this "
            f"machine: two copies went separate ways, and {lost}",
            "lost": f"is gone: it had {self.sequence} entries when it was last written from this "
            f"machine, a new one in its place would begin with nothing spent, and {lost}",
            "another": "is not the one that was written from this machine at this place or for "
            f"the campaigns of this folder; {newest}",
        }
        return f"the ledger {self.ledger} {said[self.finding]}"


class CampaignBusy(DpalError):
    """Another process runs this campaign. Nothing was started."""

    code = "campaign-busy"


class ProcessLost(DpalError):
    """A process that shares a training ended in mid-step. Nothing was released by that step."""

    code = "process-lost"

    def __init__(self, rank: int, processes: int, how: str) -> None:
        super().__init__(rank, processes, how)
        self.rank, self.processes, self.how = rank, processes, how

    def _sentence(self) -> str:
        return (
            f"process {self.rank + 1} of the {self.processes} that train together {self.how}; its "
            "step released nothing, run the same command again to go on (with a smaller "
            "runtime.processes or runtime.physical_batch if memory ran out)"
        )


class HelperRefused(DpalError):
    """A process of another machine cannot take part in a training. Nothing was released by this.

    `fault` says why to programs: key, version, number, taken, failed, or the code of its error.
    """

    code = "helper-refused"

    def __init__(self, helper: str, reason: str, fault: str) -> None:
        super().__init__(helper, reason, fault)
        self.helper, self.reason, self.fault = helper, reason, fault

    def _sentence(self) -> str:
        return f"{self.helper} cannot train with the others: {self.reason}"


class StoreError(DpalError):
    """Object storage did not take or give a campaign's file. Nothing was released."""

    code = "store"
    closing = "nothing was lost or released by this"
    released = False

    def __init__(self, place: str, reason: str, advice: str) -> None:
        super().__init__(place, reason, advice)
        self.place, self.reason, self.advice = place, reason, advice

    def _sentence(self) -> str:
        return f"{self.place} {self.reason}; {self.advice} and run the same command again"


class StoreUnreachable(StoreError):
    """Object storage does not answer at the moment. Nothing was released."""

    code = "store-unreachable"

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, f"does not answer ({reason})", "wait or correct its address")
        self.args = (place, reason)


class ProtocolError(DpalError):
    """A party of a vote between sites got a message that cannot come. It sent nothing more."""

    code = "protocol"
    released: bool | None = False


class VoteAborted(DpalError):
    """A vote between sites ended before its answers came; whether it was charged, its text says."""

    code = "vote-aborted"


class TrainingStopped(DpalError):
    """Somebody asked a training to stop. What it had made is persisted."""

    code = "training-stopped"


class TrainingLost(DpalError):
    """A training that was ordered from a work pool did not come to its end. Nothing was lost."""

    code = "training-lost"


class RunnerError(DpalError):
    """The workers of a task runner are missing, unfit or lost. Nothing was released."""

    code = "task-runner"
    released = False


class LabelingProjectOpen(LabelsPending):
    """The campaign waits for annotators, and notices by itself when they are done."""

    code = "labeling-project-open"

    def _sentence(self) -> str:
        return (
            f"labels are wanted in {self.query}; the campaign goes on by itself once they are "
            f"complete, or at once by: {self.command}"
        )


class FormOpen(LabelsPending):
    """The campaign waits for a form on its Prefect page."""

    code = "form-open"

    def _sentence(self) -> str:
        return f"labels are wanted for {self.query}; press {self.command} and fill in the form"


class LabelStudioError(DpalError):
    """Label Studio did not do what was asked. Nothing was lost or merged."""

    code = "label-studio"

    def __init__(self, place: str, reason: str, advice: str) -> None:
        super().__init__(place, reason, advice)
        self.place, self.reason, self.advice = place, reason, advice

    def _sentence(self) -> str:
        return (
            f"Label Studio at {self.place} {self.reason}; {self.advice}. Nothing was lost, the "
            "campaign keeps waiting"
        )
