"""Clustering that finds the number of clusters, at k-means speed."""

from smallvar._version import __version__

try:
    from smallvar._sweeps import dpmeans as _dpmeans_sweeps  # noqa: F401
except ImportError as error:
    raise ImportError(
        "smallvar's compiled sweeps are missing or cannot be loaded "
        f"({error}); in a source tree, build them with `pip install -e .`."
    ) from None

from smallvar._bpmeans import BPMeans, KFeatures, feature_path
from smallvar._config import show_config
from smallvar._dpmeans import DPMeans, MiniBatchDPMeans
from smallvar._dynamic import DynamicMeans
from smallvar._hdp import HDPMeans
from smallvar._penalty import farthest_first_lambda, hdp_lambdas

__all__ = [
    "BPMeans",
    "DPMeans",
    "DynamicMeans",
    "HDPMeans",
    "KFeatures",
    "MiniBatchDPMeans",
    "__version__",
    "farthest_first_lambda",
    "feature_path",
    "hdp_lambdas",
    "show_config",
]
