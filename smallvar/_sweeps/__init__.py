"""Everything compiled: sweeps over the data on buffers of the caller, and what they share.

A sweep visits every point (a row of the data, a row of Z, a node) once, and is one pass of an
algorithm. A class named so (DPSweep, CutSweep) makes such passes and owns their memory;
FeatureSweep runs starts of many sweeps each.

===================================  ==============================================================
parallel                             OpenMP loops over chunks, and how many threads they get
rows, ranges, sums                   any rows; ranges of columns; sums that depend on no order
state                                points, centers, and bounds on the distances between them
memory                               blocks of memory, without Python objects
kernels, simd.h, _tile.h             inner loops: bounds, distances of tiles of points
dense, sparse                        distances of dense and of sparse rows, approximate and exact
nearest                              the nearest center of each point, by bounds on distances
nearest_sweep                        the sweep of an estimator over nearest centers
exact                                all distances to all centers, and the farthest-first rule
pairs                                mergers of the cheapest pair of clusters, by any cost of a pair
divergences, affine                  Bregman divergences, and the sweep over nearest centers by them
means                                sums and means of clusters, and how centers move to them
dpmeans, noise, merge                sweeps of DP-means and its variants; mergers of clusters
merge_clusters                       what mergers need to know of the clusters
residual_density                     how residuals are distributed
boundary                             two densities fitted to a histogram
gaussians                            sweeps over clusters with covariances, moments
mixed_rows, mixed                    rows of several kinds of columns: mergers, nearest centers
draws                                systematic draws of rows
in_order, dynamic, hdp, segments     sweeps in which a point sees what points before have changed
direct                               tables in C memory, for cython_api
exchange                             the same for points that are known by a kernel alone
features                             sweeps over the rows of Z: several features a point
graph, stopping                      sweeps over the nodes of a graph; when sweeps end
===================================  ==============================================================

In all of them ``n``, ``d`` and ``k`` are the numbers of points, columns and centers, ``x`` is a
point, ``c`` a center or a chunk, ``z`` a label, and ``i``, ``j``, ``k``, ``m`` are indices of
points, columns, centers and of anything else. A *weighted* sum is one over the weights of the
points. *Exact* is float64 arithmetic in the order of the columns, on which all decisions are
based; *approximate* distances come with a bound on their error. A trailing f or d of a C function
is the type of its data, float32 or float64; a second one that of approximate distances. Their
prefixes: ``sv_``, ``tile_`` nearest centers, ``sm_`` mixed columns, ``csr_`` sparse rows, ``sf_``
features, ``sc_`` exact costs, ``sums_``, ``accumulator_`` exact sums, ``V_``, ``VI_`` vectors.

KJ12 is Kulis & Jordan (2012), Revisiting k-means. MB13: Broderick, Kulis & Jordan (2013),
MAD-Bayes. CKH: Campbell, Kulis & How (2017), Dynamic clustering algorithms.
"""
