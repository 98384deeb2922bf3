/* Writing: columns to the records of a record batch (message format v2, KIP-98), behind room for the batch's header. */

#include "building.h"
#include "packing.h"
#include "records.h"

#define LONGEST_HEADER 4096

static inline void put_bytes(Buffer *buffer, PyObject *bytes) {
    if (bytes == Py_None) {
        put_varint(buffer, -1);
        return;
    }
    Py_ssize_t length = PyBytes_GET_SIZE(bytes);
    put_varint(buffer, length);
    put_data(buffer, PyBytes_AS_STRING(bytes), (size_t)length);
}

static inline Py_ssize_t length_of(PyObject *bytes) {
    return bytes == Py_None ? -1 : PyBytes_GET_SIZE(bytes);
}

static inline int64_t size_of(PyObject *bytes) {
    Py_ssize_t length = length_of(bytes);
    return varint_size(length) + (length < 0 ? 0 : length);
}

static int is_data(PyObject *object, const char *what) {
    if (object == Py_None || PyBytes_Check(object)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "a record's %s is bytes or None, got %.80s", what, Py_TYPE(object)->tp_name);
    return 0;
}

/* Return how many bytes headers take with their number; -1 with TypeError. A name's UTF-8 is kept by its object: it is not made twice. */
static int64_t headers_size(PyObject *headers) {
    if (headers == NULL) {
        return 1;
    }
    if (!PyTuple_Check(headers)) {
        PyErr_Format(PyExc_TypeError, "a record's headers are a tuple, got %.80s", Py_TYPE(headers)->tp_name);
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(headers);
    int64_t size = varint_size(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, index);
        Py_ssize_t length;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
            PyErr_SetString(PyExc_TypeError, "a header is a tuple of a name and bytes or None");
            return -1;
        }
        if (!is_data(PyTuple_GET_ITEM(pair, 1), "header") || PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &length) == NULL) {
            return -1;
        }
        size += varint_size(length) + length + size_of(PyTuple_GET_ITEM(pair, 1));
    }
    return size;
}

static void put_headers(Buffer *buffer, PyObject *headers) {
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_GET_SIZE(headers);
    put_varint(buffer, count);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, index);
        Py_ssize_t length;
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &length);
        put_varint(buffer, length);
        put_data(buffer, name, (size_t)length);
        put_bytes(buffer, PyTuple_GET_ITEM(pair, 1));
    }
}

/* Append one record; return 1, or 0 when it does not fit any more, or -1 with an error. The first one always fits. */
static int put_record(Buffer *buffer, Py_ssize_t delta, int64_t time_delta, PyObject *key, PyObject *value, PyObject *headers, Py_ssize_t limit) {
    if (!is_data(key, "key") || !is_data(value, "value")) {
        return -1;
    }
    int64_t behind = headers_size(headers);
    if (behind < 0) {
        return -1;
    }
    int64_t size = 1 + varint_size(time_delta) + varint_size(delta) + size_of(key) + size_of(value) + behind;
    if (delta > 0 && buffer->used + varint_size(size) + size > limit) {
        return 0;
    }
    if (!grow(buffer, size + NUMBERS)) {
        return -1;
    }
    put_varint(buffer, size);
    buffer->bytes[buffer->used++] = 0;
    put_varint(buffer, time_delta);
    put_varint(buffer, delta);
    put_bytes(buffer, key);
    put_bytes(buffer, value);
    put_headers(buffer, headers);
    return 1;
}

/* Append one packed row as a record of a changelog; return as `put_record` does. */
static int put_row(Buffer *buffer, Py_ssize_t delta, int64_t time_delta, const Rows *rows, const Row *row, const Parts *parts, Py_ssize_t limit) {
    int64_t key = (int64_t)parts->key_length + KERNEL_SUFFIX, value = parts->value.data == NULL ? -1 : (int64_t)parts->value.length;
    int64_t size = 1 + varint_size(time_delta) + varint_size(delta) + varint_size(key) + key + varint_size(value) + (value < 0 ? 0 : value) + 1;
    if (delta > 0 && buffer->used + varint_size(size) + size > limit) {
        return 0;
    }
    if (!grow(buffer, size + NUMBERS)) {
        return -1;
    }
    put_varint(buffer, size);
    buffer->bytes[buffer->used++] = 0;
    put_varint(buffer, time_delta);
    put_varint(buffer, delta);
    put_varint(buffer, key);
    put_data(buffer, parts->key, parts->key_length);
    kernel_put_suffix((char *)buffer->bytes + buffer->used, packing_start(rows, row), row->sequence);
    buffer->used += KERNEL_SUFFIX;
    put_varint(buffer, value);
    if (value > 0) {
        put_data(buffer, parts->value.data, parts->value.length);
    }
    put_varint(buffer, 0);
    return 1;
}

