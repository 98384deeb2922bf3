/* What is committed of a store, as the rows of its engine: in the order of their keys, as it takes them fastest. */

#include "store.h"

typedef struct {
    KernelStore store;
    const char *prefix;
    Py_ssize_t prefixed;
    int timed;       /* whether a row holds the time */
    int64_t segment; /* how long a segment lasts (ms); 0 of a table, which has none */
    PyObject **rows;
    Py_ssize_t count, made;
} Writing;

enum { NUMBER = 8 };

static PyObject *made_key(const Writing *writing, const KernelContent *name, int64_t start) {
    Py_ssize_t windowed = writing->segment > 0 ? NUMBER + KERNEL_SUFFIX : 0;
    PyObject *key = PyBytes_FromStringAndSize(NULL, writing->prefixed + name->length + windowed);
    if (key == NULL) {
        return NULL;
    }
    char *to = PyBytes_AS_STRING(key);
    memcpy(to, writing->prefix, (size_t)writing->prefixed);
    to += writing->prefixed;
    if (windowed > 0) {
        kernel_put_number(to, (uint64_t)(start / writing->segment), NUMBER);
        to += NUMBER;
    }
    memcpy(to, name->data, (size_t)name->length);
    if (windowed > 0) {
        kernel_put_suffix(to + name->length, start, 0);
    }
    return key;
}

static PyObject *made_value(const Writing *writing, const KernelContent *value, int64_t time) {
    Py_ssize_t timed = writing->timed ? NUMBER : 0;
    PyObject *data = PyBytes_FromStringAndSize(NULL, timed + value->length);
    if (data != NULL) {
        kernel_put_number(PyBytes_AS_STRING(data), (uint64_t)time, (int)timed);
        memcpy(PyBytes_AS_STRING(data) + timed, value->data, (size_t)value->length);
    }
    return data;
}

/* Make the row of one entry. */
static int make_row(void *context, Py_ssize_t index, PyObject *handle, PyObject *entry) {
    Writing *writing = context;
    KernelContent name, value;
    int64_t start, time;
    if (index >= writing->count || !kernel_name_of(&writing->store, handle, &name, &start)) {
        return NOT_PLAIN;
    }
    int done = start < 0 ? NOT_PLAIN : kernel_value_of(&writing->store, entry, &value, &time);
    if (done == DONE) {
        PyObject *key = made_key(writing, &name, start), *data = made_value(writing, &value, time);
        writing->rows[index] = key == NULL || data == NULL ? NULL : PyTuple_Pack(2, key, data);
        writing->made += writing->rows[index] != NULL;
        done = writing->rows[index] == NULL ? FAILED : DONE;
        Py_XDECREF(key);
        Py_XDECREF(data);
        Py_XDECREF(value.owner);
    }
    Py_XDECREF(name.owner);
    return done;
}

static int by_key(const void *first, const void *second) {
    PyObject *one = PyTuple_GET_ITEM(*(PyObject *const *)first, 0), *other = PyTuple_GET_ITEM(*(PyObject *const *)second, 0);
    Py_ssize_t length = PyBytes_GET_SIZE(one), others = PyBytes_GET_SIZE(other);
    int found = memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), (size_t)(length < others ? length : others));
    return found != 0 ? found : (length > others) - (length < others);
}

static PyObject *sorted_list(Writing *writing) {
    qsort(writing->rows, (size_t)writing->count, sizeof(PyObject *), by_key);
    PyObject *list = PyList_New(writing->count);
    for (Py_ssize_t index = 0; list != NULL && index < writing->count; index++) {
        PyList_SET_ITEM(list, index, Py_NewRef(writing->rows[index]));
    }
    return list;
}

/* engine_rows((entries, frozen, dirty), handles, (shape, keys, values, timed, segment), prefix): see _kernel.pyi */
PyObject *kernel_engine_rows(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    Writing writing = {0};
    KernelStore *store = &writing.store;
    long long segment;
    if (!kernel_has("engine_rows", nargs, 4) || !kernel_is_tuple("engine_rows", args[0]) || !kernel_is_tuple("engine_rows", args[2]) ||
        !PyArg_ParseTuple(args[0], "O!O!O!", &PyDict_Type, &store->entries, &PyDict_Type, &store->noted[0], &PyDict_Type, &store->noted[1]) ||
        !kernel_is_list("engine_rows", args[1]) ||
        !PyArg_ParseTuple(args[2], "iiipL", &store->shape, &store->keys, &store->values, &writing.timed, &segment) ||
        !kernel_has_forms("engine_rows", store)) {
        return NULL;
    }
    if (!PyBytes_CheckExact(args[3]) || segment < 0 || (segment > 0) != (store->shape != KERNEL_TABLE)) {
        PyErr_SetString(PyExc_ValueError, "engine_rows takes segments of windows, none of a table, and a prefix of bytes");
        return NULL;
    }
    writing.segment = segment;
    writing.prefix = PyBytes_AS_STRING(args[3]);
    writing.prefixed = PyBytes_GET_SIZE(args[3]);
    writing.count = PyList_GET_SIZE(args[1]);
    writing.rows = PyMem_Calloc((size_t)writing.count + 1, sizeof(PyObject *));
    if (writing.rows == NULL) {
        return PyErr_NoMemory();
    }
    int done = kernel_visit_entries(store, args[1], make_row, &writing);
    if (done == DONE && writing.made != writing.count) { /* comparing keys may do anything, also to the list */
        done = NOT_PLAIN;
    }
    PyObject *list = done == DONE ? sorted_list(&writing) : NULL;
    for (Py_ssize_t index = 0; index < writing.count; index++) {
        Py_XDECREF(writing.rows[index]);
    }
    PyMem_Free(writing.rows);
    return done == NOT_PLAIN ? Py_NewRef(Py_None) : list;
}
