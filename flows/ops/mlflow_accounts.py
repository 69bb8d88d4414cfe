"""MLflow's accounts by role: one that administers, one that logs, one that reads.

By MLflow's REST API, as often as one likes: what is right stays. For a stack in containers:
`python -m flows.ops.mlflow_accounts`, which takes everything from its environment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

import httpx

from flows.ops.supervisor import ServeError
from tasks.tracking.server_app import ADMIN, EARLIER, READER, WORKER

EXPERIMENT = "dpal"
_START_SECONDS = 300.0


def make_accounts(url: str, admin: str, passwords: Mapping[str, str]) -> list[str]:
    """Makes the accounts that are missing, and gives those that are there their passwords.

    An account of an earlier version that was an administrator becomes one that logs.

    Args:
      url: of the MLflow server.
      admin: password of the administrator, whom MLflow makes at its first start.
      passwords: of the other accounts, by name.

    Returns:
      What was changed, in words.

    Raises:
      ServeError: the administrator's password is another one, or the server refuses.
    """
    done = []
    try:
        with httpx.Client(base_url=url, auth=(ADMIN, admin), timeout=60) as client:
            if client.get("/api/2.0/mlflow/users/current").status_code == 401:
                raise ServeError(
                    f"MLflow's account {ADMIN} has another password than the one given here; put "
                    "that one into the stack's secrets (mlflow-admin), nothing was changed"
                )
            for name, password in passwords.items():
                done += _account(client, name, password)
            _open_experiment(client)
            for name in (WORKER, *_demoted(client, done)):
                _let_log(client, name)
    except httpx.HTTPError as error:
        raise ServeError(
            f"MLflow at {url} did not take its accounts ({type(error).__name__}); nothing else was "
            "touched, its log says more"
        ) from error
    return done


def _account(client: httpx.Client, name: str, password: str) -> list[str]:
    if client.get("/api/2.0/mlflow/users/get", params={"username": name}).status_code == 404:
        _post(client, "2.0/mlflow/users/create", username=name, password=password)
        return [f"made MLflow's account {name}"]
    answer = client.get("/api/2.0/mlflow/users/current", auth=(name, password))
    if answer.is_success:
        return []
    client.patch(
        "/api/2.0/mlflow/users/update-password", json={"username": name, "password": password}
    ).raise_for_status()
    return [f"gave MLflow's account {name} its new password"]


def _demoted(client: httpx.Client, done: list[str]) -> list[str]:
    """The account that workers of earlier versions use, which was an administrator."""
    answer = client.get("/api/2.0/mlflow/users/get", params={"username": EARLIER})
    if answer.status_code == 404:
        return []
    if answer.raise_for_status().json()["user"]["is_admin"]:
        client.patch(
            "/api/2.0/mlflow/users/update-admin", json={"username": EARLIER, "is_admin": False}
        ).raise_for_status()
        done.append(f"MLflow's account {EARLIER} of an earlier version administers no more")
    return [EARLIER]


def _let_log(client: httpx.Client, name: str) -> None:
    """Lets an account log runs and register models; what an administrator set for it stays."""
    listed = client.get("/api/3.0/mlflow/users/permissions/list", params={"username": name})
    there = {
        permission["resource_type"]
        for permission in listed.raise_for_status().json()["permissions"]
        if permission["resource_pattern"] == "*"
    }
    for kind in {"experiment", "registered_model"} - there:
        _post(client, "3.0/mlflow/users/permissions/grant", username=name, resource_type=kind,
              resource_id="*", permission="EDIT")  # fmt: skip


def _open_experiment(client: httpx.Client) -> None:
    """Makes the experiment as the administrator's, so that no worker may delete it."""
    path, query = "/api/2.0/mlflow/experiments/get-by-name", {"experiment_name": EXPERIMENT}
    if client.get(path, params=query).status_code == 404:
        _post(client, "2.0/mlflow/experiments/create", name=EXPERIMENT)


def _post(client: httpx.Client, path: str, **content: str) -> None:
    client.post(f"/api/{path}", json=content).raise_for_status()


def main() -> int:
    """Makes the accounts of a server that may still be starting; exit code 1 if it refuses."""
    given = os.environ
    url, deadline = given["DPAL_MLFLOW_URI"], time.monotonic() + _START_SECONDS
    passwords = {
        WORKER: given["MLFLOW_WORKER_PASSWORD"],
        READER: given["MLFLOW_READER_PASSWORD"],
    }
    while True:
        try:
            done = make_accounts(url, given["MLFLOW_AUTH_ADMIN_PASSWORD"], passwords)
        except ServeError as error:
            if time.monotonic() > deadline or not isinstance(error.__cause__, httpx.TransportError):
                print(f"dpal: {error}", file=sys.stderr)  # noqa: T201
                return 1
            time.sleep(2)
        else:
            print("\n".join(done) or "MLflow's accounts are there")  # noqa: T201
            return 0


if __name__ == "__main__":
    sys.exit(main())
