"""Evaluation: runs agents on web tasks under KV policies, and reports success against memory."""
