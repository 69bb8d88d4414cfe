"""No stored result that Prefect's server names is read.

Tasks and flows of dpal store none (`tasks/boundary.py`). The server's states may name one all the
same, in any storage: whoever can write a state decides which, and reading one means unpickling
it, in a process that may read private records. Prefect asks for a state's result before it
calls a flow that the server says is over already, so before any list of the owner is asked.
"""

from __future__ import annotations

from typing import Any, NoReturn

from prefect.results import ResultStore

from dpal.errors import StoredResult


def refuse_stored_results() -> None:
    """From now on this process reads no stored result, whatever a state names."""
    for name, refuse in (("read", _read), ("aread", _aread), ("_from_metadata", _aread)):
        if not hasattr(ResultStore, name):  # as after an upgrade: then nothing would be refused
            raise ImportError(f"this version of Prefect reads results otherwise, not by {name}")
        setattr(ResultStore, name, refuse)


def _read(*_: Any, **__: Any) -> NoReturn:
    raise StoredResult


async def _aread(*_: Any, **__: Any) -> NoReturn:
    raise StoredResult
