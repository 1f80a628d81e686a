"""Who is on the grid, and who talks to whom."""
