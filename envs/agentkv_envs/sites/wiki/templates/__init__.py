"""Page templates of the encyclopedia."""
