"""Campaigns on public or simulated data, to see what a plan is worth. Nothing here is private."""
