"""Plots and pages for people; computes nothing, imports record types only."""

from pacprivacy.report.audit_plot import plot_audit

__all__ = ["plot_audit"]
