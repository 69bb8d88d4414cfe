"""The private model that an improvement begins with: a campaign's, a file, or one to be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn
from tqdm import tqdm

from dpal.accounting.events import Release
from dpal.accounting.prior_spend import Declared, PriorSpend
from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.read_and_seal import parse_entry, read_certificate
from dpal.certificate.verify import certificate_kind, verify_certificate
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import PublicConfig
from dpal.config.runtime import RuntimeConfig
from dpal.config.validation import require_public
from dpal.data.held_out import HeldOutShare
from dpal.data.inspect_rows import inspect, require_match
from dpal.data.pool_files import commitment
from dpal.data.public_statistics import public_statistics
from dpal.data.sources import Source
from dpal.errors import CertificateError, DataError
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry
from dpal.models.build_model import build_model
from dpal.models.normalisation import Normalisation
from dpal.models.spec import ModelSpec, spec_from
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from dpal.runs.ended_run import was_ended
from dpal.runs.host import host
from dpal.runs.open_ledger import open_ledger
from dpal.runs.open_sources import holding_out, open_sources, open_validation
from dpal.runs.read_recorded_settings import recorded_config
from dpal.runs.released_phase import is_complete, released_phase, released_weights


@dataclass(frozen=True, kw_only=True)
class StartModel:
    """The private model that is improved.

    Attributes:
      weights: its file; None until this flow has trained it.
      spec: its architecture.
      classes: names in class order; empty when the data has none.
      private: the records it was trained on; None where they are not at hand.
      validation: public records with labels.
      reading: settings that say how records are read for it.
      target: what it promised; None for a declared one.
      before: what it cost.
      certificate: its certificate.json; None until it is trained, or for a declared one.
      to_train: settings that train it, where this flow does.
      data: what such a training will take of a registered data set.
      owners: how many are protected; None where that is not known.
      committed: salt and salted digest of the private files; None where there is none.
    """

    weights: Path | None
    spec: ModelSpec
    classes: tuple[str, ...]
    private: Source | None
    validation: Source
    reading: CampaignConfig
    target: PrivacyTarget | None
    before: PriorSpend
    certificate: Path | None = None
    to_train: CampaignConfig | None = None
    data: DataHold | None = None
    owners: int | None = None
    committed: tuple[Path, str] | None = None

    def architecture(self) -> nn.Module:
        """A model of this kind, without the start's weights."""
        model = self.reading.model
        public = model.weights  # without which a text model cannot be built
        weights = str(public) if model.architecture.reads_texts and public else None
        return build_model(replace(self.spec, weights=weights, weights_digest=None))

    def require_same_records(self) -> None:
        """Requires the private files that the start was made with.

        Raises:
          DataError: they were changed since. Nothing was released.
        """
        if self.committed is None or self.private is None:
            return
        salt, expected = self.committed
        if commitment(salt.read_bytes(), self.private.files_digest) != expected:
            raise DataError.before_release(
                f"{self.private.name} is not what the start was trained on; restore it"
            )


def start_of(config: PublicConfig) -> StartModel:
    """The start that settings name, where it is there already.

    Raises:
      DataError: the campaign is not finished, or a file is missing.
      CertificateError: its certificate does not hold.
    """
    if config.start.campaign is not None:
        return _finished(config, config.start.campaign)
    return _given(config)


def finished_folder(runtime: RuntimeConfig, name: str) -> CampaignFolder:
    """The folder of a finished and certified campaign.

    Raises:
      DataError: it is not finished, or its files are not as they were.
    """
    folder = CampaignFolder(runtime.artifacts / name)
    if not (folder.root / RECORD).is_file():
        raise DataError.before_release(
            f"start.campaign {name} is not among the campaigns of {runtime.artifacts}; see dpal "
            "status"
        )
    if not is_complete(folder) and was_ended(folder, runtime):
        raise DataError.before_release(
            f"start.campaign {name} was ended before its plan was done; name a finished campaign"
        )
    sound = (
        folder.certificate.is_file()
        and is_complete(folder)
        and folder.phase(released_phase(folder)).read_manifest() is not None
    )
    if not sound:
        raise DataError.before_release(
            f"start.campaign {name} is not finished or lost files; finish it first (dpal status "
            f"{folder.root})"
        )
    return folder


def training_settings(
    config: PublicConfig, *, rows: int, epsilon: float, weights: Path | None = None
) -> CampaignConfig:
    """The campaign that trains a start: all records in one phase, nothing is selected.

    Args:
      config: of the improvement.
      rows: records of the private pool.
      epsilon: of the start alone.
      weights: public ones to begin with, in place of the model's own.
    """
    model = config.model.model_dump()
    values = {
        "name": config.start_name or f"{config.name}-start",
        "data": config.data.model_dump(),
        "validation": config.validation,
        "labeler": {"kind": "oracle"},
        "privacy": {**config.privacy.model_dump(), "epsilon": epsilon},
        "schedule": {
            "initial": rows,
            "queries": [],
            "batch_size": min(config.start.batch_size, rows),
            "epochs_per_phase": config.start.epochs,
        },
        "strategy": "naive",
        "acquisition": "random",
        "model": model if weights is None else {**model, "weights": weights},
        "training": config.training.model_dump(),
        "runtime": config.runtime.model_dump(),
    }
    return parse_config(values)


