"""The parts of an audit: targets, posteriors, scores, priors, results, the picture, the verb."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import pacprivacy as pac
from pacprivacy.audit import (
    ATTACKS,
    AuditPromise,
    AuditResult,
    AuditResults,
    Guess,
    LikelihoodRatio,
    Releases,
    Target,
    audit,
    audit_text,
)
from pacprivacy.audit.attacks import (
    attack_mean_shifts,
    attack_reachable,
    empirical_attack_guess,
    fit_empirical_attack,
    fit_gaussian_attack,
    gaussian_attack_guess,
)
from pacprivacy.audit.target import (
    NoiseModel,
    learn_noise_model,
    noise_model_posteriors,
    noise_model_units,
)
from pacprivacy.errors import AuditError, DataError
from pacprivacy.release import Release
from pacprivacy.reporting import plot_audit
from pacprivacy.sample import Balanced
from pacprivacy.theory import clopper_pearson, posterior_success

RNG = np.random.default_rng


def toy_target(m: int = 8, d: int = 3, noise: float = 1.0, seed: int = 0) -> Target:
    rng = RNG(seed)
    outputs = rng.normal(size=(m, d))
    pool = Balanced(n_subsets=m).draw(20, rng=seed)
    return Target.of(outputs, pool, lambda k, g: outputs[k] + noise * g.standard_normal(d))


@pytest.fixture(scope="module")
def release() -> Release:
    data = RNG(0).normal(size=(40, 3))
    return pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Information(0.25), n_subsets=16, rng=0, simulate=True
    )


# --- targets --------------------------------------------------------------------------------


def test_target_checks_what_it_is_given() -> None:
    pool = Balanced(n_subsets=8).draw(20, rng=0)
    with pytest.raises(AuditError, match="one row per subset of the pool, 8; got 6"):
        Target.of(np.zeros((6, 2)), pool, lambda k, g: np.zeros(2))
    short = Target.of(np.zeros((8, 2)), pool, lambda k, g: np.zeros(3))
    with pytest.raises(AuditError, match="must return 2 numbers, as the outputs have; got 3"):
        short.releases(5, RNG(0))


def test_target_shows_nothing_of_the_outputs() -> None:
    assert repr(toy_target()) == "Target(curator-only, 8 candidates)"


def test_releases_of_a_bundle_have_its_law(release: Release) -> None:
    target = Target.of_bundle(release.bundle)
    found = target.releases(20_000, RNG(0))
    residuals = (found.values - target.centers[found.indices]) / target.noise_std
    counts = np.bincount(found.indices, minlength=16)
    # Five standard errors: 3 variances, 3 means and 16 counts, false alarm about 1e-5.
    assert np.abs(residuals.mean(axis=0)).max() < 5 / np.sqrt(20_000)
    assert np.abs(residuals.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 20_000)
    assert np.abs(counts - 1250).max() < 5 * np.sqrt(1250)
    steps = found.values / release.bundle.grid_step
    assert np.array_equal(steps, np.rint(steps))


def test_a_bundle_whose_points_hide_differences_is_refused(release: Release) -> None:
    bundle = release.bundle
    shrunk = replace(bundle, points=bundle.points // 2)
    with pytest.raises(AuditError, match="as far apart as the outputs"):
        Target.of_bundle(shrunk)


# --- posterior ------------------------------------------------------------------------------


def test_posterior_is_bayes_rule() -> None:
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, 0.3], [0.0, 0.3, 0.5]])
    target = toy_target()
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    model = NoiseModel(shift=np.zeros(3), whiten=root)
    releases = target.releases(50, RNG(4))
    ((_, found),) = noise_model_posteriors(target, model, releases)
    density = np.array(
        [multivariate_normal(c, covariance).pdf(releases.values) for c in target.centers]
    ).T
    assert found == pytest.approx(density / density.sum(axis=1, keepdims=True), rel=1e-9)
    inside = noise_model_units(target, found, np.array([3]))[:, 0]
    assert inside == pytest.approx(found @ target.pool.masks()[:, 3], rel=1e-12)


def test_noise_is_learned_from_releases() -> None:
    rng = RNG(0)
    outputs = rng.normal(size=(8, 3))
    pool = Balanced(n_subsets=8).draw(20, rng=0)
    mix = np.array([[1.0, 0.0], [0.5, 2.0], [0.0, 0.0]])  # the third coordinate has no noise
    target = Target.of(outputs, pool, lambda k, g: outputs[k] + mix @ g.standard_normal(2) + 0.1)
    model = learn_noise_model(target, target.releases(20_000, RNG(1)))
    assert model.shift == pytest.approx([0.1, 0.1, 0.1], abs=0.1)
    white = model.whiten.T @ (mix @ mix.T) @ model.whiten
    assert np.sort(np.linalg.eigvalsh(white)) == pytest.approx([0.0, 1.0, 1.0], abs=0.05)
    ((_, found),) = noise_model_posteriors(target, model, trials := target.releases(200, RNG(2)))
    assert np.array_equal(found.argmax(axis=1), trials.indices)


def test_groups_rule_candidates_out(release: Release) -> None:
    bundle = release.bundle
    groups = np.arange(16) % 2
    target = replace(Target.of_bundle(bundle), groups=groups)
    trials = target.releases(100, RNG(0))
    ((_, found),) = noise_model_posteriors(target, learn_noise_model(target, trials), trials)
    assert found[groups[trials.indices][:, None] != groups[None, :]].max() == 0.0


# --- likelihood ratio -----------------------------------------------------------------------


def test_mean_shift_is_the_difference_of_means() -> None:
    seen = np.array([[1.0], [3.0], [10.0], [20.0]])
    members = np.array([[True, True], [True, True], [False, True], [False, True]])
    assert attack_mean_shifts(seen, members).tolist() == [[-13.0], [0.0]]


def test_gaussian_score_uses_both_variances() -> None:
    rng = RNG(0)
    members = rng.random((20_000, 1)) < 0.3
    scores = np.where(members, rng.normal(0, 3, members.shape), rng.normal(0, 1, members.shape))
    laws = fit_gaussian_attack(scores, members)
    grid = np.linspace(-8, 8, 161)[:, None]
    truth = norm.logpdf(grid, scale=3) >= norm.logpdf(grid)  # whatever the share
    assert (gaussian_attack_guess(grid, laws) == truth).mean() > 0.97
    right = gaussian_attack_guess(scores, laws) == members
    assert laws[0, 0] == pytest.approx((right[members].mean() + right[~members].mean()) / 2)


def test_empirical_score_cuts_where_most_guesses_are_right() -> None:
    scores = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    members = np.array([[False], [False], [True], [False], [True]])
    laws = fit_empirical_attack(scores, members)
    assert laws[:, 0].tolist() == [pytest.approx((2 / 3 + 2 / 2) / 2), 1.5]
    assert empirical_attack_guess(scores, laws)[:, 0].tolist() == [False, False, True, True, True]


def test_empirical_score_can_say_always() -> None:
    members = np.ones((4, 1), dtype=bool)
    assert fit_empirical_attack(np.arange(4.0)[:, None], members)[:, 0].tolist() == [0.5, -np.inf]


def test_the_true_candidate_is_always_reachable() -> None:
    rng = RNG(0)
    for scale in (1e-3, 0.37, 1.0, 1.9, 250.0):
        centre = rng.normal(size=20_000)
        seen = centre + scale * rng.standard_normal(20_000)
        assert attack_reachable(seen, centre, scale).all()
        assert attack_reachable(seen, centre, None).all()


def test_other_candidates_are_often_out_of_reach() -> None:
    rng = RNG(0)
    noise = 1.4 * rng.standard_normal(20_000)
    # Products with 1.4 miss 1 - 1/1.4 of the floats between 1.4 and 2, and none from 2 to 2.8.
    assert 0.1 < 1 - attack_reachable(0.25 + noise, np.full(20_000, 0.0), 1.4).mean() < 0.2
    # Beside zero: a sum with 1 is a multiple of 2^-53, a bare float is not.
    small = 1e-3 * rng.standard_normal(20_000)
    assert not attack_reachable(small, np.full(20_000, 1.0), None).mean() > 0.05


# --- results --------------------------------------------------------------------------------


def result(successes: int, bound: float) -> AuditResult:
    return AuditResult(
        attack="likelihood_ratio",
        question="one unit: in or out",
        n_trials=1000,
        successes=successes,
        success=clopper_pearson(successes, 1000, gamma=0.01),
        prior=0.5,
        bound=bound,
        notes=("a note",),
        unit=17,
    )


def test_verdict_turns_at_the_lower_end() -> None:
    lower = clopper_pearson(640, 1000, gamma=0.01).lower
    assert result(640, lower).verdict == "holds"
    assert result(640, np.nextafter(lower, 0)).verdict == "VIOLATED"


def test_public_form_keeps_the_unit_to_the_curator() -> None:
    found = result(640, 0.7)
    plain = json.loads(json.dumps(found.to_public_dict()))
    assert plain["verdict"] == "holds"
    assert plain["success"]["lower"] < 0.64 < plain["success"]["upper"]
    assert "unit" not in plain
    assert "17" not in repr(found)


def test_text_fits_a_terminal() -> None:
    text = audit_text([result(640, 0.7), result(1000, 0.7), result(3, 0.001)])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "0.30 %" in text
    assert text.count("VIOLATED") == 1


def test_promise_takes_the_smaller_of_its_claims() -> None:
    member, other, target = Guess(prior=0.5, unit=3), Guess(prior=0.5), toy_target()
    loose = AuditPromise(mi_nats=1.0, membership=0.6)
    assert (loose.bound(member, target), loose.bound(other, target)) == (0.6, 1.0)
    tight = AuditPromise(mi_nats=0.01, membership=0.9)
    assert tight.bound(member, target) == posterior_success(0.01, 0.5)
    assert tight.bound(other, target) == posterior_success(0.01, 0.5)


def test_a_release_without_noise_is_seen_through_as_promised() -> None:
    data = RNG(0).normal(size=(40, 2))
    release = pac.privatize(
        lambda x: x.mean(axis=0) > 0, data, pac.Information(3.0), n_subsets=16, rng=0, simulate=True
    )
    assert release.certificate.noise.n_directions == 0
    groups = release.bundle.groups
    assert groups is not None
    found = {r.attack: r for r in audit(release, n_trials=2000, rng=0)}
    assert {r.verdict for r in found.values()} == {"holds"}
    # One candidate of each group can be named, and nothing better; each has probability 1/16.
    best = len(np.unique(groups)) / 16
    assert found["naming"].success.lower <= best <= found["naming"].success.upper
    assert found["likelihood_ratio"].success.upper >= release.certificate.membership_bound - 0.02


def test_groups_are_kept_apart_when_points_are_checked(release: Release) -> None:
    bundle = release.bundle
    groups = (np.arange(16) % 2).astype(np.int64)
    moved = bundle.outputs + 100.0 * groups[:, None]  # revealed: the points need not show it
    assert len(Target.of_bundle(replace(bundle, outputs=moved, groups=groups)).centers) == 16
    with pytest.raises(AuditError, match="as far apart"):
        Target.of_bundle(replace(bundle, outputs=moved))


def test_wide_outputs_are_attacked_along_their_axes() -> None:
    target = toy_target(m=8, d=60, noise=2.0)
    trials = target.releases(400, RNG(2))
    model = learn_noise_model(target, target.releases(300, RNG(1)))
    assert np.count_nonzero(model.whiten) == 60
    assert 1 / np.diag(model.whiten) == pytest.approx(np.full(60, 2.0), rel=0.25)
    ((_, found),) = noise_model_posteriors(target, model, trials)
    assert (found.argmax(axis=1) == trials.indices).mean() > 0.9
    trained = ATTACKS["likelihood_ratio"].train(target, target.releases(300, RNG(1)))
    assert trained.hits(trials).mean() > 0.6


@pytest.mark.claim("U-1")
def test_trials_take_no_part_in_training(release: Release) -> None:
    seen: dict[str, Releases] = {}

    class Spy:
        name, question, notes = "spy", "", ()
        guesses = (Guess(prior=0.5),)

        def train(self, target: Target, shadow: Releases) -> "Spy":
            seen["shadow"] = shadow
            return self

        def hits(self, releases: Releases) -> np.ndarray:
            seen["trials"] = releases
            return np.ones((len(releases), 1), dtype=bool)

    (found,) = audit(release, attacks=[Spy()], n_trials=500, rng=0)
    assert found.successes == len(seen["trials"]) == 500
    shown = {part: {row.tobytes() for row in releases.values} for part, releases in seen.items()}
    assert len(shown["trials"]) == 500
    assert not shown["trials"] & shown["shadow"]


def test_of_several_guesses_the_clearest_is_reported(release: Release) -> None:
    class Uneven:
        name, question, notes = "uneven", "", ()
        guesses = tuple(Guess(prior=0.5, unit=i) for i in range(3))

        def train(self, target: Target, shadow: Releases) -> "Uneven":
            return self

        def hits(self, releases: Releases) -> np.ndarray:
            return np.arange(len(releases))[:, None] < np.array([200, 499, 300])

    (found,) = audit(release, attacks=[Uneven()], n_trials=500, rng=0)
    assert (found.unit, found.successes, found.verdict) == (1, 499, "VIOLATED")


def test_the_index_follows_the_belief_of_a_session() -> None:
    belief = np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0])
    with np.errstate(divide="ignore"):
        target = replace(toy_target(), log_p=np.log(belief))
    counts = np.bincount(target.releases(10_000, RNG(0)).indices, minlength=8)
    assert np.abs(counts - 10_000 * belief).max() < 5 * np.sqrt(2400)
    assert counts[4:].sum() == 0
    inside = belief @ target.pool.masks()[:, 2]
    assert target.odds(2) == pytest.approx((inside, 1.0))
    trials = target.trials_of(2, target.releases(10_000, RNG(0)), RNG(1))
    again = np.bincount(trials.indices, minlength=8)
    assert np.abs(again - 10_000 * belief).max() < 5 * np.sqrt(2400)


# --- refusals -------------------------------------------------------------------------------


def test_audit_refuses_what_it_cannot_judge(release: Release) -> None:
    certificate = release.certificate
    with pytest.raises(AuditError, match="certificate must be given"):
        audit(release.bundle)
    with pytest.raises(AuditError, match="gamma must be above 0"):
        audit(release, gamma=0.0)
    with pytest.raises(AuditError, match="attack must be one of bayes"):
        audit(release, attacks=["guessing"])
    with pytest.raises(AuditError, match="precision must attack a procedure"):
        audit(release, attacks=["precision"])
    with pytest.raises(AuditError, match="16 subsets of 40 units; got 8 of 20"):
        audit(toy_target(), certificate)
    louder = replace(release.bundle, grid_step=2 * release.bundle.grid_step)
    with pytest.raises(AuditError, match="bundle must belong to the certificate"):
        audit(louder, certificate)


def test_certificates_about_fresh_secrets_are_refused(release: Release) -> None:
    certificate = replace(release.certificate, kind="empirical", n_subsets=8, n_units=20)
    with pytest.raises(AuditError, match="certificate must be exact; got one about a fresh secret"):
        audit(toy_target(), certificate, rng=0)


# --- the picture ----------------------------------------------------------------------------


def test_plot_is_drawn(tmp_path: Path) -> None:
    results = [result(640, 0.7), result(900, 0.7)]
    figure = plot_audit(results, tmp_path / "audit.png")
    assert figure.axes
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")
    AuditResults(results).plot(tmp_path / "audit.svg")
    assert "#d55e00" in (tmp_path / "audit.svg").read_text(encoding="utf-8").lower()
    AuditResults(results[:1]).plot(tmp_path / "holds.svg")
    assert "#d55e00" not in (tmp_path / "holds.svg").read_text(encoding="utf-8").lower()


def test_results_are_shown_in_a_notebook() -> None:
    both = AuditResults([result(640, 0.7), result(900, 0.7)])
    assert not both.holds
    page = both._repr_html_()
    assert "VIOLATED" in page
    assert str(both) == audit_text(both)
    hostile = AuditResults([replace(both[0], attack="<script>alert(1)</script>", unit=31337)])
    assert "<script>" not in hostile._repr_html_()
    assert "31337" not in hostile._repr_html_()


def test_plot_refuses_clearly(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="results must not be empty"):
        plot_audit([], tmp_path / "audit.png")
    with pytest.raises(DataError, match=r"plot must end in \.png"):
        plot_audit([result(640, 0.7)], tmp_path / "audit.txt")
    with pytest.raises(DataError, match="file that can be written"):
        plot_audit([result(640, 0.7)], tmp_path / "nowhere" / "audit.png")


def test_every_attack_has_a_name_and_a_question() -> None:
    assert all(name == attack.name and attack.question for name, attack in ATTACKS.items())


# --- LiRA: what a released model says of a record ----------------------------------------------


def test_confidence_of_a_released_model_tells_who_taught_it() -> None:
    rng = RNG(0)
    X, y = rng.normal(size=(40, 12)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    pool = Balanced(n_subsets=64).draw(40, rng=0)
    fits = np.array([_logistic(X[pool.mask(k)], y[pool.mask(k)]) for k in range(64)])
    noise = 0.2 * fits.std(axis=0)
    target = Target.of(fits, pool, lambda k, g: fits[k] + noise * g.standard_normal(12))
    lira = LikelihoodRatio(confidence=lambda seen: y * (seen @ X.T))

    def success(attack: Any, attacked: Target) -> float:
        trained = attack.train(attacked, attacked.releases(3000, RNG(1)))
        return float(trained.hits(attacked.releases(2000, RNG(2))).mean())

    assert 0.75 < success(lira, target) <= success(ATTACKS["bayes"], target)
    blurred = Target.of(fits, pool, lambda k, g: fits[k] + 1e3 * g.standard_normal(12))
    assert success(lira, blurred) < 0.56
    bad = LikelihoodRatio(confidence=lambda seen: seen)
    with pytest.raises(AuditError, match="one finite number for each release and unit"):
        success(bad, target)


def _logistic(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A little regularised, by Newton's method."""
    weights = np.zeros(X.shape[1])
    for _ in range(20):
        chance = 1 / (1 + np.exp(y * (X @ weights)))
        bend = (X * (chance * (1 - chance))[:, None]).T @ X + 0.05 * np.eye(len(weights))
        weights -= np.linalg.solve(bend, 0.05 * weights - X.T @ (chance * y))
    return weights


def test_every_pair_of_points_is_compared() -> None:
    """Each candidate in turn is put where another one is."""
    made = pac.privatize(
        lambda x: x.mean(axis=0),
        RNG(0).normal(size=(50, 2)),
        pac.Information(1),
        n_subsets=600,
        rule="waterfill",
        rng=0,
    )
    for place in range(1, 600, 13):
        points = made.bundle.points.copy()
        points[place] = points[place - 1]
        with pytest.raises(AuditError, match="as far apart as the outputs"):
            Target.of_bundle(replace(made.bundle, points=points))
