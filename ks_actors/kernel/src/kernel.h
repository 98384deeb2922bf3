/* What the files of the kernel share. Every function here does what Python code beside it does too, many records at a time. */

#ifndef KS_ACTORS_KERNEL_H
#define KS_ACTORS_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Until Python 3.11 whatever takes memory may run the garbage collector, and that finalizers, which are anybody's code: a list would be shorter by then,
   rows elsewhere. From 3.12 on it waits for the interpreter. So every function is entered by one of these, and the collector goes on behind it. (Where
   Python code runs within, another thread may come in between; what it finds off it leaves off, and whoever found it on has it on again.) */
#if PY_VERSION_HEX < 0x030C0000
#define KERNEL_ENTER(call) \
    int collects = PyGC_Disable(); \
    PyObject *made = call; \
    if (collects) { \
        PyGC_Enable(); \
    } \
    return made
#else
#define KERNEL_ENTER(call) return call
#endif
#define KERNEL_FAST(type, function) \
    static PyObject *enter_##function(type *self, PyObject *const *args, Py_ssize_t count) { KERNEL_ENTER(function(self, args, count)); }
#define KERNEL_ONE(type, function) \
    static PyObject *enter_##function(type *self, PyObject *object) { KERNEL_ENTER(function(self, object)); }
#define KERNEL_METHOD(name, function, flag) {name, (PyCFunction)(void (*)(void))function, flag, KERNEL_DOC}
#define KERNEL_DOC PyDoc_STR("What it does is said in ks_actors/kernel/_kernel.pyi.")

