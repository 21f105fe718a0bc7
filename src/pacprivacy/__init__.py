"""Privacy for any function of data."""
