"""Runs of attacks: achieved success and promised bound."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np

from pacprivacy._plots import draw
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._rounding import percent_at_most, two_digits
from pacprivacy.audit import attacks as known
from pacprivacy.audit.attacks import Attack, Guess, Trained, Trials
from pacprivacy.audit.coin_attacks import (
    CoinGame,
    CoinTarget,
    attack_coins,
    check_coin_bundle_belongs,
)
from pacprivacy.audit.target import Releases, Target
from pacprivacy.errors import AuditError
from pacprivacy.release import (
    AverageBundle,
    Bundle,
    Certificate,
    CoinBundle,
    CoinCertificate,
    CuratorBundle,
    DescentBundle,
    PoolCertificate,
    Release,
    as_pool_certificate,
)
from pacprivacy.theory import Estimate, clopper_pearson, membership_success, posterior_success

SCHEMA_VERSION: Final = 1

Verdict = Literal["holds", "VIOLATED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Success of one attack on simulated releases, with its Clopper-Pearson interval.

    ``prior`` is the best blind success or an upper bound of it, ``bound`` the
    certificate's promise for this question. All is public but ``unit``, chosen in training.

    Guarantee
    ---------
    Claim U-1. If the promise is true, the verdict is ``VIOLATED`` with probability at most
    ``1 - success.confidence``.
    """

    attack: str
    question: str
    n_trials: int
    successes: int
    success: Estimate
    prior: float
    bound: float
    notes: tuple[str, ...] = ()
    unit: int | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def verdict(self) -> Verdict:
        """``VIOLATED`` if even the lower end of the interval is above the bound."""
        return "VIOLATED" if self.success.lower > self.bound else "holds"

    def __repr__(self) -> str:
        return (
            f"AuditResult(attack={self.attack!r}, success={self.success}, "
            f"bound={self.bound:.6g}, verdict={self.verdict!r})"
        )

    def to_public_dict(self) -> dict[str, Any]:
        return {
            "schema_version": self.schema_version,
            "attack": self.attack,
            "question": self.question,
            "n_trials": self.n_trials,
            "successes": self.successes,
            "success": self.success.to_public_dict(),
            "prior": self.prior,
            "bound": self.bound,
            "verdict": self.verdict,
            "notes": list(self.notes),
        }


