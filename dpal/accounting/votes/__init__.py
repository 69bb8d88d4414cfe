"""What votes of teachers cost: rules, accounts, bounds, second opinion."""
