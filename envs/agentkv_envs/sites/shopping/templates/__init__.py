"""Page templates of the shop."""
