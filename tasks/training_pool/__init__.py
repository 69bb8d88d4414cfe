"""Trainings that workers of a Prefect work pool do for a run: ordered, awaited, taken over."""
