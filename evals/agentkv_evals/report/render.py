"""A run as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from agentkv_evals import text
from agentkv_evals.findings import beside_claims, headline
from agentkv_evals.report import plots, view
from agentkv_evals.run_folder import RunFolder
from agentkv_evals.summary import arms_of
from agentkv_evals.ways import Cause


def render_report(run: RunFolder, summary: dict[str, Any]) -> str:
    """The report of a run, finished or not, from its folder and its summary."""
    config = run.config
    colors = view.arm_colors(arms_of(config))
    tasks = view.task_views(run)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            config=config,
            summary=summary,
            arms=[
                {**arm, "color": color, "shares": view.outcome_shares(arm)}
                for arm, color in zip(summary["arms"], colors, strict=True)
            ],
            causes=[str(cause) for cause in Cause if any(cause in arm["left_by"] for arm in summary["arms"])],
            tasks=tasks,
            commits=list(dict.fromkeys(start["git"]["commit"] for start in config["starts"] if start["git"])),
            viewer=view.viewer_data(run, tasks),
            success_svg=Markup(plots.success_vs_memory(summary["arms"], colors)),
            distance_svg=Markup(plots.success_vs_distance(summary["by_distance"], colors)),
            headline=headline(summary),
            claims=beside_claims(summary),
            time_svg=Markup(plots.step_time(summary["arms"])),
            time_parts=plots.PARTS,
            style=_asset("report.css"),
            script=_asset("report.js"),
        )
    )


def _asset(name: str) -> Markup:
    return Markup((files("agentkv_evals.report") / "templates" / name).read_text(encoding="utf-8"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agentkv_evals.report", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(mib=text.mib, times=text.times, safe_svg=Markup)
    return environment
