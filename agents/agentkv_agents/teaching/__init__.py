"""Teaching a small model to act: demonstrations as the agent's own conversations, and the run of a training."""
