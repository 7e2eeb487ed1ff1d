"""Style sheet and script."""
