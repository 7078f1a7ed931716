/* Tolerances that several compiled modules share: by how much numbers may be off, and why. A tolerance of one module
 * stands in that module. Macros, so that compilers see constants. "Scaled": of data brought into [-1, 1]. */
#ifndef SMALLVAR_TOLERANCES_H
#define SMALLVAR_TOLERANCES_H

/* The unit roundoff: the largest relative error of one operation in float32, and in float64. */
#define SV_ROUNDOFF_SINGLE 0x1p-24
#define SV_ROUNDOFF_DOUBLE 0x1p-53

/* Factors by which bounds in float32 are rounded outward: one ulp or more. */
#define SV_ROUND_UP 1.0000005
#define SV_ROUND_DOWN 0.9999995

/* Scaled distance, added to upper bounds: squares below 1e-38 are 0 in float32, so their root is off by up to this. */
#define SV_SMALLEST_DISTANCE 2e-19

/* Scaled squared distance: one below it has the lower bound 0, since float32 may not hold it. */
#define SV_SMALLEST_SQUARE 1e-37

/* Scaled distance: upper bound of a point that is at its center. Not 0, so that it is a normal float32. */
#define SV_BOUND_AT_CENTER 1e-37

/* Scaled squared distance, added to the error bound of an approximate one: what float32 loses by underflow. */
#define SV_PRODUCT_UNDERFLOW 1e-36

/* Of a squared distance: a float64 distance and one that is rounded otherwise are closer than this. */
#define SV_DISTANCE_MARGIN 1e-9

/* Of lam: a squared distance this near to it is computed exactly before it is compared. */
#define SV_PENALTY_MARGIN 1e-8

/* Of the root of a penalty: the filter keeps the points whose upper bound, in float32, is above the root less this. */
#define SV_LIMIT_MARGIN 1e-6

/* Of a squared distance: the search for the farthest point passes over points whose bound is below it by this. */
#define SV_FARTHEST_MARGIN 1e-6

/* Of the weight of a cluster: a sum of rows of length 1 that is no longer than this has no direction. */
#define SV_ZERO_RESULTANT 0x1p-46

/* Of the largest value of a column: how far a mean may be off by rounding; about 1e-15. */
#define SV_COLUMN_ROUNDING 0x1p-49

/* An error below this part of the error of all rows about one point, computed as a difference of sums, is mostly
 * rounding: it is then summed row by row. */
#define SV_CANCELLATION 1e-6

/* Centers on the border of the domain of a divergence (a poisson mean of 0, say) are infinitely far from rows inside.
 * Of the way from the border to the mean of all rows: where they are taken to be for a bound, which needs finite
 * logarithms; */
#define SV_OFF_BORDER 0x1p-20
/* and where the center of a cluster that opens at a row on the border is, so that other rows can join it. */
#define SV_OPENED_OFF_BORDER 0.1

/* The largest absolute value of the data lies between these, so that squares stay within float64; */
#define SV_SMALLEST_REACH 1e-140
#define SV_LARGEST_REACH 1e140
/* and so does the sum of weights times its square. */
#define SV_LARGEST_ERROR 1e290

/* Weights that are not 0 lie between these, so that sums and quotients stay within float64. */
#define SV_SMALLEST_WEIGHT 1e-300
#define SV_LARGEST_WEIGHT 1e100

/* The largest ratio of weights where rows are subtracted from sums of clusters. */
#define SV_LARGEST_WEIGHT_RATIO 1e12

#endif
