"""The contract of scikit-learn, on every estimator of the package."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import smallvar

ESTIMATORS = [
    value
    for value in (getattr(smallvar, name) for name in smallvar.__all__)
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
]

X = np.random.default_rng(0).random((60, 3))


def expected_failed_checks(estimator):
    """A weight is a mass, not a repeat: it may open a cluster that its copies would not."""
    reason = "a weight is a mass: the objective equals that of repeated rows, the path does not"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(
    [estimator() for estimator in ESTIMATORS], expected_failed_checks=expected_failed_checks
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_all_estimators_are_found():
    assert {"DPMeans", "MiniBatchDPMeans"} <= {estimator.__name__ for estimator in ESTIMATORS}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
class TestEstimator:
    """What scikit-learn's checks leave open."""

    def test_arguments_are_keywords_after_the_first(self, estimator):
        parameters = list(inspect.signature(estimator).parameters.values())
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[1:])
        assert all(p.default is not p.empty for p in parameters)

    def test_clone_of_a_fitted_estimator_is_unfitted(self, estimator):
        model = estimator(0.2, random_state=0).fit(X)
        copy = clone(model)
        assert vars(copy) == vars(estimator(0.2, random_state=0))
        assert np.array_equal(copy.fit(X).labels_, model.labels_)

    def test_fit_leaves_the_arguments_alone(self, estimator):
        init = X[:3].copy()
        model = estimator(0.2, init=init, random_state=0)
        before = model.get_params()
        model.fit(X)
        assert all(model.get_params()[name] is value for name, value in before.items())
        assert np.array_equal(init, X[:3])

    def test_pickle(self, estimator):
        model = estimator(0.2, random_state=0).fit(X)
        copy = pickle.loads(pickle.dumps(model))
        assert vars(copy).keys() == vars(model).keys()
        assert np.array_equal(copy.predict(X), model.predict(X))
        assert copy.objective_ == model.objective_
        unfitted = pickle.loads(pickle.dumps(estimator(0.2)))
        assert unfitted.get_params() == estimator(0.2).get_params()

    def test_in_a_pipeline(self, estimator):
        pipe = make_pipeline(StandardScaler(), estimator(2.0, random_state=0)).fit(X)
        scaled = StandardScaler().fit_transform(X)
        assert np.array_equal(pipe.predict(X), estimator(2.0, random_state=0).fit(scaled).labels_)

    def test_feature_names_out(self, estimator):
        """Only checked where it is offered: one name per cluster."""
        model = estimator(0.2, random_state=0).fit(X)
        if not hasattr(model, "get_feature_names_out"):
            pytest.skip("this estimator offers no output names")
        names = model.get_feature_names_out()
        prefix = estimator.__name__.lower()
        assert names.tolist() == [f"{prefix}{k}" for k in range(model.n_clusters_)]

    def test_docstring(self, estimator):
        """Every parameter and every learned attribute is documented."""
        model = estimator(0.2, random_state=0).fit(X)
        doc = inspect.getdoc(estimator)
        learned = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
        for name in [*model.get_params(), *learned]:
            assert f"{name} :" in doc, name
        for section in ("Parameters", "Attributes", "References", "Examples"):
            assert f"{section}\n---" in doc
