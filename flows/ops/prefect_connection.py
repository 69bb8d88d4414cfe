"""The connection to the Prefect server that this machine is set to use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_KEY,
    PREFECT_API_URL,
    PREFECT_CLOUD_API_URL,
)

from dpal.errors import DpalError


class DeployError(DpalError):
    """A Prefect server could not be reached, or holds something that stands in the way."""

    code = "deploy"


def is_cloud(api: str) -> bool:
    """Whether an API is Prefect Cloud's, which asks for a key and has no password."""
    return api.startswith(str(PREFECT_CLOUD_API_URL.value()))


def key_header(api: str) -> dict[str, str]:
    """What a request to an API carries that Prefect's client does not make; of Cloud, the key."""
    key = PREFECT_API_KEY.value()
    secret = key.get_secret_value() if hasattr(key, "get_secret_value") else key
    return {"Authorization": f"Bearer {secret}"} if secret and is_cloud(api) else {}


def require_no_password_for_cloud(api: str) -> None:
    """Requires that Cloud is not told the password of a server of one's own.

    Raises:
      DeployError: Prefect's client would send it, in place of the key.
    """
    if is_cloud(api) and PREFECT_API_AUTH_STRING.value():
        raise DeployError(
            "PREFECT_API_AUTH_STRING is set, and Prefect's client would send that password to "
            f"{api} in place of the key; unset it. Nothing was sent"
        )


@contextmanager
def prefect_server() -> Iterator[SyncPrefectClient]:
    """A connection to the server that PREFECT_API_URL names.

    Raises:
      DeployError: none is named, it does not answer, wants another password, or refuses; or a
        password is set that Cloud must not see.
    """
    place = PREFECT_API_URL.value()
    if not place:
        raise DeployError(
            "no Prefect server is named; set PREFECT_API_URL=http://HOST:4200/api, or start "
            "everything on this machine with: dpal serve"
        )
    require_no_password_for_cloud(place)
    try:
        with get_client(sync_client=True) as client:
            yield client
    except httpx.ReadTimeout as error:  # it took the question: starting another would not help
        raise DeployError(
            f"Prefect at {place} is there, and has not answered; it is busy or stuck: wait, or see "
            "its log, then type the same again"
        ) from error
    except httpx.TransportError as error:
        raise DeployError(
            f"Prefect at {place} does not answer ({type(error).__name__}); start it with "
            "`dpal serve` or `python -m flows.ops.prefect_app`, then type the same again"
        ) from error
    except httpx.HTTPStatusError as error:
        status, said = error.response.status_code, error.response.text[:200]
        if status == 403 and is_cloud(place):  # it knows the key: what that may, Cloud says
            raise DeployError(
                f"Prefect at {place} does not allow that ({said}); what was made so far stays, set "
                "PREFECT_API_KEY to one that may do it, or see what the account's plan has"
            ) from error
        if status in (401, 403):
            wanted = (
                "key; set PREFECT_API_KEY to one of your account that may use this workspace"
                if is_cloud(place)
                else "password; set PREFECT_API_AUTH_STRING to the one that its server was started "
                "with"
            )
            raise DeployError(f"Prefect at {place} wants another {wanted}") from error
        raise DeployError(
            f"Prefect at {place} refused ({status}: {said}); what was made so far stays, type the "
            "same again"
        ) from error
