"""The `dpal` command: one module a command."""
