"""Style sheet and scripts."""
