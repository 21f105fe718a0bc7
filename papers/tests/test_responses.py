"""The reproduction of [RESP]: protocol, rows and the page, on answers that are made up."""

import numpy as np
import pytest

from pacprivacy.sample import Balanced
from papers.page import Page
from papers.responses import SECTION
from papers.responses.models import Answers, load_answers, split_dataset
from papers.responses.transcripts import BOUND_TABLE, bound_cells, measure_responses

M, Q = 16, 300


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=Q)
    easy = rng.random(Q) < 0.7
    sure = np.where(truth == 1, 0.9, 0.1)
    scores = np.where(easy, sure, rng.random((M, Q)))
    pool = Balanced(n_subsets=M, independent=True).draw(50, rng=0)
    return Answers(scores=scores, truth=truth, nonprivate=0.9, pool=pool)


def test_bounds_are_the_published_ones(require_reference):
    require_reference(BOUND_TABLE)
    cells = bound_cells()
    assert len(cells) == 56
    for cell in cells:
        assert cell.success == pytest.approx(cell.published, abs=1e-10)


def test_votes_end_at_a_coin_where_models_differ(answers):
    generous, tiny = measure_responses(
        "adult", "one_hot", (1, 30), n_transcripts=30, answers=answers
    )
    share = float((answers.labels == answers.labels[0]).all(axis=0).mean())
    assert generous.accuracy == pytest.approx(answers.mean_accuracy, abs=0.03)
    assert tiny.accuracy == pytest.approx(share + (1 - share) / 2, abs=0.02)
    assert tiny.free_share == pytest.approx(share)
    assert tiny.spent_nats <= tiny.counted_nats * (1 - share) * (1 + 1e-9)
    assert tiny.success <= tiny.counted_success
    assert tiny.gap == 0.9 - tiny.accuracy


def test_page_holds_the_tables(answers, tmp_path):
    rows = [
        *measure_responses("adult", "one_hot", (4, 20), n_transcripts=2, answers=answers),
        *measure_responses("adult", "score", (4, 20), n_transcripts=2, answers=answers),
    ]
    page = Page("test")
    SECTION.write(page, rows, tmp_path / "responses")
    text = page.save(tmp_path / "page.md").read_text()
    assert "adult, one_hot, 300" in text
    assert "T = 1000000" in text
    assert (tmp_path / "responses.csv").read_text().count("\n") == 5
    names = [job.name for job in SECTION.jobs(None, quick=False)]
    assert names == ["answers, adult", "answers, bank"]


def test_answers_are_trained_once_and_then_read(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] > 0).astype(int)
    module = "papers.responses.models"
    monkeypatch.setattr(f"{module}.split_dataset", lambda _: (X[:80], X[80:], y[:80], y[80:], []))
    first = load_answers("adult", n_subsets=2, folder=tmp_path)
    assert first.scores.shape == (2, 40)
    assert first.nonprivate > 0.7
    monkeypatch.setattr(f"{module}.train_subsets", None)
    again = load_answers("adult", n_subsets=2, folder=tmp_path)
    assert np.array_equal(first.scores, again.scores)


def test_adult_is_split_as_published(require_data):
    require_data("adult.data.gz", "adult.test.gz")
    X, X_test, y, y_test, coded = split_dataset("adult")
    assert (X.shape, X_test.shape) == ((39073, 13), (9769, 13))
    assert len(coded) == 7
    assert y.mean() == pytest.approx(y_test.mean(), abs=0.02)
