"""The public API: what a notebook or a program calls. `import dpal` offers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dpal.config.campaign import override
from dpal.config.runtime import RunConfig
from dpal.config.yaml_loader import read_yaml
from dpal.errors import CertificateError, ConfigError
from dpal.files.artifacts import CERTIFICATE, CampaignFolder, signature_of
from dpal.runs.kinds import parse_any

if TYPE_CHECKING:
    from dpal.certificate.check_outcome import Check
    from dpal.labeling import Labeler
    from dpal.ledger.campaign_account import CampaignAccount
    from dpal.planning.plan_interface import Certified, RunPlan


def settings(source: str | Path | Mapping[str, Any], **changes: Any) -> RunConfig:
    """Settings of a run, checked.

    Args:
      source: a YAML file, or the same as a mapping; `kind` says which kind of run, none a campaign.
      changes: sections or values to put in place of those there; a dotted key (in a mapping
        passed with **) changes one value, such as {"privacy.epsilon": 3}.

    Returns:
      Frozen settings; `model_copy(update=...)` makes others.

    Raises:
      ConfigError: the file cannot be read, or settings are unknown or contradict each other.

    Examples:
      >>> settings({"name": "clinic"}, **{"schedule.initial": 500}).schedule.initial
      500
    """
    values = deepcopy(dict(source)) if isinstance(source, Mapping) else _read(Path(source))
    for key, value in changes.items():
        override(values, key, value)
    return parse_any(values)


def plan(config: RunConfig) -> Certified[RunPlan]:
    """Certifies what a run would do. Looks at the data, releases nothing, writes nothing.

    Returns:
      The plan and its proof: `epsilon` by the plan's accountant, `epsilon_oracle` by
      dp-accounting, `plan.releases()`, and `summary()` as `dpal plan --json` prints it.

    Raises:
      PlanRejected: the promise does not cover it.
      DpalError: data and settings do not fit.
    """
    from dpal.runs import execute

    _require_settings(config)
    return execute.plan_run(config).certified


def run(config: RunConfig, *, labeler: Labeler | None = None) -> CampaignFolder:
    """Runs what settings say, or continues it: the same ledger and certificate as `dpal run`.

    MLflow and DVC hear nothing of it; reports and certificate are in the folder.

    Args:
      config: settings of any kind.
      labeler: answers the queries of a campaign with `labeler.kind: file`, in place of a person's
        file: `label(ids)` returns a class, or zeros and ones, for each id. The label of a record
        must depend on that record alone.

    Returns:
      The run's folder: `certificate`, `report`, `phase(number).model`, `finished_phases()`. Which
      of its models is the run's own says `released_model`.

    Raises:
      LabelsPending: people have to label first; deliver their labels and run again.
      BudgetExceeded, DataBudgetExceeded, PlanRejected: the promise does not cover it.
      DpalError: as each step says. What is persisted is not lost: run again to go on.
    """
    from dpal.runs import execute

    _require_settings(config)
    return execute.execute_run(config, labeler=labeler)


def released_model(place: str | Path | CampaignFolder) -> Path:
    """Where the weights of a run lie: those of the phase that it releases.

    Of a run that is not finished, those of the phase that it would release so far.

    Args:
      place: the run's folder.

    Raises:
      DataError: the folder is not a run's, or no phase is finished.
    """
    from dpal.runs import kinds, released_phase

    folder = place if isinstance(place, CampaignFolder) else CampaignFolder(Path(place))
    kinds.require_model(folder)
    return released_phase.released_weights(folder)


def verify(
    place: str | Path | CampaignFolder,
    *,
    ledger: str | Path | None = None,
    model: str | Path | None = None,
    keys: Sequence[str] = (),
) -> list[Check]:
    """Checks a certificate: recomputes every epsilon, compares every digest, finds its author.

    Args:
      place: certificate.json, or a folder with one.
      ledger: the ledger's file or URL, to hold it against; without it only the certificate itself
        is checked.
      model: weights that came with it.
      keys: public keys that are trusted, as 64 hexadecimal digits.

    Returns:
      One line a check, the author's last. `dpal.certificate.check_outcome.any_failed(checks)`
      says whether one failed; what was not checked proves nothing.

    Raises:
      CertificateError: there is no certificate, or it cannot be read.
      LedgerError, LedgerTampered: the ledger cannot be read, or its chain is broken.
    """
    from dpal.certificate.check_against import Model
    from dpal.certificate.dsse import public_key_from
    from dpal.certificate.read_and_seal import read_certificate
    from dpal.certificate.signature_trust import Trust, author_of
    from dpal.certificate.verify import verify_certificate
    from dpal.ledger.ledger_store import LedgerStore

    path = place.certificate if isinstance(place, CampaignFolder) else Path(place)
    path = path / CERTIFICATE if path.is_dir() else path
    if not path.is_file():
        raise CertificateError(f"there is no certificate at {path}")
    document = read_certificate(path.read_text(encoding="utf-8"))
    entries = None
    if ledger is not None:
        with closing(LedgerStore(ledger, create=False)) as store:
            entries = store.entries()
    given = None if model is None else Model.at(Path(model))
    checks = verify_certificate(document, ledger=entries, model=given)
    signature = signature_of(path)
    signed = signature.read_text(encoding="utf-8") if signature.is_file() else None
    named = {public_key_from(key): "the key that you named" for key in keys}
    trust = Trust(keys=named, exclusive=bool(named))
    return [*checks, author_of(document, signed, trust, ledger=entries).check]


def account(place: str | Path | CampaignFolder) -> CampaignAccount:
    """What a run promised, spent by cohort, and has left, as its ledger adds it up.

    Of an improvement that spent nothing itself: that of the campaign it began with.

    Args:
      place: the run's folder.

    Raises:
      DataError: the folder is not a run's.
      LedgerError, LedgerTampered: the ledger is missing, or is not what once was written.
    """
    from dpal.ledger.campaign_account import campaign_account, campaigns_in
    from dpal.ledger.chain import verify_chain
    from dpal.runs import kinds
    from dpal.runs.open_ledger import recorded_ledger

    folder = place if isinstance(place, CampaignFolder) else CampaignFolder(Path(place))
    with closing(recorded_ledger(folder)) as store:
        entries = store.entries()
    verify_chain(entries)
    use_cases = kinds.recorded_kind(folder).use_cases()
    return campaign_account(entries, use_cases.holder(folder, campaigns_in(entries)))


def vote(ballots: str | Path | Sequence[str | Path], *, name: str, **sections: Any) -> Path:
    """Turns ballots of teachers into released labels, under an account in the ledger.

    Args:
      ballots: Parquet files: id, teacher and ballot (0/1 lists), scores (lists) or class.
      name: of the account; all that is ever asked of these teachers counts in it.
      sections: further settings of `kind: vote`, such as privacy={"epsilon": 3, "records": 9000}.

    Returns:
      The Parquet file of released labels of these ballots: id, and label; -1 is no answer. The
      same ballots again give the same labels, without another charge.

    Raises:
      ConfigError: settings contradict each other.
      DataError, ParameterError, BudgetExceeded: as `dpal vote`. Nothing was released.
    """
    from dpal.config.vote import parse_vote
    from dpal.runs.execute import execute_run
    from dpal.runs.vote_use_cases import released_labels

    files = [ballots] if isinstance(ballots, str | Path) else list(ballots)
    listed = {**sections.get("ballots", {}), "files": [str(file) for file in files]}
    config = parse_vote({**sections, "kind": "vote", "name": name, "ballots": listed})
    execute_run(config)
    return released_labels(config)


def _require_settings(config: RunConfig) -> None:
    """Requires settings that were checked: no file's name, and no mapping."""
    if not isinstance(config, RunConfig):
        raise ConfigError(
            f"settings are wanted, and this is a {type(config).__name__}; make settings of it with "
            "dpal.settings(...)"
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        values = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__})") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} is not YAML that can be read") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no settings; write keys and values, such as name: clinic")
    return values
