"""Forged certificates: each is refused by ``pac verify``, or what it forges is named as unproved.

Three kinds of certificate lie on the disk as a curator leaves them: of one release, of a release
in a session, of a predictor. The first forger edits the public file. The second edits the
curator's file as well and writes the certificate anew with our own code, so that the two agree.
"""

import copy
import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.budget import Spent
from pacprivacy.cli import app
from pacprivacy.cli.console import Screen
from pacprivacy.cli.options import StudyOptions, TableOptions
from pacprivacy.cli.verify import verify as verify_verb
from pacprivacy.errors import CertificateError
from pacprivacy.release import (
    AnswerBundle,
    Bundle,
    Certificate,
    certify_answer_bundle,
    load_bundle,
)
from pacprivacy.release.bundle import BundleSession
from pacprivacy.release.pool_certificate import DIVERGENCE_GAMMA, write_certificate
from pacprivacy.release.pool_proof import prove_verified_again

Plain = dict[str, Any]
DATA = np.random.default_rng(0).normal(size=(24, 2))
KINDS = ("release", "session", "predictor")
TINY = Spent(mi_nats=1e-6, success_increment=1e-6)


def mean(x: Any) -> Any:
    return x.mean(axis=0)


def spread(x: Any) -> Any:
    return x.std(axis=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assess = importlib.import_module("pacprivacy.release.pool_certificate")
    root = tmp_path_factory.mktemp("curator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assess, "information_draws", lambda m: 2048)
        patch.setattr(assess, "membership_draws", lambda m: 2048)
        patch.setattr(assess, "DIVERGENCE_COST", 1)  # the fewest draws
        patch.setattr(assess, "SIDE_COST", 1)
        budget = pac.Membership(0.8999)
        pac.privatize(mean, DATA, budget, n_subsets=16, rule="diagonal", rng=0).save(
            root / "release"
        )
        both = pac.Information(2) & pac.Membership(0.95)
        with pac.Session(DATA, budget=both, n_subsets=16, rng=1) as session:
            session.release(mean, pac.Membership(0.7), rule="waterfill")
            share = pac.Information(0.3) & pac.Membership(0.7)
            session.release(spread, share, rule="waterfill").save(root / "session")
        labels = (DATA[:, 0] > 0).astype(int)
        model = pac.PrivatePredictor(
            DecisionTreeClassifier(max_depth=1, random_state=0),
            n_subsets=16,
            budget=pac.Membership(0.7),
            query_budget=pac.Information(1e-3),
        )
        model.fit(DATA, labels).save_certificate(root / "predictor")
        yield root


def run_verify(release: Path, *options: str) -> str:
    """What ``pac verify`` prints about a file that it accepts."""
    found = CliRunner().invoke(app, ["verify", str(release), *options])
    assert found.exit_code == 0, found.output
    return found.output


def is_refused(release: Path) -> bool:
    """Whether the function behind ``pac verify`` refuses a file, in one line."""
    try:
        verify_verb.function(
            release=release,
            data=None,
            model=None,
            study=StudyOptions(),
            table=TableOptions(),
            screen=Screen(quiet=True),
        )
    except CertificateError as error:
        return "\n" not in str(error)
    return False


def plain_of(folder: Path, kind: str) -> Plain:
    plain: Plain = json.loads((folder / kind / "release.json").read_text())["certificate"]
    return plain


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_ones_are_verified(folder: Path, kind: str) -> None:
    text = run_verify(folder / kind / "release.json")
    assert Certificate.read(folder / kind / "release.json").digest in text
    assert "Not checked" in text


# --- the public file was edited -------------------------------------------------------------

Forge = Callable[[Plain], Any]


def put(name: str, value: Any) -> Forge:
    return lambda plain: plain.update({name: value})


def within(name: str, key: str, value: Any) -> Forge:
    return lambda plain: plain[name].update({key: value})


def drop(name: str) -> Forge:
    return lambda plain: plain.pop(name)


def shorten(name: str, at: int = 0) -> Forge:
    return lambda plain: plain[name].pop(at)


def say(name: str, text: str) -> Forge:
    return lambda plain: plain[name].append(text)


def scale(name: str, factor: float) -> Forge:
    return lambda plain: plain.update({name: factor * plain[name]})


ANY: dict[str, Forge] = {  # fields that every certificate has, each altered or removed
    "another kind": put("kind", "empirical"),
    "another budget": put("budget", "membership success <= 51 %"),
    "no budget": put("budget", ""),
    "another rule": put("rule", "exact"),
    "another mechanism": put("mechanism", "count"),
    "another output": put("output", "number"),
    "another scheme": put("scheme", "half"),
    "another unit": put("unit", "group of rows"),
    "more subsets": put("n_subsets", 1 << 20),
    "more units": put("n_units", 10**6),
    "a lower prior": put("prior", 0.4),
    "another dimension": put("dimension", 1),
    "a smaller log-determinant": scale("log_det_nats", 0.5),
    "no log-determinant": drop("log_det_nats"),
    "less information": scale("mi_upper_nats", 0.5),
    "no information": put("mi_upper_nats", 0.0),
    "no inferences": put("any_inference", {}),
    "one inference": put("any_inference", {"0.5": 0.9}),
    "a lower inference": within("any_inference", "0.5", 0.5001),
    "another prior of an inference": put("any_inference", {"0.5": 0.51, "0.001": 0.0011}),
    "a lower bound on membership": put("membership_bound", 0.5001),
    "no bound on membership": drop("membership_bound"),
    "a smaller epsilon": put("epsilon_equivalent", 0.001),
    "no epsilon": put("epsilon_equivalent", None),
    "made-up side knowledge": put("side_knowledge", []),
    "more noise": within("noise", "total_variance", 1e6),
    "noise in more directions": within("noise", "n_directions", 99),
    "a finer grid": within("noise", "smallest_grid_step", 1e-300),
    "certainty": put("confidence", 1.0),
    "nothing is public": put("public", []),
    "less is public": shorten("public"),
    "nothing is left out": put("not_promised", []),
    "side knowledge is not named": shorten("not_promised"),
    "the scope is not named": shorten("not_promised", 1),
    "the loophole is not named": shorten("not_promised", 2),
    "a promise among what is not promised": say("not_promised", "Presence is hidden too."),
    "a note": say("notes", "Audited and approved."),
    "a real one": put("simulation", True),
    "the headline": put("composition", {"session_success_bound": 0.5001}),
    "an empty session": put("composition", {}),
    "another version": put("software", "9.9"),
    "another schema": put("schema_version", 1),
    "one more field": put("approved", True),
}  # fmt: skip
MEASURED: dict[str, Forge] = {  # what a release measured
    "no divergences": drop("divergences"),
    "empty divergences": put("divergences", []),
    "one divergence": lambda plain: plain.update(divergences=plain["divergences"][:1]),
    "a smaller divergence": lambda plain: plain["divergences"][0]["success"].update({"0.5": 0.51}),
    "a sure divergence": lambda p: p["divergences"][0]["estimate"].update(confidence=1.0),
    "membership for certain": within("membership", "confidence", 1.0),
    "membership, a smaller value": lambda p: p["membership"].update(value=0.5, lower=0.5),
    "membership without doubt": lambda p: p["membership"].update(upper=p["membership"]["value"]),
    "membership with more draws": within("membership", "n_draws", 10**9),
    "membership left out": put("membership", None),
    "mean for certain": within("membership_mean", "confidence", 1.0),
    "mean left out": put("membership_mean", None),
    "information for certain": within("information", "confidence", 1.0),
    "information left out": put("information", None),
    "no side knowledge": put("side_knowledge", []),
    "less side knowledge": shorten("side_knowledge"),
    "a note less": lambda p: p["notes"].pop() if p["notes"] else p["notes"].append("x"),
}
SESSION: dict[str, Forge] = {
    "no session": put("composition", None),
    "the session's headline": within("composition", "session_success_bound", 0.5001),
    "a smaller total": within("composition", "total_nats", 0.5),
    "a smaller total success": within("composition", "total_success", 0.71),
    "less was spent": within("composition", "spent_nats_so_far", 0.001),
    "fewer increments were spent": within("composition", "spent_increments_so_far", 0.001),
    "a smaller increment": within("composition", "membership_increment", 0.001),
    "the first release": within("composition", "release_number", 1),
    "fresh secrets": within("composition", "secrets", "fresh for every release"),
    "nothing was learned": within("composition", "learned_nats", 0.0),
    "a worse guess": within("composition", "best_guess_now", 0.5),
    "no word of what was learned": lambda p: p["composition"].pop("learned_nats"),
    "the joint confidence is left out": lambda p: p.update(notes=p["notes"][:-1]),
}
PREDICTOR: dict[str, Forge] = {
    "no total": put("composition", None),
    "the predictor's headline": within("composition", "session_success_bound", 0.5001),
    "less per answer": within("composition", "nats_per_answer", 1e-9),
    "a smaller total of answers": within("composition", "total_nats", 1e-9),
    "unanimous answers are not named": lambda p: p["notes"].pop(1),
}
FORGERIES = [
    pytest.param(kind, forge, id=f"{kind}: {name}")
    for kind, own in zip(KINDS, ({}, SESSION, PREDICTOR), strict=True)
    for name, forge in {**ANY, **({} if kind == "predictor" else MEASURED), **own}.items()
    if not (kind == "predictor" and name == "made-up side knowledge")
    if not (kind == "predictor" and name in ("certainty", "no epsilon"))
]


@pytest.mark.claim("R-1")
@pytest.mark.parametrize(("kind", "forge"), FORGERIES)
def test_an_edited_certificate_is_refused(
    folder: Path, tmp_path: Path, kind: str, forge: Forge
) -> None:
    plain = plain_of(folder, kind)
    forged = copy.deepcopy(plain)
    forge(forged)
    assert forged != plain, "nothing was forged"
    shutil.copy(folder / kind / "curator.npz", tmp_path / "curator.npz")
    path = tmp_path / "release.json"
    path.write_text(json.dumps({"certificate": forged}))
    assert is_refused(path)


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_altered_is_refused_and_so_is_every_field_removed(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """Whatever fields a certificate has: none can be left out, none can be another's."""
    plain, other = plain_of(folder, kind), plain_of(folder, KINDS[KINDS.index(kind) - 1])
    shutil.copy(folder / kind / "curator.npz", tmp_path / "curator.npz")
    path = tmp_path / "release.json"
    for name in plain:
        # Two budgets of half a nat may be met to more digits than verify compares.
        borrowed = other.get(name)
        if isinstance(borrowed, float) and borrowed == pytest.approx(plain[name], rel=1e-6):
            borrowed *= 0.9
        swapped = {**plain, name: borrowed}
        without = {key: value for key, value in plain.items() if key != name}
        for forged in (swapped, without):
            if forged != plain:
                path.write_text(json.dumps({"certificate": forged}))
                assert is_refused(path), name


# --- the curator's file was edited as well ----------------------------------------------------


def lie(bundle: Bundle | AnswerBundle, target: Path) -> Path:
    """Write a bundle and the certificate that our own code writes from it, as a forger would."""
    target.mkdir(exist_ok=True)
    bundle.save(target / "curator.npz")
    if isinstance(bundle, AnswerBundle):
        certificate = certify_answer_bundle(bundle)
    else:
        certificate = write_certificate(bundle, prove_verified_again(bundle))
    path = target / "release.json"
    path.write_text(json.dumps({"certificate": certificate.to_public_dict()}))
    return path


def stated(**changes: Any) -> Callable[[Bundle], Bundle]:
    return lambda bundle: replace(bundle, stated=replace(bundle.stated, **changes))


def changed(**changes: Any) -> Callable[[Bundle], Bundle]:
    return lambda bundle: replace(bundle, **changes)


def in_session(change: Callable[[BundleSession], BundleSession]) -> Callable[[Bundle], Bundle]:
    def in_bundle(bundle: Bundle) -> Bundle:
        assert bundle.session is not None
        return replace(bundle, session=change(bundle.session))

    return in_bundle


def tilted(bundle: Bundle) -> Bundle:
    log_p = np.linspace(0.0, 3.0, len(bundle.log_p))
    return replace(bundle, log_p=log_p - np.log(np.exp(log_p).sum()))


def well_placed(bundle: Bundle) -> Bundle:
    """Show the trade-off of the unit that is hidden best."""
    risk = prove_verified_again(bundle).membership
    assert risk is not None
    return replace(bundle, worst_unit=int(risk.upper_per_unit.argmin()))


def surer(bundle: Bundle) -> Bundle:
    """Count all that may fail but a little: proofs, divergences, and the trade-off."""
    needed = sum(proof.gamma for proof in bundle.proofs) + 2 * DIVERGENCE_GAMMA
    return replace(bundle, gamma=0.99 * needed)


REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a stricter budget": ("release", changed(budget=pac.Membership(0.51))),
    "a budget of information": ("release", changed(budget=pac.Information(1e-6))),
    "a stricter share": ("session", changed(budget=pac.Information(1e-6))),
    "a smaller increment": ("session", changed(budget=pac.Membership(0.5001))),
    "a total below what was spent": (
        "session", in_session(lambda part: replace(part, total=Spent(mi_nats=0.01)))
    ),
    "a success below what was spent": (
        "session", in_session(lambda part: replace(part, total=Spent(success_level=0.5001)))
    ),
    "a smaller share": (
        "session", in_session(lambda part: replace(part, share=TINY))
    ),
    "the first release, with a belief": (
        "session",
        in_session(lambda part: replace(part, before=replace(part.before, n_releases=0))),
    ),
    "a fresh secret, with a belief": (
        "session", in_session(lambda part: replace(part, fresh=True))
    ),
    "a belief before the only release": ("release", tilted),
    "the trade-off of a unit that is better placed": ("release", well_placed),
    "a belief that adds up to less": (
        "release", lambda bundle: replace(bundle, log_p=bundle.log_p - 3)
    ),
    "a belief in a session that adds up to less": (
        "session", lambda bundle: replace(bundle, log_p=bundle.log_p - 3)
    ),
    "charges that no number limits": (
        "session", in_session(lambda part: replace(part, allowed=np.full(len(DATA), np.nan)))
    ),
    "less than nothing of the reserve": (
        "session", in_session(lambda part: replace(part, part=-0.5))
    ),
    "surer than its proofs": ("release", surer),
    "closer points": ("release", lambda bundle: replace(bundle, points=bundle.points // 2)),
}  # fmt: skip
NAMED: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "a wider budget": ("budget", "release", changed(budget=pac.Membership(0.95))),
    "another rule": ("rule", "release", stated(rule="exact")),
    "another mechanism": ("mechanism", "release", stated(mechanism="count")),
    "another output": ("output", "release", stated(output="number")),
    "more is public": ("public", "release", stated(public=("the mean age",))),
    "a note": ("notes", "release", stated(notes=("Audited and approved.",))),
    "another version": ("software", "release", stated(software="9.9")),
    "a simulation": ("simulation", "release", lambda b: replace(b, simulation=True)),
    "another scheme": (
        "scheme", "release", lambda b: replace(b, pool=replace(b.pool, scheme="drawn by lot"))
    ),
    "less was spent before": (
        "composition", "session",
        in_session(lambda part: replace(part, before=replace(part.before, mi_nats=0.0))),
    ),
    "a smaller total": (
        "composition", "session",
        in_session(lambda part: replace(part, total=Spent(mi_nats=1.9, success_level=0.95))),
    ),
    "something else was seen": (
        "composition", "session",
        in_session(lambda part: replace(part, observation=replace(
            part.observation, integers=part.observation.integers + 1  # type: ignore[union-attr]
        ))),
    ),
    "other answers": ("mechanism", "predictor", lambda b: replace(b, mechanism="an oracle")),
    "another form of answer": ("output", "predictor", lambda b: replace(b, output="a word")),
    "a smaller budget of answers": (
        "budget", "predictor", lambda b: replace(b, budget=pac.Information(1e-2))
    ),
    "more classes": ("dimension", "predictor", lambda b: replace(b, n_classes=9)),
}  # fmt: skip


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", REFUSED)
def test_a_bundle_that_contradicts_itself_is_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    kind, change = REFUSED[name]
    path = lie(change(load_bundle(folder / kind / "curator.npz")), tmp_path)
    assert is_refused(path)


@pytest.mark.parametrize("change", [{"n_draws": 1}, {"attempt": -1}, {"seed": -1}], ids=str)
def test_draws_that_nobody_can_make_are_refused_in_one_line(
    folder: Path, tmp_path: Path, change: dict[str, int]
) -> None:
    bundle = Bundle.load(folder / "release" / "curator.npz")
    proofs = tuple(replace(proof, **change) for proof in bundle.proofs)  # type: ignore[arg-type]
    shutil.copy(folder / "release" / "release.json", tmp_path / "release.json")
    replace(bundle, proofs=proofs).save(tmp_path / "curator.npz")
    assert is_refused(tmp_path / "release.json")


@pytest.mark.parametrize("unit", [-1, len(DATA)])
def test_the_trade_off_of_nobody_is_refused_in_one_line(
    folder: Path, tmp_path: Path, unit: int
) -> None:
    bundle = Bundle.load(folder / "release" / "curator.npz")
    replace(bundle, worst_unit=unit).save(tmp_path / "curator.npz")
    with pytest.raises(CertificateError, match="must be a readable curator bundle"):
        Bundle.load(tmp_path / "curator.npz")


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", NAMED)
def test_what_a_consistent_forger_can_change_is_named(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """Nothing in the files tells such a bundle from a real one, and ``pac verify`` says so."""
    field, kind, change = NAMED[name]
    path = lie(change(load_bundle(folder / kind / "curator.npz")), tmp_path)
    assert Certificate.read(path).digest != Certificate.read(folder / kind / "release.json").digest
    assert json.loads(run_verify(path, "--json"))["not_checked"][field]
    listed = run_verify(path).split("Not checked")[1]
    assert f"  {field} " in listed
