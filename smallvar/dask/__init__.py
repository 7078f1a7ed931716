"""The estimators on dask collections: more rows than one machine holds, the same results.

    from smallvar.dask import DPMeans

They run on the dask client of the process, or on threads of this process where there is none.
"""

from smallvar.dask._estimators import DPMeans, SphericalDPMeans
from smallvar.dask._hdp import HDPMeans
from smallvar.dask._minibatch import MiniBatchDPMeans
from smallvar.dask._shapes import ShapeMeans

__all__ = ["DPMeans", "HDPMeans", "MiniBatchDPMeans", "ShapeMeans", "SphericalDPMeans"]
