import csv
import dataclasses
import gzip
import hashlib
import io
import pickle
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pacprivacy.errors import DataError
from papers import datasets
from papers.datasets import Dataset, store
from papers.datasets.store import FILES, DataFile

Require = Callable[..., None]

FILES_OF = {
    "iris": (),
    "rice": ("rice_cammeo_osmancik.arff.gz",),
    "dry_bean": ("dry_bean.arff.gz",),
    "wine_red": ("winequality-red.csv.gz",),
    "wine_white": ("winequality-white.csv.gz",),
    "california_housing": ("california_housing_sklearn.csv.gz",),
    "credit_default": ("default_credit_card_clients.csv.gz",),
    "mnist": (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ),
    "cifar10_subset": (
        "cifar10_subset_train.webp",
        "cifar10_subset_test.webp",
        "cifar10_subset_labels.npz",
    ),
    "cifar100_subset": (
        "cifar100_subset_train.webp",
        "cifar100_subset_test.webp",
        "cifar100_subset_labels.npz",
    ),
    "ag_news": ("ag_news_train_subset.csv.gz", "ag_news_test.csv.gz"),
    "kdd99": ("kddcup.data_10_percent.gz",),
    "adult": ("adult.data.gz", "adult.test.gz"),
    "bank": ("bank-full.csv.gz",),
}


