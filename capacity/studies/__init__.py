"""Questions that take several estimates: sizing, sweeps, fleets, comparisons, control cycles."""
