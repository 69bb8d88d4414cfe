"""Who labels: a section of a configuration."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dpal.config.form_choices import Folded, choice
from dpal.config.guarded_settings import Guarded, OnlyIf
from dpal.config.registered_names import Registered
from dpal.config.section import Name, Section
from dpal.labeling.label_studio_rules import Agreement, Media, Rules, Skipped
from dpal.labeling.registered_labelers import LABELERS, explained, labeler_named

LabelerName = Annotated[
    str,
    Registered(
        names=lambda: tuple(LABELERS),
        title="LabelerKind",
        about=(
            "Who answers queries: the pool's own label column, people, or an ensemble of teachers."
        ),
        explained=explained,
    ),
]


class LabelStudioConfig(Section):
    """A Label Studio server; it sees the selected records and their labels."""

    model_config = ConfigDict(title="Set here")

    url: Annotated[str, Guarded()] = Field("http://127.0.0.1:8080", title="Address")
    """Where Label Studio answers; it is inside of the trusted boundary. Its token is in
    LABEL_STUDIO_API_KEY or in the Prefect Secret block dpal-label-studio-token."""
    # Label Studio allows 50 characters, and the phase is added.
    title: Annotated[str | None, choice("A title", "The campaign's name")] = Field(
        None, max_length=40
    )
    """Of the labeling projects; null is the campaign's name."""
    annotators: int = Field(1, ge=1, le=20)
    """People who label each record."""
    agreement: Agreement = Agreement.MAJORITY
    """majority: the label that most annotators gave; a tie goes to a second project, where one
    person decides. adjudicate: every disagreement goes there."""
    media: Media = Media.INLINE
    """inline: pictures are part of the tasks. hosted: pictures are uploaded files of Label Studio,
    for larger ones."""
    skipped: Skipped = Field(Skipped.RETIRE, title="Skipped records")
    """retire: a record that is skipped leaves the pool without a label, its charge stays.
    ask_again: it goes to the second project."""

    webhook: Annotated[str | None, Guarded(free=(None,)), choice("An address", "None")] = None
    """Address of `dpal desk --listen` as Label Studio reaches it, such as http://127.0.0.1:8095;
    null: labels are noticed within a minute."""

    @field_validator("url", "webhook")
    @classmethod
    def _plain(cls, url: str | None, about: ValidationInfo) -> str | None:
        if url is None:
            return None
        parts, key = urlsplit(url), f"labeler.label_studio.{about.field_name}"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{key} is not an http:// or https:// address")
        if parts.username is not None or parts.password is not None or parts.query:
            raise ValueError(
                f"{key} holds a user, a password or a query, and settings are shown on pages; "
                "leave it out and put the token into LABEL_STUDIO_API_KEY"
            )
        return url.rstrip("/")

    def to_rules(self) -> Rules:
        """The choices about annotators, as a frozen value."""
        return Rules(
            annotators=self.annotators,
            agreement=self.agreement,
            media=self.media,
            skipped=self.skipped,
        )


class LabelerConfig(Section):
    """Where labels come from."""

    kind: LabelerName = Field("oracle", title="Labeler")
    teachers: Annotated[Name | None, choice("Finished private voting", "None")] = None
    """Of labeler teachers: the name of finished private voting (kind: pate) in the same artifacts
    folder, with blocks left."""
    label_studio: Annotated[Folded[LabelStudioConfig], OnlyIf("kind", "label_studio")] = Field(
        default_factory=LabelStudioConfig, title="Label Studio"
    )
    """Of labeler label_studio: the server and its rules."""
    suggest: bool = Field(False, title="Suggest labels")
    """People see what the last released model says of a record, and correct it; from the second
    query on, and so in no improvement. Faster, and people tend to leave what they see."""
    trusted_page: Annotated[bool, Guarded(place=False, free=(False,))] = Field(
        False, title="The Prefect page is trusted"
    )
    """The form shows selected records on the Prefect page and its server keeps the answers for a
    while: confirm that only people who may see both can open it."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        labeler_named(self.kind).require_settings(self)
        return self

    @property
    def most_records(self) -> int | None:
        """Records that one query may have for this labeler; None for any number."""
        return labeler_named(self.kind).most_records

    @property
    def limits_queries(self) -> bool:
        """Whether no query may have more records than planned, whatever the others have."""
        return self.most_records is not None or labeler_named(self.kind).needs_teachers
