"""``pac verify``: recompute a certificate from the curator's bundle."""

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pacprivacy._values import DP_SCHEMA, read_release
from pacprivacy.cli.console import Screen, Verb, option, show
from pacprivacy.cli.options import (
    BundleFile,
    PublicKey,
    StudyOptions,
    TableOptions,
    find_bundle_option,
)
from pacprivacy.cli.promise import reading_by_entry
from pacprivacy.dp import DPCertificate
from pacprivacy.errors import DataError
from pacprivacy.release import (
    AnswerBundle,
    AverageBundle,
    Certificate,
    CoinBundle,
    CoinEvidence,
    CuratorBundle,
    DescentBundle,
    Release,
    load_bundle,
    recompute_average,
    recompute_contributions,
    recompute_descent,
    verify as verify_certificate,
)
from pacprivacy.tables import ModelStudy, read_model_study, read_study

NOT_CHECKED: Final = (
    "Not checked, for no file can show it (compared with the record, if there is one):"
)
VALUE: Final = "the released value: neither the secret nor the noise is in any file"
ANSWERS: Final = "the answers, and that no more of them were given than the total allows"


def _verify(
    *,
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="The release.json to check.")],
    bundle: BundleFile = None,
    public_key: PublicKey = None,
    data: Path | None = option("FILE", "With coins: recompute from the table what units add too."),
    model: str | None = option("NAME", "With --data: what was released of it."),
    study: StudyOptions,
    table: TableOptions,
    screen: Screen,
) -> None:
    """Recompute a certificate from the curator's bundle.

    Fails with exit code 2 on the first figure or sentence that does not follow, and names what the
    bundle can only repeat. Only the curator can do this: the bundle holds what the release was made
    of. It does not hold the secret or the noise, so the released value is not checked. A
    certificate of differential privacy has no bundle: it is checked against the events it carries.

    The bundle of a large release with coins holds the units that cost most, and a digest of all.
    With --data, and the options of the release, all are computed again from the table; so are the
    steps and the value of a descent, and the records around a quantile.
    """
    _check_data_options(data, model, study, table)
    content = read_release(release, public_key=public_key)
    certificate = _read(content)
    sealed = _sealed(content, public_key)
    if not isinstance(certificate, Certificate):
        verification, items = verify_certificate(certificate), _recomputed_dp(certificate)
        source, unproved = (
            "the events that it carries",
            {**verification.not_checkable, "value": VALUE},
        )
    else:
        path = find_bundle_option(release, bundle, without=f" All that was checked: {sealed}.")
        held = load_bundle(path)
        verification = verify_certificate(certificate, held)
        items = dict(verification.figures)
        rest = {"answers": ANSWERS} if isinstance(held, AnswerBundle) else {"value": VALUE}
        source, unproved = str(path), {**verification.not_checkable, **rest}
        if data is not None:
            hidden = isinstance(held, CoinBundle) and held.declaration is not None
            read = _read_again(data, model, study, table, hidden=hidden)
            again = _recompute(held, release, data, read)
            shown = {"influence", "n_units", "noise", *again}
            unproved = {k: v for k, v in unproved.items() if k not in shown}
            items |= again
    if screen.is_for_people:
        show(f"{release}: the certificate follows from {source}.", style="green")
    screen.show(
        f"SHA-256 of the certificate, as in the ledger: {verification.digest}\n{sealed}\n"
        f"Recomputed and equal:\n{_lines(items)}\n{NOT_CHECKED}\n{_lines(unproved)}",
        {
            "verified": True,
            "release": str(release),
            "digest": verification.digest,
            "file": sealed,
            "recomputed": items,
            "recomputed_fields": list(verification.recomputed),
            "not_checked": unproved,
        },
    )


def _check_data_options(
    data: Path | None, model: str | None, study: StudyOptions, table: TableOptions
) -> None:
    named = model is not None or study.study is not None
    alone = data is None and (table != TableOptions() or study != StudyOptions())
    if (data is not None) != named or alone:
        raise DataError(
            "--data must come with the --model and the other options of the release; got one "
            "without the other. Write --data people.csv --model mean --columns income."
        )


def _read_again(
    data: Path, model: str | None, study: StudyOptions, table: TableOptions, *, hidden: bool
) -> ModelStudy:
    file = study.file(model, table)
    if file is None and hidden:
        options = table.model(str(model), declared=True)
        reading = reading_by_entry(str(model), options, table.reading(declared=True))
        return read_model_study(data, str(model), options, reading)
    if file is None:
        return read_model_study(data, str(model), table.model(str(model)), table.reading())
    if table.schema is None:
        table = replace(table, schema=file.schema)
    return read_study(data, file, unit=table.unit, reading=table.reading())


def _recompute(held: CuratorBundle, release: Path, data: Path, study: ModelStudy) -> dict[str, str]:
    if not isinstance(held, CoinEvidence):
        raise DataError(
            "--data must be left out for a release from a pool; got a file. Its bundle holds the "
            "value on every candidate."
        )
    records = (study.mechanism, study.universe, study.units)
    if isinstance(held, DescentBundle):
        value = Release.load(release).value
        recompute_descent(held, *records, value=value)
        clocks = {"clocks": f"of all {held.n_units:,} units, along the steps, from {data}"}
        if value is None:  # a certificate alone
            return clocks
        return clocks | {"value": "follows from the released steps"}
    if isinstance(held, AverageBundle):
        recompute_average(held, *records)
        return {"n_draws": f"none; the records around each quantile are those of {data}"}
    assert isinstance(held, CoinBundle)
    recompute_contributions(held, *records)
    return {"contributions": f"of all {held.n_units:,} units, from {data}"}


def _sealed(content: Any, public_key: Path | None) -> str:
    if not (isinstance(content, dict) and "digest" in content):
        return "The file has no digest: it is of an earlier version, or a certificate alone."
    whole = f"Value and certificate are as they were written: SHA-256 {content['digest']}"
    if "signature" not in content:
        return f"{whole}, not signed: whoever changes the file can change that number too"
    how = (
        "not checked: give --public-key" if public_key is None else f"by the owner of {public_key}"
    )
    return f"{whole}, signed ({how})"


def _read(content: Any) -> Certificate | DPCertificate:
    plain = content.get("certificate", content) if isinstance(content, dict) else content
    if not (isinstance(plain, dict) and plain.get("schema_version") == DP_SCHEMA):
        return Certificate.from_dict(plain)
    return DPCertificate.from_dict(plain)


def _recomputed_dp(certificate: DPCertificate) -> dict[str, str]:
    events = sum(int(event["count"]) for event in certificate.events)
    kinds = ", ".join(sorted({event["event"] for event in certificate.events}))
    return {"promise": certificate.promise, "events": f"{events}, of kind {kinds}"}


def _lines(items: dict[str, str]) -> str:
    return "\n".join(
        textwrap.fill(text, 80, initial_indent=f"  {name:<22}", subsequent_indent=" " * 24)
        for name, text in items.items()
    )


verify = Verb(
    function=_verify,
    example="""\
  pac verify out/release.json
  pac verify release.json --bundle safe/curator.npz
  pac verify out/release.json --public-key key.pub
  pac verify out/release.json --data people.csv --model mean --columns age""",
)
