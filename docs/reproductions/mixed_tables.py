"""Real tables with columns of several kinds and gaps: MixedDPMeans and what others use.

For each table whose groups are known, and each method: the number of clusters found, the adjusted
Rand index (ARI) with the groups, and CPU seconds of one thread. Groups that people have named need
not be those that a table falls into: of car and balance_scale the rows are all combinations of
their levels, where there is no cluster to be found.

KPrototypes (kmodes; KModes and KMeans where all columns are of one kind) cannot have gaps, so that
they are filled by mean or mode, and its numbers are standardized. StepMix is a latent class model
by maximum likelihood, gaps allowed; "BIC" takes the number of classes with the lowest BIC, from 1
to 5 more than there are groups, 20 at most. Both start three times. All are given the kinds of
columns that MixedDPMeans finds, but StepMix takes ordered columns as categories. HDBSCAN, by its
defaults, clusters Gower distances, which takes memory for the square of the number of rows.

    SMALLVAR_DATA=folder python docs/reproductions/mixed_tables.py

takes four minutes of one core, most of them StepMix's; --quick only the penguins without StepMix by
BIC. It needs kmodes, stepmix, palmerpenguins and statsmodels. With a folder in SMALLVAR_DATA that
has uci/NAME.csv (the last column is "class") the sets of the UCI repository are there too.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))

from mixed_tables import METHODS, kinds_of, sets

WIDTH = 26


def compare(quick):
    """Print a block for each set, and in the end means over all sets."""
    total = {}
    for name, table, groups in sets():
        if quick and name != "penguins":
            continue
        k, kinds = groups.nunique(), kinds_of(table)
        codes = sum(kind in ("bernoulli", "categorical") for kind in kinds.values())
        gaps = table[list(kinds)].isna().to_numpy().mean()
        print(
            f"{name}: {len(table)} rows, {len(kinds)} columns, {codes} of them words or flags, "
            f"{gaps:.1%} missing; {k} groups"
        )
        for method, fit in METHODS.items():
            if quick and "BIC" in method:
                continue
            begin = time.process_time()
            try:
                labels = np.asarray(fit(table, kinds, k))
            except ImportError as error:
                print(f"    {method:<{WIDTH}} not there: it needs {error.name}")
                continue
            seconds = time.process_time() - begin
            found = len(np.unique(labels[labels >= 0]))
            index = adjusted_rand_score(groups, labels)
            print(
                f"    {method:<{WIDTH}} K {found:3d}  ARI {index:6.3f}  {seconds:8.2f} s",
                flush=True,
            )
            total.setdefault(method, []).append((found == k, index, seconds))
    print(f"\nmeans of {len(next(iter(total.values())))} sets")
    for method, rows in total.items():
        right, index, seconds = np.mean(rows, axis=0)
        print(f"    {method:<{WIDTH}} K right {right:4.2f}  ARI {index:6.3f}  {seconds:8.2f} s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the penguins only")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        compare(args.quick)


if __name__ == "__main__":
    main()
