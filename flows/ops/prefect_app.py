"""Prefect's server with its doors closed: `python -m flows.ops.prefect_app`.

What its own settings can close is set here as well; the rest is `tasks.web_guard`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from dpal.errors import ConfigError, DpalError
from flows.ops.busy_database_middleware import BusyDatabase
from flows.ops.stack_secrets import StackSecrets, prefect_login
from tasks.web_guard import ORIGINS, WebGuard, content_policy, own_origins

PASSWORD = "PREFECT_SERVER_API_AUTH_STRING"  # noqa: S105  where it is, not what it is
_LOOPBACK = ("127.0.0.1", "localhost")
# Pages of FastAPI that load their scripts from a host outside.
_CLOSED = ("/docs", "/redoc", "/openapi.json", "/api/docs", "/api/redoc")
# Its graphs of runs are drawn by code that is made as they are drawn (pixi.js).
_POLICY = content_policy(script_src="'unsafe-eval'", connect_src="data: blob:")


def create_app() -> ASGIApp:
    """Prefect's application, for its own pages and for programs that know the password.

    Raises:
      ConfigError: no password is set, or not where its pages are.
    """
    if not os.environ.get(PASSWORD):
        raise ConfigError(
            f"{PASSWORD} is not set, and without a password anybody could start runs; set it to "
            "NAME:PASSWORD, and PREFECT_API_AUTH_STRING likewise for workers"
        )
    origins = own_origins()
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(origins)
    os.environ["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] = "true"
    os.environ["PREFECT_SERVER_UI_V2_ENABLED"] = "false"
    os.environ.setdefault("PREFECT_SERVER_UI_API_URL", "/api")
    os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")

    import prefect
    from prefect.server.api.server import create_app as create_prefect

    # The newer pages ask an analytics host for settings, and no setting of 3.8 takes them away:
    # they are offered where their files are.
    prefect.__ui_v2_static_path__ = Path(os.devnull) / "not-offered"
    served = BusyDatabase(create_prefect(final=True))
    return WebGuard(served, origins=origins, policy=_POLICY, closed=_CLOSED)


def main() -> int:
    """Runs the server; without a password in the environment, with one of this user's own."""
    parser = argparse.ArgumentParser(prog="python -m flows.ops.prefect_app", description=__doc__)
    parser.add_argument("--host", default=_LOOPBACK[0], help="interface to listen on")
    parser.add_argument("--port", type=int, default=4200)
    asked = parser.parse_args()
    os.umask(0o077)
    try:
        if asked.host in _LOOPBACK:
            own = ",".join(f"http://{name}:{asked.port}" for name in _LOOPBACK)
            os.environ.setdefault(ORIGINS, own)
        if not os.environ.get(PASSWORD):
            home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
            secrets = StackSecrets(home / "dpal-secrets")
            os.environ[PASSWORD] = prefect_login(secrets)
            print(f"its password: cat {secrets.file('prefect')}")  # noqa: T201
        app = create_app()
    except DpalError as error:
        print(f"dpal: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(f"open http://{asked.host}:{asked.port}/runs; Ctrl-C ends it", flush=True)  # noqa: T201
    uvicorn.run(
        app,
        host=asked.host,
        port=asked.port,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
