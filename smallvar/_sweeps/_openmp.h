/* The three OpenMP calls smallvar makes, and what they answer in a build without OpenMP. */
#ifndef SMALLVAR_OPENMP_H
#define SMALLVAR_OPENMP_H
#ifdef _OPENMP
#include <omp.h>
#define SMALLVAR_OPENMP _OPENMP
#else
#define SMALLVAR_OPENMP 0
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
#endif
#endif
