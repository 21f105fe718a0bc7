"""Many releases of one secret: belief, budgets that add up, an odometer."""

from pacprivacy.accounting.session import Odometer, Session

__all__ = ["Odometer", "Session"]
