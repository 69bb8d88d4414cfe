"""Who can come in: passwords, foreign pages, accounts, and what runs from Prefect may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx

from dpal.config.campaign import CampaignConfig
from dpal.errors import AllowListError
from flows.ops.diagnosis import Diagnosis

_PAGE = {"Origin": "http://a-page-of-somebody-else.example"}
_SERVE = "start it by dpal serve (docs/serve.md), or as docs/operations.md says"


def prefect_doors() -> Iterator[Diagnosis]:
    """Whether Prefect's server asks for a password, and answers pages of other origins."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return
    from flows.ops.prefect_connection import is_cloud  # Prefect takes a second to import

    if is_cloud(url):  # whose doors are its own
        yield Diagnosis("doors", "Prefect Cloud asks for the key of an account")
        return
    try:
        answer = httpx.get(f"{url}/admin/version", headers=_PAGE, timeout=5)
    except httpx.HTTPError:
        return  # that it does not answer is said elsewhere
    if answer.is_success:
        yield Diagnosis("password", f"{url} asks for none: anybody may start runs", _SERVE)
    if "access-control-allow-origin" in answer.headers:
        yield Diagnosis("origins", f"{url} answers pages of any origin", _SERVE)
    elif not answer.is_success:
        yield Diagnosis("doors", "Prefect asks for a password and answers no foreign page")


def mlflow_doors(uri: str, login: tuple[str, str] | None) -> Iterator[Diagnosis]:
    """Whether MLflow asks who somebody is, and workers are no administrators there.

    Args:
      uri: of a server that answers.
      login: by which this machine's workers are known to it.
    """
    place = f"{uri.rstrip('/')}/api/2.0/mlflow/users/current"
    try:
        answer = httpx.get(place, auth=login, timeout=10)
    except httpx.HTTPError:
        return
    if login is None:
        yield Diagnosis("mlflow", f"{uri} asks for no password: anybody may change it", _SERVE)
    elif answer.is_success and answer.json()["user"]["is_admin"]:
        advice = "give workers an account that is none: docs/serve.md"
        yield Diagnosis("mlflow", f"{login[0]} is an administrator there", advice)


def allow_list(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Whether runs from Prefect may do here what a campaign needs."""
    from flows.cli.allow import faults_of, settings_to_allow
    from tasks.allow_list import allow_file, read_allow_list

    file = allow_file()
    try:
        allowed = read_allow_list(file)
    except AllowListError as error:
        yield Diagnosis("allow list", str(error), "its owner corrects it; see dpal allow")
        return
    if not file.exists():
        yield Diagnosis("allow list", "none here: this machine's workers refuse every run")
        return
    for fault in faults_of(allowed):
        yield Diagnosis("allow list", f"{file}: {fault}", "correct it there")
    missing = sorted({setting.key for setting in allowed.refused(settings_to_allow([config]))})
    state = f"{file} " + (f"does not allow {', '.join(missing)}" if missing else "allows this")
    yield Diagnosis("allow list", state, "allow it: dpal allow FILE.yaml" if missing else "")
