/* Which partition each key goes to, as Kafka's default partitioner has it, and columns taken apart by partition, or written by partition. */

#include "building.h"
#include "store.h"

#define MOST_PARTITIONS 0x7fffffffL /* Kafka's own numbers have 32 bits */

static uint32_t murmur2(const uint8_t *data, Py_ssize_t length) {
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)length;
    while (length >= 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= m;
        word ^= word >> 24;
        word *= m;
        hash = hash * m ^ word;
        data += 4;
        length -= 4;
    }
    switch (length) {
        case 3: hash ^= (uint32_t)data[2] << 16; /* fall through */
        case 2: hash ^= (uint32_t)data[1] << 8; /* fall through */
        case 1: hash = (hash ^ data[0]) * m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

static long read_count(PyObject *object) {
    long count = PyLong_AsLong(object);
    if (count < 1 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a topic has one partition at least");
    }
    return count;
}

/* partitions(keys, count): see _kernel.pyi */
PyObject *kernel_partitions(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("partitions", nargs, 2) || !kernel_is_list("partitions", args[0])) {
        return NULL;
    }
    PyObject *keys = args[0];
    long count = read_count(args[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t total = PyList_GET_SIZE(keys);
    PyObject *found = PyList_New(total);
    for (Py_ssize_t index = 0; found != NULL && index < total; index++) {
        PyObject *key = PyList_GET_ITEM(keys, index), *number = NULL;
        if (PyBytes_Check(key)) {
            uint32_t hash = murmur2((const uint8_t *)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
            number = PyLong_FromLong((long)(hash & 0x7fffffff) % count);
        } else {
            PyErr_Format(PyExc_TypeError, "a key is bytes, got %.80s", Py_TYPE(key)->tp_name);
        }
        if (number == NULL) {
            Py_CLEAR(found);
        } else {
            PyList_SET_ITEM(found, index, number);
        }
    }
    return found;
}

/* Read the numbers; return whether all are below `count`, or set ValueError. */
static int read_numbers(PyObject *numbers, long count, long *where) {
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(numbers); index++) {
        PyObject *object = PyList_GET_ITEM(numbers, index);
        /* Anything but an int could run code that changes the lists. */
        long number = PyLong_CheckExact(object) ? PyLong_AsLong(object) : -1;
        if (number < 0 || number >= count) {
            PyErr_Clear();
            Py_INCREF(object); /* to show it may run anything */
            PyErr_Format(PyExc_ValueError, "there is no partition %R of %ld", object, count);
            Py_DECREF(object);
            return 0;
        }
        where[index] = number;
    }
    return 1;
}

/* Return lists by number, of what a column has for it; None for numbers that are not there. */
static PyObject *take_apart(PyObject *column, const long *where, Py_ssize_t total, const Py_ssize_t *sizes, Py_ssize_t *used, long count) {
    PyObject *parts = PyList_New(count);
    if (parts == NULL) {
        return NULL;
    }
    for (long number = 0; number < count; number++) {
        PyObject *part = sizes[number] ? PyList_New(sizes[number]) : Py_NewRef(Py_None);
        if (part == NULL) {
            Py_DECREF(parts);
            return NULL;
        }
        PyList_SET_ITEM(parts, number, part);
        used[number] = 0;
    }
    for (Py_ssize_t index = 0; index < total; index++) {
        long number = where[index];
        PyList_SET_ITEM(PyList_GET_ITEM(parts, number), used[number]++, Py_NewRef(PyList_GET_ITEM(column, index)));
    }
    return parts;
}

/* scatter(numbers, count, columns): see _kernel.pyi */
PyObject *kernel_scatter(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("scatter", nargs, 3) || !kernel_is_list("scatter", args[0]) || !kernel_is_list("scatter", args[2])) {
        return NULL;
    }
    PyObject *numbers = args[0], *columns = args[2];
    long count = read_count(args[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t total = PyList_GET_SIZE(numbers);
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(columns); index++) {
        PyObject *column = PyList_GET_ITEM(columns, index);
        if (!kernel_is_list("scatter", column) || !kernel_is_long("scatter", column, total)) {
            return NULL;
        }
    }
    if (count > MOST_PARTITIONS) {
        return PyErr_Format(PyExc_ValueError, "a topic has %ld partitions at most, not %ld", MOST_PARTITIONS, count);
    }
    long *where = PyMem_New(long, total + 1);
    if (where == NULL || !read_numbers(numbers, count, where)) { /* before memory is taken for so many numbers */
        PyMem_Free(where);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    Py_ssize_t *sizes = PyMem_Calloc((size_t)count * 2, sizeof(Py_ssize_t));
    PyObject *result = NULL;
    if (sizes == NULL) {
        PyErr_NoMemory();
    } else {
        for (Py_ssize_t index = 0; index < total; index++) {
            sizes[where[index]]++;
        }
        result = PyList_New(PyList_GET_SIZE(columns));
        for (Py_ssize_t index = 0; result != NULL && index < PyList_GET_SIZE(columns); index++) {
            PyObject *parts = take_apart(PyList_GET_ITEM(columns, index), where, total, sizes, sizes + count, count);
            if (parts == NULL) {
                Py_CLEAR(result);
            } else {
                PyList_SET_ITEM(result, index, parts);
            }
        }
    }
    PyMem_Free(where);
    PyMem_Free(sizes);
    return result;
}

/* The records of one partition so far. */
typedef struct {
    Buffer buffer;
    Py_ssize_t count;
    int64_t first, latest;
} Routed;

/* Write one record; NOT_PLAIN when it does not fit any more. */
static int put_routed(Routed *routed, const KernelContent *key, const KernelContent *value, int64_t time, Py_ssize_t limit) {
    Buffer *buffer = &routed->buffer;
    if (routed->count == 0) {
        routed->first = routed->latest = time;
    } else if (time > routed->latest) {
        routed->latest = time;
    }
    int64_t delta = (int64_t)((uint64_t)time - (uint64_t)routed->first), content = value->length < 0 ? 0 : value->length;
    int64_t size = 1 + varint_size(delta) + varint_size(routed->count) + varint_size(key->length) + key->length + varint_size(value->length) + content + 1;
    if (varint_size(size) + size > limit - buffer->used) {
        return NOT_PLAIN;
    }
    if (!grow(buffer, size + NUMBERS)) {
        return FAILED;
    }
    put_varint(buffer, size);
    buffer->bytes[buffer->used++] = 0;
    put_varint(buffer, delta);
    put_varint(buffer, routed->count++);
    put_varint(buffer, key->length);
    put_data(buffer, key->data, (size_t)key->length);
    put_varint(buffer, value->length);
    if (content > 0) {
        put_data(buffer, value->data, (size_t)content);
    }
    put_varint(buffer, 0);
    return DONE;
}

/* Write one record to the partition of its key; NOT_PLAIN for what is of another type, or has no key. */
static int route_one(Routed *routed, long count, PyObject *key, PyObject *value, PyObject *timestamp, const int *forms, Py_ssize_t limit) {
    KernelContent name, content = {.length = -1};
    int64_t time;
    int done = key != Py_None && kernel_number_of(timestamp, &time) ? kernel_content_of(key, forms[0], &name) : NOT_PLAIN;
    if (done != DONE) {
        return done;
    }
    if (value != Py_None) {
        done = kernel_content_of(value, forms[1], &content);
    }
    if (done == DONE) {
        long number = count == 1 ? 0 : (long)(murmur2((const uint8_t *)name.data, name.length) & 0x7fffffff) % count;
        done = put_routed(&routed[number], &name, &content, time, limit);
        Py_XDECREF(content.owner);
    }
    Py_XDECREF(name.owner);
    return done;
}

/* Return what was written for each partition, None for the others. */
static PyObject *routed_parts(const Routed *routed, long count) {
    PyObject *parts = PyList_New(count);
    for (long number = 0; parts != NULL && number < count; number++) {
        const Routed *one = &routed[number];
        PyObject *part = one->count == 0 ? Py_NewRef(Py_None)
                                         : Py_BuildValue("(y#nLL)", (const char *)one->buffer.bytes, one->buffer.used, one->count, (long long)one->first,
                                                         (long long)one->latest);
        if (part == NULL) {
            Py_CLEAR(parts);
        } else {
            PyList_SET_ITEM(parts, number, part);
        }
    }
    return parts;
}

/* route_records(keys, values, timestamps, (key form, value form), count, limit): see _kernel.pyi */
PyObject *kernel_route_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    int forms[2];
    if (!kernel_has("route_records", nargs, 6) || !kernel_is_list("route_records", args[0]) || !kernel_is_list("route_records", args[1]) ||
        !kernel_is_list("route_records", args[2]) || !kernel_is_tuple("route_records", args[3]) ||
        !PyArg_ParseTuple(args[3], "ii", &forms[0], &forms[1])) {
        return NULL;
    }
    const KernelStore shape = {.keys = forms[0], .values = forms[1]};
    long count = kernel_has_forms("route_records", &shape) ? read_count(args[4]) : 0;
    Py_ssize_t limit = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[5]), total = PyList_GET_SIZE(args[2]);
    if (PyErr_Occurred() || !kernel_is_long("route_records", args[0], total) || !kernel_is_long("route_records", args[1], total)) {
        return NULL;
    }
    if (count > MOST_PARTITIONS) {
        return PyErr_Format(PyExc_ValueError, "a topic has %ld partitions at most, not %ld", MOST_PARTITIONS, count);
    }
    Routed *routed = PyMem_Calloc((size_t)count, sizeof(Routed));
    if (routed == NULL) {
        return PyErr_NoMemory();
    }
    int done = DONE;
    for (Py_ssize_t index = 0; done == DONE && index < total; index++) {
        done = route_one(routed, count, PyList_GET_ITEM(args[0], index), PyList_GET_ITEM(args[1], index), PyList_GET_ITEM(args[2], index), forms, limit);
    }
    PyObject *result = done == FAILED ? NULL : done == NOT_PLAIN ? Py_NewRef(Py_None) : routed_parts(routed, count);
    for (long number = 0; number < count; number++) {
        PyMem_Free(routed[number].buffer.bytes);
    }
    PyMem_Free(routed);
    return result;
}
