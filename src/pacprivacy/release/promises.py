"""What certificates do not promise, said once for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pacprivacy._rounding import at_most
from pacprivacy.pool import Pool

SCOPE: Final = (
    "Whether a person is in the universe at all is not protected: the promise is about which "
    "subset of a fixed universe was used, and the noise level itself is computed from the "
    "universe. Outsiders who must not learn that someone is in the universe need differential "
    "privacy."
)
LOOPHOLE: Final = (
    "What is computed from all candidates tells nothing about which of them is the secret, and is "
    "an exact fact of the universe that no noise hides"
)
ELSEWHERE: Final = "Releases and answers made outside this certificate from the same secret subset."


def open_parts(n_directions: int, dimension: int, *, unanimous: bool = False) -> tuple[str, ...]:
    """Name what of a release is exact, given how many directions of the output carry noise."""
    if n_directions == 0:
        whole = "the output, on which all candidates agree" if unanimous else ""
        return (whole or "the output, which leaves without noise", "that it needed none")
    if n_directions < dimension:
        rest = f"the output outside the {n_directions} of {dimension} directions that carry noise"
        return ("the noise level", rest)
    return ("the noise level",)


def not_promised(
    pool: Pool, *, mi_upper: float, exact_facts: Sequence[str], knows_pool: bool = True
) -> tuple[str, ...]:
    """Return what a certificate does not promise, in sentences.

    Parameters
    ----------
    pool : Pool
        The candidates.
    mi_upper : float
        The bound on the information of everything released, in nats.
    exact_facts : sequence of str
        What leaves without noise and is computed from all candidates.
    knows_pool : bool
        Whether the promise is about attackers who know the pool.
    """
    items = [SCOPE, f"{LOOPHOLE}; here: {'; '.join(exact_facts)}."]
    if knows_pool:
        items.insert(
            0,
            f"Side knowledge: whoever knows the pool and the true membership of about "
            f"{math.ceil(math.log2(pool.n_subsets))} units knows the secret without any release.",
        )
    if mi_upper >= math.log(2):
        items.append(
            f"Other inferences than one unit's membership: {at_most(mi_upper, significant=3)} nats "
            f"is above ln 2, so at prior 1/2 the bound on an arbitrary guess is 100 %. Combine "
            f"with Information(...) to limit these."
        )
    return (*items, ELSEWHERE)
