"""Fits of more rows than one machine holds: estimators of smallvar on dask collections.

    model = smallvar.dask.fit(smallvar.DPMeans(), X)

They run on the dask client of the process, or on threads of this process where there is none.
"""

from smallvar.dask._fit import fit, partial_fit
from smallvar.dask._predict import (
    outlier_scores,
    predict,
    predict_proba,
    score,
    score_samples,
    transform,
)

__all__ = [
    "fit",
    "outlier_scores",
    "partial_fit",
    "predict",
    "predict_proba",
    "score",
    "score_samples",
    "transform",
]
