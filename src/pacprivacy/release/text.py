"""The readable form of a certificate."""

from __future__ import annotations

import math
import textwrap
from typing import Any, Final

__all__ = ["certificate_text", "promise_text"]

WIDTH: Final = 80
KINDS: Final = {
    "exact": "exact: the secret is uniform over a finite pool, so its law is known",
    "confidence": "confidence: holds with stated probability over the simulation",
    "empirical": "empirical: the papers' practice, NOT a proof",
}


def certificate_text(cert: dict[str, Any]) -> str:
    """Return a certificate as text for a terminal of 80 columns."""
    lines = [_wrap(promise_text(cert), ""), ""]
    if cert["simulation"]:
        lines += ["SIMULATION: seeded randomness; this release protects nobody.", ""]
    lines += _rows(
        [
            ("Kind", KINDS[cert["kind"]]),
            ("Asked", cert["budget"]),
            *_proved_rows(cert),
            ("Side knowledge", _side_text(cert)),
            ("Pool", _pool_text(cert)),
            ("Mechanism", f"{cert['mechanism']} -> {cert['output']}"),
            ("Noise", _noise_text(cert)),
            ("Confidence", _confidence_text(cert)),
            *([("Session", _session_text(cert))] if cert["composition"] else []),
            ("Treated as public", "; ".join(cert["public"])),
        ]
    )
    lines += ["", "Not promised"]
    lines += [_wrap(f"- {item}", "  ") for item in cert["not_promised"]]
    if cert["notes"]:
        lines += ["Notes", *(_wrap(f"- {item}", "  ") for item in cert["notes"])]
    lines += [f"pacprivacy {cert['software']}, certificate schema {cert['schema_version']}"]
    return "\n".join(lines)


def promise_text(cert: dict[str, Any]) -> str:
    """Return what is promised about one unit, as one sentence."""
    session = cert["composition"] or {}
    success = session.get("session_success_bound", cert["membership_bound"])
    bound = _at_most(100 * success, 2)
    who = f"{'Over the whole session, no' if session else 'No'} attacker"
    if cert["kind"] == "confidence":
        who = (
            f"Unless the simulation misled (probability at most {1 - cert['confidence']:.1g}), no "
            f"attacker who does not know the pool"
        )
    if cert["kind"] != "empirical" and success >= 1:
        span = "over the whole session " if session else ""
        return (
            f"Nothing is promised {span}about guessing whether one given {cert['unit']} was used: "
            f"the budget allows certainty."
        )
    text = (
        f"{who}, whatever their method or computing power, guesses whether one given "
        f"{cert['unit']} was used with success above {bound} % (blind guess: "
        f"{100 * cert['prior']:.4g} %)."
    )
    if cert["kind"] == "empirical":
        text = f"By simulation, not by proof: membership success about {bound} % or less."
    return text


def _proved_rows(cert: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if cert["membership"] is not None:
        worst, mean = cert["membership"], cert["membership_mean"]
        rows.append(("Membership", f"worst unit {_percent(worst)}"))
        rows.append(("", f"mean over units {_percent(mean)}"))
    guesses = ", ".join(
        f"prior {100 * float(prior):.4g} % -> {_at_most(100 * success, 2)} %"
        for prior, success in cert["any_inference"].items()
    )
    rows.append(("Any inference", f"at most {_at_most(cert['mi_upper_nats'], 6)} nats: {guesses}"))
    found = cert["information"]
    text = f"log-determinant bound {_at_most(cert['log_det_nats'], 6)} nats"
    if found is not None:
        text += f"; exact {found['value']:.6g} nats, at most {_at_most(found['upper'], 6)}"
    rows.append(("Information", text))
    if cert.get("divergences"):
        rows.append(("Other distances", _divergence_text(cert)))
    eps = cert["epsilon_equivalent"]
    shown = "none" if eps is None else f"{eps:.3g}"
    rows.append(("Epsilon", f"{shown} would allow the same membership success; not a DP claim"))
    return rows


def _divergence_text(cert: dict[str, Any]) -> str:
    parts = [
        f"{item['name']} at most {_at_most(item['estimate']['upper'], 4)} "
        f"(prior 50 % -> {_at_most(100 * item['success']['0.5'], 2)} %)"
        for item in cert["divergences"]
    ]
    return "from independence, for any inference: " + ", ".join(parts)


def _percent(estimate: dict[str, Any]) -> str:
    value, lower, upper = (100 * estimate[key] for key in ("value", "lower", "upper"))
    return f"{value:.2f} % (between {-float(_at_most(-lower, 2)):.2f} and {_at_most(upper, 2)})"


def _at_most(bound: float, digits: int) -> str:
    """Return a bound as text, rounded up: what is printed must not promise more."""
    unit = 10**digits
    return f"{math.ceil(bound * unit - 1e-6) / unit:.{digits}f}"  # 1e-6 for 58.8 * 100 in floats


def _side_text(cert: dict[str, Any]) -> str:
    if not cert["side_knowledge"]:
        return "not computed for this kind"
    n_sets = max(item["n_sets"] for item in cert["side_knowledge"])
    parts = [
        f"told {item['n_told']}: {100 * item['mean_without_release']:.1f} -> "
        f"{100 * item['mean_success']:.1f} %{_increment_text(item)}"
        for item in cert["side_knowledge"]
    ]
    return (
        "best guess about any other unit before -> after this release, then the most that it adds "
        f"for any one unit (mean and largest of {n_sets} sampled sets); " + "; ".join(parts)
    )


def _increment_text(item: dict[str, Any]) -> str:
    if "mean_increment" not in item:  # as in files of version 0.1
        return ", not recorded"
    mean, largest = (_at_most(100 * item[f"{name}_increment"], 1) for name in ("mean", "largest"))
    return f", +{mean} (+{largest})"


def _pool_text(cert: dict[str, Any]) -> str:
    return (
        f"{cert['scheme']}, {cert['n_subsets']} subsets of {cert['n_units']} units "
        f"(unit: {cert['unit']})"
    )


def _noise_text(cert: dict[str, Any]) -> str:
    noise = cert["noise"]
    if noise["n_directions"] == 0:
        return f"none ({cert['rule']})"
    return (
        f"{cert['rule']}: total variance {noise['total_variance']:.4g} over "
        f"{noise['n_directions']} of {cert['dimension']} directions, standard deviation "
        f"{noise['smallest_std']:.3g} to {noise['largest_std']:.3g}; integer noise, grid "
        f"{noise['smallest_grid_step']:.3g} or coarser"
    )


def _confidence_text(cert: dict[str, Any]) -> str:
    if cert["kind"] != "exact":
        return "see the notes"
    if cert["confidence"] == 1.0:
        return "closed form, no failure probability"
    return (
        f"1 - {1 - cert['confidence']:.1g} over our own simulated draws, for the whole certificate"
    )


def _session_text(cert: dict[str, Any]) -> str:
    facts = cert["composition"].items()
    shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in facts if v is not None}
    return "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in shown.items())


def _rows(pairs: list[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text,
            WIDTH,
            initial_indent=f"{name:<18}",
            subsequent_indent=" " * 18,
            break_long_words=False,
        )
        for name, text in pairs
    ]


def _wrap(text: str, indent: str) -> str:
    hanging = indent + "  " if indent else ""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=hanging)
