"""Tasks of the suite vwa75, one JSON file each."""
