"""What a model may be shown with: its promise, its events, and everything to check them by."""
