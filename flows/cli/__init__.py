"""The `dpal` command: commands, and how their answers are shown."""
