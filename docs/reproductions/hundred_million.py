"""A hundred million rows on two worker processes of this machine, from parts made on the fly.

    python docs/reproductions/hundred_million.py [--quick]

fits DPMeans() by smallvar.dask to 10^8 x 4 float32 numbers, 20 Gaussian clusters in 100 parts that
the workers make when they need them, and prints seconds by the clock, the most memory of a worker,
the number of clusters and how well labels agree with the clusters the rows are from. Then the first
tenth of the parts is fitted at that penalty, from the centers of a small sample, by both that and,
in this process, by smallvar.DPMeans as one array: labels and centers have to be equal. (Without a
penalty the two draw other samples.) --quick takes a thousandth of the rows.
"""

import argparse
import resource
import time
import warnings

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.metrics import normalized_mutual_info_score

import smallvar
from smallvar.dask import fit

COLUMNS, CLUSTERS, PARTS, WORKERS = 4, 20, 100, 2
CENTERS = np.random.default_rng(0).uniform(-8, 8, (CLUSTERS, COLUMNS))


def drawn(part, n):
    """The generator of a part, and the clusters of its rows."""
    rng = np.random.default_rng(part + 1)
    return rng, rng.integers(CLUSTERS, size=n, dtype=np.int32)


def made(n, block_info=None):
    """The rows of a part."""
    part = block_info[None]["chunk-location"][0]
    rng, truth = drawn(part, n)
    rows = CENTERS.astype(np.float32)[truth]
    rows += rng.standard_normal(rows.shape, dtype=np.float32)
    return rows


def array_of(parts, n):
    """A Dask array of so many parts of n rows."""
    return da.map_blocks(
        made, n, chunks=((n,) * parts, (COLUMNS,)), dtype=np.float32, meta=np.empty((0, 0), "f4")
    )


def most_memory():
    """The most bytes of memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a thousandth of the rows")
    n = 1_000 if parser.parse_args().quick else 1_000_000
    warnings.simplefilter("ignore", smallvar.UnclearNumberWarning)
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        before = client.run(most_memory)
        X = array_of(PARTS, n)
        begin = time.perf_counter()
        model = fit(smallvar.DPMeans(random_state=0), X)
        seconds = time.perf_counter() - begin
        print(f"{len(X):,} x {COLUMNS} float32, {X.nbytes / 1e9:.2g} GB, {WORKERS} workers:")
        print(f"fit {seconds:.1f} s, {model.n_iter_} sweeps, K {model.n_clusters_}")
        memory = [most - before[worker] for worker, most in client.run(most_memory).items()]
        print(f"most memory of a worker, beyond that at first: {max(memory) / 1e9:.2f} GB")
        tenth = PARTS // 10
        known = np.concatenate([drawn(part, n)[1] for part in range(tenth)])
        labels = model.labels_[: n * tenth].compute()
        print(f"NMI of a tenth {normalized_mutual_info_score(known, labels):.4f}")
        rows = array_of(tenth, n).compute()
        start = smallvar.DPMeans(random_state=0).fit(rows[:2000]).cluster_centers_
        given = {"lam": 0.1 * model.lam_, "init": start}
        few = fit(smallvar.DPMeans(**given), array_of(tenth, n))
        one = smallvar.DPMeans(**given).fit(rows)
        labels = few.labels_.compute()
        print(f"{len(labels):,} rows, beside one array: K {one.n_clusters_}, {one.n_iter_} sweeps")
        print(f"labels that are equal: {np.mean(labels == one.labels_):.4%}")
        print(f"centers equal: {np.array_equal(few.cluster_centers_, one.cluster_centers_)}")


if __name__ == "__main__":
    main()
