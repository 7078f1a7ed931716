"""Inner loops over vectors of points, see simd.h.

A trailing f or d is the type of the rows or of approximate distances, float32 or float64; of two letters the first is
that of the rows.
"""

cdef extern from "simd.h" nogil:
    const char* SMALLVAR_COMPILER
    const char* sv_set_name()
    const char* sv_set_names()
    enum:
        PANEL "SV_PANEL"    # centers whose values lie side by side
        LANES_SINGLE "SV_LANES_SINGLE"  # points of a tile of floats
    const float HUGE_DISTANCE_f
    const double HUGE_DISTANCE_d
    void SV_PREFETCH(const void*)

    # bounds
    void sv_upper(Py_ssize_t, const double*, double, float*)
    void sv_lower(Py_ssize_t, const double*, float*)
    void sv_filter(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*, float,
                   unsigned char*)
    void sv_filter_opened(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*,
                          const float*, const float*, const double*, int, double, unsigned char*)
    void sv_filter_fast(Py_ssize_t, const float*, float*, const int*, const float*, const float*, const float*, int,
                        unsigned char*)
    void sv_filter_again(Py_ssize_t, const int*, const float*, const float*, const float*, const float*, const float*,
                         int, int*)
    Py_ssize_t sv_list(Py_ssize_t, const unsigned char*, unsigned short*)

    # squared distances of rows to one center each
    int sv_few_distances_f(Py_ssize_t, const float**, const int*, const double*, Py_ssize_t, double*)
    int sv_few_distances_d(Py_ssize_t, const double**, const int*, const double*, Py_ssize_t, double*)
    void sv_assigned_distances_f(Py_ssize_t, const float**, const int*, const double*, Py_ssize_t, double*)
    void sv_assigned_distances_d(Py_ssize_t, const double**, const int*, const double*, Py_ssize_t, double*)

    # tiles of points against all centers
    void sv_gather_ff(const float**, Py_ssize_t, const double*, double, float*, double*)
    void sv_gather_fd(const float**, Py_ssize_t, const double*, double, double*, double*)
    void sv_gather_df(const double**, Py_ssize_t, const double*, double, float*, double*)
    void sv_gather_dd(const double**, Py_ssize_t, const double*, double, double*, double*)
    void tile_top2_f(const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, int, float*, float*,
                     int*)
    void tile_top2_d(const double*, Py_ssize_t, const double*, const double*, Py_ssize_t, Py_ssize_t, int, double*,
                     double*, int*)
    void tile_distances_f(const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void tile_distances_d(const double*, Py_ssize_t, const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
