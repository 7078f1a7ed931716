"""OpenMP loops over chunks, and the rule for when the caller works alone.

At the end of a loop OpenMP waits for every thread of the team, also for one that has not begun because another process
has its core: up to some ten milliseconds, which beside busy processes makes loops of tens of microseconds many times
slower than one thread. So loops are timed. The chunks of the caller tell how long it would have taken alone. What a
loop took longer than that is added to a debt, what it saved is taken off. While there is debt the caller works alone,
which pays off 1 / DEBT_SHARE of the time that it works: beside busy processes at most that share of the time is lost.
A single short fit would lose more: where threads have not just paid, the caller asks Linux first whether other threads
are waiting for a core, and works alone then. Linux counts threads of low priority, and of the whole host of a
container: so after MOST_ASKED such answers threads are tried all the same. The number of threads never changes a
result.
"""

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define SMALLVAR_OPENMP _OPENMP
    #else
    #define SMALLVAR_OPENMP 0
    static int omp_get_max_threads(void) { return 0; }
    static int omp_get_thread_num(void) { return 0; }
    static int omp_in_parallel(void) { return 0; }
    static double omp_get_wtime(void) { return 0.0; }
    #endif

    #define SMALLVAR_MOST_THREADS 1024      /* of one loop */

    #include <stdlib.h>
    #include <string.h>
    /* Threads that run or wait for a core, the caller included, from the text of Linux's /proc/loadavg:
       "0.20 0.18 0.12 running/all last". 0 if there is no such number. */
    static long smallvar_running(const char *text) {
        const char *number = strchr(text, '/');
        if (number == NULL) return 0;
        while (number > text && number[-1] != ' ') number--;
        return atol(number);
    }

    /* Whether more threads of all processes want to run than there are cores, as far as the system tells at once. */
    #ifdef __linux__
    #include <fcntl.h>
    #include <unistd.h>
    static int smallvar_cores_are_busy(void) {
        char text[128];
        int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
        ssize_t size = 0;
        if (file >= 0) {
            size = read(file, text, sizeof(text) - 1);
            close(file);
        }
        if (size <= 0) return 0;
        text[size] = 0;
        return smallvar_running(text) > sysconf(_SC_NPROCESSORS_ONLN);
    }
    #else
    static int smallvar_cores_are_busy(void) { return 0; }
    #endif

    /* atomic operations, each of which all threads see in the same order */
    #if defined(_MSC_VER) && !defined(__clang__)
    #include <intrin.h>
    #define SMALLVAR_THREAD_LOCAL __declspec(thread)
    #ifdef _WIN64
    #define smallvar_atomic_add(number, value) \\
        ((Py_ssize_t)_InterlockedExchangeAdd64((volatile __int64 *)(number), (value)))
    #else
    #define smallvar_atomic_add(number, value) \\
        ((Py_ssize_t)_InterlockedExchangeAdd((volatile long *)(number), (value)))
    #endif
    #else
    #define SMALLVAR_THREAD_LOCAL _Thread_local
    #define smallvar_atomic_add(number, value) __atomic_fetch_add((number), (value), __ATOMIC_SEQ_CST)
    #endif

    static SMALLVAR_THREAD_LOCAL double smallvar_debt;          /* seconds, of this caller */
    static SMALLVAR_THREAD_LOCAL int smallvar_asked;            /* times in a row that cores were busy */
    static SMALLVAR_THREAD_LOCAL int smallvar_team_size;        /* threads of the last loop of this caller */
    static volatile int smallvar_is_forked;

    static double *smallvar_debt_of_caller(void) { return &smallvar_debt; }
    static int *smallvar_asked_by_caller(void) { return &smallvar_asked; }

    #ifdef _WIN32
    static void smallvar_watch_forks(void) {}
    static int smallvar_make_team(int threads) { return threads > 1; }
    #else
    #include <pthread.h>
    #include <signal.h>

    /* A forked child has none of the threads of its parent, and a team of OpenMP that is made there may wait for them
       for ever: it works with one thread. */
    static void smallvar_forked(void) { smallvar_is_forked = 1; }
    static void smallvar_watch_forks(void) { pthread_atfork(NULL, NULL, smallvar_forked); }

    static void *smallvar_wait(void *gate) {
        pthread_mutex_lock((pthread_mutex_t *)gate);
        pthread_mutex_unlock((pthread_mutex_t *)gate);
        return NULL;
    }

    /* Whether so many threads can be started at the same time. Where one cannot, by a limit on memory or processes,
       OpenMP would end the process. */
    static int smallvar_can_start(int count) {
        pthread_t started[SMALLVAR_MOST_THREADS];
        pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
        int i = 0, n;
        pthread_mutex_lock(&gate);
        while (i < count && pthread_create(&started[i], NULL, smallvar_wait, &gate) == 0) i++;
        pthread_mutex_unlock(&gate);
        for (n = i; i > 0; i--) pthread_join(started[i - 1], NULL);
        return n == count;
    }

    /* Have OpenMP start its threads now, with signals blocked, which they keep: signals are for the threads of Python.
       Not blocked are faults, which belong to the thread that caused them. Returns whether there are these threads. */
    static int smallvar_make_team(int threads) {
    #ifdef _OPENMP
        sigset_t blocked, before;
        if (smallvar_team_size == threads) return 1;
        sigfillset(&blocked);
        sigdelset(&blocked, SIGSEGV);
        sigdelset(&blocked, SIGBUS);
        sigdelset(&blocked, SIGFPE);
        sigdelset(&blocked, SIGILL);
        sigdelset(&blocked, SIGABRT);
        pthread_sigmask(SIG_SETMASK, &blocked, &before);
        if (smallvar_can_start(threads - 1)) {
            #pragma omp parallel num_threads(threads)
            { smallvar_team_size = threads; }
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    #endif
        return smallvar_team_size == threads;
    }
    #endif
    """
    int SMALLVAR_OPENMP
    int omp_get_max_threads()
    int omp_get_thread_num() nogil
    int omp_in_parallel() nogil
    double omp_get_wtime() nogil
    Py_ssize_t smallvar_atomic_add(Py_ssize_t*, Py_ssize_t) nogil
    double* smallvar_debt_of_caller() nogil
    int* smallvar_asked_by_caller() nogil
    int smallvar_is_forked
    void smallvar_watch_forks()
    bint smallvar_make_team(int) nogil
    long smallvar_running(const char*)
    bint smallvar_cores_are_busy() nogil
    int SMALLVAR_MOST_THREADS

MOST_THREADS = SMALLVAR_MOST_THREADS

cdef extern from *:
    """
    #define SMALLVAR_MOST_SAVED 0.002
    #define SMALLVAR_MOST_LOST 0.2
    #define SMALLVAR_ASK_AGAIN 0.002
    """
    # seconds: what was saved counts up to here, so that a core that is taken away is noticed after a few loops
    const double MOST_SAVED "SMALLVAR_MOST_SAVED"
    # seconds: what was lost counts up to here, so that threads are tried again after a few seconds
    const double MOST_LOST "SMALLVAR_MOST_LOST"
    # seconds: the debt where cores are busy, so that the caller asks again after DEBT_SHARE times that
    const double ASK_AGAIN "SMALLVAR_ASK_AGAIN"

cdef enum:
    DEBT_SHARE = 20
    MOST_ASKED = 100  # MOST_LOST / ASK_AGAIN: the caller works alone as long as after the largest debt

cdef bint guarded = True


def openmp_version():
    """Date of the OpenMP standard of this build (201511 is 4.5), 0 without OpenMP."""
    return SMALLVAR_OPENMP


def max_threads():
    """Threads OpenMP would use now: OMP_NUM_THREADS, affinity and surrounding limits respected; 0 without OpenMP."""
    return omp_get_max_threads()


def is_forked():
    """Whether this process is the child of a fork, where loops have one thread."""
    return bool(smallvar_is_forked)


def running_threads(bytes text):
    """The number of threads that run or wait for a core, from the text of /proc/loadavg; 0 if it has none."""
    return smallvar_running(text)


def guard_loops(bint on):
    """Let the caller work alone while there is debt, as at first, or never: for tests of loops with threads."""
    global guarded
    guarded = on


cdef ParallelLoop begin_loop(Py_ssize_t n_chunks, int threads) noexcept nogil:
    """The number of threads for a loop over so many chunks: ``threads``, or 1 where more would be a loss.

    A loop inside of another one has one thread. Never a number between: OpenMP ends and restarts the threads of teams
    whose size changes.
    """
    cdef ParallelLoop loop = ParallelLoop(1, n_chunks, 0, 0.0, 0.0, 0.0)
    cdef double* debt = smallvar_debt_of_caller()
    cdef int* asked = smallvar_asked_by_caller()
    if SMALLVAR_OPENMP == 0 or threads < 2 or n_chunks < 2 or smallvar_is_forked or omp_in_parallel():
        return loop
    # below 0 threads have just paid
    if guarded and debt[0] == 0.0 and asked[0] < MOST_ASKED and smallvar_cores_are_busy():
        debt[0] = ASK_AGAIN
        asked[0] += 1
    elif not guarded or debt[0] <= 0.0:
        asked[0] = 0
        if smallvar_make_team(threads):
            loop.threads = threads
        else:
            debt[0] = MOST_LOST
    loop.start = omp_get_wtime()
    return loop


cdef int begin_chunk(ParallelLoop* loop) noexcept nogil:
    """The number of this thread in the loop, below loop.threads; 0 is the caller. To be called as each chunk begins."""
    cdef int thread = omp_get_thread_num()
    if thread == 0:
        loop.last_chunk = omp_get_wtime()
        if loop.caller_chunks == 0:
            loop.first_chunk = loop.last_chunk
        loop.caller_chunks += 1
    return thread


cdef void end_loop(ParallelLoop* loop) noexcept nogil:
    """Set off what the loop has saved against the debt, or add what it has lost."""
    cdef double elapsed, saved
    cdef double* debt
    if loop.start == 0.0:
        return
    debt = smallvar_debt_of_caller()
    elapsed = omp_get_wtime() - loop.start
    if loop.threads == 1:
        debt[0] = max(0.0, debt[0] - elapsed / DEBT_SHARE)
    elif loop.caller_chunks != 1:  # of one chunk there is no telling how long it took
        saved = -elapsed
        if loop.caller_chunks > 1:
            saved += loop.n_chunks * (loop.last_chunk - loop.first_chunk) / (loop.caller_chunks - 1)
        debt[0] = min(MOST_LOST, max(-MOST_SAVED, debt[0] - saved))


cdef Py_ssize_t atomic_read(Py_ssize_t* number) noexcept nogil:
    return smallvar_atomic_add(number, 0)


cdef Py_ssize_t atomic_increment(Py_ssize_t* number) noexcept nogil:
    """Raise a number by one; returns what it was. Safe where several threads do so at the same time."""
    return smallvar_atomic_add(number, 1)


smallvar_watch_forks()
