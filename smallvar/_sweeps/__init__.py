"""Everything compiled: one pass over the data each, on buffers of the caller.

Words
-----
sweep       one pass over all points (rows of Z, nodes), each visited once in the order of visit
round       a stretch of a sweep for which proposals are made in parallel and then taken up in order
chunk       points that one thread handles at a time; results do not depend on it
tile        points side by side in the lanes of vectors; batch: tiles that are scored together
lazy        a sweep that passes points by their bounds; dense: one that computes all distances
score       ||x - c||^2 - ||x||^2, approximately, with a bound on its error
deciding    float64 differences, squared and summed in index order: whatever a result depends on
close       a point whose scores are nearer to each other than their errors; decided exactly
far         a point beyond lam of every center: it may open a cluster
restless    the few centers that move far; the others are calm
opened      of a center: new in this sweep; creator: the point it was opened at
place       of a center, its entry in the tables that scores are computed from
origin      where sums and scores are taken from (``shift`` in scores)

Letters of the nearest-center sweeps (state.pxd)
------------------------------------------------
x, w        a point and its weight
c, z        centers; the label of a point
n, d, k     numbers of points, columns, centers
i, j, k, m  indices of points, columns, centers, and of anything else

Bounds and tables are float32 distances, not squared, times ``scale``:

u           of a point: upper bound of the distance to its own center
l           of a point: lower bound of the distance to every other center that is calm
g           of a point: the same for the restless; BIG while there are none
p           of a center: how far it moved since the last sweep
r, rg       of a center: how far any other calm center moved; any other restless one
h           of a center: half the distance to the nearest other center
hd          of a center: half the distance to the nearest one opened in this sweep
fresh       of a center: the distance to the nearest one opened in the last sweep
near        of a center: the distance to the nearest one opened in this round

A point keeps its label without any distance while u < max(h, min(l, g)). When centers have moved,
u becomes u + p of its center, l becomes l - r, g becomes g - rg.

Letters of the feature sweeps (features/state.pxd)
--------------------------------------------------
Z, A        rows of bits, and features: X is about Z A;  P = (Z'WZ)^-1, G = A A'
p, s, w     the problem, a start, a thread's scratch memory
dead        a feature removed in this sweep, whose number is given back at its end

Prefixes of C functions
-----------------------
sv_, tile_    nearest centers (simd.h, _tile.h); SV_ also what all headers share (_sets.h)
sf_           features (_features.h)
sc_           costs that decide (_exact.h)
sums_, wide_  sums that depend on no order (_sums.h)

A trailing f or d is the type of the data, float32 or float64; a second one that of the scores.
"""
