"""The shapes of grids, and what indices select of them; for compiled modules only."""
