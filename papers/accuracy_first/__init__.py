"""The page of [AF]: its figures, and what a reader must know about all of them."""

from __future__ import annotations

from typing import Final

from papers.accuracy_first import checks, searches
from papers.run import Paper, Settings

__all__ = ["ACCURACY_FIRST"]

PROTOCOL: Final = (
    "The accuracy α comes first: an excess risk of at most α with probability 1 - γ = 0.9. The "
    "privacy loss is what is measured: *ex post*, it depends on where the search stopped.",
    "*Noise reduction* lowers the noise over 1000 geometric levels from 1/n to four times what the "
    "theorem demands, and stops when AboveThreshold says that the excess risk is at most α. Its "
    "loss is the test plus the level reached, nothing for the levels before. *Theorem's test* has "
    "ε = 16 Δ ln(2T/γ)/α; *tight test* computes the probability of a wrong yes.",
    "*Doubling* releases afresh at 1/n, 2/n, 4/n, ..., with a noisy test each time; all losses add "
    "up: 2kΔ ln(T/γ)/α + (2^k - 1)/n at step k.",
    "*Theory, as printed* releases once with the ε that the paper's theorem demands for an excess "
    "risk of α *on average*. *Theory, ours* has sharper constants (claims AF-8 and AF-9) and holds "
    "with the same probability as the searches; on average only, it would be 0.32 of that.",
    "Neighbours differ in one record; the number of records is public. No seed was chosen. The "
    "paper's figures are drawn; Section 4 prints four risk factors e^ε, which the headline section "
    "is about.",
)


ACCURACY_FIRST: Final = Paper(
    name="accuracy-first",
    title="Accuracy First (Ligett, Neel, Roth, Waggoner, Wu, NIPS 2017), recomputed",
    protocol=PROTOCOL,
    sections=(
        searches.LOGISTIC,
        searches.HEADLINE,
        searches.RIDGE,
        checks.SECTION,
    ),
    full=Settings(n_releases=80),
    quick=Settings(n_releases=3),
    reference=None,
    amount=(
        "{n_releases} runs of every method per accuracy (fewer where a run is slow), seed {seed}."
    ),
)
