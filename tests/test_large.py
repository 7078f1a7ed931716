"""Memory beyond the data, and data of more than 2^31 elements."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from smallvar import BPMeans, DPMeans, KFeatures, MiniBatchDPMeans, farthest_first_lambda

each_order = pytest.mark.parametrize("order", ["C", "F"])


def sparse_file(path, shape, order, far):
    """A float32 file of zeros that takes hardly any disk, but for its last `far` rows."""
    data = np.memmap(path, dtype=np.float32, mode="w+", shape=shape, order=order)
    data[-far:] = 100.0
    data[-1, -1] = 900.0
    data.flush()
    del data
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape, order=order)


def check_far_end(X, far):
    """Zeros, a block at the far end, and one entry at the very end: three clusters."""
    lam = 800.0**2 / 2
    model = DPMeans(lam=lam, max_iter=2).fit(X)
    assert model.n_clusters_ == 3
    assert not model.labels_[:-far].any()
    assert set(model.labels_[-far:-1]) == {1}
    assert model.labels_[-1] == 2
    assert not model.cluster_centers_[0].any()
    assert np.all(model.cluster_centers_[1] == 100)
    assert model.cluster_centers_[2, -1] == 900
    assert model.objective_ == 3 * lam
    labels = model.predict(X)
    assert labels[-far - 1 :].tolist() == [0] + [1] * (far - 1) + [2]
    # The last row is the farthest from the mean; a row of the block is 800 from that.
    assert farthest_first_lambda(X, 2) == 800.0**2


@each_order
def test_far_end_of_a_sparse_file(order, tmp_path):
    check_far_end(sparse_file(tmp_path / "data", (5000, 1024), order, 7), 7)


@pytest.mark.slow
@each_order
def test_far_end_beyond_31_bits(order, tmp_path):
    """Offsets of 2^31 elements and more."""
    shape = (2**21 + 5000, 1024)
    X = sparse_file(tmp_path / "data", shape, order, 7)
    assert X.size > 2**31
    check_far_end(X, 7)


@pytest.mark.slow
def test_many_rows_and_labels():
    """More centers times rows, and more rows times columns, than 31 bits count."""
    n = 2**24 + 100
    X = np.zeros((n, 1), dtype=np.float32)
    X[-200:, 0] = 1000 + 10 * np.arange(200)
    model = DPMeans(lam=20.0, max_iter=2).fit(X)
    assert model.n_clusters_ == 201
    assert model.labels_[-201:].tolist() == list(range(201))


def check_features_of_far_end(X, far):
    """The same data: a feature for the block, and one for what its last row has more."""
    start = np.zeros((len(X), 1), dtype=np.uint8)
    start[-far:] = 1
    for model in (BPMeans(lam=1e5, init=start), KFeatures(1, init=start)):
        model.fit(X)
        assert not model.assignments_[:-far].any()
        assert model.assignments_[-far:, 0].all()
        block = model.components_[0]
        if model.n_components_ == 2:
            assert model.assignments_[:, 1].sum() == model.assignments_[-1, 1] == 1
            np.testing.assert_allclose(block, 100)
            np.testing.assert_allclose(model.components_[1, -1], 800)
            np.testing.assert_allclose(model.objective_, 2e5, rtol=1e-9)
        else:
            np.testing.assert_allclose(block[:-1], 100)
            np.testing.assert_allclose(block[-1], 100 + 800 / far)
        assert np.array_equal(model.transform(X[-far:]), model.assignments_[-far:])


@each_order
def test_features_at_the_far_end_of_a_sparse_file(order, tmp_path):
    check_features_of_far_end(sparse_file(tmp_path / "data", (5000, 1024), order, 7), 7)


@pytest.mark.slow
@each_order
def test_features_beyond_31_bits(order, tmp_path):
    X = sparse_file(tmp_path / "data", (2**21 + 5000, 1024), order, 7)
    assert X.size > 2**31
    check_features_of_far_end(X, 7)


# Runs in a fresh process: fits, and reports how much its private memory grew at the most.
MEMORY = textwrap.dedent(
    """
    import sys, threading, time, tracemalloc, warnings
    import numpy as np
    from smallvar import BPMeans, DPMeans, KFeatures, MiniBatchDPMeans

    warnings.simplefilter("ignore")
    path, n, d, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    X = np.memmap(path, dtype=np.float32, mode="r", shape=(n, d))

    def fit(X):
        if kind == "minibatch":
            return MiniBatchDPMeans(lam=0.6, max_clusters=20, max_iter=1, random_state=0).fit(X)
        if kind == "features":
            return KFeatures(8, n_init=2, max_iter=2, random_state=0).fit(X)
        if kind == "free features":
            return BPMeans(lam=1e5, max_features=8, n_init=2, max_iter=2, random_state=0).fit(X)
        return DPMeans(lam=0.6, algorithm=kind, max_clusters=20, max_iter=2).fit(X)

    def private_bytes():
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) * 1024

    fit(X[:2000])
    start, peak, done = private_bytes(), 0, threading.Event()

    def watch():
        global peak
        while not done.is_set():
            peak = max(peak, private_bytes() - start)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = fit(X)
    done.set()
    watcher.join()
    tracemalloc.start()
    fit(X)
    traced = tracemalloc.get_traced_memory()[1]
    if "features" in kind:
        assert model.n_components_ == 8
    else:
        assert len(set(model.labels_.tolist())) == model.n_clusters_ == 20
    print(max(peak, traced))
    """
)


def write_data(path, n, d):
    """A float32 file, written block by block."""
    rng = np.random.default_rng(0)
    centers = rng.random((20, d), dtype=np.float32)
    data = np.memmap(path, dtype=np.float32, mode="w+", shape=(n, d))
    for start in range(0, n, 100_000):
        part = data[start : start + 100_000]
        part[:] = centers[rng.integers(20, size=len(part))]
        part += 0.1 * rng.random(part.shape, dtype=np.float32)
    data.flush()


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("n", "d", "kind"),
    [
        (600_000, 64, "serial"),
        (600_000, 64, "delayed"),
        (600_000, 64, "minibatch"),
        (600_000, 64, "features"),
        (600_000, 64, "free features"),
        pytest.param(4_000_000, 32, "serial", marks=pytest.mark.slow),
        pytest.param(4_000_000, 32, "collapsed", marks=pytest.mark.slow),
    ],
)
def test_memory(n, d, kind, tmp_path):
    """A mapped file is fitted in a quarter of its size, and 100 MB: no copy of any type."""
    path = tmp_path / "data"
    write_data(path, n, d)
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), str(n), str(d), kind],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    size = 4 * n * d
    allowed = size / 4 + 100e6
    assert allowed < size
    assert int(run.stdout) < allowed


def test_minibatch_reads_only_its_batch():
    """A batch far down in a big array gives what its own copy gives."""
    big = np.random.default_rng(0).random((200_000, 4), dtype=np.float32)
    view = big[-1000:]
    model_a = MiniBatchDPMeans(lam=0.2).partial_fit(view)
    model_b = MiniBatchDPMeans(lam=0.2).partial_fit(view.copy())
    assert model_a.cluster_centers_.tobytes() == model_b.cluster_centers_.tobytes()
