"""Where a campaign's files are, and the manifest that closes a phase."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.canonical import canonical_json, file_digest
from dpal.errors import DataError
from dpal.files.atomic_writes import write_text

RECORD = "campaign.json"
ACQUISITION = "acquisition.json"  # what public records chose, before there is a record
CERTIFICATE = "certificate.json"
SIGNATURE = "certificate.dsse.json"
LEDGER = "ledger.sqlite"
CONFIDENTIAL = "confidential"
DATASETS = "datasets"
ERRORS = "errors"
SALT = "pool.salt"
LABELED_BY = "labeled_by.json"  # of a phase whose labels private votes gave
NO_HEAD = {"sequence": 0, "digest": ""}  # where there was no ledger to finish on


@dataclass(frozen=True)
class TrialFolder:
    """The files of one trial of a search, `artifacts/<campaign>/phase-0/trial-<n>/`."""

    root: Path

    @property
    def weights(self) -> Path:
        """Weights after the trial; they are no phase's model, and named otherwise."""
        return self.root / "weights.safetensors"

    @property
    def checkpoints(self) -> Path:
        """What training persisted on its way; gone once the weights are committed."""
        return self.root / "checkpoints"

    @property
    def validation(self) -> Path:
        """Noisy counts on a protected validation set; absent where that is public."""
        return self.root / "validation.json"

    @property
    def released(self) -> list[Path]:
        """Its files, as far as there are any."""
        return [path for path in (self.weights, self.validation) if path.is_file()]