def charged_in(document: Mapping[str, Any]) -> tuple[Release, ...]:
    """What a campaign's certificate counts, in order."""
    entries = [parse_entry(raw_entry) for raw_entry in document["ledger"]["entries"]]
    return counted_releases(entries)


def _finished(config: PublicConfig, name: str) -> StartModel:
    """A finished campaign of the same artifacts folder."""
    runtime = config.runtime
    folder = finished_folder(runtime, name)
    weights, campaign = released_weights(folder), recorded_config(folder)
    if config.validation is not None and not (
        campaign.validation is not None and campaign.validation.protected
    ):
        campaign = campaign.model_copy(update={"validation": config.validation})
        host().require_allowed(campaign)  # what this run declares is about that one's records
    require_public(campaign)
    with closing(open_ledger(runtime, create=False)) as store:
        document = _sound_certificate(folder.certificate, weights, ledger=store.verified())
    pool, validation = open_sources(campaign)
    return StartModel(
        weights=weights,
        spec=spec_from(document["plan"]["content"]["spec"]["model"]),
        classes=validation.class_names or pool.class_names,
        private=replace(pool, task=validation.task),
        validation=validation,
        reading=campaign,
        target=_promise(document),
        before=PriorSpend(campaign=name, releases=charged_in(document)),
        certificate=folder.certificate,
        owners=int(document["pool"]["size"]),
        committed=(folder.salt, str(document["pool"]["commitment"])),
    )


def _given(config: PublicConfig) -> StartModel:
    """A model's file, with a certificate or with what is declared of it."""
    weights, declared = Path(str(config.start.model)), config.start.declared
    if not weights.is_file():
        raise DataError.before_release(f"there is no model at {weights} (start.model)")
    target, owners, before, held_out = None, None, PriorSpend(), None
    if config.start.certificate is not None:
        document = _sound_certificate(config.start.certificate, weights)
        target, owners = _promise(document), int(document["pool"]["size"])
        before = PriorSpend(campaign=str(document["campaign"]), releases=charged_in(document))
        held_out = _held_out_by(document)
    elif declared is not None:
        before = PriorSpend(declared=Declared(epsilon=declared.epsilon, delta=declared.delta))
    reading = training_settings(config, rows=1, epsilon=1.0)
    require_public(reading)
    validation, pool = open_validation(reading), None
    if config.choice.method.reads_private:
        pool = replace(open_sources(reading)[0], task=validation.task)
        # Figures were charged to those whom the start held out: it is in no sum what they would
        # lose by both.
        pool = holding_out(pool, held_out)
    with tqdm(desc="checking data", unit="rec", disable=None, leave=False) as bar:
        held = inspect(validation, on_rows=bar.update)
        if pool is not None:
            require_match(inspect(pool, on_rows=bar.update), held)
    measured = config.data.constants(held.input_shape)
    if config.data.normalisation.measured:
        mean, std = public_statistics(validation)
        measured = Normalisation(mean=mean, std=std)
    return StartModel(
        weights=weights,
        spec=config.model.to_spec(
            input_shape=held.input_shape,
            classes=max(len(validation.class_names), held.classes),
            task=validation.task,
            normalisation=measured,
        ),
        classes=validation.class_names,
        private=pool,
        validation=validation,
        reading=reading,
        target=target,
        before=before,
        certificate=config.start.certificate,
        owners=owners,
    )


def _held_out_by(document: Mapping[str, Any]) -> HeldOutShare | None:
    """The share of its pool that a campaign measured its models on; None where it held none out."""
    measured = document["plan"]["content"]["spec"].get("validation") or {}
    return None if measured.get("share") is None else HeldOutShare(share=measured["share"])


def _promise(document: Mapping[str, Any]) -> PrivacyTarget:
    promise = document["promise"]
    return PrivacyTarget(
        epsilon=promise["epsilon"],
        delta=promise["delta"],
        adjacency=Adjacency(promise["adjacency"]),
        unit=Unit(promise["unit"]),
    )


def _sound_certificate(
    path: Path, weights: Path, *, ledger: Sequence[Entry] | None = None
) -> dict[str, Any]:
    """A campaign's certificate that holds for these weights, and for its ledger where that is."""
    if not path.is_file():
        raise CertificateError.before_release(f"there is no certificate at {path}")
    document = read_certificate(path.read_text(encoding="utf-8"))
    if not certificate_kind(document).can_start:
        raise CertificateError(
            f"{path} is of a model that was improved already; start from the campaign below it"
        )
    checks = verify_certificate(document, ledger=ledger, model=Model.at(weights))
    failed = [check for check in checks if check.outcome is CheckOutcome.FAILED]
    if failed:
        raise CertificateError.before_release(
            f"{path} does not hold for {weights} ({failed[0].name}: {failed[0].detail}); use the "
            "certificate that came with the model"
        )
    return document
