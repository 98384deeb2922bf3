/* What malloc keeps of memory that was freed. */

#include "kernel.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* trim_memory(): see _kernel.pyi */
PyObject *kernel_trim_memory(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    int trimmed = 0;
#ifdef __GLIBC__
    Py_BEGIN_ALLOW_THREADS;
    trimmed = malloc_trim(0);
    Py_END_ALLOW_THREADS;
#endif
    return PyBool_FromLong(trimmed);
}
