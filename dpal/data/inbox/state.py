"""What a watch remembers: names seen, files accepted or in quarantine, campaigns started.

Kept in `artifacts/watch/<name>/state.json`, replaced in one step. Lists only grow; a
campaign's pool is the first so many accepted files.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from dpal.data.inbox.folder import FileObservation
from dpal.errors import DataError
from dpal.files.atomic_writes import write_text

WATCHES = "watch"
_VERSION = 1


class Stage(StrEnum):
    """How far a campaign of a watch is.

    PLANNED: its settings are on disk; whether it was started is not known.
    STARTED: a deployment, or this process, runs it.
    FINISHED: it did all that it had planned.
    ENDED: somebody ended it before (dpal end); nothing goes on from it.
    STOPPED: it failed or was cancelled; a person has to look.
    REFUSED: nothing useful was left; nothing was started.
    """

    PLANNED = "planned"
    STARTED = "started"
    FINISHED = "finished"
    ENDED = "ended"
    STOPPED = "stopped"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A file that campaigns read.

    Attributes:
      name: in the folder.
      path: on this machine.
      digest: of its bytes.
      records: how many it holds.
      registered: whether the data set knows them.
      block: what arrived with it; None until it is registered, and where all was known.
    """

    name: str
    path: str
    digest: str
    records: int
    registered: bool = False
    block: int | None = None


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """A file that cannot be used.

    Attributes:
      name: as it was called in the folder.
      digest: of its bytes.
      reason: one sentence, as pages show it.
      place: where it is put, with its reason beside it.
      done: whether it was put there.
      detail: the reason as it stands beside the file, where that says more, such as which row.
    """

    name: str
    digest: str
    reason: str
    place: str
    done: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class WatchedCampaign:
    """A campaign of a watch, started or refused.

    Attributes:
      name: of the campaign.
      files: how many of the accepted files are its pool.
      stage: how far it is.
      attempt: how often a flow run was asked for.
      plan: what it was planned to be, in words.
      said: what else there is to say about it.
      flow_run: the Prefect flow run's id; empty where it runs in a watching process.
      basis: of a refusal, digest of what it was based on: once that changes, it is planned anew;
        empty where every look plans it anew.
    """

    name: str
    files: int
    stage: Stage
    attempt: int = 0
    plan: str = ""
    said: str = ""
    flow_run: str = ""
    basis: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it may still change; the next one waits for it."""
        return self.stage in (Stage.PLANNED, Stage.STARTED, Stage.STOPPED)


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """What a watch remembers.

    Attributes:
      seen: what is known of each name that lies in the folder.
      accepted: files that campaigns read, in order of arrival.
      quarantined: files that cannot be used, in order of arrival.
      runs: campaigns, in order.
      remark: what the last look found, for people.
    """

    seen: dict[str, FileObservation] = field(default_factory=dict)
    accepted: tuple[Accepted, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    runs: tuple[WatchedCampaign, ...] = ()
    remark: str = ""

    @property
    def last(self) -> WatchedCampaign | None:
        """The campaign that was planned last."""
        return self.runs[-1] if self.runs else None

    def with_run(self, run: WatchedCampaign) -> WatchState:
        """The same with a campaign added, or brought up to date."""
        kept = self.runs[:-1] if self.last and self.last.name == run.name else self.runs
        return replace(self, runs=(*kept, run))


@dataclass(frozen=True)
class WatchFolder:
    """The files of one watch, readable by their owner only."""

    root: Path

    @property
    def state(self) -> Path:
        """What it remembers."""
        return self.root / "state.json"

    @property
    def files(self) -> Path:
        """Copies of accepted files that came from another machine."""
        return self.root / "files"

    @property
    def quarantine(self) -> Path:
        """Copies of unusable files where the watched folder cannot be written."""
        return self.root / "quarantine"

    def settings(self, campaign: str) -> Path:
        """The settings that a campaign was planned with; where it runs, as it last went on."""
        return self.root / "campaigns" / f"{campaign}.json"

    def pool(self, campaign: str) -> Path:
        """A folder of links to the files of a campaign's pool, in their order."""
        return self.pools / campaign

    @property
    def pools(self) -> Path:
        """Where the pools of all campaigns are."""
        return self.root / "pools"

    def read(self) -> WatchState:
        """Reads what the watch remembers; nothing before its first look.

        Raises:
          DataError: the file is damaged.
        """
        try:
            values: dict[str, Any] = json.loads(self.state.read_text(encoding="utf-8"))
            return WatchState(
                seen={name: FileObservation(**entry) for name, entry in values["seen"].items()},
                accepted=tuple(Accepted(**entry) for entry in values["accepted"]),
                quarantined=tuple(Quarantined(**entry) for entry in values["quarantined"]),
                runs=tuple(
                    WatchedCampaign(**{**entry, "stage": Stage(entry["stage"])})
                    for entry in values["runs"]
                ),
                remark=values["remark"],
            )
        except FileNotFoundError:
            return WatchState()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.state} is damaged; restore it from a backup, or remove it: every file is "
                "then looked at anew, and what the ledger knows is not paid for again"
            ) from error

    def write(self, state: WatchState) -> None:
        """Remembers."""
        values = {"version": _VERSION, **asdict(state)}
        write_text(self.state, json.dumps(values, indent=1) + "\n")
