"""Pages and plots for people: :func:`report` gathers and writes, the rest only draws."""

from pacprivacy.reporting.charts import (
    plot_audit as plot_audit,
    plot_release as plot_release,
    plot_session as plot_session,
)
from pacprivacy.reporting.contents import (
    About as About,
    ReportData as ReportData,
)
from pacprivacy.reporting.ledger_page import (
    LedgerAccount as LedgerAccount,
    render_ledger_page as render_ledger_page,
)
from pacprivacy.reporting.page import (
    page_content_source as page_content_source,
    read_page_template as read_page_template,
    render_page as render_page,
    report as report,
)
