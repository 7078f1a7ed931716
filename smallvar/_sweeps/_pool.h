/* Threads that share out the items of a loop: the caller, and helpers, threads of the pool that have no other job.

The caller takes items at once and never waits for a helper that has not begun. When no item is left it withdraws the
job from those helpers, and waits only for items that are being worked on. So where other processes keep the cores busy,
a loop waits at most for the rest of one item whose helper lost its core. A team of OpenMP waits for every member at
every loop, whether it had an item or not, and spins meanwhile.

Every word that threads share is read and written by the atomic operations below, all in one total order. A job lies on
its caller's stack; a helper touches it only between taking it (helper.job, swapped for 0) and its last access (helpers,
one less). A helper belongs to one caller (TAKEN) from being chosen until that caller has seen all its helpers end. */
#ifndef SMALLVAR_POOL_H
#define SMALLVAR_POOL_H
#include <Python.h>
#include <pythread.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#ifdef _WIN64
#define pool_swap(place, value) ((intptr_t)_InterlockedExchange64((volatile __int64 *)(place), (value)))
#define pool_add(place, value) ((intptr_t)_InterlockedExchangeAdd64((volatile __int64 *)(place), (value)))
#define pool_switch(place, from, to) \
    (_InterlockedCompareExchange64((volatile __int64 *)(place), (to), (from)) == (from))
#else
#define pool_swap(place, value) ((intptr_t)_InterlockedExchange((volatile long *)(place), (value)))
#define pool_add(place, value) ((intptr_t)_InterlockedExchangeAdd((volatile long *)(place), (value)))
#define pool_switch(place, from, to) (_InterlockedCompareExchange((volatile long *)(place), (to), (from)) == (from))
#endif
#define pool_read(place) pool_add(place, 0)
#if defined(_M_ARM64) || defined(_M_ARM)
#define pool_pause() __yield()
#else
#define pool_pause() _mm_pause()
#endif
#else
static inline intptr_t pool_swap(intptr_t *place, intptr_t value) {
    return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST);
}
static inline intptr_t pool_add(intptr_t *place, intptr_t value) {
    return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}
