"""Private answers over HTTP, from models and tables that never leave: ``pac serve``.

One process holds the secret. Tokens say who asks, the ledger what each may spend, the desk answers
all waiting requests in one pass, and nothing leaves before it is paid for on the disk.
"""

from pacprivacy.serve.desk import Desk as Desk, Limits as Limits, Tokens as Tokens
from pacprivacy.serve.service import (
    OF_TABLES as OF_TABLES,
    Service as Service,
    run_service as run_service,
)
