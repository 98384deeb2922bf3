/* What a transaction has changed in a store, as the records of its changelog: no object is made of what is only sent. */

#include "building.h"
#include "store.h"

typedef struct {
    KernelStore store;
    PyObject *deleted;
    Py_ssize_t limit;
    Buffer buffer;
    int64_t first, latest;
} Changes;

static int put_change(Changes *changes, Py_ssize_t index, const KernelContent *key, int64_t start, const KernelContent *value, int64_t time) {
    Buffer *buffer = &changes->buffer;
    if (index == 0) {
        changes->first = changes->latest = time;
    } else if (time > changes->latest) {
        changes->latest = time;
    }
    int64_t delta = (int64_t)((uint64_t)time - (uint64_t)changes->first);
    int suffix = changes->store.shape == KERNEL_TABLE ? 0 : KERNEL_SUFFIX;
    uint8_t *behind = put_content(buffer, changes->limit, index, delta, key->data, key->length, suffix, value->data, value->length);
    if (behind == NULL) {
        return PyErr_Occurred() ? FAILED : NOT_PLAIN;
    }
    if (suffix != 0) {
        kernel_put_suffix((char *)behind, start, 0);
    }
    return DONE;
}

/* Look at what was deleted, and when. */
static int deletion_of(const Changes *changes, PyObject *handle, KernelContent *value, int64_t *time) {
    PyObject *when = PyDict_GetItemWithError(changes->deleted, handle);
    *value = (KernelContent){.length = -1};
    return when != NULL ? kernel_number_of(when, time) : PyErr_Occurred() ? FAILED : NOT_PLAIN;
}

/* Write one change. */
static int write_one(void *context, Py_ssize_t index, PyObject *handle, PyObject *entry) {
    Changes *changes = context;
    KernelContent name, value;
    int64_t start, time;
    if (!kernel_name_of(&changes->store, handle, &name, &start)) {
        return NOT_PLAIN;
    }
    int done = entry == Py_None ? deletion_of(changes, handle, &value, &time) : kernel_value_of(&changes->store, entry, &value, &time);
    if (done == DONE) {
        done = put_change(changes, index, &name, start, &value, time);
        Py_XDECREF(value.owner);
    }
    Py_XDECREF(name.owner);
    return done;
}

/* write_changes((entries, dirty, deleted), handles, (shape, keys, values), limit): see _kernel.pyi */
PyObject *kernel_write_changes(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    Changes changes = {0};
    KernelStore *store = &changes.store;
    if (!kernel_has("write_changes", nargs, 4) || !kernel_is_tuple("write_changes", args[0]) || !kernel_is_tuple("write_changes", args[2]) ||
        !PyArg_ParseTuple(args[0], "O!O!O!", &PyDict_Type, &store->entries, &PyDict_Type, &store->noted[0], &PyDict_Type, &changes.deleted) ||
        !kernel_is_list("write_changes", args[1]) || !PyArg_ParseTuple(args[2], "iii", &store->shape, &store->keys, &store->values) ||
        !kernel_has_forms("write_changes", store)) {
        return NULL;
    }
    changes.limit = PyLong_AsSsize_t(args[3]);
    if (changes.limit == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *handles = args[1], *written = NULL;
    int done = grow(&changes.buffer, 64 * (int64_t)PyList_GET_SIZE(handles)) ? kernel_visit_entries(store, handles, write_one, &changes) : FAILED;
    if (done == DONE) {
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)changes.buffer.bytes, changes.buffer.used);
        written = bytes == NULL ? NULL : Py_BuildValue("(NLL)", bytes, (long long)changes.first, (long long)changes.latest);
    }
    PyMem_Free(changes.buffer.bytes);
    return done == NOT_PLAIN ? Py_NewRef(Py_None) : written;
}
