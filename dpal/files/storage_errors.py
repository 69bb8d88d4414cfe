"""What object storage refuses, in one sentence; every kind of store has errors of its own."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from dpal.errors import DpalError, StoreError, StoreUnreachable

_LOCAL_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
# Errors of network clients by class name: none of those clients has to be installed.
_NETWORK = {
    "ConnectionError",
    "TimeoutError",
    "HTTPClientError",
    "ClientConnectionError",
    "ClientPayloadError",
    "NewConnectionError",
}
_BUSY = re.compile(r"\b(50[0234]|SlowDown|Reduce your request rate|InternalError)\b")


@contextmanager
def as_storage_errors(url: str) -> Iterator[None]:
    """Says in one sentence what a store refused within a block.

    Raises:
      StoreUnreachable: it does not answer; another try may help.
      StoreError: it refused.
    """
    try:
        yield
    except DpalError:
        raise
    except ImportError as error:
        raise StoreError(url, f"needs a package ({error})", "pip install 'dpal[s3]'") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _LOCAL_TROUBLE:
            raise  # no room here: `atomic_write` says so
        classes = {base.__name__ for base in type(error).__mro__}
        if classes & _NETWORK or _BUSY.search(str(error)):
            raise StoreUnreachable(url, _first_line(error)) from error
        raise StoreError(url, *_refusal(error, classes)) from error


def _refusal(error: Exception, classes: set[str]) -> tuple[str, str]:
    if "NoCredentialsError" in classes:
        keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return "was asked without credentials", f"set {keys} or write ~/.aws/credentials"
    if isinstance(error, PermissionError):
        return f"gives no access ({_first_line(error)})", "ask its owner for the right to read, " \
            "write and list there"  # fmt: skip
    if isinstance(error, FileNotFoundError):
        return f"is not there ({_first_line(error)})", "make the bucket or correct runtime.store"
    return f"refused ({_first_line(error)})", "correct it"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