PyObject *packing_write(const Rows *rows, uint32_t from, uint32_t to, Py_ssize_t limit, Py_ssize_t header) {
    Buffer buffer = {NULL, 0, 0};
    int64_t first = 0, latest = 0;
    uint32_t at = from;
    if (!grow(&buffer, header + 64 * (int64_t)(to - from))) {
        return NULL;
    }
    memset(buffer.bytes, 0, (size_t)header);
    buffer.used = header;
    for (; at < to; at++) {
        const Row *row = &rows->rows[at];
        Parts parts = packing_parts(rows, row);
        if (at == from) {
            first = latest = parts.time;
        }
        int fits = put_row(&buffer, (Py_ssize_t)(at - from), (int64_t)((uint64_t)parts.time - (uint64_t)first), rows, row, &parts, limit);
        if (fits < 0) {
            PyMem_Free(buffer.bytes);
            return NULL;
        }
        if (fits == 0) {
            break;
        }
        if (parts.time > latest) {
            latest = parts.time;
        }
    }
    PyObject *bytes = PyByteArray_FromStringAndSize((const char *)buffer.bytes, buffer.used);
    PyMem_Free(buffer.bytes);
    return bytes == NULL ? NULL : Py_BuildValue("(NnLL)", bytes, (Py_ssize_t)(at - from), (long long)first, (long long)latest);
}

/* write_records(keys, values, timestamps, headers, start, limit, header): see _kernel.pyi */
PyObject *kernel_write_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("write_records", nargs, 7)) {
        return NULL;
    }
    PyObject *keys = args[0], *values = args[1], *timestamps = args[2], *headers = args[3] == Py_None ? NULL : args[3];
    /* No code of others may run while an error is set, and an int of theirs is code. */
    Py_ssize_t start = PyLong_AsSsize_t(args[4]);
    Py_ssize_t limit = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[5]);
    Py_ssize_t header = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred() || !kernel_is_list("write_records", keys) || !kernel_is_list("write_records", values) ||
        !kernel_is_list("write_records", timestamps) || (headers != NULL && !kernel_is_list("write_records", headers))) {
        return NULL;
    }
    Py_ssize_t total = PyList_GET_SIZE(timestamps), written = 0;
    if (!kernel_is_long("write_records", keys, total) || !kernel_is_long("write_records", values, total) ||
        (headers != NULL && !kernel_is_long("write_records", headers, total))) {
        return NULL;
    }
    if (start < 0 || start >= total || header < 0 || header > LONGEST_HEADER) {
        PyErr_SetString(PyExc_ValueError, "write_records starts at a record that there is, behind a header of 4096 bytes at most");
        return NULL;
    }
    Buffer buffer = {NULL, 0, 0};
    PyObject *result = NULL;
    int64_t first = 0, latest = 0;
    if (!grow(&buffer, header + 64 * (int64_t)(total - start))) {
        return NULL;
    }
    memset(buffer.bytes, 0, (size_t)header);
    buffer.used = header;
    for (Py_ssize_t index = start; index < total; index++, written++) {
        PyObject *object = Py_NewRef(PyList_GET_ITEM(timestamps, index));
        int64_t time = PyLong_AsLongLong(object);
        Py_DECREF(object);
        if (time == -1 && PyErr_Occurred()) {
            goto done;
        }
        /* A time that is no int has run code, and that may have changed the lists. */
        if (PyList_GET_SIZE(timestamps) != total || PyList_GET_SIZE(keys) != total || PyList_GET_SIZE(values) != total ||
            (headers != NULL && PyList_GET_SIZE(headers) != total)) {
            PyErr_SetString(PyExc_ValueError, "columns have changed while they were written");
            goto done;
        }
        if (index == start) {
            first = latest = time;
        }
        int fits = put_record(&buffer, written, (int64_t)((uint64_t)time - (uint64_t)first), PyList_GET_ITEM(keys, index),
                              PyList_GET_ITEM(values, index), headers == NULL ? NULL : PyList_GET_ITEM(headers, index), limit);
        if (fits < 0) {
            goto done;
        }
        if (fits == 0) {
            break;
        }
        if (time > latest) {
            latest = time;
        }
    }
    PyObject *bytes = PyByteArray_FromStringAndSize((const char *)buffer.bytes, buffer.used);
    if (bytes != NULL) {
        result = Py_BuildValue("(NnLL)", bytes, written, (long long)first, (long long)latest);
    }
