/* What a transaction has changed in a store, as the records of its changelog: no object is made of what is only sent. */

#include "building.h"

enum { TABLE, TRACKS, PANES };           /* entries by key; by key, then start; by start, then key */
enum { AS_BYTES, AS_TEXT, AS_LONG };     /* what serdes make bytes of */
enum { NOT_PLAIN = 0, DONE = 1, FAILED = -1 };

typedef struct {
    PyObject *entries, *dirty, *deleted;
    int shape, keys, values;
    Py_ssize_t limit;
    Buffer buffer;
    int64_t first, latest;
} Changes;

typedef struct {
    const char *data;
    Py_ssize_t length; /* of what is deleted -1 */
    PyObject *owner; /* what was made for it, or NULL */
    char number[8];
} Content;

/* Return a new reference to what was frozen under a handle, NULL when there is nothing, or with an error. */
static PyObject *frozen_entry(const Changes *changes, PyObject *handle) {
    if (changes->shape != TABLE && (!PyTuple_CheckExact(handle) || PyTuple_GET_SIZE(handle) != 2)) {
        return NULL;
    }
    PyObject *entry = PyDict_GET_SIZE(changes->dirty) == 0 ? NULL : PyDict_GetItemWithError(changes->dirty, handle);
    if (entry != NULL || PyErr_Occurred()) {
        return Py_XNewRef(entry);
    }
    if (changes->shape == TABLE) {
        return Py_XNewRef(PyDict_GetItemWithError(changes->entries, handle));
    }
    int outer = changes->shape == PANES;
    PyObject *found = PyDict_GetItemWithError(changes->entries, PyTuple_GET_ITEM(handle, outer));
    if (found == NULL || !PyDict_Check(found)) {
        return NULL;
    }
    Py_INCREF(found);
    entry = Py_XNewRef(PyDict_GetItemWithError(found, PyTuple_GET_ITEM(handle, 1 - outer)));
    Py_DECREF(found);
    return entry;
}

static int number_of(PyObject *object, int64_t *number) {
    *number = PyLong_CheckExact(object) ? PyLong_AsLongLong(object) : -1;
    if (*number == -1 && (!PyLong_CheckExact(object) || PyErr_Occurred())) {
        PyErr_Clear();
        return NOT_PLAIN;
    }
    return DONE;
}

/* Look at an object as a serde makes bytes of it; return NOT_PLAIN for what somebody else has to look at. */
static int content_of(PyObject *object, int form, Content *content) {
    content->owner = NULL;
    if (form == AS_LONG) {
        int64_t number;
        if (!number_of(object, &number)) {
            return NOT_PLAIN;
        }
        kernel_put_number(content->number, (uint64_t)number, 8);
        content->data = content->number;
        content->length = 8;
        return DONE;
    }
    if (form == AS_TEXT && PyUnicode_CheckExact(object)) {
        if (PyUnicode_IS_COMPACT_ASCII(object)) {
            content->data = (const char *)PyUnicode_DATA(object);
            content->length = PyUnicode_GET_LENGTH(object);
            return DONE;
        }
        object = content->owner = PyUnicode_AsUTF8String(object);
        if (object == NULL) {
            PyErr_Clear(); /* lone surrogates: whoever encodes it by itself says so */
            return NOT_PLAIN;
        }
    } else if (form != AS_BYTES || !PyBytes_CheckExact(object)) {
        return NOT_PLAIN;
    }
    content->data = PyBytes_AS_STRING(object);
    content->length = PyBytes_GET_SIZE(object);
    return DONE;
}

static int put_change(Changes *changes, Py_ssize_t index, const Content *key, int64_t start, const Content *value, int64_t time) {
    Buffer *buffer = &changes->buffer;
    if (index == 0) {
        changes->first = changes->latest = time;
    } else if (time > changes->latest) {
        changes->latest = time;
    }
    int64_t delta = (int64_t)((uint64_t)time - (uint64_t)changes->first);
    Py_ssize_t suffix = changes->shape == TABLE ? 0 : KERNEL_SUFFIX, length = key->length + suffix, content = value->length < 0 ? 0 : value->length;
    Py_ssize_t size = 1 + varint_size(delta) + varint_size(index) + varint_size(length) + length + varint_size(value->length) + content + 1;
    if (varint_size(size) + size > changes->limit - buffer->used) {
        return NOT_PLAIN;
    }
    if (!grow(buffer, size + NUMBERS)) {
        return FAILED;
    }
    put_varint(buffer, size);
    buffer->bytes[buffer->used++] = 0;
    put_varint(buffer, delta);
    put_varint(buffer, index);
    put_varint(buffer, length);
    put_data(buffer, key->data, (size_t)key->length);
    if (suffix != 0) {
        kernel_put_suffix((char *)buffer->bytes + buffer->used, start, 0);
        buffer->used += KERNEL_SUFFIX;
    }
    put_varint(buffer, value->length);
    if (content > 0) {
        put_data(buffer, value->data, (size_t)content);
    }
    put_varint(buffer, 0);
    return DONE;
}

