"""What each kind of certificate says of its own."""
