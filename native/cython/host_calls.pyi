"""How context.host_launch puts a Python function behind its data; for compiled modules only."""
