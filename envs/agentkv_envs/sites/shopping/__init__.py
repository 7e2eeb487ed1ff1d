"""The embedded shop "Brightcart"."""
