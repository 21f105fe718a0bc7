"""Text of a certificate: the promise, its limits, and the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pacprivacy._rounding import at_least, at_most, failure_text, percent_at_most
from pacprivacy._values import certificate_page, readings_text, times_in_100
from pacprivacy.adversary import FALSE_POSITIVES, SideKnowledge
from pacprivacy.sample import Pool
from pacprivacy.theory import Estimate

if TYPE_CHECKING:
    from pacprivacy.release.certificate import Certificate
    from pacprivacy.release.pool_certificate import PoolCertificate

Rows: TypeAlias = list[tuple[str, str]]
KINDS: Final = {
    "exact": "exact: the secret is uniform over a finite pool, so its law is known",
    "confidence": "confidence: holds with stated probability over the simulation",
    "empirical": "empirical: the papers' practice, NOT a proof",
}
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
TOLD_OUT: Final = (
    "The odds are those that are left by what was told: a unit known to be out leaves few "
    "candidates, one known to be in leaves most"
)
NOISE_LEVEL: Final = (
    "the noise level, and so the spread of the output over the candidates, rounded up to two digits"
)
ELSEWHERE: Final = "Releases and answers made outside this certificate from the same secret subset."


def certificate_text(cert: Certificate) -> str:
    """Return a certificate as text for a terminal of 80 columns."""
    session = [("Session", _session_text(cert))] if cert.composition else []
    lists = {
        "Published without noise": cert.published,
        "Not promised": cert.not_promised,
        "Notes": cert.notes,
    }
    rows = [*cert.rows(), *session, ("Treated as public", "; ".join(cert.public))]
    return certificate_page(cert, rows, lists)


def pool_rows(cert: PoolCertificate) -> Rows:
    """Return names and texts of the proved bounds of a pool."""
    return [
        ("Kind", KINDS[cert.kind]),
        ("Asked", budget_text(cert)),
        *_proved_rows(cert),
        ("Side knowledge", _side_text(cert)),
        (
            "Pool",
            f"{cert.scheme}, {cert.n_subsets} subsets of {cert.n_units} units (unit: {cert.unit})",
        ),
        ("Mechanism", f"{cert.mechanism} -> {cert.output}"),
        ("Noise", _noise_text(cert)),
        ("Confidence", _confidence_text(cert)),
    ]


def promise_text(cert: PoolCertificate) -> str:
    """Return the promise about one unit, and first that a value without noise is exact."""
    exact = ""
    if cert.kind == "exact" and cert.noise.n_directions == 0:
        exact = "No noise was needed: the budget allows the exact value of one candidate. "
        if cert.mi_upper_nats == 0:
            exact = "No noise was needed: all candidates agree, and the value is exact. "
    return exact + _promise_text(cert)


def _promise_text(cert: PoolCertificate) -> str:
    session, unit = cert.composition or {}, cert.unit
    success = cert.promised_success
    if cert.kind != "empirical" and success >= 1:
        span = "over the whole session " if session else ""
        return (
            f"Nothing is promised {span}about guessing whether one given {unit} was used: the "
            f"budget allows certainty."
        )
    studied, most = studied_text(cert), "at most"
    lead = f"Take a {unit} {who_text(cert)} is equally likely"
    if cert.kind == "empirical":
        lead, most = f"By simulation, not by proof: take{lead.removeprefix('Take')}", "about"
    if cert.kind == "confidence":
        doubt = failure_text(cert.confidence)
        lead = f"Unless the simulation misled (probability at most {doubt}): t{lead[1:]}"
        studied += " and does not know the pool"
    return (
        f"{lead} to have been used or left out. Whoever studies {studied}, by any method, guesses "
        f"which {most} {times_in_100(success)}; 50 without the release."
    )


def studied_text(cert: Certificate) -> str:
    """Return the object of study of an attacker: the release, or all of its session."""
    return "all releases of this session" if cert.composition else "this release"


def who_text(cert: Certificate) -> str:
    return "who" if cert.unit == "person" else "that"


def plural_text(unit: str) -> str:
    """Return the name of several units."""
    if unit == "person":
        return "people"
    head, of, tail = unit.partition(" of ")
    if head.endswith("y") and head[-2:-1] not in tuple("aeiou"):
        return f"{head[:-1]}ies{of}{tail}"
    return f"{head}{'es' if head.endswith(('s', 'x', 'ch', 'sh')) else 's'}{of}{tail}"


def budget_text(cert: Certificate) -> str:
    """Return the budget: over the session, if there is one."""
    session = cert.composition or {}
    if not cert.is_in_session or "target" in session:
        return str(cert.budget)
    nats, success = session.get("total_nats"), session.get("total_success")
    parts = [] if nats is None else [f"mutual information <= {nats:g} nats"]
    parts += [] if success is None else [f"membership success <= {percent_at_most(success)} %"]
    return f"{' and '.join(parts)}, over the whole session"


def advantage_text(cert: Certificate) -> str:
    """Return the bound on the advantage, in words."""
    return f"at most {at_most(cert.advantage, decimals=4)}, twice what success is above 50 %"


def false_alarms_text(hits: Iterable[tuple[float, float]]) -> str:
    """Return the share of used units that are flagged, for each rate of false alarms."""
    return "; ".join(
        f"1 in {round(1 / rate):,} of those left out flagged: at most {percent_at_most(most)} % of "
        f"those used"
        for rate, most in hits
    )


def trade_off_text_rows(cert: PoolCertificate) -> list[tuple[float, float, float | None]]:
    """Return false positives, true ones of every unit, and those of the worst-placed unit."""
    drawn = {item.false_positives: item.true_positives for item in cert.trade_off}
    advantage = cert.advantage
    rows = []
    for rate in FALSE_POSITIVES:
        simple = min(1.0, (rate + advantage) * (1 + 2.0**-51))
        rows.append((rate, simple, min(simple, drawn[rate]) if rate in drawn else None))
    return rows


def _trade_off_text(cert: PoolCertificate) -> str:
    rows = trade_off_text_rows(cert)
    text = false_alarms_text((rate, most) for rate, most, _ in rows)
    if cert.trade_off:
        worst = ", ".join("-" if most is None else percent_at_most(most) for _, _, most in rows)
        draws = cert.trade_off[0].n_draws
        text += f"; {worst} % for the unit placed worst (likelihood ratios, {draws} draws)"
    return text


def _proved_rows(cert: PoolCertificate) -> Rows:
    rows: Rows = []
    worst, mean = cert.membership, cert.membership_mean
    if worst is not None and mean is not None and not cert.is_in_session:
        rows.append(("Membership", f"worst unit {_percent(worst)}"))
        rows.append(("", f"mean over units {_percent(mean)}"))
    if cert.advantage < 1:
        doubt = "by simulation, not by proof: " * (cert.kind == "empirical")
        there = (
            f"at the pool's own prior of {100 * cert.prior:.4g} % success is at most "
            f"{percent_at_most(cert.success_at(cert.prior))} %"
        )
        rows.append(("Advantage", f"{doubt}{advantage_text(cert)}; {there}"))
        rows.append(("False alarms", doubt + _trade_off_text(cert)))
    guesses = ", ".join(
        f"prior {100 * float(prior):.4g} % -> {percent_at_most(success)} %"
        for prior, success in sorted(cert.any_inference.items(), reverse=True)
    )
    nats = at_most(cert.mi_upper_nats, decimals=6)
    alone = "by this release, given the earlier ones: " if cert.is_in_session else ""
    rows.append(("Any inference", f"{alone}at most {nats} nats: {guesses}"))
    exact = cert.information
    text = f"log-determinant bound {at_most(cert.log_det_nats, decimals=6)} nats"
    if exact is not None:
        text += f"; exact {exact.value:.6g} nats, at most {at_most(exact.upper, decimals=6)}"
    rows.append(("Information", alone + text))
    if cert.divergences:
        parts = ", ".join(
            f"{item.name} at most {at_most(item.estimate.upper, decimals=4)} "
            f"(prior 50 % -> {percent_at_most(item.success['0.5'])} %)"
            for item in cert.divergences
        )
        text = f"{alone}from independence, for any inference: {parts}"
        rows.append(("Other distances", text))
    readings = readings_text(min(1.0, cert.promised_success))
    rows.append(("In terms of DP", f"{readings}; not a DP claim"))
    return rows


def _percent(estimate: Estimate) -> str:
    low = at_least(estimate.lower, decimals=2, percent=True)
    high = percent_at_most(estimate.upper)
    return f"{100 * estimate.value:.2f} % (between {low} and {high})"


def _side_text(cert: PoolCertificate) -> str:
    if not cert.side_knowledge:
        return "not computed for this kind"
    items = cert.side_knowledge
    n_sets = max(item.n_sets for item in items)
    parts = [
        f"told {item.n_told}{_told_text(item)}: {100 * item.mean_without_release:.1f} -> "
        f"{100 * item.mean_success:.1f} %{_increment_text(item)}"
        for item in items
    ]
    looked_at = items[0].n_looked_at
    whom = "any other unit"
    if looked_at is not None and looked_at < cert.n_units:
        whom += f" of {looked_at} sampled units"
    text = (
        f"best guess about {whom} before -> after this release, then the most that it adds "
        f"for any one unit (mean and largest of {n_sets} sampled sets); " + "; ".join(parts)
    )
    return f"{text}. {TOLD_OUT}" if _told_text(items[0]) else text


def _told_text(item: SideKnowledge) -> str:
    return "" if item.direction is None else f" {item.direction}"


def _increment_text(item: SideKnowledge) -> str:
    if item.mean_increment is None or item.largest_increment is None:  # in files of version 0.1
        return ", not recorded"
    mean, largest = (
        percent_at_most(share, 1) for share in (item.mean_increment, item.largest_increment)
    )
    return f", +{mean} (+{largest})"


def _noise_text(cert: PoolCertificate) -> str:
    noise = cert.noise
    if noise.n_directions == 0:
        return f"none ({cert.rule})"
    return (
        f"{cert.rule}: total variance {noise.total_variance:.4g} over "
        f"{noise.n_directions} of {cert.dimension} directions, standard deviation "
        f"{noise.smallest_std:.3g} to {noise.largest_std:.3g}; integer noise, grid "
        f"{noise.smallest_grid_step:.3g} or coarser"
    )


def _confidence_text(cert: PoolCertificate) -> str:
    if cert.kind != "exact":
        return "see the notes"
    if cert.confidence == 1.0:
        return "closed form, no failure probability"
    return (
        f"1 - {failure_text(cert.confidence)} over our own simulated draws, for the whole "
        f"certificate"
    )


def _session_text(cert: Certificate) -> str:
    elsewhere = ("total_success", "session_success_bound", "learned_nats", "best_guess_now")
    shown = {
        key: at_most(value, significant=6) if isinstance(value, float) else value
        for key, value in sorted((cert.composition or {}).items())
        if value is not None and key not in elsewhere
    }
    return "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in shown.items())


def open_parts_text(
    n_directions: int, dimension: int, *, unanimous: bool = False
) -> tuple[str, ...]:
    """Name what of a release is exact, given how many directions of the output carry noise."""
    if n_directions == 0:
        whole = "the output, on which all candidates agree" if unanimous else ""
        return (whole or "the output, which leaves without noise", "that it needed none")
    if n_directions < dimension:
        rest = f"the output outside the {n_directions} of {dimension} directions that carry noise"
        return (NOISE_LEVEL, rest)
    return (NOISE_LEVEL,)


def not_promised_text(
    pool: Pool, *, mi_upper: float, exact_facts: Sequence[str], knows_pool: bool = True
) -> tuple[str, ...]:
    """Return the limits of the promise, ``exact_facts`` included, in sentences."""
    items = [SCOPE, f"{LOOPHOLE}; here: {'; '.join(exact_facts)}."]
    if knows_pool:
        items.insert(
            0,
            f"Side knowledge: whoever knows the pool and {_naming_text(pool)} knows the secret "
            f"without any release.",
        )
    if mi_upper >= math.log(2):
        items.append(
            f"Other inferences than one unit's membership: {at_most(mi_upper, significant=3)} nats "
            f"is above ln 2, so at prior 1/2 the bound on an arbitrary guess is 100 %. Combine "
            f"with Information(...) to limit these."
        )
    return (*items, ELSEWHERE)


def _naming_text(pool: Pool) -> str:
    """Say how many units name the secret: log2 m memberships, or log_k m units that are out."""
    folds = max(pool.folds, 2)
    number = math.ceil(round(math.log(pool.n_subsets) / math.log(folds), 9))
    if folds == 2:
        return f"the true membership of about {number} units"
    return f"about {number} units that are out"
