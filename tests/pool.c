/* Stress of the threads that share out loops (smallvar/_sweeps/_pool.h), without Python: .ci/run builds it with the thread
   sanitizer, which watches the locks and threads below, and plain, which can fork. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "_pool.h"

#define CHECK(fact) \
    if (!(fact)) { \
        fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #fact); \
        _exit(1); \
    }

/* ---- what Python provides ---- */

static intptr_t refuse, started;

struct begin {
    void (*function)(void *);
    void *argument;
};

static void *begin(void *argument) {
    struct begin b = *(struct begin *)argument;
    sigset_t blocked;
    free(argument);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    CHECK(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) && !sigismember(&blocked, SIGSEGV));
    b.function(b.argument);
    return NULL;
}

unsigned long PyThread_start_new_thread(void (*function)(void *), void *argument) {
    pthread_t thread;
    struct begin *b = malloc(sizeof(*b));
    *b = (struct begin){function, argument};
    if (pool_read(&refuse) || pthread_create(&thread, NULL, begin, b)) {
        free(b);
        return PYTHREAD_INVALID_THREAD_ID;
    }
    pool_add(&started, 1);
    pthread_detach(thread);
    return 1;
}

PyThread_type_lock PyThread_allocate_lock(void) {
    sem_t *lock = malloc(sizeof(*lock));
    sem_init(lock, 0, 1);
    return lock;
}

int PyThread_acquire_lock(PyThread_type_lock lock, int wait) {
    CHECK(wait == WAIT_LOCK);
    while (sem_wait(lock)) continue;
    return 1;
}

void PyThread_release_lock(PyThread_type_lock lock) {
    int value;
    sem_getvalue(lock, &value);
    CHECK(value == 0); /* never released twice */
    sem_post(lock);
}

/* ---- loops ---- */

enum { ITEMS = 200, SLOTS = 5 };

struct loop {
    Py_ssize_t first;
    int done[ITEMS];                /* each item has its own, */
    int busy[SLOTS];                /* each slot its own scratch */
    int work, nested, threads;
};

static void item(void *context, Py_ssize_t i, int slot) {
    struct loop *loop = context;
    volatile double x = 0.0;
    CHECK(i >= loop->first && i < loop->first + ITEMS && slot >= 0 && slot < loop->threads);
    CHECK(loop->busy[slot]++ == 0);
    for (int j = 0; j < loop->work * (i % 7); j++) x += j;
    (void)x;
    if (loop->nested && i % 50 == 3) {
        struct loop inner = {.first = 10, .work = 1, .threads = 3, .nested = loop->nested - 1};
        pool_run(item, &inner, 10, 10 + ITEMS, 3);
        for (int j = 0; j < ITEMS; j++) CHECK(inner.done[j] == 1);
    }
    loop->done[i - loop->first]++;
    loop->busy[slot]--;
}

static void one_loop(int threads, int work, int nested, Py_ssize_t count) {
    struct loop loop = {.first = -3, .work = work, .nested = nested, .threads = threads};
    pool_run(item, &loop, -3, -3 + count, threads);
    for (int i = 0; i < ITEMS; i++) CHECK(loop.done[i] == (i < count));
}

static intptr_t quit;

static void *caller(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    int endless = seed == NULL;
    for (int i = 0; endless ? !pool_read(&quit) : i < 100; i++) {
        state = state * 1103515245u + 12345u;
        one_loop(1 + (state >> 16) % SLOTS, (state >> 8) % 3 * 20, i % 10 == 0 ? 2 : 0, (state >> 20) % (ITEMS + 1));
        if (i % 16 == 0) usleep(50); /* helpers fall asleep */
    }
    return NULL;
}

static void callers(int count) {
    pthread_t threads[8];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, caller, (void *)(size_t)(i + 1));
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 3;
    pool_begin(2);
    pool_swap(&refuse, 1);
    one_loop(3, 10, 0, ITEMS); /* no threads to be had: alone */
    pool_swap(&refuse, 0);
    one_loop(1, 10, 0, ITEMS);
    CHECK(pool_read(&started) == 0);
    one_loop(3, 10, 0, 1);
    CHECK(pool_read(&started) == 0);
    for (int i = 0; i < rounds; i++) callers(6);
    CHECK(pool_read(&started) == SLOTS - 1); /* however many callers: what the largest loop asked for */
#ifndef __SANITIZE_THREAD__ /* which does not follow into children */
    pthread_t other;
    pthread_create(&other, NULL, caller, NULL);
    for (int i = 0; i < 10 * rounds; i++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            alarm(60);
            pool_swap(&started, 0);
            one_loop(SLOTS, 10, 2, ITEMS);
            CHECK(pool_read(&started) == SLOTS - 1);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    pool_swap(&quit, 1);
    pthread_join(other, NULL);
#endif
    puts("every item once, every slot its own");
    return 0;
}
