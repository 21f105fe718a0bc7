"""``pac release``: a private release of a table in a file."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pacprivacy._checks import suggestion
from pacprivacy._values import read_key, read_release
from pacprivacy.budget import AnyBudget, Spent, budget_limits
from pacprivacy.cli import options
from pacprivacy.cli.console import (
    Screen,
    Verb,
    option,
    show,
    tell_curator,
    typed_option,
)
from pacprivacy.cli.promise import PromisedStatistic, check_dp_promise, release_dp_promise
from pacprivacy.dp import DPRelease
from pacprivacy.errors import DataError, InterruptedRun
from pacprivacy.mechanism import Mechanism
from pacprivacy.noise import as_rule
from pacprivacy.release import Release
from pacprivacy.sample import Coins
from pacprivacy.session import (
    SUBSETS_BATCHED,
    LedgerPlace,
    SampleOptions,
    Session,
    SingleSession,
)
from pacprivacy.tables import ModelStudy, StudyFile, find_model, read_model_study, read_study

PROMISES: Final = ("pac", "dp")

_Model = Annotated[str | None, *get_args(options.ModelName)[1:]]
Seed = Annotated[
    int | None,
    typed_option("N", "Of pool and proof; never of the secret or the noise.", least=0),
]
Full = Annotated[bool, typed_option(None, "Print the whole certificate besides.", flags="--full")]
Simulate = Annotated[
    bool, typed_option(None, "Seed the noise too: for trials, protects nobody.", flags="--simulate")
]


def _release(
    *,
    data: options.DataFile,
    model: _Model = None,
    study: options.StudyOptions,
    account: options.AccountOptions,
    output: options.Folder,
    promise: str = option(
        "KIND",
        "pac, or dp: hide also who is in the table; of counts, sums, means, variances, "
        "crosstabs, histograms, medians and quantiles.",
        choices=PROMISES,
        default="pac",
    ),
    rows_per_unit: int | None = option(
        "N", "With --promise dp and --unit: how many rows of one are used at most.", least=1
    ),
    table: options.TableOptions,
    name: options.Name = None,
    seed: Seed = None,
    simulate: Simulate = False,
    sign: Path | None = option("FILE", "Sign with the ed25519 key in this PEM file."),
    full: Full = False,
    screen: Screen,
) -> None:
    """Release a statistic or a model of a table, with noise and a certificate.

    It is computed on a secret part of the records. Three files are written: release.json and
    values.csv, its numbers, may be published; curator.npz is for the curator alone and serves
    'pac verify'.

    Each person is used or left out by a secret coin of their own, and the promise holds also
    against those who know all others. Where that cannot be, as for models that are fitted, fewer
    than 200 people or budgets besides membership, the sample is one of a pool of candidates, and
    the certificate says why. --sample says which it must be.

    With --study it is several statistics under one budget, as a file says. --strata and --cluster
    say how a survey was drawn: errors are then for its population.

    With --ledger it is one more release of a session: the same secret part for all of them, under
    one total budget, which is spent before the release leaves.

    With --promise dp the release also hides who is in the table. It is computed on all records, and
    its noise follows from the declared --ranges and --levels alone. Quantiles, and a pure epsilon,
    have a certificate of their own and no curator.npz.
    """
    limits = account.limits()  # refused before the data are read
    _check_options(promise, rows_per_unit, {**asdict(table), **asdict(account)}, sign)
    known = Spent() if limits is None else budget_limits(limits, table.subsets or SUBSETS_BATCHED)
    file = study.file(model, table)
    if file is not None and table.schema is None:
        table = replace(table, schema=file.schema)
    request = PromisedStatistic(
        data=data,
        model=model or "mean",
        options=table.model(model or "mean", known.mi_nats, declared=promise == "dp"),
        reading=table.reading(declared=promise == "dp"),
        rows_per_unit=rows_per_unit,
        name=name,
    )
    release: Release | DPRelease
    if promise == "dp":
        if model is None or file is not None:
            raise DataError("--study, --strata and --cluster must be left out with --promise dp.")
        check_release_folder(output)
        draws = (seed or 0) if simulate else None
        release = release_dp_promise(
            request, account.budget or "", simulate=draws, quiet=screen.quiet
        )
    else:
        drawn = SampleOptions(
            n_subsets=table.subsets,
            n_jobs=table.jobs,
            rng=seed,
            progress=screen.progress,
            simulate=simulate,
        )
        release = _release_pac(request, file, account, output, table, drawn=drawn)
    files = save_release(release, output, sign=sign)
    show_release(release, files, screen, full=full)


def _release_pac(
    asked: PromisedStatistic,
    file: StudyFile | None,
    account: options.AccountOptions,
    output: Path,
    table: options.TableOptions,
    *,
    drawn: SampleOptions,
) -> Release:
    as_rule(table.rule)
    limits, total, share = account.limits(), account.read_total(), account.part
    if file is None:
        find_model(asked.model, asked.options)
        sample = table.sampled(asked.model)
        options.check_coin_session(asked.model, account, sample)
    else:
        sample = table.coins("mean") or Coins()
    if isinstance(sample, Coins):
        options.check_coin_budget(limits)
        options.check_coin_budget(total, name="--total")
    check_release_folder(output)
    unit = asked.options.unit or (None if file is None else file.whole.get("unit"))
    ids = () if account.ledger is None or unit is None else (unit,)
    reading = replace(asked.reading, ids=frozenset(ids))
    if file is None:
        study = read_model_study(asked.data, asked.model, asked.options, reading, sample=sample)
        if limits is not None and account.ledger is None:
            study = study.with_default_sample(limits, table.pool_options)
    else:
        study = read_study(asked.data, file, unit=table.unit, reading=reading, sample=sample)
    quiet = drawn.progress is False
    tell_curator(study.notes, quiet=quiet)
    with warnings.catch_warnings(), _kept(table.checkpoint, output, study) as checkpoint:
        if quiet:
            warnings.simplefilter("ignore")
        session, mechanism = _open_session(study, account, total, limits, table, drawn=drawn)
        with session:
            return session.release(
                mechanism,
                limits,
                share=share,
                rule=table.rule,
                checkpoint=checkpoint,
                name=asked.name,
            )


def _check_options(
    promise: str, rows_per_unit: int | None, stated: dict[str, Any], sign: Path | None
) -> None:
    if sign is not None:
        read_key(sign, private=True)
    if promise not in PROMISES:
        advice = suggestion(promise, PROMISES, otherwise="Leave it out for pac.")
        raise DataError(f"--promise must be pac or dp; got {promise[:60]!r}. {advice}")
    if promise == "dp":
        check_dp_promise(stated)
    elif rows_per_unit is not None:
        raise DataError("--rows-per-unit must be left out with --promise pac; got a value.")


def _open_session(
    study: ModelStudy,
    account: options.AccountOptions,
    total: AnyBudget | None,
    limits: AnyBudget | None,
    table: options.TableOptions,
    *,
    drawn: SampleOptions,
) -> tuple[Session, Mechanism]:
    drawn = replace(drawn, sample=study.sample, units=study.units)
    if account.ledger is None:
        assert limits is not None  # a share is one of a ledger
        session: Session = SingleSession(
            study.universe,
            limits,
            study.mechanism,
            drawn,
            rule=table.rule,
            checkpoint=table.checkpoint,
        )
        return session, study.mechanism
    place = LedgerPlace(
        ledger=account.ledger,
        dataset=account.dataset or study.name,
        principal=account.principal or "default",
        state=account.state,
    )
    session = study.open_session(place, total, drawn)
    book = session.account()
    if book.state is None and (others := book.other_datasets()):
        note = (
            f"{place.dataset!r} gets a budget of its own beside {', '.join(map(repr, others))}. If "
            f"it is the same table under a new name, use --dataset {others[0]!r}"
        )
        tell_curator([note], quiet=drawn.progress is False)
    return session, study.of_rows()


@contextmanager
def _kept(checkpoint: Path | None, output: Path, study: ModelStudy) -> Iterator[Path | None]:
    """Yield the file of finished candidates, kept until there is a release; or None."""
    one_pass = isinstance(study.sample, Coins) or study.mechanism.batch is not None
    temporary = checkpoint is None and not one_pass
    if not temporary:
        yield checkpoint
        return
    created = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    path = output / "checkpoint.pac"
    try:
        yield path
    except KeyboardInterrupt as error:
        done = str(error).partition(";")[0] or "stopped before it was done"
        raise InterruptedRun(
            f"{done}; type the same command again to go on from {path} (curator only)."
        ) from None
    except BaseException:
        path.unlink(missing_ok=True)
        if created:
            with suppress(OSError):  # something else is in it
                output.rmdir()
        raise
    path.unlink(missing_ok=True)


def check_release_folder(folder: Path) -> None:
    """Refuse a folder that cannot take a release, before any work is done or budget spent."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--output must be a folder; got the file {folder}. Choose another name.")
    if (folder / "release.json").exists():
        raise DataError(
            f"--output must not hold a release yet; got {folder / 'release.json'}. Choose another "
            "folder, or delete the file if it was never published: two releases tell more than one."
        )
    try:
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for path in created:  # it is made again when there is something to put in
            path.rmdir()
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or "not a name for a folder"
    return DataError(
        f"--output must be a folder that can be written; got {folder} ({reason}). Choose another."
    )


