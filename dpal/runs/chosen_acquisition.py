"""Which acquisition a campaign with `acquisition: auto` has: rehearsed on its validation set, once.

The validation set is public by declaration, and all else that is read here is public as well:
settings, the size of the pool, the shape of a record. So the choice costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpal.acquisition.scores import score_function
from dpal.canonical import digest, plain
from dpal.config.campaign import CampaignConfig
from dpal.data.labeling_state import load_all
from dpal.data.sources import Source
from dpal.errors import ConfigError, DpalError, ParameterError
from dpal.files.artifacts import ACQUISITION, RECORD, damaged
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelectionMode
from dpal.reports.plain_language import acquisition_chosen
from dpal.runs.kinds import folder_of
from dpal.runs.plan_new_campaign import Participants, SpecFor
from dpal.runs.progress_logging import notify, notify_here
from dpal.simulation.choose_acquisition import (
    AcquisitionChoice,
    choose_acquisition,
    split_in_halves,
)

REHEARSALS = 5  # of each acquisition: about a minute of CPU for the digits that ship
MOST_RECORDS = 4000  # public records of a rehearsal, so that choosing stays affordable
SCORES = (Acquisition.LEAST_CONFIDENCE, Acquisition.MARGIN, Acquisition.ENTROPY)


@dataclass(frozen=True, kw_only=True)
class SettledAcquisition:
    """Settings that name their acquisition, and why it is that one.

    Attributes:
      config: the settings; as they were, where they named one.
      choice: how public records chose it, for JSON; None where the settings named it. Its
        `basis` is a digest of all that it followed from.
    """

    config: CampaignConfig
    choice: Mapping[str, Any] | None = None


def settle_acquisition(
    config: CampaignConfig,
    validation: Source,
    participants: Participants,
    spec_of: Callable[[CampaignConfig], SpecFor],
) -> SettledAcquisition:
    """Says which acquisition a campaign has. Where it is `auto`, public records choose it.

    What was chosen and recorded before stays; `record_choice` records it. Writes nothing, and
    reads no private record.

    Args:
      config: what the person wrote.
      validation: public records.
      participants: how many records the campaign may be about.
      spec_of: settings, joined with what is public about the data.

    Raises:
      ConfigError: the campaign began with an acquisition that its settings named.
      DataError: what was recorded is damaged, or the validation set cannot be read.
    """
    if not config.is_to_be_chosen:
        return SettledAcquisition(config=config)
    folder = folder_of(config)
    if (folder.root / RECORD).is_file():
        return _settled(config, _begun_with(config), folder.root / RECORD)
    candidates = _Candidates(config, participants, spec_of)
    basis = digest(
        {
            "specs": {name.value: plain(spec) for name, spec in candidates.specs.items()},
            "refused": {name.value: reason for name, reason in candidates.refused.items()},
            "validation": validation.files_digest,
            "rehearsals": REHEARSALS,
            "most_records": MOST_RECORDS,
        }
    )
    kept = folder.read_acquisition()
    if kept is not None and kept.get("basis") == basis:
        return _settled(config, kept, folder.root / ACQUISITION)
    chosen = _chosen(config, validation, candidates)
    return SettledAcquisition(
        config=config.settled(chosen.acquisition), choice={**chosen.as_record(), "basis": basis}
    )


def record_choice(config: CampaignConfig, choice: Mapping[str, Any]) -> None:
    """Writes what was chosen and says it, before the campaign holds anything, so that it stays."""
    folder = folder_of(config)
    if not (folder.root / RECORD).is_file() and folder.read_acquisition() != choice:
        folder.write_acquisition(dict(choice))
    notify(acquisition_chosen(choice))


class _Candidates:
    """A campaign with each acquisition that its selection mode and its model allow.

    Attributes:
      reference: what is used in doubt: random, or entropy where a random draw would not be
        private.
      specs: by acquisition, the reference first.
      refused: why others have none.
    """

    def __init__(
        self,
        config: CampaignConfig,
        participants: Participants,
        spec_of: Callable[[CampaignConfig], SpecFor],
    ) -> None:
        dataset, earlier = participants.dataset, participants.earlier
        owners = sum(participants.sizes.values()) if dataset else participants.owners
        unit = participants.unit
        carried = earlier.labels if earlier else 0
        # After labels that were bought in secret, a draw from those that are left tells of them.
        shown = config.privacy.selection is not SelectionMode.HIDDEN
        is_private = not carried or shown
        self.reference = Acquisition.RANDOM if is_private else Acquisition.ENTROPY
        self.specs: dict[Acquisition, CampaignSpec] = {}
        self.refused: dict[Acquisition, str] = {}
        wanted = [*SCORES, *([Acquisition.BALD] if config.model.dropout else [])]
        for acquisition in dict.fromkeys([self.reference, *wanted]):
            try:
                spec = spec_of(config.settled(acquisition))(owners, unit, carried)
                if spec.selects:
                    score_function(acquisition, task=spec.model.task)
            except ParameterError as error:
                self.refused[acquisition] = str(error)
                continue
            # Rehearsed as if it were alone: nothing is carried on, and no block has spent before.
            self.specs[acquisition] = replace(
                spec, carries_labels=False, start_from=None, dataset=None
            )


def _begun_with(config: CampaignConfig) -> object:
    """What a campaign that has begun recorded of its choice."""
    record = folder_of(config).read_record()
    if record.get("acquisition_choice") is None:
        named = record.get("plan", {}).get("acquisition", "another")
        raise ConfigError(
            f"{config.name} began with acquisition {named}, and auto chooses before a campaign "
            "begins; set acquisition as it was to continue, or choose another name"
        )
    return record["acquisition_choice"]


def _settled(config: CampaignConfig, choice: object, path: Path) -> SettledAcquisition:
    """Settings with what a record says."""
    try:
        if not isinstance(choice, Mapping):
            raise TypeError
        acquisition, _ = Acquisition(choice["acquisition"]), str(choice["reason"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path) from error
    return SettledAcquisition(config=config.settled(acquisition), choice=choice)


def _chosen(
    config: CampaignConfig, validation: Source, candidates: _Candidates
) -> AcquisitionChoice:
    """Rehearses; in doubt, and where nothing can be rehearsed, it is the reference."""
    reference, specs = candidates.reference, candidates.specs
    others = [name for name in specs if name is not reference]
    if reference not in specs:
        return _without_rehearsal(candidates, candidates.refused[reference])
    if not config.schedule.queries:
        return _without_rehearsal(candidates, "the schedule has no queries")
    if not others:
        return _without_rehearsal(candidates, "; ".join(candidates.refused.values()))
    notify_here(
        f"acquisition auto: {len(specs)} campaigns are rehearsed on the validation set, "
        f"{REHEARSALS} times each; nothing private is read"
    )
    try:
        inputs, labels = load_all(validation)
        halves = split_in_halves(inputs, labels, runs=REHEARSALS, most=MOST_RECORDS)
        rehearsals = REHEARSALS * len(specs)
        with tqdm(total=rehearsals, desc="rehearsing", disable=None, leave=False) as bar:

            def on_rehearsal(acquisition: Acquisition, run: int) -> None:
                bar.update()

            chosen = choose_acquisition(
                specs,
                halves,
                reference=reference,
                physical_batch=config.runtime.physical_batch,
                on_rehearsal=on_rehearsal,
            )
    except DpalError as error:
        return _without_rehearsal(candidates, str(error))
    return replace(chosen, refused={**candidates.refused, **chosen.refused})


def _without_rehearsal(candidates: _Candidates, reason: str) -> AcquisitionChoice:
    return AcquisitionChoice(
        acquisition=candidates.reference,
        reason=f"nothing could be rehearsed on public records: {reason}",
        labels=0,
        estimates={},
        comparisons={},
        refused=candidates.refused,
    )
