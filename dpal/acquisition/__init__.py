"""Which unlabeled records are worth a label, and how they are picked privately."""
