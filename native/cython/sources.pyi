"""Memory that callers register, described; for compiled modules only."""
