"""The embedded forum "Commonroom"."""
