"""Callbacks that are called after every step of a fit, and what ``verbose`` prints."""

import importlib.util
import pickle
import re
import warnings

import numpy as np
import pytest
from models import MODELS, with_seed
from sklearn.datasets import make_blobs

import smallvar
from smallvar import DPMeans, cluster_path, progress_callback

X = make_blobs(60, centers=3, random_state=0)[0]
GRAPH = np.kron(np.eye(3), np.ones((4, 4))) + 0.01
TIMES = np.repeat(np.arange(4), 15)

FITS = {name: set(model.stages.split(", ")) for name, model in MODELS.items()}
each_fit = pytest.mark.parametrize("name", sorted(FITS))


# What verbose prints last, where it is not of a sweep.
CLUSTERS = r"{k} clusters, objective \S+"
SWEEP = rf"sweep \d+: {CLUSTERS}, \d+ points moved, \d+ clusters opened"
STEP = r"step 4: 15 points, \d+ clusters, \d+ of them new, \d+ revived, \d+ forgotten, .*"
FEATURES = r"start \d+, sweep \d+: \d+ features, objective \S+, 0 rows changed, 0 features created"
GLOBAL = r"sweep \d+: {k} global clusters, \d+ local ones, objective \S+"
SAID = {
    **{name: STEP for name in FITS if "Dynamic" in name},
    **{name: f"start 2: {CLUSTERS}" for name, stages in FITS.items() if "start" in stages},
    **dict.fromkeys(("BPMeans", "KFeatures"), FEATURES),
    **dict.fromkeys(("HDPMeans", "KernelHDPMeans"), GLOBAL),
    "TopicMeans": r"sweep \d+: {k} topics, \d+ local ones, objective \S+",
    "MiniBatchDPMeans": r"pass \d+: {k} clusters, cost \S+",
    "RobustDPMeans": r"sweep \d+: {k} clusters, \d+ noise, objective \S+, \d+ points moved, .*",
    "ShapeMeans": r"path: 60 rows, \d+ clusters and fewer, best \d+",
    "SegmentMeans": r"sweep \d+: \d+ states, \d+ switches, objective \S+, \d+ rows moved",
}


def refit(model):
    name = type(model).__name__
    if name.endswith("DynamicMeans"):
        return model.fit(X, times=TIMES)
    given = {"PenalizedCut": GRAPH, "TopicMeans": np.abs(X)}
    return model.fit(given.get(name, X))


def fit(name, **options):
    return refit(with_seed(name, **MODELS[name].few, **options))


