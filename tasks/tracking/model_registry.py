"""Certified models in MLflow's registry: the certificate travels inside of the model.

Only the entry points of MLflow are needed here, so that a registered model is verified on
a machine that runs no campaigns.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from dpal.certificate.check_against import Model, tags_of
from dpal.certificate.read_and_seal import read_certificate
from dpal.errors import CertificateError
from dpal.files.artifacts import CERTIFICATE, SIGNATURE

_CERTIFICATE, _WEIGHTS = f"artifacts/{CERTIFICATE}", "artifacts/model.safetensors"
_SIGNATURE = f"artifacts/{SIGNATURE}"


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """A model as a registry hands it out.

    Attributes:
      certificate: the one inside of it.
      signature: text of its signature; None for a model that was registered without.
      model: its weights, and its tags.
    """

    certificate: dict[str, Any]
    signature: str | None
    model: Model


def register_model(
    certificate: Mapping[str, Any],
    model_uri: str,
    name: str,
    more: Mapping[str, str] | None = None,
) -> str:
    """Registers a logged model with the tags of its certificate; again, it changes nothing.

    Args:
      certificate: the campaign's.
      model_uri: the logged model, whose artifacts hold that certificate.
      name: of the registered model that it becomes a version of.
      more: tags beside those of its certificate.

    Returns:
      The number of its version.
    """
    client = mlflow.MlflowClient()
    for version in client.search_model_versions(f"name = '{name}'"):
        if version.tags.get("dpal.certificate") == certificate["digest"]:
            return str(version.version)
    tags = {**(more or {}), **tags_of(certificate)}
    with contextlib.redirect_stderr(io.StringIO()):  # MLflow tells of it on the terminal
        made = mlflow.register_model(model_uri, name, tags=tags)
    return str(made.version)


def name_and_version(uri: str) -> tuple[str, str]:
    """Name and version of a model.

    Raises:
      CertificateError: the address names none.
    """
    name, _, number = uri.removeprefix("models:/").rpartition("/")
    if not name or not number.isdecimal():
        raise CertificateError(f"{uri} names no version of a model; use models:/NAME/VERSION")
    return name, number


def without_alias(uri: str, tracking_uri: str | None) -> str:
    """The address of a version by its number, where it is given as models:/NAME@ALIAS.

    Raises:
      CertificateError: no version is called so, or the registry did not answer.
    """
    name, _, alias = uri.removeprefix("models:/").partition("@")
    if not alias:
        return uri
    with registry_client(uri, tracking_uri) as client:
        return f"models:/{name}/{client.get_model_version_by_alias(name, alias).version}"


def fetch_registered_model(uri: str, tracking_uri: str | None) -> RegisteredModel:
    """Reads a registered model's certificate, weights' digest and tags.

    Args:
      uri: models:/NAME/VERSION, or models:/NAME@ALIAS.
      tracking_uri: where the registry is; None is what MLflow is set to.

    Raises:
      CertificateError: there is no such model, or it carries no certificate.
    """
    uri = without_alias(uri, tracking_uri)
    name, number = name_and_version(uri)
    try:
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        tags = mlflow.MlflowClient().get_model_version(name, number).tags
        with tempfile.TemporaryDirectory() as folder:
            place = Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
            return _read(uri, place, tags)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise CertificateError(
            f"{uri} could not be fetched ({reason}); name the registry with --mlflow"
        ) from error


def download_model(uri: str, tracking_uri: str | None, folder: Path) -> Path:
    """Brings a registered model into a folder; returns where it is.

    Raises:
      CertificateError: there is no such model.
    """
    with registry_client(uri, tracking_uri):
        return Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(folder)))


def phase_of_run(run_id: str, tracking_uri: str | None) -> tuple[str, int, str]:
    """The campaign, the phase and the hash of its files that a run of MLflow tells of.

    Raises:
      CertificateError: the run is not there, or is no phase's.
    """
    with registry_client(f"run {run_id}", tracking_uri) as client:
        tags = client.get_run(run_id).data.tags
    phase, md5 = tags.get("dpal.phase", ""), tags.get("dvc.md5")
    if not phase.isdecimal() or md5 is None:
        raise CertificateError(
            f"run {run_id} is not the run of a phase; open one of the runs below the campaign's"
        )
    return tags["dpal.campaign"], int(phase), md5


@contextlib.contextmanager
def registry_client(what: str, tracking_uri: str | None) -> Iterator[mlflow.MlflowClient]:
    """A client of the registry; what it refuses becomes one sentence.

    Raises:
      CertificateError: the registry refused or did not answer.
    """
    try:
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        yield mlflow.MlflowClient()
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise CertificateError(
            f"{what} could not be asked for ({reason}); nothing was changed, correct the "
            "name (dpal promote gives aliases), or name another registry with --mlflow"
        ) from error


def _read(uri: str, place: Path, tags: Mapping[str, str]) -> RegisteredModel:
    certificate, weights = place / _CERTIFICATE, place / _WEIGHTS
    if not certificate.is_file():
        raise CertificateError(
            f"{uri} carries no certificate, so nothing is known about what it cost; do not use "
            "it as a private model"
        )
    if not weights.is_file():
        raise CertificateError(f"{uri} carries a certificate and no weights that it could be of")
    signature = place / _SIGNATURE
    return RegisteredModel(
        certificate=read_certificate(certificate.read_text(encoding="utf-8")),
        signature=signature.read_text(encoding="utf-8") if signature.is_file() else None,
        model=Model.at(weights, tags=dict(tags)),
    )