def save_release(
    release: Release | DPRelease, folder: Path, *, sign: Path | None = None
) -> dict[str, str]:
    try:
        public = release.save(folder, sign=sign)
    except OSError as error:
        raise _unwritable(folder, error) from None
    names = {"release": "release.json", "values": "values.csv"}
    names |= {"bundle": "curator.npz"} if isinstance(release, Release) else {}
    paths = {kind: public.parent / name for kind, name in names.items()}
    return {kind: str(path) for kind, path in paths.items() if path.exists()}


def show_release(
    release: Release | DPRelease, files: dict[str, str], screen: Screen, *, full: bool
) -> None:
    """Print a release on one screen, as every verb does: numbers, promise, files."""
    if screen.as_json:
        screen.show("", {**read_release(files["release"]), "files": files})
    if not screen.is_for_people:
        return
    if full and isinstance(release, Release):  # the certificate begins with the promise
        show("\n".join([*release.lines(), "", *release.certificate.readings]))
    else:
        show(release.text())
    if full:
        show(f"\n{release.certificate}\n")
    public = ", values.csv" if "values" in files else ""
    private = "; curator.npz is for the curator alone" if "bundle" in files else ""
    show(f"Wrote {files['release']}{public}{private}")
    if not full and isinstance(release, DPRelease):
        show("What it rests on, and what is not promised: --full")
    elif not full:
        show(f"What is not promised, and the proof: --full, or pac report {files['release']}")


release = Verb(
    function=_release,
    example="""\
  pac release people.csv --model mean --budget "membership<=0.6" -o out
  pac release visits.parquet --model histogram --target age --bins 12 \\
      --ranges 0,120 --unit patient --budget "mi<=1/16" -o out-ages
  pac release visits.csv --model mean --columns cost --group-by region \\
      --unit patient --budget "membership<=0.6" -o out-cost
  pac release people.csv --model svm --target smoker --C 0.1 \\
      --budget "membership<=0.6 & mi<=0.5" -o out-svm
  pac release people.csv --model mean --budget "mi<=1/16" \\
      --ledger study.db --total "mi<=1" -o out-1
  pac release people.csv --study book.toml --budget "membership<=0.6" -o out
  pac release people.csv --model mean --columns age --promise dp \\
      --ranges 0,120 --budget "membership<=0.6" -o out-dp""",
)