done:
    PyMem_Free(buffer.bytes);
    return result;
}

/* Records that are being joined. */
typedef struct {
    Buffer buffer;
    Py_ssize_t skip, written, limit;
    int64_t first, latest;
} Joined;

/* Append the next record of a run, which begins at time `base`, with its new place and time; return as `put_record` does. */
static int join_one(Joined *joined, KernelCursor *run, int64_t base, int append_time) {
    KernelCursor record;
    const uint8_t *next;
    int64_t time, offset;
    if (!kernel_enter_record(run, &record, &next)) {
        return -1;
    }
    record.at++; /* attributes: none are in use */
    if (record.at > record.end || !kernel_read_varint(&record, &time) || !kernel_read_varint(&record, &offset)) {
        return PyErr_Occurred() || !kernel_corrupt("a record ends too early") ? -1 : 0;
    }
    time = append_time ? base : (int64_t)((uint64_t)base + (uint64_t)time);
    int64_t first = joined->written == 0 ? time : joined->first, delta = (int64_t)((uint64_t)time - (uint64_t)first), rest = record.end - record.at;
    int64_t size = 1 + varint_size(delta) + varint_size(joined->written) + rest;
    if (joined->written > 0 && joined->buffer.used + varint_size(size) + size > joined->limit) {
        return 0;
    }
    if (!grow(&joined->buffer, size + NUMBERS)) {
        return -1;
    }
    put_varint(&joined->buffer, size);
    joined->buffer.bytes[joined->buffer.used++] = 0;
    put_varint(&joined->buffer, delta);
    put_varint(&joined->buffer, joined->written);
    put_data(&joined->buffer, (const char *)record.at, (size_t)rest);
    joined->latest = joined->written == 0 || time > joined->latest ? time : joined->latest;
    joined->first = first;
    joined->written++;
    run->at = next;
    return 1;
}

/* Append the records of a run behind those to skip; return as `put_record` does. */
static int join_run(Joined *joined, PyObject *run) {
    Py_buffer view;
    Py_ssize_t at, stop, count;
    long long base;
    int append_time, fits = 1;
    if (!kernel_is_tuple("join_records", run) || !PyArg_ParseTuple(run, "y*nnnLp", &view, &at, &stop, &count, &base, &append_time)) {
        return -1;
    }
    KernelCursor cursor = {view.buf, view.buf}, record;
    if (at < 0 || stop < at || stop > view.len || count < 0) {
        kernel_corrupt("a run is a part of its bytes");
        fits = -1;
    } else {
        cursor.at += at;
        cursor.end += stop;
    }
    for (; fits == 1 && joined->skip > 0 && count > 0; joined->skip--, count--) {
        fits = kernel_enter_record(&cursor, &record, &cursor.at) ? 1 : -1;
    }
    for (; fits == 1 && count > 0; count--) {
        fits = join_one(joined, &cursor, base, append_time);
    }
    PyBuffer_Release(&view);
    return fits;
}

/* join_records(runs, start, limit, header): see _kernel.pyi */
PyObject *kernel_join_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("join_records", nargs, 4) || !kernel_is_list("join_records", args[0])) {
        return NULL;
    }
    Joined joined = {.skip = PyLong_AsSsize_t(args[1])};
    joined.limit = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[2]);
    Py_ssize_t header = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (joined.skip < 0 || header < 0 || header > LONGEST_HEADER) {
        PyErr_SetString(PyExc_ValueError, "join_records starts at a record that there is, behind a header of 4096 bytes at most");
        return NULL;
    }
    PyObject *result = NULL;
    int fits = grow(&joined.buffer, header + NUMBERS) ? 1 : -1;
    if (fits == 1) {
        memset(joined.buffer.bytes, 0, (size_t)header);
        joined.buffer.used = header;
    }
    for (Py_ssize_t index = 0; fits == 1 && index < PyList_GET_SIZE(args[0]); index++) {
        PyObject *run = Py_NewRef(PyList_GET_ITEM(args[0], index)); /* its numbers may run anything */
        fits = join_run(&joined, run);
        Py_DECREF(run);
    }
    if (fits >= 0 && joined.written == 0) {
        PyErr_SetString(PyExc_ValueError, "join_records starts at a record that there is");
    } else if (fits >= 0) {
        PyObject *bytes = PyByteArray_FromStringAndSize((const char *)joined.buffer.bytes, joined.buffer.used);
        result = bytes == NULL ? NULL : Py_BuildValue("(NnLL)", bytes, joined.written, (long long)joined.first, (long long)joined.latest);
    }
    PyMem_Free(joined.buffer.bytes);
    return result;
}
