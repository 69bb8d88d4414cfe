"""Where and how fast a campaign runs: the section of a configuration that releases nothing."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dpal.training.backends import Backend as Backend


class Section(BaseModel):
    """Part of a configuration; knows all of its keys and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class RuntimeConfig(Section):
    """Where and how fast; no number here moves the guarantee."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N.")
    physical_batch: int = Field(256, ge=1, le=4096, description="Records per backward pass.")
    backend: Backend = Field(
        Backend.BOOK_KEEPING,
        title="Backend",
        description="What computes clipped sums, the same ones: book_keeping (fast), opacus, "
        "functional.",
    )
    processes: int = Field(
        1, ge=1, le=64, description="Processes that share the records of every step."
    )
    cache_mib: int = Field(
        2048, ge=0, description="Memory for decoded records; more are decoded as they are needed."
    )
    checkpoint_minutes: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="Training persists its state this often; a crash loses no more.",
    )
    checkpoint_steps: int | None = Field(
        None, ge=1, description="The same after so many steps; null goes by the clock alone."
    )
    artifacts: Path = Field(Path("artifacts"), description="Folder of all campaigns.")
    ledger: str | None = Field(
        None,
        description="Ledger database (postgresql://...); null is ledger.sqlite under artifacts.",
    )
    anchors: Path | None = Field(
        None,
        description="Folder of the ledger's anchors, outside of artifacts; null is this user's "
        "state folder.",
    )
    mlflow_uri: str | None = Field(
        None, description="MLflow tracking server; null is a SQLite file under artifacts."
    )
    dvc_remote: str | None = Field(
        None, description="Where phases are pushed (a folder, s3://...); null keeps them local."
    )

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

    @field_validator("anchors")
    @classmethod
    def _from_anywhere(cls, folder: Path | None) -> Path | None:
        if folder is not None and not (folder.is_absolute() or folder.parts[:1] == ("~",)):
            raise ValueError("runtime.anchors must start with / or ~: commands run in any folder")
        return folder
