"""User configuration: pydantic schemas, converted to frozen specs."""
