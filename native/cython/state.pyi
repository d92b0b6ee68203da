"""What a context shares with its data and tasks; for compiled modules only."""
