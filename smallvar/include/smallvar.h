/* The C-level functions of smallvar, for C and C++ code that runs in a Python process.
 *
 * What they do, and what their arguments are, is said in smallvar/cython_api.pxd. Call import_smallvar() once, with the
 * GIL: it returns 0, or -1 with a Python exception set. From then on the functions can be called without the GIL and
 * from any thread. Compile with -I and the folder that smallvar.get_include() names.
 */
#ifndef SMALLVAR_H
#define SMALLVAR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <stdint.h>

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L)
static_assert(sizeof(int) == 4, "smallvar: labels are integers of 32 bits");
static_assert(sizeof(void *) == sizeof(int (*)(void)), "smallvar: functions must have addresses like those of data");
#endif

enum {
    SMALLVAR_OK = 0,
    SMALLVAR_NOT_CONVERGED = 1,
    SMALLVAR_BAD_SIZE = -1,
    SMALLVAR_BAD_VALUE = -2,
    SMALLVAR_OUT_OF_RANGE = -3,
    SMALLVAR_FULL = -4,
    SMALLVAR_NO_MEMORY = -5
};

static int (*smallvar_nearest_centers_f)(const float *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride,
                                         const double *centers, Py_ssize_t k, int *labels, double *squares);
static int (*smallvar_nearest_centers_d)(const double *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride,
                                         const double *centers, Py_ssize_t k, int *labels, double *squares);

static int (*smallvar_means_of_labels_f)(const float *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride,
                                         const double *weight, const int *labels, Py_ssize_t k, double *means,
                                         double *weights);
static int (*smallvar_means_of_labels_d)(const double *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride,
                                         const double *weight, const int *labels, Py_ssize_t k, double *means,
                                         double *weights);

static int (*smallvar_dp_means_f)(const float *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double *weight,
                                  double lam, int delayed, Py_ssize_t max_clusters, int max_iter, int *labels,
                                  double *centers, Py_ssize_t capacity, Py_ssize_t *n_clusters, double *objective,
                                  int *n_iter);
static int (*smallvar_dp_means_d)(const double *x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double *weight,
                                  double lam, int delayed, Py_ssize_t max_clusters, int max_iter, int *labels,
                                  double *centers, Py_ssize_t capacity, Py_ssize_t *n_clusters, double *objective,
                                  int *n_iter);

static void *(*smallvar_dynamic_means_new)(Py_ssize_t d, double lam, double q, double tau);
static void (*smallvar_dynamic_means_free)(void *state);
static int (*smallvar_dynamic_means_step_f)(void *state, const float *x, Py_ssize_t n, Py_ssize_t stride,
                                            const double *weight, int64_t elapsed, int max_iter, int64_t *ids,
                                            double *objective, int *n_iter);
static int (*smallvar_dynamic_means_step_d)(void *state, const double *x, Py_ssize_t n, Py_ssize_t stride,
                                            const double *weight, int64_t elapsed, int max_iter, int64_t *ids,
                                            double *objective, int *n_iter);
static Py_ssize_t (*smallvar_dynamic_means_clusters)(const void *state, Py_ssize_t capacity, int64_t *ids,
                                                     double *centers, double *weights, int64_t *ages);

/* The address in one capsule of smallvar.cython_api.__pyx_capi__, or NULL with an exception set. */
static void *smallvar_address(PyObject *functions, const char *name)
{
    PyObject *capsule = PyMapping_GetItemString(functions, name);
    void *address = NULL;
    if (capsule != NULL) {
        address = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
        Py_DECREF(capsule); /* the module keeps it */
    }
    return address;
}

static int import_smallvar(void)
{
    static const char *const names[] = {
        "nearest_centers_f", "nearest_centers_d", "means_of_labels_f", "means_of_labels_d", "dp_means_f",
        "dp_means_d", "dynamic_means_new", "dynamic_means_free", "dynamic_means_step_f", "dynamic_means_step_d",
        "dynamic_means_clusters",
    };
    void **const targets[] = {
        (void **)&smallvar_nearest_centers_f,    (void **)&smallvar_nearest_centers_d,
        (void **)&smallvar_means_of_labels_f,    (void **)&smallvar_means_of_labels_d,
        (void **)&smallvar_dp_means_f,           (void **)&smallvar_dp_means_d,
        (void **)&smallvar_dynamic_means_new,    (void **)&smallvar_dynamic_means_free,
        (void **)&smallvar_dynamic_means_step_f, (void **)&smallvar_dynamic_means_step_d,
        (void **)&smallvar_dynamic_means_clusters,
    };
    size_t m;
    PyObject *module = PyImport_ImportModule("smallvar.cython_api");
    PyObject *functions = module == NULL ? NULL : PyObject_GetAttrString(module, "__pyx_capi__");
    int found = functions != NULL;
    for (m = 0; found && m < sizeof(names) / sizeof(names[0]); m++) {
        *targets[m] = smallvar_address(functions, names[m]);
        found = *targets[m] != NULL;
    }
    Py_XDECREF(functions);
    Py_XDECREF(module);
    return found ? 0 : -1;
}

#endif
