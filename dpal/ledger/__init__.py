"""The epsilon ledger: append-only, hash-chained, reserved before anything is drawn."""
