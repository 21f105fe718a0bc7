"""Run attacks on simulated releases and hold what they achieve against a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.audit.attack import Attack, Guess, Trained
from pacprivacy.audit.membership import Bayes, LikelihoodRatio, Precision
from pacprivacy.audit.reconstruction import FreeOverlap, Naming, Overlap, Reconstruction
from pacprivacy.audit.results import AuditResult, AuditResults
from pacprivacy.audit.target import Releases, Target
from pacprivacy.errors import AuditError
from pacprivacy.release import Bundle, Certificate, Release
from pacprivacy.theory import clopper_pearson, posterior_success

MIN_TRIALS: Final = 100
MIN_SHADOW: Final = 2000

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for attack in (
        Bayes(),
        LikelihoodRatio(),
        LikelihoodRatio(score="empirical", name="empirical_ratio"),
        Naming(),
        Reconstruction(),
        Overlap(),
        FreeOverlap(),
        Precision(),
    )
}
DEFAULT_ATTACKS: Final = tuple(name for name in ATTACKS if name != "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The two numbers of a certificate that attacks are held against; public."""

    mi_nats: float
    membership: float

    @classmethod
    def of(cls, certificate: Certificate) -> Self:
        """Read them off a certificate."""
        return cls(mi_nats=certificate.mi_upper_nats, membership=certificate.membership_bound)

    def bound(self, guess: Guess) -> float:
        """Return the most that the certificate allows for a guess.

        Any guess is held by the mutual information and its prior; that of one unit's membership
        also by the exact figure, so the smaller of the two.
        """
        any_inference = posterior_success(self.mi_nats, guess.prior)
        return min(any_inference, self.membership) if guess.is_membership else any_inference


def audit(
    subject: Release | Bundle | Target,
    certificate: Certificate | None = None,
    *,
    attacks: Sequence[str | Attack] | None = None,
    n_trials: int = 2000,
    gamma: float = 0.01,
    rng: np.random.Generator | int | None = None,
) -> AuditResults:
    """Attack simulated releases and compare success with what a certificate promises.

    Parameters
    ----------
    subject : Release, Bundle or Target
        A release made here, the curator's bundle of one, or any procedure as a target.
    certificate : Certificate, optional
        What is promised; a release brings its own.
    attacks : sequence of names or attacks, optional
        Names from ``ATTACKS``; by default all that fit the subject and the certificate.
    n_trials : int
        Fresh releases that success is measured on; at least 100. Twice as many are used for
        training.
    gamma : float
        Probability with which a verdict may be wrong, per attack.
    rng : Generator or int, optional
        Seed of the simulated releases. It has nothing to do with the real one.

    Returns
    -------
    AuditResults
        A tuple of :class:`AuditResult`, one per attack, in the order asked for.

    Raises
    ------
    AuditError
        If there is nothing to compare with, too few trials, or an attack does not fit.

    Guarantee
    ---------
    Claim U-1. If the certificate's promise is true for the procedure that is attacked, an attack
    is reported as ``VIOLATED`` with probability at most ``gamma``. Nothing follows from *holds*:
    a better attack may exist.
    """
    target, promised = _resolve(subject, certificate)
    if not 0.0 < gamma < 1.0:
        raise AuditError(f"gamma must be above 0 and below 1; got {gamma!r}. Use 0.01.")
    seed = coerce_seed(rng)
    if promised.kind != "exact":
        target = target.with_fresh_secret(public_generator(seed, "audit-split"))
        n_trials = min(n_trials, len(target.held_out))
    if n_trials < MIN_TRIALS:
        raise AuditError(
            f"n_trials must be at least {MIN_TRIALS}; got {n_trials}. Fewer tell nothing"
            + (": use a pool of more subsets." if target.fresh else ".")
        )
    chosen = _choose(attacks, target)
    n_shadow = max(MIN_SHADOW, 2 * n_trials)
    shadow = target.shadow(n_shadow, public_generator(seed, "audit-shadow"))
    trials = target.trials(n_trials, public_generator(seed, "audit-trials"))
    promise = Promise.of(promised)
    return AuditResults(
        _measure(attack, attack.train(target, shadow), trials, promise, gamma) for attack in chosen
    )


def _resolve(
    subject: Release | Bundle | Target, certificate: Certificate | None
) -> tuple[Target, Certificate]:
    """Return what is attacked and what is promised; refuse two that do not belong together."""
    if isinstance(subject, Release):
        certificate = certificate or subject.certificate
        subject = subject.bundle
    if certificate is None:
        raise AuditError(
            "certificate must be given with a bundle or a target; got None. "
            "Read it with Certificate.read('release.json')."
        )
    if isinstance(subject, Bundle):
        noise_var = float(np.square(subject.grid_step * subject.units_per_std).sum())
        same_shape = certificate.dimension == subject.outputs.shape[1]
        if not same_shape or not np.isclose(certificate.noise.total_variance, noise_var, atol=0.0):
            raise AuditError(
                "bundle must belong to the certificate; its outputs or its noise are others. "
                "Use the curator.npz that was written beside the release."
            )
        subject = Target.of_bundle(subject)
    pool = subject.pool
    if (certificate.n_subsets, certificate.n_units) != (pool.n_subsets, pool.n_units):
        raise AuditError(
            f"pool must be the one of the certificate, {certificate.n_subsets} subsets of "
            f"{certificate.n_units} units; got {pool.n_subsets} of {pool.n_units}. "
            "Use the curator.npz that was written beside the release."
        )
    return subject, certificate


def _choose(attacks: Sequence[str | Attack] | None, target: Target) -> list[Attack]:
    """Return the attacks asked for, or all that fit."""
    if attacks is None:
        fitting = [ATTACKS[name] for name in DEFAULT_ATTACKS]
        if not target.simulated:
            fitting.append(ATTACKS["precision"])
        return [attack for attack in fitting if attack.fresh_secrets or not target.fresh]
    chosen = []
    for item in attacks:
        if isinstance(item, str) and item not in ATTACKS:
            raise AuditError(f"attack must be one of {', '.join(ATTACKS)}; got {item!r}.")
        attack = ATTACKS[item] if isinstance(item, str) else item
        if target.fresh and not attack.fresh_secrets:
            raise AuditError(
                f"attack {attack.name!r} needs an exact certificate: it compares with the blind "
                "success of someone who knows the pool. Use bayes or likelihood_ratio here."
            )
        chosen.append(attack)
    return chosen


def _measure(
    attack: Attack, trained: Trained, trials: Releases, promise: Promise, gamma: float
) -> AuditResult:
    """Count successes on fresh releases; several guesses share gamma, the clearest is reported."""
    guesses = trained.guesses
    right = trained.hits(trials).sum(axis=0)
    found = []
    for guess, successes in zip(guesses, right, strict=True):
        estimate = clopper_pearson(int(successes), len(trials), gamma=gamma / len(guesses))
        found.append(
            AuditResult(
                attack=attack.name,
                question=attack.question,
                n_trials=len(trials),
                successes=int(successes),
                success=replace(estimate, confidence=1.0 - gamma),
                prior=guess.prior,
                bound=promise.bound(guess),
                notes=trained.notes,
                unit=guess.unit,
            )
        )
    return max(found, key=lambda result: result.success.lower - result.bound)
