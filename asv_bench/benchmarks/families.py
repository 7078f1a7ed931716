"""The twelve fits of tools/regressions.py, one a family: results/ keeps a baseline of these."""

import importlib.util
import warnings
from pathlib import Path

_path = Path(__file__).resolve().parents[2] / "tools" / "regressions.py"
_spec = importlib.util.spec_from_file_location("regressions", _path)
regressions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(regressions)


class Families:
    """Time and peak memory of each fit, number of clusters and objective."""

    param_names = ["fit"]
    params = [list(regressions.NAMES)]

    def setup(self, name):
        """Make the data, and fit once: what is made at a first call is not measured."""
        warnings.simplefilter("ignore")
        self.fit = regressions.cases()[name]()
        self.fit()

    def time_fit(self, name):
        """Seconds."""
        self.fit()

    def peakmem_fit(self, name):
        """Peak memory of the process, data included."""
        self.fit()

    def track_n_clusters(self, name):
        """Number of clusters or features; 0 where the model has none."""
        return regressions.quality(self.fit())[0] or 0

    def track_objective(self, name):
        """The objective that the fit has reached; 0 where the model has none."""
        return regressions.quality(self.fit())[1] or 0.0

    track_n_clusters.unit = "clusters"
    track_objective.unit = "objective"