@pytest.fixture(scope="module")
def load(require_data: Require) -> Callable[[str], Dataset]:
    loaded: dict[str, Dataset] = {}

    def load_one(name: str) -> Dataset:
        require_data(*FILES_OF[name])
        if name not in loaded:
            loaded[name] = getattr(datasets, f"load_{name}")()
        return loaded[name]

    return load_one


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no data file is found: a bare checkout, an empty cache."""
    monkeypatch.delenv("PACPRIVACY_DATA", raising=False)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    monkeypatch.setattr(store, "__file__", str(checkout / "papers" / "datasets" / "store.py"))
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


# --- shapes, counts and means, as the publishers state them ---------------------------------

SHAPES = {
    "iris": ((150, 4), None),
    "rice": ((3810, 7), None),
    "dry_bean": ((13611, 16), None),
    "wine_red": ((1599, 11), None),
    "wine_white": ((4898, 11), None),
    "california_housing": ((20640, 8), None),
    "credit_default": ((30000, 23), None),
    "mnist": ((60000, 28, 28), (10000, 28, 28)),
    "cifar10_subset": ((10000, 32, 32, 3), (2000, 32, 32, 3)),
    "cifar100_subset": ((5000, 32, 32, 3), (1000, 32, 32, 3)),
    "ag_news": ((40000, 2), (7600, 2)),
    "kdd99": ((494021, 41), None),
    "adult": ((32561, 14), (16281, 14)),
    "bank": ((45211, 16), None),
}

CLASS_COUNTS = {
    "iris": {"setosa": 50, "versicolor": 50, "virginica": 50},
    "rice": {"Osmancik": 2180, "Cammeo": 1630},
    "dry_bean": {
        "DERMASON": 3546,
        "SIRA": 2636,
        "SEKER": 2027,
        "HOROZ": 1928,
        "CALI": 1630,
        "BARBUNYA": 1322,
        "BOMBAY": 522,
    },
    "credit_default": {"no default": 23364, "default": 6636},
    "mnist": dict(
        zip(
            "0123456789",
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            strict=True,
        )
    ),
    "ag_news": dict.fromkeys(("World", "Sports", "Business", "Sci/Tech"), 10000),
    "kdd99": {"smurf": 280790, "neptune": 107201, "normal": 97278},
    "adult": {">50K": 7841, "<=50K": 24720},
    "bank": {"yes": 5289, "no": 39922},
}

TEST_CLASS_COUNTS = {
    "mnist": dict(
        zip("0123456789", (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009), strict=True)
    ),
    "ag_news": dict.fromkeys(("World", "Sports", "Business", "Sci/Tech"), 1900),
    "adult": {">50K": 3846, "<=50K": 12435},
}

TABLES = [name for name, (shape, _) in SHAPES.items() if len(shape) == 2 and name != "ag_news"]


def count(codes: np.ndarray, dataset: Dataset) -> dict[str, int]:
    counts = np.bincount(codes, minlength=len(dataset.target_names))
    return dict(zip(dataset.target_names, counts.tolist(), strict=True))


def test_every_loader_is_tested() -> None:
    loaders = {name for name in datasets.__all__ if name.startswith("load_")}
    assert loaders == {f"load_{name}" for name in SHAPES} == {f"load_{name}" for name in FILES_OF}
    assert {name for names in FILES_OF.values() for name in names} == set(FILES)


@pytest.mark.parametrize("name", SHAPES)
def test_record_of_every_loader(name: str, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    train_shape, test_shape = SHAPES[name]
    arrays = (dataset.X, dataset.y, dataset.X_test, dataset.y_test)
    tests = (None, None) if test_shape is None else (test_shape, test_shape[:1])
    shapes = tuple(None if array is None else array.shape for array in arrays)
    assert shapes == (train_shape, train_shape[:1], *tests)
    assert not any(array is not None and array.flags.writeable for array in arrays)
    assert (dataset.name, dataset.n_records) == (name, train_shape[0])
    assert dataset.is_subset == (name in {"cifar10_subset", "cifar100_subset", "ag_news"})
    assert dataset.licence
    assert dataset.source
    assert repr(dataset).startswith(f"Dataset({name!r}, X={train_shape}")
    if name in TABLES:
        assert dataset.X.dtype == np.float64
        assert np.isfinite(dataset.X).all()
        assert len(set(dataset.feature_names)) == dataset.X.shape[1]
        assert len(dataset.feature_names) == dataset.X.shape[1]


@pytest.mark.parametrize("name", CLASS_COUNTS)
def test_class_counts(name: str, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    counts = count(dataset.y, dataset)
    assert dataset.task == "classification"
    assert {label: counts[label] for label in CLASS_COUNTS[name]} == CLASS_COUNTS[name]
    if name in TEST_CLASS_COUNTS:
        assert dataset.y_test is not None
        assert count(dataset.y_test, dataset) == TEST_CLASS_COUNTS[name]


def test_kdd99_has_22_attacks_and_no_full_stops(load: Callable[[str], Dataset]) -> None:
    names = load("kdd99").target_names
    assert len(names) == 23
    assert not any(name.endswith(".") for name in names)


@pytest.mark.parametrize(("name", "n_classes"), [("cifar10_subset", 10), ("cifar100_subset", 100)])
def test_cifar_subsets_are_balanced(
    name: str, n_classes: int, load: Callable[[str], Dataset]
) -> None:
    dataset = load(name)
    assert dataset.y_test is not None
    assert set(count(dataset.y, dataset).values()) == {len(dataset.y) // n_classes}
    assert set(count(dataset.y_test, dataset).values()) == {len(dataset.y_test) // n_classes}
    assert dataset.X.dtype == np.uint8


def test_cifar10_tiles_are_whole_images(load: Callable[[str], Dataset]) -> None:
    """Neighbouring rows of one image resemble each other; across a wrong cut they would not."""
    dataset = load("cifar10_subset")
    assert dataset.target_names[0] == "airplane"
    assert dataset.target_names[9] == "truck"
    images = dataset.X[:2000].astype(float)
    # The published means of the whole train set; 2 % covers the subset's sampling error.
    means = (dataset.X / 255).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=0.02)
    inside = np.abs(images[:, 1:] - images[:, :-1]).mean(axis=(0, 2, 3))
    across = np.abs(images[1:, 0] - images[:-1, -1]).mean()
    assert inside.max() < 0.6 * across


@pytest.mark.parametrize("name", ["cifar10_subset", "cifar100_subset"])
def test_no_test_image_is_a_training_image(name: str, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    train = {image.tobytes() for image in np.asarray(dataset.X)}
    assert not [k for k, image in enumerate(np.asarray(dataset.X_test)) if image.tobytes() in train]


@pytest.mark.parametrize(("name", "mean"), [("wine_red", 5.6360), ("wine_white", 5.8779)])
def test_wine_mean_score(name: str, mean: float, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    assert dataset.task == "regression"
    assert dataset.target_names == ("quality",)
    assert "quality" not in dataset.feature_names
    assert dataset.y.mean() == pytest.approx(mean, abs=5e-5)  # stated to four places


def test_california_housing_means(load: Callable[[str], Dataset]) -> None:
    dataset = load("california_housing")
    stated = [
        3.870671,
        28.639486,
        5.429000,
        1.096675,
        1425.476744,
        3.070655,
        35.631861,
        -119.569704,
    ]
    np.testing.assert_allclose(dataset.X.mean(axis=0), stated, atol=5e-7)  # six places
    assert dataset.y.mean() == pytest.approx(2.068558, abs=5e-7)
    assert dataset.feature_names[0] == "MedInc"


def test_credit_default_leaves_out_id_and_target(load: Callable[[str], Dataset]) -> None:
    dataset = load("credit_default")
    assert dataset.feature_names[0] == "LIMIT_BAL"
    assert dataset.feature_names[5:7] == ("PAY_0", "PAY_2")
    assert not {"ID", "default.payment.next.month"} & set(dataset.feature_names)
    assert dataset.y.mean() == pytest.approx(0.2212, abs=5e-5)


def test_mnist_first_image_is_a_five(load: Callable[[str], Dataset]) -> None:
    dataset = load("mnist")
    assert dataset.y[0] == 5
    assert dataset.X[:, 0, 0].max() == 0  # digits are centred: corners are blank
    assert dataset.X.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the well-known mean


def test_ag_news_first_test_row(load: Callable[[str], Dataset]) -> None:
    dataset = load("ag_news")
    assert dataset.X_test is not None
    assert dataset.X_test[0, 0] == "Fears for T N pension after talks"
    assert dataset.feature_names == ("title", "description")


# --- categories -----------------------------------------------------------------------------


def test_adult_codes_decode_to_the_published_text(
    load: Callable[[str], Dataset], require_data: Require
) -> None:
    dataset = load("adult")
    assert dataset.X_test is not None
    for name, X, first in (
        ("adult.data.gz", dataset.X, 0),
        ("adult.test.gz", dataset.X_test, 1),
    ):
        lines = store.read_file(name).decode().splitlines()[first : first + 300]
        for row, cells in zip(X, csv.reader(lines, skipinitialspace=True), strict=False):
            for column, value, cell in zip(dataset.feature_names, row, cells, strict=False):
                levels = dataset.categories.get(column)
                assert (str(int(value)) if levels is None else levels[int(value)]) == cell


def test_category_that_only_the_train_split_holds_keeps_one_numbering(
    load: Callable[[str], Dataset],
) -> None:
    dataset = load("adult")
    assert dataset.X_test is not None
    column = dataset.feature_names.index("native-country")
    code = dataset.categories["native-country"].index("Holand-Netherlands")
    assert (dataset.X[:, column] == code).sum() == 1
    assert not (dataset.X_test[:, column] == code).any()


def test_full_stop_is_kept_where_it_belongs_to_the_category(
    load: Callable[[str], Dataset],
) -> None:
    assert "admin." in load("bank").categories["job"]


@pytest.mark.parametrize("name", ["adult", "bank", "kdd99"])
def test_codes_are_within_their_sorted_categories(
    name: str, load: Callable[[str], Dataset]
) -> None:
    dataset = load(name)
    assert dataset.categories
    for column, levels in dataset.categories.items():
        codes = np.unique(dataset.X[:, dataset.feature_names.index(column)])
        assert list(levels) == sorted(levels)
        assert codes.tolist() == list(range(len(levels)))


@pytest.mark.parametrize("name", ["adult", "bank"])
def test_one_hot_is_invertible(name: str, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    wide = datasets.one_hot(dataset)
    n_levels = sum(len(levels) for levels in dataset.categories.values())
    n_numeric = len(dataset.feature_names) - len(dataset.categories)
    assert wide.X.shape == (dataset.n_records, n_numeric + n_levels)
    assert len(wide.feature_names) == wide.X.shape[1]
    assert wide.categories == {}
    assert not wide.X.flags.writeable
    assert (wide.X_test is None) == (dataset.X_test is None)
    for column, levels in dataset.categories.items():
        block = wide.X[:, [wide.feature_names.index(f"{column}={level}") for level in levels]]
        assert (block.sum(axis=1) == 1).all()
        original = dataset.X[:, dataset.feature_names.index(column)]
        assert (block.argmax(axis=1) == original).all()


def test_one_hot_leaves_numeric_tables_alone(load: Callable[[str], Dataset]) -> None:
    iris = load("iris")
    assert datasets.one_hot(iris) is iris


# --- the record -----------------------------------------------------------------------------


def test_record_is_frozen_and_travels_to_workers(load: Callable[[str], Dataset]) -> None:
    iris = load("iris")
    with pytest.raises(dataclasses.FrozenInstanceError):
        iris.name = "other"  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(iris))
    np.testing.assert_array_equal(copy.X, iris.X)
    assert copy.feature_names == iris.feature_names


def test_pandas_is_not_needed(monkeypatch: pytest.MonkeyPatch, require_data: Require) -> None:
    require_data("winequality-red.csv.gz", "bank-full.csv.gz", "rice_cammeo_osmancik.arff.gz")
    monkeypatch.setitem(sys.modules, "pandas", None)
    for loader in (datasets.load_wine_red, datasets.load_bank, datasets.load_rice):
        assert loader().n_records


def test_missing_pillow_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, require_data: Require
) -> None:
    require_data(*FILES_OF["cifar10_subset"])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"Pillow must be installed.*pip install pillow"):
        datasets.load_cifar10_subset()


# --- the store: where files are looked for and how they are checked --------------------------


def test_catalogue_is_well_formed() -> None:
    for name, file in FILES.items():
        assert file.name == name
        for digest in (file.sha256, file.plain_sha256):
            assert digest is None or (len(digest) == 64 and int(digest, 16) >= 0)
        assert file.url is None or file.url.startswith("https://")
        assert file.plain_sha256 is None or file.url is not None


def test_plain_checksums_are_those_of_the_unpacked_files(require_data: Require) -> None:
    with_plain = [file for file in FILES.values() if file.plain_sha256]
    require_data(*(file.name for file in with_plain))
    for file in with_plain:
        contents = store.read_file(file.name)
        assert hashlib.sha256(contents).hexdigest() == file.plain_sha256


def test_folders_are_searched_in_the_stated_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACPRIVACY_DATA", str(tmp_path / "named"))
    checkout = Path(__file__).resolve().parents[2]
    shared = checkout.parent / "shared" / "data"
    assert store.search_folders() == (tmp_path / "named", shared, store.cache_folder())


def test_checkout_finds_the_shared_folder_beside_it(empty_machine: Path) -> None:
    shared = empty_machine / "shared" / "data"
    shared.mkdir(parents=True)
    assert store.find_file("dry_bean.arff.gz") is None
    (shared / "dry_bean.arff.gz").touch()
    assert store.find_file("dry_bean.arff.gz") == shared / "dry_bean.arff.gz"


def test_corrupted_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_data: Require
) -> None:
    name = "winequality-red.csv.gz"
    require_data(name)
    original = store.find_file(name)
    assert original is not None
    copy = tmp_path / name
    shutil.copyfile(original, copy)
    monkeypatch.setenv("PACPRIVACY_DATA", str(tmp_path))
    assert datasets.load_wine_red().n_records == 1599
    raw = bytearray(copy.read_bytes())
    raw[len(raw) // 2] ^= 1
    copy.write_bytes(raw)
    with pytest.raises(DataError) as caught:
        datasets.load_wine_red()
    message = str(caught.value)
    assert f"{copy} must have SHA-256 {FILES[name].sha256}" in message
    assert hashlib.sha256(raw).hexdigest() in message


def test_file_with_another_text_is_refused_although_it_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'"alcohol";"quality"\n9.4;5\n'
    (tmp_path / "winequality-red.csv.gz").write_bytes(gzip.compress(text))
    monkeypatch.setenv("PACPRIVACY_DATA", str(tmp_path))
    with pytest.raises(DataError, match="must have SHA-256"):
        datasets.load_wine_red()


def test_missing_file_error_names_file_checksum_and_folder(empty_machine: Path) -> None:
    with pytest.raises(DataError) as caught:
        datasets.load_dry_bean()
    message = str(caught.value)
    assert "dry_bean.arff.gz must be in a data folder" in message
    assert FILES["dry_bean.arff.gz"].sha256 in message
    assert str(empty_machine / "cache") in message
    assert "PACPRIVACY_DATA" in message


def test_unknown_file_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(DataError, match=r"name must be one of adult\.data\.gz, .*; got 'x\.csv'"):
        store.find_file("x.csv")


def test_offline_forbids_downloads(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("a download was tried")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("PACPRIVACY_OFFLINE", "1")
    with pytest.raises(DataError, match="PACPRIVACY_OFFLINE"):
        datasets.load_adult()


def test_tests_without_data_fail_in_ci_and_skip_elsewhere(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch, require_data: Require
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"dry_bean\.arff\.gz.*provide them"):
        require_data("dry_bean.arff.gz")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=r"dry_bean\.arff\.gz"):
        require_data("dry_bean.arff.gz")


# --- downloads, from a publisher that is only pretended -------------------------------------


@pytest.fixture
def publisher(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataFile]:
    """Return a function that publishes a payload under one catalogue entry."""
    monkeypatch.delenv("PACPRIVACY_OFFLINE", raising=False)

    def publish(payload: bytes, **changes: str) -> DataFile:
        entry = DataFile(name="toy.csv.gz", url="https://example.org/toy.zip", **changes)
        monkeypatch.setitem(FILES, entry.name, entry)
        monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(payload))
        return entry

    return publish


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, contents in members.items():
            archive.writestr(name.replace("__", "."), contents)
    return buffer.getvalue()


def test_download_picks_the_text_out_of_nested_archives(
    publisher: Callable[..., DataFile], empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"a,b\n1,2\n"
    payload = zipped(readme__txt=b"hello", inner__zip=zipped(whatever__csv=text))
    publisher(payload, sha256="0" * 64, plain_sha256=hashlib.sha256(text).hexdigest())
    assert store.read_file("toy.csv.gz") == text
    assert [path.name for path in (empty_machine / "cache").iterdir()] == ["toy.csv"]
    monkeypatch.setenv("PACPRIVACY_OFFLINE", "1")
    assert store.read_file("toy.csv.gz") == text  # now from the cache


def test_download_of_the_file_itself(publisher: Callable[..., DataFile]) -> None:
    packed = gzip.compress(b"a\n1\n")
    publisher(packed, sha256=hashlib.sha256(packed).hexdigest())
    assert store.read_file("toy.csv.gz") == b"a\n1\n"


@pytest.mark.parametrize(
    "payload", [b"not an archive", zipped(toy__csv=b"a,b\n1,3\n")], ids=["junk", "other text"]
)
def test_download_with_other_bytes_is_refused_and_not_kept(
    payload: bytes, publisher: Callable[..., DataFile], empty_machine: Path
) -> None:
    publisher(payload, sha256="0" * 64, plain_sha256="1" * 64)
    with pytest.raises(DataError, match=r"serves now has other bytes"):
        store.read_file("toy.csv.gz")
    assert not (empty_machine / "cache").exists()


def test_failed_download_says_what_to_do(
    publisher: Callable[..., DataFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher(b"", sha256="0" * 64)

    def fail(url: str, timeout: float) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(DataError, match=r"no route to host.*Put the file with SHA-256 0000"):
        store.read_file("toy.csv.gz")
