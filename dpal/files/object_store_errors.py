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


_STORE = "correct runtime.store", "read, write and list there"
_DATA = "correct its address", "read and list there"


@contextmanager
def as_storage_errors(url: str, *, of_data: bool = False) -> Iterator[None]:
    """Says in one sentence what a store refused within a block.

    Args:
      url: what was asked for.
      of_data: whether that is a data file, which is only read; else a file of `runtime.store`.

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
        raise StoreError(url, *_refusal(error, classes, of_data=of_data)) from error


def _refusal(error: Exception, classes: set[str], *, of_data: bool) -> tuple[str, str]:
    correct, right = _DATA if of_data else _STORE
    if "NoCredentialsError" in classes:
        keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return "was asked without credentials", f"set {keys} or write ~/.aws/credentials"
    if isinstance(error, PermissionError):
        return f"gives no access ({_first_line(error)})", f"ask its owner for the right to {right}"
    if isinstance(error, FileNotFoundError):
        return f"is not there ({_first_line(error)})", f"make the bucket or {correct}"
    return f"refused ({_first_line(error)})", "correct it"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
