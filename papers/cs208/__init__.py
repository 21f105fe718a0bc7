"""[CS208]: composition as its slides have it, and data and networks for benchmarks."""

__all__: list[str] = []  # its parts are slow to import together
