"""The text that people read, word for word.

``PAC_UPDATE_GOLDEN=1 pytest tests/golden/test_cli_text.py`` writes the files anew; read the
difference before it is committed.
"""

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pacprivacy.adversary import SideKnowledge
from pacprivacy.cli import app
from pacprivacy.release import Certificate, PoolCertificate
from pacprivacy.release.certificate import CertificateNoise
from pacprivacy.release.certificate_text import SCOPE
from pacprivacy.theory import Estimate

DATA = Path(__file__).parent / "data"


def compare(name: str, text: str) -> None:
    path = DATA / f"{name}.txt"
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("PAC_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} has changed; see the top of this file"
    assert max(len(line) for line in text.splitlines()) <= 80


def printed(*args: str) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_welcome() -> None:
    compare("welcome", printed())


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("convert_mi", ["--mi", "1/64"]),
        ("convert_success", ["--success", "80%", "--prior", "0.75"]),
        ("convert_epsilon", ["--epsilon", "1", "--delta", "1e-6", "--prior", "1%"]),
        ("convert_too_much", ["--mi", "1"]),
    ],
)
def test_convert_table(name: str, args: list[str]) -> None:
    compare(name, printed("convert", *args))


@pytest.mark.parametrize(
    "verb", ["demo", "plan", "release", "predict", "serve", "verify", "audit", "report", "convert"]
)
def test_help(verb: str) -> None:
    """What we wrote for a verb's help; how it is laid out is typer's and changes with it."""
    group: Any = get_command(app)
    command = group.get_command(None, verb)
    lines = [f"pac {verb}", "", *wrap(command.help), ""]
    for parameter in command.params:
        is_option = parameter.opts[0].startswith("-")
        name = ", ".join(parameter.opts) if is_option else ""
        required = "(required)" if parameter.required else ""
        lines.append(" ".join(filter(None, [name, parameter.metavar, required])))
        lines += wrap(parameter.help, indent="    ")
    lines += ["", command.epilog.replace("\b\n", "")]
    compare(f"help_{verb}", "\n".join(lines))


def wrap(text: str, indent: str = "") -> list[str]:
    paragraphs = [textwrap.wrap(part, 79 - len(indent)) for part in text.strip().split("\n\n")]
    return [indent + line for paragraph in paragraphs for line in [*paragraph, ""]][:-1]


# --- certificates ---------------------------------------------------------------------------


def estimate(value: float, half: float) -> Estimate:
    return Estimate(
        value=value, lower=value - half, upper=value + half, confidence=1 - 1e-9, n_draws=50_000
    )


def certificate(**changes: Any) -> Certificate:
    """A certificate with fixed figures."""
    fields: dict[str, Any] = {
        "kind": "exact",
        "budget": "membership success <= 60 %",
        "rule": "risk",
        "mechanism": "Mean",
        "output": "array[4]",
        "scheme": "balanced",
        "unit": "record",
        "n_subsets": 1024,
        "n_units": 150,
        "prior": 0.5,
        "dimension": 4,
        "log_det_nats": 1.2345,
        "information": estimate(1.1875, 0.03),
        "mi_upper_nats": 1.2175,
        "any_inference": {"0.5": 1.0, "0.01": 0.41},
        "membership": estimate(0.5977, 0.0021),
        "membership_mean": estimate(0.5487, 0.0009),
        "membership_bound": 0.5998,
        "epsilon_equivalent": 0.4047,
        "side_knowledge": (
            SideKnowledge(
                n_told=1,
                mean_success=0.61,
                worst_success=0.62,
                mean_without_release=0.57,
                worst_without_release=0.58,
                n_sets=8,
                mean_increment=0.0812,
                largest_increment=0.1234,
            ),
        ),
        "noise": CertificateNoise(
            total_variance=0.0125,
            smallest_std=0.03125,
            largest_std=0.0775,
            n_directions=4,
            smallest_grid_step=2.0**-25,
            smallest_units_per_std=1 << 20,
        ),
        "confidence": 1 - 1e-9,
        "public": ("the universe of records, the mechanism and the noise law",),
        "not_promised": (SCOPE,),
        "notes": ("a note",),
        "simulation": False,
        "composition": None,
        "software": "1.2.3",
    }
    return PoolCertificate(**{**fields, **changes})


NOISELESS = {
    "budget": "mutual information <= 8 nats",
    "rule": "exact",
    "information": None,
    "confidence": 1.0,
    "membership_bound": 1.0,
    "epsilon_equivalent": None,
    "notes": (),
    "noise": CertificateNoise(
        total_variance=0.0,
        smallest_std=0.0,
        largest_std=0.0,
        n_directions=0,
        smallest_grid_step=0.0,
        smallest_units_per_std=0,
    ),
}
EMPIRICAL = {
    "kind": "empirical",
    "rule": "empirical diagonal",
    "scheme": "poisson",
    "information": None,
    "membership": None,
    "membership_mean": None,
    "side_knowledge": (),
    "simulation": True,
    "confidence": 1.0,
}

BOXED = {
    **EMPIRICAL,
    "kind": "confidence",
    "rule": "boxed diagonal",
    "scheme": "half",
    "simulation": False,
    "confidence": 1 - 1e-6,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [("exact", {}), ("noiseless", NOISELESS), ("confidence", BOXED), ("empirical", EMPIRICAL)],
)
def test_certificate_text(name: str, changes: dict[str, Any]) -> None:
    compare(f"certificate_{name}", str(certificate(**changes)))
