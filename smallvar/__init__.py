"""Clustering that finds the number of clusters, at k-means speed."""

from importlib import import_module

from smallvar._version import __version__ as __version__

try:
    from smallvar._sweeps import parallel as _parallel  # noqa: F401
except ImportError as error:
    import importlib.machinery
    import sys
    from pathlib import Path

    advice = "in a source tree, build them with `pip install -e .`."
    here = Path(__file__).resolve().parent
    for entry in sys.path:  # does this folder hide one that is built?
        other = Path(entry or ".", "smallvar").resolve()
        files = (f"parallel{end}" for end in importlib.machinery.EXTENSION_SUFFIXES)
        if other != here and any(Path(other, "_sweeps", file).exists() for file in files):
            advice = (
                f"{here} is source that is not built, found before the installed {other}: start "
                "Python in another directory or with -P, or build it with `pip install -e .`."
            )
            break
    raise ImportError(
        f"smallvar's compiled sweeps are missing or cannot be loaded ({error}); {advice}"
    ) from None

# Where public names are. A module is imported when one of its names is first used, so that programs
# and the command line do not wait for what they do not need. `__init__.pyi` is for type checkers.
_MODULES = {
    "_centers.bregman": ("BregmanDPMeans",),
    "_centers.coreset": ("coreset",),
    "_centers.dpmeans": ("DPMeans",),
    "_centers.hdp": ("HDPMeans",),
    "_centers.hdp_bound": ("hdp_bound",),
    "_centers.mahalanobis": ("MahalanobisMeans",),
    "_centers.minibatch": ("MiniBatchDPMeans",),
    "_centers.robust": ("RobustDPMeans",),
    "_centers.shapes": ("ShapeMeans",),
    "_centers.spherical": ("SphericalDPMeans",),
    "_centers.topics": ("TopicMeans",),
    "_core.config": ("get_include", "show_config"),
    "_core.identifiers": ("IdentifierWarning",),
    "_core.progress": ("progress_callback",),
    "_features.bpmeans": ("BPMeans", "KFeatures", "feature_path"),
    "_features.feature_path": ("FeaturePath",),
    "_graph.cut_path": ("CutPath",),
    "_graph.penalized_cut": ("PenalizedCut", "cut_path"),
    "_kernel.kernel_dpmeans": ("KernelDPMeans",),
    "_kernel.kernel_hdp": ("KernelHDPMeans",),
    "_kernel.spectral": ("SpectralDPMeans",),
    "_mixed.mixed_dpmeans": ("MixedDPMeans",),
    "_mixed.mixed_path": ("MixedPath",),
    "_plot.clusters": ("ClusterDisplay",),
    "_plot.features": ("FeatureDisplay",),
    "_plot.paths": ("PathDisplay",),
    "_plot.profiles": ("ProfileDisplay",),
    "_plot.tracks": ("TrackDisplay",),
    "_selection.boundary_table": ("BoundaryTable", "boundary_evidence"),
    "_selection.cluster_path": ("ClusterPath",),
    "_selection.confidence": ("UnclearNumberWarning",),
    "_selection.path": ("cluster_path",),
    "_selection.penalty": ("farthest_first_lambda", "hdp_lambdas"),
    "_selection.representatives": ("Representatives",),
    "_selection.scale": ("ScaleWarning",),
    "_time.dynamic": ("DynamicMeans",),
    "_time.dynamic_kernel": ("KernelDynamicMeans", "SpectralDynamicMeans"),
    "_time.exchange": ("match_clusters",),
    "_time.renumber": ("Renumbering", "renumber"),
    "_time.segments": ("SegmentMeans",),
    "_time.tune": ("DynamicTuning", "tune_dynamic"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name):
    """Import a public name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # later uses find it at once
    return value


def __dir__():
    """Public names, those that are not imported yet among them."""
    return sorted({*globals(), *__all__})
