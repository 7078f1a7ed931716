"""Clustering that finds the number of clusters, at k-means speed."""

from smallvar._version import __version__

try:
    from smallvar._sweeps import dpmeans as _dpmeans_sweeps  # noqa: F401
except ImportError as error:
    import importlib.machinery
    import sys
    from pathlib import Path

    advice = "in a source tree, build them with `pip install -e .`."
    here = Path(__file__).resolve().parent
    for entry in sys.path:  # does this folder hide one that is built?
        other = Path(entry or ".", "smallvar").resolve()
        files = (f"dpmeans{end}" for end in importlib.machinery.EXTENSION_SUFFIXES)
        if other != here and any(Path(other, "_sweeps", file).exists() for file in files):
            advice = (
                f"{here} is source that is not built, found before the installed {other}: start "
                "Python in another directory or with -P, or build it with `pip install -e .`."
            )
            break
    raise ImportError(
        f"smallvar's compiled sweeps are missing or cannot be loaded ({error}); {advice}"
    ) from None

from smallvar._centers.bregman import BregmanDPMeans
from smallvar._centers.coreset import coreset
from smallvar._centers.dpmeans import DPMeans
from smallvar._centers.hdp import HDPMeans
from smallvar._centers.hdp_bound import hdp_bound
from smallvar._centers.mahalanobis import MahalanobisMeans
from smallvar._centers.minibatch import MiniBatchDPMeans
from smallvar._centers.robust import RobustDPMeans
from smallvar._centers.shapes import ShapeMeans
from smallvar._centers.spherical import SphericalDPMeans
from smallvar._centers.topics import TopicMeans
from smallvar._core.config import get_include, show_config
from smallvar._core.identifiers import IdentifierWarning
from smallvar._core.progress import progress_callback
from smallvar._features.bpmeans import BPMeans, KFeatures, feature_path
from smallvar._features.feature_path import FeaturePath
from smallvar._graph.cut_path import CutPath
from smallvar._graph.penalized_cut import PenalizedCut, cut_path
from smallvar._kernel.kernel_dpmeans import KernelDPMeans
from smallvar._kernel.kernel_hdp import KernelHDPMeans
from smallvar._kernel.spectral import SpectralDPMeans
from smallvar._mixed.mixed_dpmeans import MixedDPMeans
from smallvar._mixed.mixed_path import MixedPath
from smallvar._plot.clusters import ClusterDisplay
from smallvar._plot.features import FeatureDisplay
from smallvar._plot.paths import PathDisplay
from smallvar._plot.profiles import ProfileDisplay
from smallvar._plot.tracks import TrackDisplay
from smallvar._selection.boundary_table import BoundaryTable, boundary_evidence
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.confidence import UnclearNumberWarning
from smallvar._selection.path import cluster_path
from smallvar._selection.penalty import farthest_first_lambda, hdp_lambdas
from smallvar._selection.representatives import Representatives
from smallvar._selection.scale import ScaleWarning
from smallvar._time.dynamic import DynamicMeans
from smallvar._time.dynamic_kernel import KernelDynamicMeans, SpectralDynamicMeans
from smallvar._time.exchange import match_clusters
from smallvar._time.renumber import Renumbering, renumber
from smallvar._time.segments import SegmentMeans
from smallvar._time.tune import DynamicTuning, tune_dynamic

__all__ = [
    "BPMeans",
    "BoundaryTable",
    "BregmanDPMeans",
    "ClusterDisplay",
    "ClusterPath",
    "CutPath",
    "DPMeans",
    "DynamicMeans",
    "DynamicTuning",
    "FeatureDisplay",
    "FeaturePath",
    "HDPMeans",
    "IdentifierWarning",
    "KFeatures",
    "KernelDPMeans",
    "KernelDynamicMeans",
    "KernelHDPMeans",
    "MahalanobisMeans",
    "MiniBatchDPMeans",
    "MixedDPMeans",
    "MixedPath",
    "PathDisplay",
    "PenalizedCut",
    "ProfileDisplay",
    "Renumbering",
    "Representatives",
    "RobustDPMeans",
    "ScaleWarning",
    "SegmentMeans",
    "ShapeMeans",
    "SpectralDPMeans",
    "SpectralDynamicMeans",
    "SphericalDPMeans",
    "TopicMeans",
    "TrackDisplay",
    "UnclearNumberWarning",
    "__version__",
    "boundary_evidence",
    "cluster_path",
    "coreset",
    "cut_path",
    "farthest_first_lambda",
    "feature_path",
    "get_include",
    "hdp_bound",
    "hdp_lambdas",
    "match_clusters",
    "progress_callback",
    "renumber",
    "show_config",
    "tune_dynamic",
]
