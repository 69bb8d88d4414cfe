"""Times at which something runs by itself: five cron fields and a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_FIELDS = 5


def require_cron(text: str | None, *, setting: str) -> str | None:
    """Gives a cron expression back if it is one; None is none.

    Raises:
      ValueError: it has not five fields, or one of them says nothing.
    """
    if text is None:
        return None
    problem = "" if len(text.split()) == _FIELDS else "it has not five fields"
    try:
        if not problem:
            CronSim(text, datetime(2026, 1, 1))
    except CronSimError as error:
        problem = str(error)
    if problem:
        raise ValueError(
            f"{setting} {text!r} is no cron expression ({problem}); write minute, hour, day, "
            "month and weekday, such as '0 6 * * 1' for Mondays at six"
        )
    return text


def require_timezone(name: str | None, *, setting: str) -> str | None:
    """Gives the name of a time zone back if there is one; None is none.

    Raises:
      ValueError: no time zone is called so.
    """
    if name is not None:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"{setting} {name!r} is no time zone; use a name such as Europe/Berlin, or UTC"
            ) from error
    return name


def next_time(cron: str, timezone: str, after: datetime) -> datetime:
    """The first time after another one that a cron expression means.

    Args:
      cron: five fields, checked.
      timezone: its time zone, checked.
      after: a time with a zone.
    """
    return next(CronSim(cron, after.astimezone(ZoneInfo(timezone))))