@dataclass(frozen=True)
class PhaseFolder:
    """The files of one phase: what may be seen, and apart from it what must not.

    Released files are in `artifacts/<campaign>/phase-<i>/`, confidential ones (ids, labels,
    counts) in `artifacts/<campaign>/confidential/phase-<i>/`, readable by their owner only.
    """

    root: Path

    @property
    def confidential(self) -> Path:
        """The folder of what says who was selected."""
        return self.root.parent / CONFIDENTIAL / self.root.name

    @property
    def selection(self) -> Path:
        """Ids of the selected records."""
        return self.confidential / "selection.parquet"

    @property
    def query(self) -> Path:
        """What a person labels: query.csv and thumbnails. Beside the phase: never versioned."""
        return self.root.parent / CONFIDENTIAL / "query" / self.root.name

    @property
    def labeling(self) -> Path:
        """How often people agreed about them, and how long they took; never versioned either."""
        return self.query / "labeling.json"

    @property
    def labels(self) -> Path:
        """The labeler's answers."""
        return self.confidential / "labels.parquet"

    @property
    def pool(self) -> Path:
        """Id, cohort and label of every record after this phase's merge."""
        return self.confidential / "pool.parquet"

    @property
    def model(self) -> Path:
        """Weights after this phase."""
        return self.root / "model.safetensors"

    @property
    def optimizer(self) -> Path:
        """Optimizer state after this phase."""
        return self.root / "optimizer.safetensors"

    @property
    def checkpoints(self) -> Path:
        """What training persisted on its way; gone once the model is committed."""
        return self.root / "checkpoints"

    @property
    def metrics(self) -> Path:
        """Validation metrics and epsilon by cohort."""
        return self.root / "metrics.json"

    @property
    def validation(self) -> Path:
        """Noisy counts on a protected validation set; absent where that is public."""
        return self.root / "validation.json"

    def trial(self, number: int) -> TrialFolder:
        """The files of one trial of a search before this phase; trials count from 1."""
        return TrialFolder(self.root / f"trial-{number}")

    @property
    def search(self) -> Path:
        """What each trial reached, and which one goes on; absent where nothing was searched."""
        return self.root / "search.json"

    @property
    def ledger(self) -> Path:
        """The campaign's ledger entries up to this phase."""
        return self.root / "ledger.parquet"

    @property
    def manifest(self) -> Path:
        """Digests of all of the above; present once the phase is finished."""
        return self.root / "manifest.json"

    @property
    def artifacts(self) -> list[Path]:
        """All files that a manifest lists, the confidential ones first."""
        confidential = [self.selection, self.labels, self.pool]
        measured = [self.validation] if self.validation.is_file() else []
        searched = [self.search] if self.search.is_file() else []
        tried = [path for trial in sorted(self.root.glob("trial-*")) if trial.is_dir()
                 for path in TrialFolder(trial).released]  # fmt: skip
        further = [*measured, *searched, *tried]
        return [*confidential, self.model, self.optimizer, *further, self.metrics, self.ledger]

    def name_of(self, path: Path) -> str:
        """A file's name in manifest and ledger: its path below the campaign's folder."""
        return str(path.relative_to(self.root.parent))

    def close(self, *, listed: Sequence[Path] | None = None, **facts: Any) -> None:
        """Writes the manifest: from here on the phase is finished.

        Args:
          listed: files that it lists; None for all of a campaign's phase.
          facts: what else it says.
        """
        kept = self.artifacts if listed is None else listed
        files = {self.name_of(path): file_digest(path) for path in kept}
        write_text(self.manifest, canonical_json({**facts, "files": files}) + "\n")

    def ledger_head(self) -> dict[str, Any]:
        """The ledger entry on which the phase was finished: its sequence and digest."""
        head: dict[str, Any] = self._stated("ledger_head")
        return head

    def stated_files(self) -> dict[str, str]:
        """Digests by name of a finished phase's files."""
        return dict(self._stated("files"))

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest of a finished phase whose files are as it says, else None."""
        if not self.manifest.is_file():
            return None
        manifest = _read_json(self.manifest)
        for name, digest in self.stated_files().items():
            path = self.root.parent / name
            if not path.is_file() or file_digest(path) != digest:
                return None
        return manifest

    def _stated(self, key: str) -> dict[str, Any]:
        stated = _read_json(self.manifest).get(key)
        if not isinstance(stated, dict):
            raise damaged(self.manifest)
        return stated


@dataclass(frozen=True)
class CampaignFolder:
    """The files of one campaign, `artifacts/<campaign>/`."""

    root: Path

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.root.name

    @property
    def start(self) -> Path:
        """State of the pool before anything is labeled."""
        return self.root / CONFIDENTIAL / "start.parquet"

    @property
    def row_groups(self) -> Path:
        """Digests of the pool's row groups, as the plan was held for them; private."""
        return self.root / CONFIDENTIAL / "row-groups.json"

    @property
    def start_model(self) -> Path:
        """Weights of an earlier campaign that this one starts from; absent for fresh ones."""
        return self.root / "start.safetensors"

    @property
    def salt(self) -> Path:
        """Random bytes under which the pool's digest is committed to; never leaves."""
        return self.root / SALT

    @property
    def scratch(self) -> Path:
        """Where labeled records lie that do not fit into memory; never versioned."""
        return self.root / CONFIDENTIAL / "scratch"

    @property
    def features(self) -> Path:
        """What a public model made of all records; private as they are, made anew where missing."""
        return self.root / CONFIDENTIAL / "features"

    @property
    def errors(self) -> Path:
        """What unexpected errors said, a file each; never versioned, never stored elsewhere."""
        return self.root / CONFIDENTIAL / ERRORS

    @property
    def report(self) -> Path:
        """The report, for people."""
        return self.root / "report.md"

    @property
    def report_page(self) -> Path:
        """The report as a page that opens without a server."""
        return self.root / "report.html"

    @property
    def ledger_page(self) -> Path:
        """The campaign's ledger as a page, for people."""
        return self.root / "ledger.html"

    @property
    def certificate(self) -> Path:
        """The certificate of the finished campaign, for `dpal verify`."""
        return self.root / CERTIFICATE

    @property
    def signature(self) -> Path:
        """Says who wrote the certificate: a DSSE envelope."""
        return self.root / SIGNATURE

    @property
    def certified(self) -> list[Path]:
        """What travels with a model: its certificate, and the signature where there is one."""
        return [self.certificate, *([self.signature] if self.signature.is_file() else [])]

    @property
    def cards(self) -> tuple[Path, Path]:
        """The card of the released model: for people, and for machines."""
        return self.root / "model_card.md", self.root / "model_card.json"

    @property
    def calibration(self) -> Path:
        """The temperature of the released model; absent where it was not fitted."""
        return self.root / "calibration.json"

    @property
    def reports(self) -> list[Path]:
        """Pages for people and their signatures, and the model's card, as far as there are any."""
        pages = (self.report_page, self.ledger_page)
        every = (self.report, *pages, *map(signature_of, pages), *self.cards, self.calibration)
        return [path for path in every if path.is_file()]

    @property
    def figures(self) -> Path:
        """Its figures."""
        return self.root / "figures"

    @property
    def ledger(self) -> Path:
        """The ledger shared by all campaigns of this artifacts folder."""
        return self.root.parent / LEDGER

    def phase(self, index: int) -> PhaseFolder:
        """The folder of one phase."""
        return PhaseFolder(self.root / f"phase-{index}")

    def write_record(self, record: dict[str, Any]) -> None:
        """Writes what a later command needs to know about the campaign."""
        write_text(self.root / RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")

    def read_record(self) -> dict[str, Any]:
        """Reads it.

        Raises:
          DataError: the folder is not a campaign's.
        """
        path = self.root / RECORD
        if not path.is_file():
            raise DataError(f"{self.root} is not a campaign folder (it has no {RECORD})")
        return _read_json(path)

    def write_acquisition(self, record: dict[str, Any]) -> None:
        """Writes which acquisition public records chose, before the campaign holds anything."""
        write_text(self._acquisition, json.dumps(record, indent=2, sort_keys=True) + "\n")

    def read_acquisition(self) -> dict[str, Any] | None:
        """Reads it; None where nothing was chosen yet."""
        return _read_json(self._acquisition) if self._acquisition.is_file() else None

    @property
    def _acquisition(self) -> Path:
        return self.root / ACQUISITION

    def labeled_by(self) -> dict[str, Any] | None:
        """Under whose promise teachers gave the last labels; None where none did."""
        paths = sorted(self.root.glob(f"phase-*/{LABELED_BY}"))
        return _read_json(paths[-1]) if paths else None

    def finished_phases(self) -> list[dict[str, Any]]:
        """Metrics of the phases finished so far, in order."""
        metrics: list[dict[str, Any]] = []
        while self.phase(len(metrics)).manifest.is_file():
            metrics.append(_read_json(self.phase(len(metrics)).metrics))
        return metrics


def signature_of(path: Path) -> Path:
    """Where the signature of a file lies that shows the ledger: beside it, without its ending."""
    return path.with_name(f"{path.stem}.dsse.json")


def campaigns_of(artifacts: Path) -> list[CampaignFolder]:
    """All campaigns of an artifacts folder."""
    return [CampaignFolder(path.parent) for path in sorted(artifacts.glob(f"*/{RECORD}"))]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path) from error
    if not isinstance(content, dict):
        raise damaged(path)
    return content


def damaged(path: Path) -> DataError:
    """A file that is not as it was written."""
    return DataError(
        f"{path} is missing or damaged; restore it (`dvc checkout` or `dvc pull` in the "
        "artifacts folder)"
    )
