"""Models, labelers and importers of other installed packages, found by their entry points.

A package names an object in `dpal.models`, `dpal.labelers` or `dpal.importers`; importing it
registers it, as `register_architecture` and its like say.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points

from dpal.errors import ConfigError

GROUPS = ("dpal.models", "dpal.labelers", "dpal.importers")


@lru_cache(maxsize=1)
def load_plugins() -> tuple[str, ...]:
    """Imports what installed packages offer, once a process.

    Returns:
      What was imported, as `group name`, in that order.

    Raises:
      ConfigError: one cannot be imported. Nothing was started.
    """
    found = []
    for group in GROUPS:
        for offered in sorted(entry_points(group=group), key=lambda each: each.name):
            try:
                offered.load()
            except Exception as error:  # another package's code: anything may be wrong with it
                package = offered.dist.name if offered.dist is not None else "a package"
                raise ConfigError(
                    f"{package} offers {offered.name} in {group}, which cannot be imported "
                    f"({type(error).__name__}); mend that package, or uninstall it"
                ) from error
            found.append(f"{group} {offered.name}")
    return tuple(found)
