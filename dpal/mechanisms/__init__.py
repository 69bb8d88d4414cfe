"""Samplers whose accounting event stands in `dpal.accounting.events`."""