/* Look at what was deleted, and when. */
static int deletion_of(const Changes *changes, PyObject *handle, Content *value, int64_t *time) {
    PyObject *when = PyDict_GetItemWithError(changes->deleted, handle);
    *value = (Content){.length = -1};
    return when != NULL ? number_of(when, time) : PyErr_Occurred() ? FAILED : NOT_PLAIN;
}

/* Look at a value and its time. */
static int entry_of(const Changes *changes, PyObject *entry, Content *value, int64_t *time) {
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2 || !number_of(PyTuple_GET_ITEM(entry, 1), time)) {
        return NOT_PLAIN;
    }
    return content_of(PyTuple_GET_ITEM(entry, 0), changes->values, value);
}

/* Write one change; `handle` and `entry` are held on to. */
static int write_one(Changes *changes, Py_ssize_t index, PyObject *handle, PyObject *entry) {
    PyObject *key = changes->shape == TABLE ? handle : PyTuple_GET_ITEM(handle, 0);
    Content name, value;
    int64_t start = 0, time;
    if ((changes->shape != TABLE && !number_of(PyTuple_GET_ITEM(handle, 1), &start)) || !content_of(key, changes->keys, &name)) {
        return NOT_PLAIN;
    }
    int done = entry == Py_None ? deletion_of(changes, handle, &value, &time) : entry_of(changes, entry, &value, &time);
    if (done == DONE) {
        done = put_change(changes, index, &name, start, &value, time);
        Py_XDECREF(value.owner);
    }
    Py_XDECREF(name.owner);
    return done;
}

/* Write the next few, whose entries are looked for at once. */
static int write_some(Changes *changes, PyObject *handles, Py_ssize_t from) {
    PyObject *held[KERNEL_AHEAD], *entries[KERNEL_AHEAD];
    int count = 0, done = DONE;
    for (; count < KERNEL_AHEAD && from + count < PyList_GET_SIZE(handles); count++) {
        held[count] = Py_NewRef(PyList_GET_ITEM(handles, from + count));
        entries[count] = frozen_entry(changes, held[count]);
        if (entries[count] == NULL) {
            Py_DECREF(held[count]);
            done = PyErr_Occurred() ? FAILED : NOT_PLAIN;
            break;
        }
        KERNEL_PREFETCH(entries[count]);
    }
    for (int each = 0; each < count; each++) {
        if (PyTuple_CheckExact(entries[each]) && PyTuple_GET_SIZE(entries[each]) == 2) {
            KERNEL_PREFETCH(PyTuple_GET_ITEM(entries[each], 0));
            KERNEL_PREFETCH(PyTuple_GET_ITEM(entries[each], 1));
        }
    }
    for (int each = 0; each < count; each++) {
        done = done == DONE ? write_one(changes, from + each, held[each], entries[each]) : done;
        Py_DECREF(entries[each]);
        Py_DECREF(held[each]);
    }
    return done;
}

/* write_changes((entries, dirty, deleted), handles, (shape, keys, values), limit): see _kernel.pyi */
PyObject *kernel_write_changes(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    Changes changes = {.shape = 0};
    if (!kernel_has("write_changes", nargs, 4) ||
        !PyArg_ParseTuple(args[0], "O!O!O!", &PyDict_Type, &changes.entries, &PyDict_Type, &changes.dirty, &PyDict_Type, &changes.deleted) ||
        !kernel_is_list("write_changes", args[1]) || !PyArg_ParseTuple(args[2], "iii", &changes.shape, &changes.keys, &changes.values)) {
        return NULL;
    }
    if (changes.shape < 0 || changes.shape > PANES || changes.keys < 0 || changes.keys > AS_LONG || changes.values < 0 || changes.values > AS_LONG) {
        PyErr_SetString(PyExc_ValueError, "write_changes takes numbers of forms that there are");
        return NULL;
    }
    changes.limit = PyLong_AsSsize_t(args[3]);
    if (changes.limit == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *handles = args[1], *written = NULL;
    int done = grow(&changes.buffer, 64 * PyList_GET_SIZE(handles)) ? DONE : FAILED;
    for (Py_ssize_t index = 0; done == DONE && index < PyList_GET_SIZE(handles); index += KERNEL_AHEAD) {
        done = write_some(&changes, handles, index);
    }
    if (done == DONE) {
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)changes.buffer.bytes, changes.buffer.used);
        written = bytes == NULL ? NULL : Py_BuildValue("(NLL)", bytes, (long long)changes.first, (long long)changes.latest);
    }
    PyMem_Free(changes.buffer.bytes);
    return done == NOT_PLAIN ? Py_NewRef(Py_None) : written;
}