static inline int pool_switch(intptr_t *place, intptr_t from, intptr_t to) {
    return __atomic_compare_exchange_n(place, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline intptr_t pool_read(intptr_t *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
#if defined(__x86_64__) || defined(__i386__)
#define pool_pause() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pool_pause() __asm__ __volatile__("yield")
#else
#define pool_pause() ((void)0)
#endif
#endif

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif

/* How many times, some tens of nanoseconds each, a thread looks whether what it waits for has come before it sleeps:
   waking it again takes microseconds, and so short a spin takes little time from other processes. */
#ifndef POOL_SPIN
#define POOL_SPIN 100
#endif
#define POOL_ROOM 1024      /* helpers there can ever be */

typedef void (*pool_body)(void *context, Py_ssize_t item, int slot);

typedef struct {
    pool_body body;
    void *context;
    Py_ssize_t last;
    intptr_t next;              /* the item to be taken next */
    intptr_t helpers;           /* twice those that may still touch the job; plus 1: the caller sleeps */
    PyThread_type_lock done;    /* what the caller sleeps on */
} pool_job;

enum { POOL_ABSENT, POOL_FREE, POOL_TAKEN };

typedef struct {
    intptr_t state;
    intptr_t job;               /* offered to this helper, or 0 */
    intptr_t awake;             /* whether it will read job again before it sleeps */
    int slot;                   /* its slot in that job */
    PyThread_type_lock wake;    /* always held; released to wake this helper, which takes it again */
    PyThread_type_lock done;    /* the same for its caller */
    char padding[64];           /* helpers do not share a cache line */
} pool_helper;

static pool_helper pool_helpers[POOL_ROOM];
static intptr_t pool_size;      /* helpers from this number on are all absent */
static intptr_t pool_most;      /* helpers that may be started */

#ifndef _WIN32
static void pool_forked(void) {
    /* A forked child has none of its parent's threads, and locks may be held by one of those: all begins anew. */
    memset(pool_helpers, 0, sizeof(pool_helpers));
    pool_size = 0;
}
#endif

/* To be called first.  IN threads: how many the machine has. */
static void pool_begin(Py_ssize_t threads) {
    pool_most = threads - 1 < POOL_ROOM ? threads - 1 : POOL_ROOM;
#ifndef _WIN32
    pthread_atfork(NULL, NULL, pool_forked);
#endif
}

static void pool_take_items(pool_job *job, int slot) {
    for (;;) {
        Py_ssize_t item = pool_add(&job->next, 1);
        if (item >= job->last) return;
        job->body(job->context, item, slot);
    }
}

static void pool_help(void *self) {
    pool_helper *helper = self;
    for (;;) {
        pool_job *job = (pool_job *)pool_swap(&helper->job, 0);
        if (job != NULL) {
            PyThread_type_lock done = job->done;
            pool_take_items(job, helper->slot);
            if (pool_add(&job->helpers, -2) == 3) PyThread_release_lock(done);
        }
        int spins = 0;
        while (spins < POOL_SPIN && !pool_read(&helper->job)) {
            pool_pause();
            spins++;
        }
        if (spins < POOL_SPIN) continue;
        pool_swap(&helper->awake, 0);
        /* A caller sets job, then awake: either its job is seen here or it sees that it has to wake this helper. */
        if (pool_read(&helper->job) && !pool_swap(&helper->awake, 1)) continue;
        PyThread_acquire_lock(helper->wake, WAIT_LOCK);
    }
}

static int pool_make_lock(PyThread_type_lock *lock) {
    if (*lock == NULL) {
        *lock = PyThread_allocate_lock();
        if (*lock == NULL) return 0;
        PyThread_acquire_lock(*lock, WAIT_LOCK);
    }
    return 1;
}

/* Start the thread of an absent helper that the caller has taken; 0 if that fails. */
static int pool_start_thread(pool_helper *helper) {
    unsigned long thread;
    if (!pool_make_lock(&helper->wake) || !pool_make_lock(&helper->done)) return 0;
    pool_swap(&helper->job, 0);
    pool_swap(&helper->awake, 1);
#ifdef _WIN32
    thread = PyThread_start_new_thread(pool_help, helper);
#else
    /* Signals go to the threads of Python, but for faults, which go to the thread that caused them. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = PyThread_start_new_thread(pool_help, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    return thread != PYTHREAD_INVALID_THREAD_ID;
}

/* Raise *place to value, if it is lower. */
static void pool_raise(intptr_t *place, intptr_t value) {
    intptr_t now = pool_read(place);
    while (now < value && !pool_switch(place, now, value)) now = pool_read(place);
}

/* A free helper, from number *place on, or else a new one, for the caller alone; NULL if there is none. */
static pool_helper *pool_choose(intptr_t *place) {
    intptr_t size = pool_read(&pool_size), most = pool_read(&pool_most);
    for (; *place < size; ++*place) {
        pool_helper *helper = pool_helpers + *place;
        if (pool_read(&helper->state) == POOL_FREE && pool_switch(&helper->state, POOL_FREE, POOL_TAKEN)) return helper;
    }
    for (intptr_t i = 0; i < most; i++) {
        pool_helper *helper = pool_helpers + i;
        if (pool_read(&helper->state) == POOL_ABSENT && pool_switch(&helper->state, POOL_ABSENT, POOL_TAKEN)) {
            if (pool_start_thread(helper)) {
                pool_raise(&pool_size, i + 1);
                return helper;
            }
            pool_swap(&helper->state, POOL_ABSENT);
            return NULL;
        }
    }
    return NULL;
}

/* body(context, item, slot) for the items first..last-1, each once, by up to so many threads at the same time; each has
   a slot of its own below that number, the caller 0. What body wrote is seen by the caller afterward. */
static void pool_run(pool_body body, void *context, Py_ssize_t first, Py_ssize_t last, int threads) {
    pool_helper *team[POOL_ROOM];
    intptr_t place = 0, back = 0;
    int size = 0, spins = 0;
    pool_job job = {body, context, last, first, 0, NULL};
    if (threads > POOL_ROOM) threads = POOL_ROOM;
    pool_raise(&pool_most, threads - 1);
    while (size < threads - 1 && size < last - first - 1) {
        pool_helper *helper = pool_choose(&place);
        if (helper == NULL) break;
        team[size++] = helper;
        helper->slot = size;
        if (job.done == NULL) job.done = helper->done;
        pool_add(&job.helpers, 2);
        pool_swap(&helper->job, (intptr_t)&job);
        if (!pool_swap(&helper->awake, 1)) PyThread_release_lock(helper->wake);
    }
    pool_take_items(&job, 0);
    for (int i = 0; i < size; i++) back += pool_switch(&team[i]->job, (intptr_t)&job, 0);
    pool_add(&job.helpers, -2 * back);
    while (pool_read(&job.helpers) && spins < POOL_SPIN) {
        pool_pause();
        spins++;
    }
    if (pool_add(&job.helpers, 1)) PyThread_acquire_lock(job.done, WAIT_LOCK);
    for (int i = 0; i < size; i++) pool_swap(&team[i]->state, POOL_FREE);
}
#endif
