cdef extern from "_openmp.h" nogil:
    int SMALLVAR_OPENMP  # the standard's date, 0 in a build without OpenMP
    int omp_get_max_threads()
    int omp_get_thread_num()
