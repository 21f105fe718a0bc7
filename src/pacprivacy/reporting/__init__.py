"""Pages and plots for people: :func:`report` gathers and writes, the rest only draws."""

from pacprivacy.reporting.charts import (
    PlanRow,
    plot_audit,
    plot_budget_curves,
    plot_comparison,
    plot_convergence,
    plot_plan,
    plot_release,
    plot_session,
    plot_tune,
)
from pacprivacy.reporting.contents import (
    CuratorFigures,
    CurvePoint,
    ReportData,
    SessionFigures,
    SessionStep,
    UtilityCurve,
    build_report,
)
from pacprivacy.reporting.page import BUNDLE_NAME, render_page, report
from pacprivacy.reporting.style import FORMATS

__all__ = [
    "BUNDLE_NAME",
    "FORMATS",
    "CuratorFigures",
    "CurvePoint",
    "PlanRow",
    "ReportData",
    "SessionFigures",
    "SessionStep",
    "UtilityCurve",
    "build_report",
    "plot_audit",
    "plot_budget_curves",
    "plot_comparison",
    "plot_convergence",
    "plot_plan",
    "plot_release",
    "plot_session",
    "plot_tune",
    "render_page",
    "report",
]
