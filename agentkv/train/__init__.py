"""Training of low-rank adapters: packing, the loop with checkpoints, and what it reports. Needs `agentkv[train]`."""
