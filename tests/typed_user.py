"""A user's file for type checkers, which is not run: mypy and pyright find no error in it.

Lines with a comment for both are wrong on purpose: a checker complains if it finds nothing there.
"""

import numpy as np
from numpy.typing import NDArray

import smallvar
from smallvar import BPMeans, DPMeans, DynamicMeans, MixedDPMeans, PenalizedCut, cython_api

X = np.random.default_rng(0).normal(size=(100, 3))
model: DPMeans = DPMeans(lam=4.0, random_state=0).fit(X)
labels: NDArray[np.int32] = model.labels_
k: int = model.n_clusters_
nearest: NDArray[np.int32] = model.predict(X)
distances: NDArray[np.floating] = model.transform(X)
error: float = model.inertia_
path: smallvar.ClusterPath = model.path_
best: int = smallvar.cluster_path(X).best
table: smallvar.BoundaryTable = smallvar.boundary_evidence(X, labels)
changes: smallvar.Renumbering = smallvar.renumber(model, X)
stands_for: smallvar.Representatives = model.representatives_
model.profiles_.head()
MixedDPMeans().fit(X).profiles_["apart"]
model.profile_clusters(max_columns=3)["apart"]
path.weigh()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
DPMeans(lam="atuo")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
model.fit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

tracked: DynamicMeans = DynamicMeans(lam=4.0).partial_fit(X, elapsed=2)
ids: NDArray[np.int64] = tracked.cluster_ids_
features: BPMeans = BPMeans(lam=4.0).fit(X)
mixed: MixedDPMeans = MixedDPMeans().fit(X)
groups: PenalizedCut = PenalizedCut().fit(np.eye(3))

outcome: cython_api.Outcome = cython_api.Outcome.OK
folder: str = smallvar.get_include()
