"""Style sheet and script of the shop."""
