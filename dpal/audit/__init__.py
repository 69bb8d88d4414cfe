"""Attacks on a campaign's own mechanisms, to find out when they keep less than they claim."""
