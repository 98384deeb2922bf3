/* What malloc keeps of memory that was freed, and what it gives back at once. */

#include "kernel.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define SMALLEST (4 << 10)
#define LARGEST (32 << 20) /* glibc takes no more */
#define KEPT (4 << 20)     /* what may be free at the end of the heap: to ask for it again and again costs more */

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

/* map_large(size): see _kernel.pyi */
PyObject *kernel_map_large(PyObject *Py_UNUSED(self), PyObject *object) {
    long size = PyLong_AsLong(object);
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (size < SMALLEST || size > LARGEST) {
        PyErr_Format(PyExc_ValueError, "large is something from %d to %d bytes on, not %ld", SMALLEST, LARGEST, size);
        return NULL;
    }
    int mapped = 0;
#ifdef __GLIBC__
    mapped = mallopt(M_MMAP_THRESHOLD, (int)size) && mallopt(M_TRIM_THRESHOLD, KEPT);
#endif
    return PyBool_FromLong(mapped);
}
