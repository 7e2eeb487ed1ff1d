"""The report of a run."""

from agentkv_evals.report.render import render_report

__all__ = ["render_report"]
