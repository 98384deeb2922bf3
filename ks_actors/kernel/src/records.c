/* Reading: the records of a record batch (message format v2, KIP-98), uncompressed and without the batch's header, to columns. */

#include "records.h"

/* The place of a key or value; the length of None is negative. */
typedef struct {
    const char *data;
    int64_t length;
} Span;

static inline int read_span(KernelCursor *cursor, Span *span) {
    if (!kernel_read_varint(cursor, &span->length)) {
        return 0;
    }
    if (span->length > cursor->end - cursor->at) {
        return kernel_corrupt("a key, value or header is longer than its record");
    }
    span->data = (const char *)cursor->at;
    cursor->at += span->length < 0 ? 0 : span->length;
    return 1;
}

/* Return a new reference to bytes, to a text, or to None; NULL with ValueError or MemoryError. */
static inline PyObject *object_of(const Span *span, int text) {
    if (span->length < 0) {
        return Py_NewRef(Py_None);
    }
    return text ? PyUnicode_DecodeUTF8(span->data, (Py_ssize_t)span->length, NULL) : PyBytes_FromStringAndSize(span->data, (Py_ssize_t)span->length);
}

/* Return a new reference to bytes, or to None where the length is negative; NULL with ValueError. */
static inline PyObject *read_bytes(KernelCursor *cursor) {
    Span span;
    return read_span(cursor, &span) ? object_of(&span, 0) : NULL;
}

static PyObject *read_header(KernelCursor *cursor) {
    int64_t length;
    if (!kernel_read_varint(cursor, &length)) {
        return NULL;
    }
    if (length < 0 || length > cursor->end - cursor->at) {
        kernel_corrupt("a header's name is longer than its record");
        return NULL;
    }
    /* A broker does not look into names: bytes that are not UTF-8 become U+FFFD, as Kafka's Java client reads them. */
    PyObject *name = PyUnicode_DecodeUTF8((const char *)cursor->at, (Py_ssize_t)length, "replace");
    if (name == NULL) {
        return NULL;
    }
    cursor->at += length;
    PyObject *value = read_bytes(cursor);
    PyObject *pair = value == NULL ? NULL : PyTuple_Pack(2, name, value);
    Py_DECREF(name);
    Py_XDECREF(value);
    return pair;
}

static PyObject *read_headers(KernelCursor *cursor, int64_t count) {
    /* A header takes two bytes at least: a count beyond that is nonsense, and must not become memory. */
    if (count < 0 || count > (cursor->end - cursor->at) / 2) {
        kernel_corrupt("a record cannot have as many headers as it says");
        return NULL;
    }
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t index = 0; headers != NULL && index < count; index++) {
        PyObject *pair = read_header(cursor);
        if (pair == NULL) {
            Py_CLEAR(headers);
        } else {
            PyTuple_SET_ITEM(headers, index, pair);
        }
    }
    return headers;
}

void kernel_drop_columns(KernelColumns *columns) {
    Py_CLEAR(columns->keys);
    Py_CLEAR(columns->values);
    Py_CLEAR(columns->timestamps);
    Py_CLEAR(columns->offsets);
    Py_CLEAR(columns->headers);
}

int kernel_new_columns(KernelColumns *columns, Py_ssize_t count, int with_offsets) {
    columns->keys = PyList_New(count);
    columns->values = PyList_New(count);
    columns->timestamps = PyList_New(count);
    columns->offsets = with_offsets ? PyList_New(count) : NULL;
    columns->headers = NULL;
    columns->texts = 0;
    return columns->keys != NULL && columns->values != NULL && columns->timestamps != NULL && (columns->offsets != NULL || !with_offsets);
}

/* Headers begin with the first record that has some: those before it have the empty tuple. */
static int begin_headers(KernelColumns *columns, Py_ssize_t count) {
    PyObject *none = PyTuple_New(0);
    columns->headers = none == NULL ? NULL : PyList_New(count);
    if (columns->headers == NULL) {
        Py_XDECREF(none);
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyList_SET_ITEM(columns->headers, index, Py_NewRef(none));
    }
    Py_DECREF(none);
    return 1;
}

