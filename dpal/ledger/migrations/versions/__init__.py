"""One module per schema version; none of them touches an entry."""
