"""MiniWoB++: pages of the `miniwob` package, served as they are, with a seed and without a clock."""
