"""Pages and plots for people: :func:`report` gathers and writes, the rest only draws."""

from pacprivacy.reporting.contents import About as About, ReportData as ReportData
from pacprivacy.reporting.page import (
    LedgerAccount as LedgerAccount,
    page_content_source as page_content_source,
    plot_audit as plot_audit,
    plot_release as plot_release,
    plot_session as plot_session,
    read_page_template as read_page_template,
    render_ledger_page as render_ledger_page,
    render_page as render_page,
    report as report,
)