class AuditResults(tuple[AuditResult, ...]):
    """The results of several attacks: a tuple that can be printed, shown and drawn."""

    __slots__ = ()

    @property
    def holds(self) -> bool:
        """Whether every attack stayed below the promised bound."""
        return all(result.verdict == "holds" for result in self)

    def __str__(self) -> str:
        return audit_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw every success beside the promise; also to a file, with ``path``."""
        return draw("plot_audit", self, path)


def audit_text(results: Sequence[AuditResult]) -> str:
    """Return several results as a table for a terminal of 80 columns."""
    confidence = min((result.success.confidence for result in results), default=0.99)
    interval = f"{100 * confidence:.4g} % interval"
    lines = [f"{'attack':<21}{'success':>8}{interval:>18}{'blind':>8}{'promised':>10}  verdict"]
    lines += [_row(result) for result in results]
    return "\n".join(lines)


def _row(result: AuditResult) -> str:
    success = result.success
    interval = f"{_digits(success.lower)} to {_digits(success.upper)}"
    return (
        f"{result.attack:<21}{_digits(success.value) + ' %':>8}{interval:>18}"
        f"{_digits(result.prior) + ' %':>8}{_bound(result.bound) + ' %':>10}  {result.verdict}"
    )


def _digits(rate: float) -> str:
    percent = 100 * rate
    return f"{percent:.1f}" if percent >= 0.995 or percent == 0.0 else f"{percent:.2f}"


def _bound(rate: float) -> str:
    return percent_at_most(rate, 1 if rate >= 0.00995 or rate == 0.0 else 2)


MIN_TRIALS: Final = 100
MIN_SHADOW: Final = 2000

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for attack in (
        known.Bayes(),
        known.LikelihoodRatio(),
        known.LikelihoodRatio(score="empirical", name="empirical_ratio"),
        known.Naming(),
        known.Precision(),
    )
}
DEFAULT_ATTACKS: Final = tuple(name for name in ATTACKS if name != "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPromise:
    """The two numbers of a certificate that attacks are held against; public."""

    mi_nats: float
    membership: float

    @classmethod
    def of(cls, certificate: PoolCertificate) -> Self:
        return cls(mi_nats=certificate.mi_upper_nats, membership=certificate.membership_bound)

    def bound(self, guess: Guess, target: Target) -> float:
        """Return the most that a guess can succeed, by the information; for one unit, balanced."""
        if guess.unit is None:
            return posterior_success(self.mi_nats, guess.prior)
        members = target.members(np.array([guess.unit]))[:, 0]
        share = float(members.mean())
        if not 0 < share < 1:
            return 1.0
        inside = share
        if np.ptp(target.log_p):
            inside = min(1.0, float(np.exp(target.log_p) @ members))
        most = min(self.membership, membership_success(self.mi_nats, share, inside))
        return min(1.0, 0.5 + (most - 0.5) / target.odds(guess.unit)[1])


def audit(
    subject: Release | CuratorBundle | Target | CoinTarget,
    certificate: Certificate | None = None,
    *,
    attacks: Sequence[str | Attack] | None = None,
    n_trials: int = 2000,
    gamma: float = 0.01,
    rng: np.random.Generator | int | None = None,
) -> AuditResults:
    """Attack simulated releases and compare success with the certificate.

    Parameters
    ----------
    subject : Release, bundle or target
        A release made here, the curator's bundle of one, or any procedure as a target.
    certificate : Certificate, optional
        Promise to test; a release brings its own.
    attacks : sequence of names or attacks, optional
        Names from ``ATTACKS``, or from ``COIN_ATTACKS``; by default all that fit the subject and
        the certificate.
    n_trials : int
        Fresh releases that success is measured on, at least 100; twice as many are for training.
    gamma : float
        Probability with which a verdict may be wrong, per attack; with coins, for all together.
    rng : Generator or int, optional
        Seed of the simulated releases. It has nothing to do with the real one.

    Guarantee
    ---------
    Claim U-1. If the certificate's promise is true for the procedure that is attacked, an attack
    is reported as ``VIOLATED`` with probability at most ``gamma``. Nothing follows from *holds*:
    a better attack may exist.
    """
    if not 0.0 < gamma < 1.0:
        raise AuditError(f"gamma must be above 0 and below 1; got {gamma!r}. Use 0.01.")
    seed = coerce_seed(rng)
    held = subject.bundle if isinstance(subject, Release) else subject
    if isinstance(held, CoinBundle | CoinTarget):
        certificate = certificate or _own_certificate(subject)
        coin_game = CoinGame(n_trials=_check_n_trials(n_trials), seed=seed)
        outcomes = _attack_coins(held, certificate, coin_game, attacks)
        # The worst unit reaches the promise: all verdicts together may fail that often.
        return AuditResults(_judge(each, gamma / len(outcomes)) for each in outcomes)
    if isinstance(held, AverageBundle | DescentBundle):
        raise AuditError(
            "subject must be a release of sums where units have coins; got a "
            f"{'descent' if isinstance(held, DescentBundle) else 'release proved on average'}, for "
            "which there is no attack here. Check it with pac verify; with --data for a descent, "
            "which then pays every clock again."
        )
    target, promised = _resolve(held, certificate or _own_certificate(subject))
    _check_n_trials(n_trials)
    chosen = _choose(attacks, target)
    n_shadow = max(MIN_SHADOW, 2 * n_trials)
    shadow = target.releases(n_shadow, public_generator(seed, "audit-shadow"))
    trials = target.releases(n_trials, public_generator(seed, "audit-trials"))
    promise = AuditPromise.of(promised)
    game = _Game(target=target, trials=trials, promise=promise, gamma=gamma, seed=seed)
    return AuditResults(_measure(attack, attack.train(target, shadow), game) for attack in chosen)


def _check_n_trials(n_trials: int) -> int:
    if n_trials < MIN_TRIALS:
        raise AuditError(
            f"n_trials must be at least {MIN_TRIALS}; got {n_trials}. Fewer tell nothing."
        )
    return n_trials


def _judge(trials: Trials, gamma: float, n_guesses: int = 1) -> AuditResult:
    """Count the right guesses of trials; several guesses of an attack share ``gamma``."""
    successes, n_trials = int(np.count_nonzero(trials.right)), len(trials.right)
    estimate = clopper_pearson(successes, n_trials, gamma=gamma / n_guesses)
    return AuditResult(
        attack=trials.attack,
        question=trials.question,
        n_trials=n_trials,
        successes=successes,
        success=replace(estimate, confidence=1.0 - gamma),
        prior=trials.prior,
        bound=trials.bound,
        notes=trials.notes,
        unit=trials.unit,
    )


def _attack_coins(
    held: CoinBundle | CoinTarget,
    certificate: Certificate | None,
    game: CoinGame,
    attacks: Sequence[str | Attack] | None,
) -> list[Trials]:
    if not isinstance(certificate, CoinCertificate):
        raise AuditError(
            "certificate must belong to a release with coins; got another, or none. "
            "Read it with Certificate.read('release.json')."
        )
    bundle = held if isinstance(held, CoinBundle) else None
    if bundle is not None:
        check_coin_bundle_belongs(bundle, certificate)
    target = CoinTarget.of_bundle(held) if isinstance(held, CoinBundle) else held
    names = None if attacks is None else [str(attack) for attack in attacks]
    return attack_coins(target, certificate, game, attacks=names, bundle=bundle)


def _own_certificate(subject: object) -> Certificate | None:
    return subject.certificate if isinstance(subject, Release) else None


def _resolve(
    subject: CuratorBundle | Target, certificate: Certificate | None
) -> tuple[Target, PoolCertificate]:
    """Return the target and its promise; refuse a certificate of another release."""
    if certificate is None:
        raise AuditError(
            "certificate must be given with a bundle or a target; got None. "
            "Read it with Certificate.read('release.json')."
        )
    certificate = as_pool_certificate(certificate)
    if certificate.kind != "exact":
        raise AuditError(
            "certificate must be exact; got one about a fresh secret, of kind "
            f"{certificate.kind!r}. Leave out the rule: the release is then about a secret from "
            "the pool."
        )
    if isinstance(subject, Bundle):
        noise_var = float(np.square(subject.grid_step * subject.units_per_std).sum())
        same_shape = certificate.dimension == subject.outputs.shape[1]
        same_noise = two_digits(certificate.noise.total_variance) == two_digits(noise_var)
        if not same_shape or not same_noise:
            raise AuditError(
                "bundle must belong to the certificate; its outputs or its noise are others. "
                "Use the curator.npz that was written beside the release."
            )
        subject = Target.of_bundle(subject)
    if not isinstance(subject, Target):
        raise AuditError(
            "subject must be a release, its bundle or a target; got a bundle that is not of a "
            "release but of a predictor, whose answers it does not hold. Audit a release."
        )
    pool = subject.pool
    if (certificate.n_subsets, certificate.n_units) != (pool.n_subsets, pool.n_units):
        raise AuditError(
            f"pool must be the one of the certificate, {certificate.n_subsets} subsets of "
            f"{certificate.n_units} units; got {pool.n_subsets} of {pool.n_units}. "
            "Use the curator.npz that was written beside the release."
        )
    return subject, certificate


def _choose(attacks: Sequence[str | Attack] | None, target: Target) -> list[Attack]:
    if attacks is None:
        fitting = [ATTACKS[name] for name in DEFAULT_ATTACKS]
        if not target.simulated:
            fitting.append(ATTACKS["precision"])
        return fitting
    chosen = []
    for item in attacks:
        if isinstance(item, str) and item not in ATTACKS:
            raise AuditError(f"attack must be one of {', '.join(ATTACKS)}; got {item!r}.")
        chosen.append(ATTACKS[item] if isinstance(item, str) else item)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Game:
    target: Target
    trials: Releases
    promise: AuditPromise
    gamma: float
    seed: int

    def trials_of(self, guess: Guess) -> Releases:
        """Return the releases for one guess; for membership with as many in as out."""
        if guess.unit is None:
            return self.trials
        rng = public_generator(self.seed, "audit-even-odds", guess.unit)
        return self.target.trials_of(guess.unit, self.trials, rng)


def _measure(attack: Attack, trained: Trained, game: _Game) -> AuditResult:
    """Count successes on fresh releases; several guesses share gamma, the clearest is reported."""
    results = []
    for number, guess in enumerate(trained.guesses):
        trials = Trials(
            attack=attack.name,
            question=attack.question,
            right=trained.hits(game.trials_of(guess))[:, number],
            bound=game.promise.bound(guess, game.target),
            prior=guess.prior,
            notes=trained.notes,
            unit=guess.unit,
        )
        results.append(_judge(trials, game.gamma, len(trained.guesses)))
    return max(results, key=lambda result: result.success.lower - result.bound)
