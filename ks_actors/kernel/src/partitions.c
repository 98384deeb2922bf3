/* Which partition each key goes to, as Kafka's default partitioner has it, and records written by partition. */

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

/* The records of one partition so far. */
typedef struct {
    Buffer buffer;
    Py_ssize_t count;
    int64_t first, latest;
} Routed;

/* Write one record; NOT_PLAIN when it does not fit any more. */
static int put_routed(Routed *routed, const KernelContent *key, const KernelContent *value, int64_t time, Py_ssize_t limit) {
    if (routed->count == 0) {
        routed->first = routed->latest = time;
    } else if (time > routed->latest) {
        routed->latest = time;
    }
    int64_t delta = (int64_t)((uint64_t)time - (uint64_t)routed->first);
    if (put_content(&routed->buffer, limit, routed->count, delta, key->data, key->length, 0, value->data, value->length) == NULL) {
        return PyErr_Occurred() ? FAILED : NOT_PLAIN;
    }
    routed->count++;
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
