"""Style sheet of the encyclopedia."""