/* records.c */
PyObject *kernel_read_records(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_skip_records(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* batches.c */
PyObject *kernel_read_batches(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_behind_batches(PyObject *self, PyObject *data);

/* building.c */
PyObject *kernel_write_records(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_join_records(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* changes.c */
PyObject *kernel_write_changes(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* engine_rows.c */
PyObject *kernel_engine_rows(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* counting.c */
PyObject *kernel_count_up(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_absent(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_entry_columns(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* windows.c */
PyObject *kernel_count_windows(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_expire_windows(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_windowed(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_window_values(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_window_keys(PyObject *self, PyObject *const *args, Py_ssize_t count);
#define KERNEL_SUFFIX 12 /* bytes of start and sequence number behind a key */
void kernel_put_suffix(char *to, int64_t start, int64_t sequence);
PyObject *kernel_windowed_key(const char *data, Py_ssize_t size, int64_t start, int64_t sequence);

/* memory.c */
PyObject *kernel_trim_memory(PyObject *self, PyObject *none);
PyObject *kernel_map_large(PyObject *self, PyObject *size);

/* packed_rows.c */
int kernel_add_rows_type(PyObject *module);

/* meeting.c */
int kernel_near(PyObject *time, int64_t before, int64_t after, int64_t *low, int64_t *high);
PyObject *kernel_add_places(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_meet(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* checksum.c */
uint32_t kernel_checksum(const uint8_t *at, size_t size);
PyObject *kernel_crc32c(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* partitions.c */
PyObject *kernel_partitions(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_route_records(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* columns.c */
PyObject *kernel_convert(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *kernel_encode_texts(PyObject *self, PyObject *column);
PyObject *kernel_decode_texts(PyObject *self, PyObject *column);
PyObject *kernel_encode_longs(PyObject *self, PyObject *column);
PyObject *kernel_decode_longs(PyObject *self, PyObject *column);
PyObject *kernel_check_bytes(PyObject *self, PyObject *column);

/* ahead.c */
typedef struct {
    PyObject *dict;
    Py_hash_t hash;
} KernelSought; /* what is looked for, and where */
#define KERNEL_AHEAD 32 /* how many keys are looked for at once */
#define KERNEL_SOUGHT (3 * KERNEL_AHEAD)
void kernel_look_ahead(const KernelSought *sought, int count);
void kernel_warm(PyObject *dict, PyObject *other, PyObject *keys, Py_ssize_t index);
int kernel_add_looks_ahead(PyObject *module);

/* restored.c */
int kernel_add_restored_type(PyObject *module);

/* Tell whether there are `wanted` arguments, or set TypeError. */
static inline int kernel_has(const char *name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count == wanted) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, count);
    return 0;
}

/* Tell whether an argument is a list, or set TypeError. */
static inline int kernel_is_list(const char *name, PyObject *object) {
    if (PyList_CheckExact(object)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%s takes lists, got %.80s", name, Py_TYPE(object)->tp_name);
    return 0;
}

/* Tell whether an argument is a tuple, or set TypeError: `PyArg_ParseTuple` takes nothing else. */
static inline int kernel_is_tuple(const char *name, PyObject *object) {
    if (PyTuple_Check(object)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%s takes tuples, got %.80s", name, Py_TYPE(object)->tp_name);
    return 0;
}

/* Tell whether a list has the length that it has to have, or set ValueError. A list may change when Python code runs: whoever may run some looks again. */
static inline int kernel_is_long(const char *name, PyObject *list, Py_ssize_t length) {
    if (PyList_GET_SIZE(list) == length) {
        return 1;
    }
    PyErr_Format(PyExc_ValueError, "%s takes columns of one length: %zd, and %zd", name, length, PyList_GET_SIZE(list));
    return 0;
}

/* Tell whether a key is of a type that is compared by no code but Python's own. */
static inline int kernel_is_plain(PyObject *key) { return PyUnicode_CheckExact(key) || PyBytes_CheckExact(key) || PyLong_CheckExact(key); }

/* Return an int as int64, INT64_MIN when it is none or too large. */
static inline int64_t kernel_int(PyObject *object) {
    int overflow = 0;
    int64_t number = PyLong_CheckExact(object) ? PyLong_AsLongLongAndOverflow(object, &overflow) : INT64_MIN;
    return overflow ? INT64_MIN : number;
}

/* Write `size` bytes of a number, the highest first. */
static inline void kernel_put_number(char *to, uint64_t number, int size) {
    for (int place = size - 1; place >= 0; place--, number >>= 8) {
        to[place] = (char)(number & 0xff);
    }
}

/* Return the length of a key that has one, else 0. */
static inline Py_ssize_t kernel_key_length(PyObject *key) {
    return PyUnicode_Check(key) ? PyUnicode_GET_LENGTH(key) : PyBytes_Check(key) ? PyBytes_GET_SIZE(key) : 0;
}

/* Return the sum of two numbers, but nothing below 0, and nothing above the largest int64. */
static inline int64_t kernel_time(int64_t first, int64_t second) {
    if (first > 0 && second > INT64_MAX - first) {
        return INT64_MAX;
    }
    if (first < 0 && second < INT64_MIN - first) {
        return 0;
    }
    return first + second < 0 ? 0 : first + second;
}

/* Return one number less another, but nothing beyond int64. */
static inline int64_t kernel_less(int64_t first, int64_t second) {
    if (second < 0 && first > INT64_MAX + second) {
        return INT64_MAX;
    }
    return second > 0 && first < INT64_MIN + second ? INT64_MIN : first - second;
}

/* Return a pair that the garbage collector need not look at: what is in it refers to nothing. New pairs by the million would keep it busy. */
static inline PyObject *kernel_plain_pair(PyObject *first, PyObject *second) {
    PyObject *pair = PyTuple_Pack(2, first, second);
    if (pair != NULL) {
        PyObject_GC_UnTrack(pair);
    }
    return pair;
}

/* Append a new object, which may be NULL with an error set, and let go of it; tell whether that was possible. */
static inline int kernel_append(PyObject *list, PyObject *object) {
    int failed = object == NULL || PyList_Append(list, object) < 0;
    Py_XDECREF(object);
    return !failed;
}

#if defined(__GNUC__) || defined(__clang__)
#define KERNEL_PREFETCH(address) __builtin_prefetch(address)
#else
#define KERNEL_PREFETCH(address) ((void)(address))
#endif

/* Ask for what a pair refers to. */
static inline void kernel_ask_for_items(PyObject *object) {
    if (object != NULL && PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2) {
        KERNEL_PREFETCH(PyTuple_GET_ITEM(object, 0));
        KERNEL_PREFETCH(PyTuple_GET_ITEM(object, 1));
    }
}

#endif
