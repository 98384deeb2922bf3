/* Counting: the one aggregation whose every step is known here, so that no Python runs between one record and the next; and what has changed by it. */

#include "store.h"

typedef struct {
    PyObject *view, *dirty, *changes, *times;
    int with_old;
    Py_ssize_t key_bytes;
} Counting;

/* Note what a key was before the first change of the transaction. */
static inline int note(Counting *counting, PyObject *key, PyObject *entry) {
    Py_ssize_t before = PyDict_GET_SIZE(counting->dirty);
    if (PyDict_SetDefault(counting->dirty, key, entry) == NULL) {
        return 0;
    }
    if (PyDict_GET_SIZE(counting->dirty) != before) {
        counting->key_bytes += kernel_key_length(key);
    }
    return 1;
}

/* Put the next count of a key into the place of `entry`; return 1, or 0 when it is not as plain as that, or -1 with an error. */
static int replace(Counting *counting, PyObject *key, PyObject *entry, PyObject *time) {
    PyObject *before = PyTuple_GET_ITEM(entry, 0), *seen = PyTuple_GET_ITEM(entry, 1);
    int64_t number, last, now;
    if (!kernel_number_of(before, &number) || !kernel_number_of(seen, &last) || !kernel_number_of(time, &now) || number == INT64_MAX) {
        return 0;
    }
    PyObject *count = PyLong_FromLongLong(number + 1), *latest = Py_NewRef(last < now ? time : seen);
    PyObject *old = counting->with_old && last != INT64_MIN ? before : Py_None; /* a key that was not there has the least time */
    PyObject *changed = count == NULL ? NULL : kernel_plain_pair(count, latest);
    int done = -1;
    if (changed != NULL && kernel_append(counting->changes, kernel_plain_pair(count, old)) &&
        PyList_Append(counting->times, latest) == 0 && note(counting, key, entry) && PyDict_SetItem(counting->view, key, changed) == 0) {
        done = 1;
    }
    Py_XDECREF(changed);
    Py_DECREF(latest);
    Py_XDECREF(count);
    return done;
}

/* Count one record; return 1, or 0 when it is not as plain as that, or -1 with an error. */
static int count_one(Counting *counting, PyObject *key, PyObject *time) {
    PyObject *entry = kernel_is_plain(key) ? PyDict_GetItemWithError(counting->view, key) : NULL;
    if (entry == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2) {
        return 0;
    }
    Py_INCREF(entry);
    int done = replace(counting, key, entry, time);
    Py_DECREF(entry);
    return done;
}

/* count_up(view, dirty, keys, values, timestamps, start, changes, times, with_old): see _kernel.pyi */
PyObject *kernel_count_up(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("count_up", nargs, 9)) {
        return NULL;
    }
    PyObject *keys = args[2], *values = args[3], *timestamps = args[4];
    Counting counting = {args[0], args[1], args[6], args[7], PyObject_IsTrue(args[8]), 0};
    Py_ssize_t index = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[5]); /* an int of a class of its own is code, and none may run while an error is set */
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyDict_Check(counting.view) || !PyDict_Check(counting.dirty)) {
        PyErr_SetString(PyExc_TypeError, "count_up takes two dicts first");
        return NULL;
    }
    for (int place = 2; place < 8; place++) {
        if (place != 5 && !kernel_is_list("count_up", args[place])) {
            return NULL;
        }
    }
    /* Other keys of the dicts may compare by code of their own, and that may do anything to the lists: they are looked at for each record. */
    for (Py_ssize_t warmed = index; index >= 0 && index < PyList_GET_SIZE(keys); index++) {
        if (index >= warmed) {
            kernel_warm(counting.view, counting.dirty, keys, index);
            warmed = index + KERNEL_AHEAD;
        }
        if (index >= PyList_GET_SIZE(values) || index >= PyList_GET_SIZE(timestamps)) {
            PyErr_SetString(PyExc_ValueError, "count_up takes columns of one length");
            return NULL;
        }
        PyObject *key = PyList_GET_ITEM(keys, index);
        if (key == Py_None || PyList_GET_ITEM(values, index) == Py_None) {
            break;
        }
        PyObject *time = Py_NewRef(PyList_GET_ITEM(timestamps, index));
        Py_INCREF(key);
        int counted = count_one(&counting, key, time);
        Py_DECREF(key);
        Py_DECREF(time);
        if (counted < 0) {
            return NULL;
        }
        if (counted == 0) {
            break;
        }
    }
    return Py_BuildValue("(nn)", index, counting.key_bytes);
}

/* absent(view, keys, start): see _kernel.pyi */
PyObject *kernel_absent(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("absent", nargs, 3) || !kernel_is_list("absent", args[1])) {
        return NULL;
    }
    if (!PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "absent takes a dict first");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[2]);
    PyObject *keys = args[1], *found = PyErr_Occurred() ? NULL : PyDict_New();
    int done = found != NULL;
    for (Py_ssize_t index = start, warmed = start; done && index >= 0 && index < PyList_GET_SIZE(keys); index++) {
        if (index >= warmed) {
            kernel_warm(args[0], NULL, keys, index);
            warmed = index + KERNEL_AHEAD;
        }
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, index));
        if (kernel_is_plain(key)) {
            int there = PyDict_Contains(args[0], key);
            done = there > 0 || (there == 0 && PyDict_SetItem(found, key, Py_None) == 0);
        }
        Py_DECREF(key);
    }
    PyObject *list = done ? PyDict_Keys(found) : NULL;
    Py_XDECREF(found);
    return list;
}

/* Append the parts of an entry to the columns. */
static int append_parts(void *context, Py_ssize_t Py_UNUSED(index), PyObject *Py_UNUSED(key), PyObject *entry) {
    PyObject **columns = context;
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2) {
        return NOT_PLAIN;
    }
    for (int part = 0; part < 2; part++) {
        if (PyList_Append(columns[part], PyTuple_GET_ITEM(entry, part)) < 0) {
            return FAILED;
        }
    }
    return DONE;
}

/* entry_columns(view, dirty, keys): see _kernel.pyi */
PyObject *kernel_entry_columns(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("entry_columns", nargs, 3) || !kernel_is_list("entry_columns", args[2])) {
        return NULL;
    }
    if (!PyDict_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "entry_columns takes two dicts first");
        return NULL;
    }
    KernelStore store = {.entries = args[0], .noted = {args[1]}, .shape = KERNEL_TABLE};
    PyObject *columns[2] = {PyList_New(0), PyList_New(0)}, *found = NULL;
    int done = columns[0] == NULL || columns[1] == NULL ? FAILED : kernel_visit_entries(&store, args[2], append_parts, columns);
    if (done != FAILED) {
        found = done == DONE ? PyTuple_Pack(2, columns[0], columns[1]) : Py_NewRef(Py_None);
    }
    Py_XDECREF(columns[0]);
    Py_XDECREF(columns[1]);
    return found;
}
