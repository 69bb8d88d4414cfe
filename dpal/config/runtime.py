"""Where and how fast a campaign runs: the section of a configuration that releases nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from dpal.config.cron import require_cron, require_timezone
from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import Guarded
from dpal.config.model_registry import RegistryConfig
from dpal.config.section import Count, Section
from dpal.files.object_store import StoreHolds, require_store_url
from dpal.training.backend_names import Backend as Backend
from dpal.training.model_layout import ModelLayout as ModelLayout

# Folders of artifacts that are no run's.
_TAKEN_NAMES = ("datasets", "mlflow", "remote", "watch")


class TaskRunnerKind(StrEnum):
    """What runs the parts of a large computation side by side."""

    LOCAL = "local"
    DASK = "dask"
    RAY = "ray"


class RuntimeConfig(Section):
    """Where and how fast; no number here moves the guarantee."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """What trains: cpu, cuda or cuda:N; on a worker that was started with --device, that."""
    training_pool: Annotated[str | None, choice("A work pool", "The run's own process")] = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]{0,62}$"
    )
    """Prefect work pool whose workers train, such as gpu; null trains in the run's own process."""
    # A file under artifacts is the usual ledger, and another folder would be another ledger.
    artifacts: Annotated[Path, Guarded()] = Path("artifacts")
    """Folder of all campaigns."""
    mlflow_uri: Annotated[
        str | None, Guarded(free=(None,)), choice("A server", "A file under artifacts")
    ] = Field(None, title="MLflow")
    """MLflow tracking server; null is the one in DPAL_MLFLOW_URI, else a SQLite file under
    artifacts."""
    ledger: Annotated[
        str | None,
        Guarded(usual=(None,)),
        choice("A PostgreSQL database", "A file under artifacts"),
    ] = None
    """Ledger database (postgresql://...); null is ledger.sqlite under artifacts."""
    anchors: Annotated[
        Path | None, Guarded(usual=(None,)), choice("A folder", "This user's state folder")
    ] = None
    """Folder of the ledger's anchors, outside of artifacts; null is this user's state folder."""
    registry: Folded[RegistryConfig] = Field(
        default_factory=RegistryConfig, title="Registered model"
    )
    """Of which registered model this run makes a version, and how the champion moves."""
    dvc_remote: Annotated[
        str | None, Guarded(free=(None,)), choice("A folder or bucket", "Kept local")
    ] = Field(None, title="DVC remote")
    """Where phases are pushed (a folder, s3://...); null keeps them local."""
    store: Annotated[
        str | None, Guarded(free=(None,)), choice("Object storage", "The shared artifacts folder")
    ] = None
    """Object storage (s3://bucket/dpal) that carries a campaign's files to other machines; null:
    all machines share the artifacts folder."""
    store_holds: Annotated[StoreHolds, Guarded(place=False, free=(StoreHolds.RELEASED,))] = Field(
        StoreHolds.RELEASED, title="What the store holds"
    )
    """released, or everything: confidential files, too, where the store is inside of the trusted
    boundary."""
    cron: Annotated[str | None, choice("A schedule", "When somebody starts it")] = None
    """When the campaign's deployment runs by itself (dpal deploy), such as '0 6 * * 1'; a finished
    campaign does nothing then. Null: when somebody starts it."""
    timezone: Annotated[str | None, choice("A time zone", "UTC")] = Field(
        None, title="Time zone of cron"
    )
    """Such as Europe/Berlin; null is UTC."""
    checkpoint_minutes: float = Field(
        10.0, gt=0, allow_inf_nan=False, title="Minutes between checkpoints"
    )
    """Training persists its state about this often: after the number of steps that take so long on
    made-up records. A crash loses no more."""
    checkpoint_steps: Annotated[Count | None, choice("A number of steps", "By minutes")] = Field(
        None, title="Steps between checkpoints"
    )
    """Exactly so many steps instead; null goes by minutes."""
    backend: Backend = Backend.BOOK_KEEPING
    """What computes clipped sums, the same ones: book_keeping (fast), opacus, functional."""
    physical_batch: int = Field(256, ge=1, le=4096)
    """Records per backward pass; fewer need less memory, with the same result."""
    processes: int = Field(1, ge=1, le=64)
    """Processes that share the records of every step."""
    model_layout: ModelLayout = ModelLayout.REPLICATED
    """What each of these processes holds of the model: replicated (all of it) or sharded (some rows
    of every parameter, for models that do not fit otherwise); the result is the same."""
    # Where it listens decides who could ask to join, and a network that is declared private is
    # one over which clipped sums go as they are.
    rendezvous: Annotated[
        str | None, Guarded(place=False, free=(None,)), choice("HOST:PORT", "This machine alone")
    ] = None
    """Address (HOST:PORT) of the machine that trains, at which helpers of other machines find it
    (dpal ranks); null: all processes are of one machine."""
    helpers: int = Field(0, ge=0, le=63, title="Processes of other machines")
    """Processes that other machines add to `processes`; needs rendezvous."""
    private_network: Annotated[bool, Guarded(place=False, free=(False,))] = False
    """Whether vectors may go through torch.distributed (Gloo), which seals nothing: only in a
    network of these machines alone. false seals them."""
    cache_mib: NonNegativeInt = Field(2048, title="Memory for records (MiB)")
    """Memory for decoded records; more are decoded as they are needed."""
    task_runner: TaskRunnerKind = TaskRunnerKind.LOCAL
    """What scores the pool and trains teachers in shards, with the same result: local (this
    process), dask, ray."""
    shards: int = Field(1, ge=1, le=10_000)
    """Parts of the pool that are scored, or of the teachers that are trained, side by side."""
    scheduler: Annotated[
        str | None, Guarded(free=(None,)), choice("An address", "Workers on this machine")
    ] = Field(None, title="Cluster")
    """Address of a running Dask or Ray cluster; null starts workers on this machine."""

    @field_validator("rendezvous")
    @classmethod
    def _is_address(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                address_of(text)
            except ValueError as error:
                raise ValueError(
                    "runtime.rendezvous is no HOST:PORT, such as 10.8.0.1:29400"
                ) from error
        return text

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.rendezvous is None) != (self.helpers == 0):
            raise ValueError(
                "runtime.rendezvous and runtime.helpers go together: the first says where "
                "processes of other machines find this one, the second how many there are; set "
                "both or neither"
            )
        return self

    @model_validator(mode="after")
    def _shardable(self) -> Self:
        if self.model_layout is ModelLayout.REPLICATED:
            return self
        instead = "or runtime.model_layout replicated"
        if self.processes == 1 or self.rendezvous is not None:
            raise ValueError(
                "runtime.model_layout sharded splits a model over processes of one machine; set "
                f"runtime.processes to 2 or more and leave runtime.helpers out, {instead}"
            )
        if self.backend is not Backend.BOOK_KEEPING:
            raise ValueError(
                f"runtime.backend {self.backend} computes with all of the model at once, and "
                f"runtime.model_layout sharded never has that; use book_keeping, {instead}"
            )
        if self.checkpoint_steps is None:
            raise ValueError(
                "runtime.checkpoint_minutes times steps on a copy of the model, for which "
                "runtime.model_layout sharded leaves no room; set runtime.checkpoint_steps, "
                f"{instead}"
            )
        return self

    def require_one_machine(self) -> None:
        """Requires that no helpers are waited for, which have the settings of a campaign.

        Raises:
          ValueError: they are.
        """
        if self.rendezvous is not None:
            raise ValueError(
                "runtime.rendezvous lets helpers of other machines train a phase of one campaign, "
                "by that campaign's own settings; leave it and runtime.helpers out here"
            )

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, text: str | None) -> str | None:
        return require_cron(text, setting="runtime.cron")

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str | None) -> str | None:
        return require_timezone(name, setting="runtime.timezone")

    @field_validator("ledger")
    @classmethod
    def _shareable(cls, url: str | None) -> str | None:
        # Configurations are shown on pages and kept in files: no secret may be in one.
        parts = urlsplit(url or "postgresql:")
        if parts.scheme not in ("postgresql", "postgresql+psycopg"):
            raise ValueError(
                "runtime.ledger is not a postgresql:// URL; null is a file under artifacts"
            )
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError(
                "runtime.ledger holds a password, and settings are shown on pages; leave it out "
                "and put it into ~/.pgpass or the environment variable PGPASSWORD"
            )
        return url

    @field_validator("mlflow_uri")
    @classmethod
    def _without_password(cls, uri: str | None) -> str | None:
        parts = urlsplit(uri or "")
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError(
                "runtime.mlflow_uri holds a password, and settings are shown on pages; leave it "
                "out and put it into the environment: MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD for a server, ~/.pgpass for a database"
            )
        return uri

    @field_validator("store")
    @classmethod
    def _without_secrets(cls, url: str | None) -> str | None:
        return None if url is None else require_store_url(url)

    @field_validator("anchors")
    @classmethod
    def _from_anywhere(cls, folder: Path | None) -> Path | None:
        if folder is not None and not (folder.is_absolute() or folder.parts[:1] == ("~",)):
            raise ValueError("runtime.anchors must start with / or ~: commands run in any folder")
        return None if folder is None else folder.expanduser()


def address_of(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address stands in brackets.

    Raises:
      ValueError: it is none.

    >>> address_of("[fd00::1]:29400")
    ('fd00::1', 29400)
    """
    parts = urlsplit(f"//{text}")
    if not parts.hostname or not parts.port or parts.netloc != text or "@" in text:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return parts.hostname, parts.port


class RunConfig(Section):
    """Settings of a run, whatever kind it is of: it has a name, and says where it runs."""

    if TYPE_CHECKING:  # each kind has its own, where a form shows them
        name: str
        runtime: RuntimeConfig

    def files_for_called_flows(self) -> Mapping[str, Path]:
        """Files that a run makes and a flow that it calls reads, by the setting that names them."""
        return {}

    @property
    def calls_campaigns(self) -> bool:
        """Whether campaigns are trained within a run of another kind."""
        return False

    @model_validator(mode="after")
    def _own_place(self) -> Self:
        if self.name in _TAKEN_NAMES:
            raise ValueError(f"name cannot be {self.name}: that folder of artifacts is taken")
        return self
