"""Topics of entries, and the tree of their digests.

Both follow from the entries, so nothing keeps them from being changed: whoever reads them checks
them against what was verified. They are filled by the first append.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "entry_topics",
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False, index=True),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("entry", "totals", "previous", "digest")
        ),
    )
    op.create_table(
        "entry_topic_tree",
        sa.Column("parent", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
    )
