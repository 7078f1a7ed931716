"""Everything compiled: one pass over the data each, on buffers of the caller.

Words
-----
sweep       one pass over all points (rows of Z, nodes), each visited once in the order of visit;
            a class named so (DPSweep, CutSweep) makes such passes and owns their buffers
            (FeatureSweep: starts of many sweeps each, whole)
round       a stretch of a sweep for which proposals are made in parallel and then taken up in order
lot         centers that an ordered pass opens before later points are compared with them
chunk       points that one thread handles at a time; results do not depend on it
tile        points side by side in the lanes of vectors; batch: tiles that are scored together
run         of tiles: those that one thread handles at a time in the feature sweeps
block       in _tile.h, centers that are scored in registers together; panel: how they are stored
room        clusters, or features, that there is memory for
score       ||x - c||^2 - ||x||^2, approximately, with a bound on its error
deciding    float64 differences, squared and summed in index order: whatever a result depends on
own         of a point: the center, or cluster, that it is labeled with
lazy        a sweep that passes points by their bounds; dense: one that computes all distances
moved       of a point: its label is new in this sweep; drift: how far a center moved
close       a point whose scores are nearer to each other than their errors; decided exactly
far         a point beyond lam of every center: it may open a cluster;
            the farthest: the one with the largest weighted distance beyond lam
restless    the few centers that move far; the others are calm
opened      of a center: new in this sweep; creator: the point it was opened at
place       of a thing: its index in a table; to place a center, or a feature: to bring the tables
            that are computed from it up to date
origin      where sums and scores are taken from (``shift`` in scores)
mass        sum of the weights of a cluster; count: number of its members
part        a sum, or rows to be added up, of which threads make several at a time
bins        in which sums are exact, so that they depend on no order (_sums.h)

Letters of the nearest-center sweeps (state.pxd)
------------------------------------------------
x, w        a point and its weight
c, z        centers; the label of a point
n, d, k     numbers of points, columns, centers
i, j, k, m  indices of points, columns, centers, and of anything else
s           the State that a function works on

Bounds and tables are float32 distances, not squared, times ``scale``:

u           of a point: upper bound of the distance to its own center
l           of a point: lower bound of the distance to every other center that is calm
g           of a point: the same for the restless; BIG while there are none
p           of a center: how far it moved since the last sweep
r, rg       of a center: how far any other calm center moved; any other restless one
h           of a center: half the distance to the nearest other center
hd          of a center: half the distance to the nearest one opened in this sweep
fresh       of a center: the distance to the nearest one opened in the last sweep
near        of a center: the distance to the nearest one of the lot just opened

A point keeps its label without any distance while u < max(h, min(l, g)). When centers have moved,
u becomes u + p of its center, l becomes l - r, g becomes g - rg.

Prefixes of C functions
-----------------------
csr_          sparse rows (_sparse.h)
sv_, tile_    nearest centers (simd.h, _tile.h); SV_ also what all headers share (_sets.h)
sf_           features (_features.h)
sc_           costs that decide (_exact.h)
sums_, accumulator_  sums that depend on no order (_sums.h)
V_, VI_       vectors (_vector.h)

A trailing f or d is the type of the data, float32 or float64; a second one that of the scores.

Papers
------
KJ12: Kulis & Jordan (2012), Revisiting k-means. MB13: Broderick, Kulis & Jordan (2013), MAD-Bayes.
CKH: Campbell, Kulis & How (2017), Dynamic clustering algorithms.
"""