int kernel_read_record(KernelCursor *all, KernelColumns *columns, Py_ssize_t index, Py_ssize_t count, int64_t base_offset, int64_t base_time, int append_time) {
    KernelCursor record;
    const uint8_t *next;
    int64_t time_delta, offset_delta, header_count;
    if (!kernel_enter_record(all, &record, &next)) {
        return 0;
    }
    record.at++; /* attributes: none are in use */
    if (record.at > record.end || !kernel_read_varint(&record, &time_delta) || !kernel_read_varint(&record, &offset_delta)) {
        return PyErr_Occurred() ? 0 : kernel_corrupt("a record ends too early");
    }
    Span spans[2];
    PyObject *key = read_span(&record, &spans[0]) ? object_of(&spans[0], columns->texts & 1) : NULL;
    if (key == NULL) {
        return 0;
    }
    PyList_SET_ITEM(columns->keys, index, key);
    if (!read_span(&record, &spans[1])) {
        return 0;
    }
    /* A value that is equal to its key, and a time that is equal to the one before, are the same object. */
    int same = columns->texts == 3 && spans[0].length > 0 && spans[0].length == spans[1].length && memcmp(spans[0].data, spans[1].data, (size_t)spans[0].length) == 0;
    PyObject *value = same ? Py_NewRef(key) : object_of(&spans[1], columns->texts & 2);
    if (value == NULL) {
        return 0;
    }
    PyList_SET_ITEM(columns->values, index, value);
    int64_t moment = append_time ? base_time : (int64_t)((uint64_t)base_time + (uint64_t)time_delta);
    PyObject *time = index > 0 && moment == columns->time ? Py_NewRef(PyList_GET_ITEM(columns->timestamps, index - 1)) : PyLong_FromLongLong(moment);
    if (time == NULL) {
        return 0;
    }
    columns->time = moment;
    PyList_SET_ITEM(columns->timestamps, index, time);
    if (columns->offsets != NULL) {
        PyObject *offset = PyLong_FromLongLong((int64_t)((uint64_t)base_offset + (uint64_t)offset_delta));
        if (offset == NULL) {
            return 0;
        }
        PyList_SET_ITEM(columns->offsets, index, offset);
    }
    if (!kernel_read_varint(&record, &header_count)) {
        return 0;
    }
    if (header_count != 0) {
        if (columns->headers == NULL && !begin_headers(columns, count)) {
            return 0;
        }
        PyObject *headers = read_headers(&record, header_count);
        if (headers == NULL || PyList_SetItem(columns->headers, index, headers) < 0) {
            return 0;
        }
    }
    if (record.at != record.end) {
        return kernel_corrupt("a record is longer than its fields");
    }
    all->at = next;
    return 1;
}

/* Tell whether a record has all its fields and no headers, or set ValueError. */
static int is_plain(KernelCursor *record) {
    int64_t number;
    Span span;
    record->at++; /* attributes: none are in use */
    return record->at <= record->end && kernel_read_varint(record, &number) && kernel_read_varint(record, &number) && read_span(record, &span) &&
                   read_span(record, &span) && kernel_read_varint(record, &number) && number == 0 && record->at == record->end
               ? 1
               : !PyErr_Occurred() && kernel_corrupt("a record has headers, or is not as long as its fields");
}

static int view_of(PyObject *object, PyObject *at, Py_buffer *view, KernelCursor *cursor) {
    Py_ssize_t begin = PyLong_AsSsize_t(at);
    if ((begin == -1 && PyErr_Occurred()) || PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        return 0;
    }
    if (begin < 0 || begin > view->len) {
        PyBuffer_Release(view);
        return kernel_corrupt("records are asked for that are not in the batch");
    }
    cursor->at = (const uint8_t *)view->buf + begin;
    cursor->end = (const uint8_t *)view->buf + view->len;
    return 1;
}

/* read_records(data, at, count, base_offset, base_time, append_time, with_offsets, texts=0): see _kernel.pyi */
PyObject *kernel_read_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 8 && !kernel_has("read_records", nargs, 7)) {
        return NULL;
    }
    Py_ssize_t count = PyLong_AsSsize_t(args[2]);
    /* No code of others may run while an error is set, and an int of theirs is code. */
    int64_t base_offset = PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[3]);
    int64_t base_time = PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[4]);
    int append_time = PyErr_Occurred() ? 0 : PyObject_IsTrue(args[5]);
    int with_offsets = PyErr_Occurred() ? 0 : PyObject_IsTrue(args[6]);
    long texts = PyErr_Occurred() || nargs == 7 ? 0 : PyLong_AsLong(args[7]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer view;
    KernelCursor cursor;
    if (!view_of(args[0], args[1], &view, &cursor)) {
        return NULL;
    }
    KernelColumns columns = {NULL, NULL, NULL, NULL, NULL, 0, 0};
    PyObject *result = NULL;
    if (count < 0 || count > (cursor.end - cursor.at) / KERNEL_LEAST_RECORD) {
        kernel_corrupt("a batch holds fewer records than it says");
        goto done;
    }
    if (!kernel_new_columns(&columns, count, with_offsets)) {
        goto done;
    }
    columns.texts = (int)texts & 3;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!kernel_read_record(&cursor, &columns, index, count, base_offset, base_time, append_time)) {
            goto done;
        }
    }
    result = Py_BuildValue("(nOOOOO)", (Py_ssize_t)(cursor.at - (const uint8_t *)view.buf), columns.keys, columns.values, columns.timestamps,
                           columns.headers == NULL ? Py_None : columns.headers, columns.offsets == NULL ? Py_None : columns.offsets);
done:
    kernel_drop_columns(&columns);
    PyBuffer_Release(&view);
    return result;
}

/* skip_records(data, at, count, plain=False): see _kernel.pyi */
PyObject *kernel_skip_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 4 && !kernel_has("skip_records", nargs, 3)) {
        return NULL;
    }
    Py_ssize_t count = PyLong_AsSsize_t(args[2]);
    int plain = PyErr_Occurred() || nargs == 3 ? 0 : PyObject_IsTrue(args[3]);
    Py_buffer view;
    KernelCursor cursor, record;
    if (PyErr_Occurred() || !view_of(args[0], args[1], &view, &cursor)) {
        return NULL;
    }
    PyObject *result = NULL;
    for (; count > 0; count--) {
        const uint8_t *next;
        if (!kernel_enter_record(&cursor, &record, &next) || (plain && !is_plain(&record))) {
            goto done;
        }
        cursor.at = next;
    }
    result = PyLong_FromSsize_t(cursor.at - (const uint8_t *)view.buf);
done:
    PyBuffer_Release(&view);
    return result;
}
