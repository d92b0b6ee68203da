"""Python functions that the driver calls, and their release on the main thread; for compiled modules only."""
