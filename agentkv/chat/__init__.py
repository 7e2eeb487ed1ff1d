"""The parts of `ChatAgentKV`: messages, template deltas, sessions, and the thread that owns the engine."""