@each_fit
def test_every_fit_tells_of_its_steps(name, capsys):
    events = []
    with progress_callback(events.append):
        model = fit(name)
    assert {event.stage for event in events} == FITS[name]
    assert all(event.number >= 1 and event.message for event in events)
    sweeps = [event for event in events if event.stage == "sweep"]
    assert all(event.n_clusters >= 0 and np.isfinite(event.objective) for event in sweeps)
    assert capsys.readouterr().out == ""
    before = len(events)
    quiet = fit(name)  # nobody listens any more, and nothing is another
    assert len(events) == before
    assert getattr(quiet, "objective_", None) == getattr(model, "objective_", None)
    fit(name, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [event.message for event in events]
    said = SAID.get(name, SWEEP).format(k=getattr(model, "n_clusters_", ""))
    assert re.fullmatch(said, lines[-1]), lines[-1]


def test_events_of_a_path_say_its_rows():
    events = []
    with progress_callback(events.append):
        path = cluster_path(X, random_state=0)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert events[-1].n_clusters == path.best
    assert events[-1].n_samples == path.n_samples == len(X)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("search", [DPMeans(random_state=0).fit, cluster_path])
@pytest.mark.parametrize("clear", [True, False])
def test_the_share_that_is_done(seed, search, clear):
    """It never falls, never comes to 1 before the end, and says more where a number is clear."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.normal(size=(600, 3)))  # no clusters
    if clear:
        rows = make_blobs(600, centers=5, n_features=3, cluster_std=0.5, random_state=seed)[0]
    events = []
    with progress_callback(events.append), warnings.catch_warnings():
        warnings.simplefilter("ignore", smallvar.UnclearNumberWarning)
        search(rows)
    descents = [event for event in events if event.stage in ("coarse path", "path")]
    first, *rest = [event.done for event in descents]
    assert first is None
    assert rest == sorted(rest) and 0.0 < rest[0] <= rest[-1] < 1.0
    assert (rest[0] > 0.5) == clear
    assert all(f"about {event.done:.0%} done" in event.message for event in descents[1:])
    assert all(event.done is None for event in events if event not in descents)


# BregmanDPMeans is DPMeans where its divergence is the squared distance, the default
@pytest.mark.parametrize("name", sorted(FITS.keys() - {"DPMeans", "BregmanDPMeans"}))
def test_the_share_is_not_told_where_it_is_not_known(name):
    events = []
    with progress_callback(events.append):
        fit(name)
    assert all(event.done is None for event in events)


def test_callbacks_within_callbacks():
    outer, inner = [], []
    with progress_callback(outer.append), progress_callback(inner.append):
        DPMeans(lam=2.0).fit(X)
    assert outer == inner != []
    with progress_callback(outer.append):
        DPMeans(lam=2.0).fit(X)
    assert len(outer) == 2 * len(inner)


@each_fit
def test_a_callback_that_raises_ends_the_fit(name):
    model = fit(name)
    before = pickle.dumps(model)

    def raises(event):
        raise LookupError(event.stage)

    with progress_callback(raises), pytest.raises(LookupError, match="|".join(FITS[name])):
        refit(model)
    assert pickle.dumps(model) == before


def test_what_is_no_callback():
    with pytest.raises(TypeError, match="callback must be callable, got str"):
        progress_callback("x").__enter__()


class Recorder:
    """A callback of scikit-learn that notes which hooks are called."""

    def __init__(self):
        self.calls = []

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name))

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.calls.append(("end", context.task_name))
        self.objective = metadata and metadata["objective"]

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name))


@pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None,
    reason="callbacks came with scikit-learn 1.9",
)
class TestCallbacksOfScikitLearn:
    @each_fit
    def test_hooks(self, name):
        recorder = Recorder()
        model = fit(name)
        params = model.get_params()
        model.set_callbacks(recorder)
        refit(model)
        assert recorder.calls[:2] == [("setup", "fit"), ("begin", "fit")]
        assert recorder.calls[-2:] == [("end", "fit"), ("teardown", "fit")]
        assert {stage for _, stage in recorder.calls[2:-2]} == FITS[name]
        assert model.get_params() == params

    def test_teardown_after_an_error(self):
        recorder = Recorder()
        model = DPMeans(lam=-1.0).set_callbacks(recorder)
        with pytest.raises(ValueError, match="lam"):
            model.fit(X)
        assert recorder.calls[-1] == ("teardown", "fit")
        model.set_params(lam=2.0).fit(X)
        assert recorder.calls.count(("setup", "fit")) == 2

    def test_progress_bar_and_grid_search(self):
        pytest.importorskip("rich")
        from sklearn.callback import ProgressBar
        from sklearn.model_selection import GridSearchCV

        DPMeans(lam=2.0).set_callbacks(ProgressBar()).fit(X)
        search = GridSearchCV(DPMeans(), {"lam": [1.0, 2.0]}, cv=2)
        assert search.set_callbacks(ProgressBar()).fit(X).best_params_["lam"] in (1.0, 2.0)

    def test_a_fit_within_another_is_one_task(self):
        recorder = Recorder()
        smallvar.MiniBatchDPMeans(lam=2.0).set_callbacks(recorder).fit(X)
        assert recorder.calls.count(("begin", "fit")) == 1
