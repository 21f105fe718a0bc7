"""Plots and pages for people; computes nothing, imports record types only."""

from pacprivacy.report.audit_plot import plot_audit
from pacprivacy.report.page import render_page
from pacprivacy.report.records import (
    CuratorFigures,
    CurvePoint,
    ReportData,
    SessionFigures,
    SessionStep,
    UtilityCurve,
)

__all__ = [
    "CuratorFigures",
    "CurvePoint",
    "ReportData",
    "SessionFigures",
    "SessionStep",
    "UtilityCurve",
    "plot_audit",
    "render_page",
]
