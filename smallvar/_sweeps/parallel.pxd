"""OpenMP loops over chunks: how many threads one gets, and the number of each thread. See parallel.pyx.

A loop that may have several threads is written ::

    cdef Py_ssize_t chunk
    cdef ParallelLoop loop = begin_loop(n_chunks, threads)
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        work_on_chunk(..., chunk, begin_chunk(&loop))
    end_loop(&loop)

A chunk writes only what no other chunk reads or writes, and the scratch memory of its thread, whose number is the last
argument. Its body is a function of its own: a local C array in the body of a prange is shared by all threads.

With one thread a prange takes 0.2 us more than a plain loop, and 2 us inside of another one. Where loops are short and
many there is a plain loop for ``loop.threads == 1``: in the sweeps of DP-means, in mergers, seeds and rounds of one
point, and in ``features``, whose starts are chunks of a loop.
"""

cdef enum:
    PAYS = 1 << 20  # multiply-adds from which threads pay: these take 30 to 300 us, a loop with threads 2 to 50 more


cdef struct ParallelLoop:
    int threads                 # of the loop; 1: the caller alone
    Py_ssize_t n_chunks
    Py_ssize_t caller_chunks    # chunks that the caller has begun
    double start                # time at which the loop began; 0: it is not timed
    double first_chunk          # time at which the caller began its first chunk
    double last_chunk           # and its last one, so far


cdef ParallelLoop begin_loop(Py_ssize_t n_chunks, int threads) noexcept nogil
cdef int begin_chunk(ParallelLoop* loop) noexcept nogil
cdef void end_loop(ParallelLoop* loop) noexcept nogil
cdef Py_ssize_t atomic_read(Py_ssize_t* number) noexcept nogil
cdef Py_ssize_t atomic_increment(Py_ssize_t* number) noexcept nogil
