"""Nothing but the value depends on the secret: not text, not files, not errors, not copies."""

import copy
import importlib
import json
import pickle
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import SecretError
from pacprivacy.mechanism import Mechanism
from pacprivacy.noise import Boxed, calibrate
from pacprivacy.noise.iid import N_RESERVE
from pacprivacy.noise.plan import Observation
from pacprivacy.release import Release
from pacprivacy.session import ReleaseSecret
from pacprivacy.statistics import Mean

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
PUBLISH = importlib.import_module("pacprivacy.session.pool_secret")
M = 64
DATA = np.random.default_rng(0).normal(size=(20, 2))
CURATOR_WORDS = {
    "bits", "outputs", "points", "seed", "log_p", "groups", "row_units", "secret", "index",
    "bundle", "proofs", "belief", "pool", "grid_step", "units_per_std", "center", "frame", "values",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 2048)
        patch.setattr(ASSESS, "membership_draws", lambda m: 2048)
        yield


def mean(x: Any) -> Any:
    return x.mean(axis=0)


def release_of(secret: int, patch: pytest.MonkeyPatch, budget: Any, **options: Any) -> Release:
    """A release whose secret is forced."""
    patch.setattr(PUBLISH, "uniform_below", lambda source, bound: secret)
    chosen = {"n_subsets": M, "rng": 0, "rule": "waterfill", **options}
    return pac.privatize(chosen.pop("mechanism", mean), DATA, budget, **chosen)


@pytest.mark.claim("R-2")
@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (pac.Information(0.3), {}),
        (pac.Information(0.3), {"rule": "diagonal"}),
        (pac.Membership(0.7), {"rule": None}),
        (pac.Information(9), {}),
        (pac.Information(0.3), {"simulate": True}),
    ],
    ids=["waterfill", "diagonal", "risk", "free", "simulated"],
)
def test_two_secrets_give_the_same_certificate_and_bundle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, budget: Any, options: Any
) -> None:
    """A spy: everything but the value is the same to the last byte, whatever the secret is."""
    found = [release_of(secret, monkeypatch, budget, **options) for secret in (3, 50)]
    first, second = found
    assert not np.array_equal(first.value, second.value)
    assert first.certificate == second.certificate
    assert first.certificate.to_json() == second.certificate.to_json()
    assert str(first.certificate) == str(second.certificate)
    assert repr(first.bundle) == repr(second.bundle)
    hidden = [replace(item, value=None) for item in found]
    assert repr(hidden[0]) == repr(hidden[1])
    assert pickle.dumps(hidden[0]) == pickle.dumps(hidden[1])
    files = []
    for number, item in enumerate(hidden):
        item.save(tmp_path / str(number))
        files.append(
            [(tmp_path / str(number) / name).read_bytes() for name in ("release.json",)]
            + [{k: v.tobytes() for k, v in np.load(tmp_path / str(number) / "curator.npz").items()}]
        )
    assert files[0] == files[1]


@pytest.mark.claim("R-2")
def test_two_secrets_give_the_same_first_session_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    for secret in (3, 50):
        monkeypatch.setattr(PUBLISH, "uniform_below", lambda source, bound, s=secret: s)
        session = pac.Session(DATA, budget=pac.Information(1), n_subsets=M, rng=0)
        before = (repr(session), session.odometer())
        release = session.release(mean, pac.Information(0.25), rule="waterfill")
        promised = release.certificate.to_public_dict()
        for fact in ("learned_nats", "best_guess_now"):  # follow from the released value; see below
            assert promised["composition"].pop(fact) is not None
        seen.append((before, promised, repr(session)))
    assert seen[0] == seen[1]


def test_later_session_figures_follow_from_the_released_values_alone() -> None:
    """Two sessions with different secrets that released the same values agree on everything."""
    found = []
    for secret in (3, 50):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PUBLISH, "uniform_below", lambda source, bound, s=secret: s)

            def observe(self: ReleaseSecret, plan: Any, source: Any) -> Any:
                return plan.observe(17, SimulatedSource(0))  # whatever the secret, this leaves

            patch.setattr(ReleaseSecret, "observe", observe)
            session = pac.Session(DATA, budget=pac.Information(1), n_subsets=M, rng=0)
            releases = [
                session.release(query, pac.Information(0.25), rule="waterfill")
                for query in (mean, lambda x: x.std(axis=0), mean)
            ]
            found.append(
                (
                    [item.certificate.to_json() for item in releases],
                    [item.bundle.log_p.tobytes() for item in releases],
                    session.odometer(),
                    repr(session),
                )
            )
    assert found[0] == found[1]


