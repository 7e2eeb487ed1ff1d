"""Style sheet and script of the forum."""
