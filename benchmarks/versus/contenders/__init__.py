"""The cells of the fight: what is released, by which methods, and how each of them is tuned."""