def keys_in(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield key
            yield from keys_in(value)
    elif isinstance(content, list):
        for value in content:
            yield from keys_in(value)


def test_the_public_file_holds_no_curator_field(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = release_of(3, monkeypatch, pac.Membership(0.7), rule=None)
    content = json.loads(release.save(tmp_path).read_text())
    certificate = content["certificate"]
    assert not CURATOR_WORDS & set(keys_in({"certificate": certificate}))
    text = json.dumps(certificate)
    for numbers in (release.bundle.outputs, release.bundle.points, release.bundle.units_per_std):
        shown = {repr(number) for number in np.asarray(numbers).ravel().tolist()}
        # a noise figure may be public on purpose: the smallest one is in the summary
        shown -= {repr(certificate["noise"]["smallest_units_per_std"])}
        assert not [number for number in shown if len(number) > 6 and number in text]
    seed = release.bundle.pool.seed
    assert seed == 0  # given; a drawn one has 128 bits
    drawn = pac.privatize(mean, DATA, pac.Information(0.3), rule="waterfill", n_subsets=M)
    assert drawn.bundle.pool.seed is not None
    public = json.dumps(drawn.to_public_dict())
    assert str(drawn.bundle.pool.seed) not in public
    assert str(drawn.bundle.seed) not in public


def test_text_forms_show_nothing_of_the_curators(monkeypatch: pytest.MonkeyPatch) -> None:
    release = release_of(3, monkeypatch, pac.Information(0.3))
    outputs = release.bundle.outputs
    shown = repr(release) + repr(release.bundle) + str(release.certificate)
    for number in outputs.ravel():
        assert f"{number:.5f}"[:7] not in shown.replace(repr(release.value), "")
    assert repr(ReleaseSecret(M, SimulatedSource(0))) == f"Secret(one of {M})"
    assert str(ReleaseSecret(M, SimulatedSource(0))) == f"Secret(one of {M})"


def test_secrets_and_sessions_cannot_be_copied_or_turned_to_text() -> None:
    session = pac.Session(DATA, budget=pac.Information(1), n_subsets=M, rng=0)
    session.release(mean, pac.Information(0.25), rule="waterfill")
    secret = session._secret.secret
    assert secret is not None
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for holder in (secret, session._secret, session):
            with pytest.raises(SecretError):
                pickle.dumps(holder, protocol=protocol)
    with pytest.raises(SecretError):
        copy.copy(session._secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert not hasattr(secret, "__dict__")
    for release in session.releases:
        assert secret not in pickle_reachable(release)


def pickle_reachable(root: Any) -> list[Any]:
    """Everything that a pickle of an object would walk through."""
    seen: list[Any] = []

    class Walker(pickle.Pickler):
        def persistent_id(self, obj: Any) -> None:
            seen.append(obj)

    import io

    Walker(io.BytesIO()).dump(root)
    return [obj for obj in seen if isinstance(obj, ReleaseSecret)]


class Failing(Mechanism):
    """Post-processing that fails on the released value."""

    name = "failing"

    def evaluate(self, parts: Any, rng: Any) -> Any:
        return parts[0].mean(axis=0)

    def finish(self, value: Any) -> Any:
        raise RuntimeError("post-processing failed")


def test_errors_after_the_secret_was_used_say_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = []
    for secret in (3, 50):
        with pytest.raises(RuntimeError) as error:
            release_of(secret, monkeypatch, pac.Information(0.3), mechanism=Failing())
        texts.append("".join(traceback.format_exception(error.value)))
    assert texts[0] == texts[1]


def test_nothing_is_printed_or_warned(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release_of(3, monkeypatch, pac.Membership(0.7), rule=None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.claim("N-7")
@pytest.mark.parametrize("shape", ["diagonal", "isotropic"])
def test_reserved_subsets_leave_no_trace_in_a_boxed_plan(shape: str) -> None:
    """The secret is one of the reserved: what is not noise must not depend on any of them.

    The second coordinate never moves in the simulation, and its mean is not its value to the last
    bit; whether it moves among the reserved must not show in the centre.
    """
    pool = pac.Half(n_subsets=50 + N_RESERVE).draw(20, rng=0)
    rng = np.random.default_rng(1)
    simulated = np.stack([rng.uniform(size=50), np.full(50, 0.1)], axis=1)
    assert simulated[:, 1].mean() != 0.1
    reserved = np.stack([rng.uniform(size=N_RESERVE), np.full(N_RESERVE, 0.1)], axis=1)
    moved, jumped = reserved.copy(), reserved.copy()
    moved[:, 0], moved[3, 1], jumped[:] = rng.uniform(size=N_RESERVE), 0.9, 7.0
    rule = Boxed(low=0.0, high=1.0, shape=shape)
    plans = [
        calibrate(np.concatenate([simulated, end]), pac.Information(0.2), rule=rule, pool=pool)
        for end in (reserved, moved, jumped)
    ]
    seen = {
        (
            plan.center.tobytes(),
            plan.grid_step.tobytes(),
            plan.units_per_std.tobytes(),
            plan.points[:50].tobytes(),
            plan.log_det_nats,
            plan.notes,
            repr(plan),
            plan.value_of(Observation(integers=np.array([5, 7]), group=None)).tobytes(),
        )
        for plan in plans
    }
    assert len(seen) == 1


# --- coins ----------------------------------------------------------------------------------

MANY = np.random.default_rng(4).normal(size=400)
TWO_SAMPLES = (np.arange(400) % 10 > 0, np.arange(400) % 10 < 9)
COIN_SECRETS = {"key", "kept", "clocks", "allowed", "integers", "unit_ids", "coins"}
COIN_WORDS = (CURATOR_WORDS - {"groups"}) | COIN_SECRETS


def coin_releases(kept: Any, patch: pytest.MonkeyPatch, folder: Path | None = None) -> Any:
    """A release and a session of three, of forced coins; what is shown besides the values."""
    secret = importlib.import_module("pacprivacy.session.coin_secret")
    patch.setattr(secret, "draw_coins", lambda n, keep, source: kept)
    patch.setattr(secret, "keyed_coins", lambda ids, keep, key: kept)
    chosen = {"budget": "membership<=0.6", "sample": pac.Coins()}
    single = pac.privatize(np.mean, MANY, **chosen)
    shown: list[Any] = []
    ledger = {} if folder is None else {"ledger": folder / "study.db"}
    with pac.Session(MANY, **chosen, **ledger) as session:
        made = [session.release(np.mean, share=share) for share in (0.2, "1 of 3", None)]
        shown += [repr(session), repr(session._secret._held), session.odometer()]
        shown += [str(session.odometer()), session._secret.balances.spent.tobytes()]
        shown += [repr(session._secret.state(session._total, 3, balances=session._secret.balances))]
        if folder is not None:
            shown += [path.stat().st_size for path in folder.glob("*.session")]
    for release in (single, *made):
        hidden = replace(release, value=None)
        shown += [release.certificate.to_json(), str(release.certificate), repr(hidden)]
        shown += [repr(release.bundle), repr(release.error_bars)]
        if folder is not None:
            hidden.save(folder / "out")
            content = np.load(folder / "out" / "curator.npz").items()
            shown += [(folder / "out" / "release.json").read_bytes()]
            shown += [{name: array.tobytes() for name, array in content}]
    return single.value, shown


@pytest.mark.claim("R-2")
@pytest.mark.claim("C-8")
def test_two_samples_give_the_same_certificates_clocks_and_files(tmp_path: Path) -> None:
    seen = []
    for number, kept in enumerate(TWO_SAMPLES):
        with pytest.MonkeyPatch.context() as patch:
            (tmp_path / str(number)).mkdir()
            seen.append(coin_releases(kept, patch, tmp_path / str(number)))
    (first, shown), (second, shown_too) = seen
    assert first != second
    assert shown == shown_too


def test_the_public_file_of_a_release_with_coins_holds_no_curator_field(tmp_path: Path) -> None:
    with pac.Session(MANY, budget="membership<=0.6", sample=pac.Coins()) as session:
        release = session.release(np.mean, share=0.2)
    content = json.loads(release.save(tmp_path).read_text())
    assert not COIN_WORDS & set(keys_in({"certificate": content["certificate"]}))
    assert release.bundle.contributions_digest not in json.dumps(content)


def test_coins_cannot_be_copied_or_turned_to_text() -> None:
    session = pac.Session(MANY, budget="membership<=0.6", sample=pac.Coins())
    release = session.release(np.mean, share=0.2)
    key, coins = session._secret._key, session._secret._held
    for holder in (coins, session._secret, session):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SecretError):
                attempt(holder)
    state = session._secret.state(session._total, 1, balances=session._secret.balances)
    texts = "".join(map(repr, (session, session._secret, coins, state, release.bundle, session)))
    assert repr(key)[2:-1] not in texts
    assert key.hex() not in texts
    assert not hasattr(coins, "__dict__")
    assert pickle.loads(pickle.dumps(release)).value == release.value
    session.close()
    assert (session._secret._key, session._secret._held) == (None, None)


class FailingMean(Mean):
    """Post-processing that fails on the released value."""

    def finish(self, value: Any) -> Any:
        raise RuntimeError("post-processing failed")


def test_errors_after_the_coins_were_used_say_nothing_of_them() -> None:
    secret, texts = importlib.import_module("pacprivacy.session.coin_secret"), []
    for kept in TWO_SAMPLES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(secret, "draw_coins", lambda n, keep, source, kept=kept: kept)
            with pytest.raises(RuntimeError) as error:
                pac.privatize(FailingMean(), MANY, "membership<=0.6", sample=pac.Coins())
        texts.append("".join(traceback.format_exception(error.value)))
    assert texts[0] == texts[1]


def test_nothing_is_printed_or_logged_of_coins(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pac.privatize(np.mean, MANY, "membership<=0.8", sample=pac.Coins())
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
