"""The shapes of grids, the names of their axes, and what indices select of them; for compiled modules only."""
