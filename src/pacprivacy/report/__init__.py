"""Plots and pages for people; computes nothing, imports record types only."""

from pacprivacy.report.audit_plot import plot_audit
from pacprivacy.report.figures import FORMATS, plot_plan, plot_release, plot_session
from pacprivacy.report.page import render_page
from pacprivacy.report.records import (
    CuratorFigures,
    CurvePoint,
    PlanRow,
    ReportData,
    SessionFigures,
    SessionStep,
    UtilityCurve,
)
from pacprivacy.report.residual_plot import plot_budget_curves, plot_convergence

__all__ = [
    "FORMATS",
    "CuratorFigures",
    "CurvePoint",
    "PlanRow",
    "ReportData",
    "SessionFigures",
    "SessionStep",
    "UtilityCurve",
    "plot_audit",
    "plot_budget_curves",
    "plot_convergence",
    "plot_plan",
    "plot_release",
    "plot_session",
    "render_page",
]
