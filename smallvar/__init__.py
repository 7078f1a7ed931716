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
from smallvar._bregman import BregmanDPMeans
from smallvar._config import show_config
from smallvar._dpmeans import DPMeans
from smallvar._dynamic import DynamicMeans
from smallvar._dynamic_kernel import KernelDynamicMeans, SpectralDynamicMeans
from smallvar._exchange import match_clusters
from smallvar._graph import PenalizedCut, cut_path
from smallvar._hdp import HDPMeans
from smallvar._kernel import KernelDPMeans
from smallvar._kernel_hdp import KernelHDPMeans
from smallvar._mahalanobis import MahalanobisMeans
from smallvar._minibatch import MiniBatchDPMeans
from smallvar._path import lambda_path
from smallvar._penalty import farthest_first_lambda, hdp_lambdas
from smallvar._spectral import SpectralDPMeans

__all__ = [
    "BPMeans",
    "BregmanDPMeans",
    "DPMeans",
    "DynamicMeans",
    "HDPMeans",
    "KFeatures",
    "KernelDPMeans",
    "KernelDynamicMeans",
    "KernelHDPMeans",
    "MahalanobisMeans",
    "MiniBatchDPMeans",
    "PenalizedCut",
    "SpectralDPMeans",
    "SpectralDynamicMeans",
    "__version__",
    "cut_path",
    "farthest_first_lambda",
    "feature_path",
    "hdp_lambdas",
    "lambda_path",
    "match_clusters",
    "show_config",
]
