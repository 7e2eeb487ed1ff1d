"""Page templates of the forum."""
