/* Counting in windows of time, and the keys that windows have in a changelog. */

#include "store.h"

typedef struct {
    PyObject *panes, *dirty, *windows, *missing;          /* what the store has */
    PyObject *found, *changes, *times;                    /* what comes out */
    int with_old;
    long long now, grace, size, observed, retention, low;
    Py_ssize_t added, key_bytes;
    int64_t start; /* the window that the last record was in, with its number, its object and its pane: the next one is likely to be in it, too */
    PyObject *number, *window, *pane;
    PyObject *handles[KERNEL_AHEAD]; /* of the next records, if they are in the same window */
} Counting;

/* Find the window that begins at `start`; return 1, or 0 when nobody has made it yet, or -1 with an error. */
static int enter_window(Counting *counting, int64_t start) {
    if (counting->window != NULL && counting->start == start) {
        return 1;
    }
    PyObject *number = PyLong_FromLongLong(start);
    PyObject *window = number == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(counting->windows, number));
    PyObject *pane = window == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(counting->panes, number));
    if (pane == NULL || !PyDict_CheckExact(pane)) {
        if (pane != NULL) {
            PyErr_SetString(PyExc_TypeError, "count_windows takes dicts by start");
        }
        Py_XDECREF(window);
        Py_XDECREF(pane);
        Py_XDECREF(number);
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_XSETREF(counting->number, number);
    Py_XSETREF(counting->window, window);
    Py_XSETREF(counting->pane, pane);
    counting->start = start;
    return 1;
}

/* Look ahead for the next records; most are likely to be in the window of the last one. */
static int look_ahead(Counting *counting, PyObject *keys, Py_ssize_t index) {
    KernelSought sought[KERNEL_SOUGHT];
    int count = 0;
    for (Py_ssize_t end = index + KERNEL_AHEAD; index < end && index < PyList_GET_SIZE(keys); index++) {
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, index)), **handle = &counting->handles[index % KERNEL_AHEAD];
        Py_XSETREF(*handle, kernel_is_plain(key) ? kernel_plain_pair(key, counting->number) : NULL);
        if (*handle != NULL) {
            sought[count++] = (KernelSought){counting->pane, PyObject_Hash(key)};
            sought[count++] = (KernelSought){counting->dirty, PyObject_Hash(*handle)};
        }
        Py_DECREF(key);
        if (PyErr_Occurred()) {
            return 0;
        }
    }
    kernel_look_ahead(sought, count);
    return 1;
}

/* Return a new reference to the handle of a record. */
static PyObject *handle_of(const Counting *counting, PyObject *key, Py_ssize_t index) {
    PyObject *made = counting->handles[index % KERNEL_AHEAD];
    int fits = made != NULL && PyTuple_GET_ITEM(made, 0) == key && PyTuple_GET_ITEM(made, 1) == counting->number;
    return fits ? Py_NewRef(made) : kernel_plain_pair(key, counting->number);
}

/* Note what a window was before the first change of the transaction. */
static int note(Counting *counting, PyObject *key, Py_ssize_t index, PyObject *entry) {
    PyObject *handle = handle_of(counting, key, index);
    Py_ssize_t before = PyDict_GET_SIZE(counting->dirty);
    int done = handle != NULL && PyDict_SetDefault(counting->dirty, handle, entry == NULL ? counting->missing : entry) != NULL;
    Py_XDECREF(handle);
    if (done && PyDict_GET_SIZE(counting->dirty) != before) {
        counting->key_bytes += kernel_key_length(key);
        counting->added += entry == NULL;
    }
    return done;
}

/* Put the next count of a key's window into the place of `entry`, which is NULL when there is none; return 1, or -1 with an error. */
static int replace(Counting *counting, PyObject *key, Py_ssize_t index, PyObject *entry, int64_t number, PyObject *latest) {
    PyObject *count = PyLong_FromLongLong(number + 1), *old = counting->with_old && entry != NULL ? PyLong_FromLongLong(number) : Py_NewRef(Py_None);
    PyObject *changed = count == NULL || old == NULL ? NULL : kernel_plain_pair(count, latest);
    int done = changed != NULL && note(counting, key, index, entry) && PyDict_SetItem(counting->pane, key, changed) == 0 &&
               kernel_append(counting->changes, kernel_plain_pair(count, old)) && PyList_Append(counting->times, latest) == 0 &&
               PyList_Append(counting->found, counting->window) == 0;
    Py_XDECREF(changed);
    Py_XDECREF(old);
    Py_XDECREF(count);
    return done ? 1 : -1;
}

/* Count one record in its window; return 1, or 0 when it is not as plain as that, or -1 with an error. */
static int count_one(Counting *counting, PyObject *key, Py_ssize_t index, PyObject *time) {
    int64_t timestamp = kernel_int(time);
    if (!kernel_is_plain(key) || timestamp < 0 || timestamp > INT64_MAX - counting->size) {
        return 0;
    }
    int64_t now = timestamp > counting->now ? timestamp : counting->now, start = timestamp - timestamp % counting->size;
    int64_t observed = start > counting->observed ? start : counting->observed;
    if (start + counting->size <= kernel_less(now, counting->grace) || start <= kernel_less(observed, counting->retention)) {
        return 0;
    }
    int entered = enter_window(counting, start);
    if (entered != 1) {
        return entered;
    }
    PyObject *entry = PyDict_GetItemWithError(counting->pane, key);
    int64_t number = 0, seen = -1;
    if (entry != NULL) {
        if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2) {
            return 0;
        }
        number = kernel_int(PyTuple_GET_ITEM(entry, 0));
        seen = kernel_int(PyTuple_GET_ITEM(entry, 1));
        if (number < 0 || number == INT64_MAX || seen == INT64_MIN) {
            return 0;
        }
    } else if (PyErr_Occurred()) {
        return -1;
    } else if (start < counting->low) {
        return 0; /* it may be on disk */
    }
    counting->now = now;
    counting->observed = observed;
    Py_XINCREF(entry);
    int done = replace(counting, key, index, entry, number, entry != NULL && seen >= timestamp ? PyTuple_GET_ITEM(entry, 1) : time);
    Py_XDECREF(entry);
    return done;
}

/* Count from `index` on; return where that came to an end, or -1 with an error. */
static Py_ssize_t count_all(Counting *counting, PyObject *keys, PyObject *timestamps, Py_ssize_t index) {
    for (Py_ssize_t warmed = index; index >= 0 && index < PyList_GET_SIZE(keys); index++) {
        if (index >= warmed && counting->pane != NULL) {
            if (!look_ahead(counting, keys, index)) {
                return -1;
            }
            warmed = index + KERNEL_AHEAD;
        }
        if (index >= PyList_GET_SIZE(keys) || index >= PyList_GET_SIZE(timestamps)) {
            PyErr_SetString(PyExc_ValueError, "count_windows takes columns of one length");
            return -1;
        }
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, index)), *time = Py_NewRef(PyList_GET_ITEM(timestamps, index));
        int counted = count_one(counting, key, index, time);
        Py_DECREF(key);
        Py_DECREF(time);
        if (counted < 0) {
            return -1;
        }
        if (counted == 0) {
            break;
        }
    }
    return index;
}

/* Read six numbers; return 1, or 0 when one is beyond int64, or -1 with TypeError. */
static int read_numbers(Counting *counting, PyObject *numbers) {
    long long *places[] = {&counting->now, &counting->grace, &counting->size, &counting->observed, &counting->retention, &counting->low};
    int found = 1;
    if (!PyTuple_CheckExact(numbers) || PyTuple_GET_SIZE(numbers) != 6) {
        PyErr_SetString(PyExc_TypeError, "count_windows takes six numbers last");
        return -1;
    }
    for (int each = 0; each < 6; each++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, each);
        int overflow = 0;
        if (!PyLong_Check(number)) {
            PyErr_Format(PyExc_TypeError, "count_windows takes six numbers last, got %.80s", Py_TYPE(number)->tp_name);
            return -1;
        }
        *places[each] = PyLong_AsLongLongAndOverflow(number, &overflow);
        found = found && overflow == 0;
    }
    return found;
}

/* count_windows(store, keys, timestamps, start, out, numbers): see _kernel.pyi */
PyObject *kernel_count_windows(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("count_windows", nargs, 6)) {
        return NULL;
    }
    Counting counting = {0};
    PyObject *keys = args[1], *timestamps = args[2];
    Py_ssize_t index = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || !kernel_is_tuple("count_windows", args[0]) || !kernel_is_tuple("count_windows", args[4]) ||
        !PyArg_ParseTuple(args[0], "O!O!O!O", &PyDict_Type, &counting.panes, &PyDict_Type, &counting.dirty, &PyDict_Type, &counting.windows,
                          &counting.missing) ||
        !PyArg_ParseTuple(args[4], "O!O!O!p", &PyList_Type, &counting.found, &PyList_Type, &counting.changes, &PyList_Type, &counting.times,
                          &counting.with_old) ||
        !kernel_is_list("count_windows", keys) || !kernel_is_list("count_windows", timestamps)) {
        return NULL;
    }
    int plain = read_numbers(&counting, args[5]);
    if (plain < 0) {
        return NULL;
    }
    if (index < 0) {
        PyErr_SetString(PyExc_ValueError, "count_windows starts at a record that there is");
        return NULL;
    }
    if (plain == 0) { /* Python counts on */
        return Py_BuildValue("(nOOii)", index, PyTuple_GET_ITEM(args[5], 0), PyTuple_GET_ITEM(args[5], 3), 0, 0);
    }
    if (counting.size <= 0) {
        PyErr_SetString(PyExc_ValueError, "count_windows takes windows that last");
        return NULL;
    }
    index = count_all(&counting, keys, timestamps, index);
    Py_XDECREF(counting.number);
    Py_XDECREF(counting.window);
    Py_XDECREF(counting.pane);
    for (int each = 0; each < KERNEL_AHEAD; each++) {
        Py_XDECREF(counting.handles[each]);
    }
    return index < 0 ? NULL : Py_BuildValue("(nLLnn)", index, counting.now, counting.observed, counting.added, counting.key_bytes);
}

/* Tell whether a class is one of plain tuples: its objects have nothing but their items; or set TypeError. */
static int is_tuple_class(PyObject *object) {
    PyTypeObject *type = (PyTypeObject *)object;
    int fits = PyType_Check(object) && PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize;
#ifdef Py_TPFLAGS_MANAGED_DICT
    fits = fits && !PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT);
#endif
    if (!fits) {
        PyErr_SetString(PyExc_TypeError, "windowed takes a class of tuples first, without attributes of its own");
        return 0;
    }
    /* Some classes in C look like that, and rely on what their own `__new__` does, as os.stat_result. Python tells them apart: its tuple makes no object
       of them. */
    PyObject *empty = PyObject_CallMethod((PyObject *)&PyTuple_Type, "__new__", "O", object);
    Py_XDECREF(empty);
    return empty != NULL;
}

/* windowed(type, keys, windows): see _kernel.pyi */
PyObject *kernel_windowed(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("windowed", nargs, 3) || !kernel_is_list("windowed", args[1]) || !kernel_is_list("windowed", args[2])) {
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)args[0];
    PyObject *keys = args[1], *windows = args[2];
    if (!is_tuple_class(args[0])) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(keys);
    if (!kernel_is_long("windowed", windows, count)) {
        return NULL;
    }
    PyObject *made = PyList_New(count);
    for (Py_ssize_t index = 0; made != NULL && index < count; index++) {
        PyObject *key = PyList_GET_ITEM(keys, index), *pair = type->tp_alloc(type, 2);
        if (pair == NULL) {
            Py_CLEAR(made);
            break;
        }
#if PY_VERSION_HEX >= 0x030E0000
        /* From 3.14 on tuples keep their hash: -1 is not known, and tp_alloc leaves 0. */
        ((PyTupleObject *)pair)->ob_hash = -1;
#endif
        PyTuple_SET_ITEM(pair, 0, Py_NewRef(key));
        PyTuple_SET_ITEM(pair, 1, Py_NewRef(PyList_GET_ITEM(windows, index)));
        if (kernel_is_plain(key)) {
            PyObject_GC_UnTrack(pair); /* as a plain pair: windows are two numbers */
        }
        PyList_SET_ITEM(made, index, pair);
    }
    return made;
}

/* Append the value of a window. */
static int append_value(void *context, Py_ssize_t Py_UNUSED(index), PyObject *Py_UNUSED(handle), PyObject *value) {
    return PyList_Append(context, value) < 0 ? FAILED : DONE;
}

/* window_values(dicts, dirty, handles, by_start): see _kernel.pyi */
PyObject *kernel_window_values(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("window_values", nargs, 4) || !kernel_is_list("window_values", args[2])) {
        return NULL;
    }
    if (!PyDict_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "window_values takes two dicts first");
        return NULL;
    }
    int by_start = PyObject_IsTrue(args[3]);
    KernelStore store = {.entries = args[0], .noted = {args[1]}, .shape = by_start ? KERNEL_PANES : KERNEL_TRACKS};
    PyObject *values = by_start < 0 ? NULL : PyList_New(0);
    int done = values == NULL ? FAILED : kernel_visit_entries(&store, args[2], append_value, values);
    if (done != DONE) {
        Py_CLEAR(values);
    }
    return done == NOT_PLAIN ? Py_NewRef(Py_None) : values;
}

/* Tell whether an int is at another one or before. Objects of other classes are not: to compare them may run anything. */
static int is_until(PyObject *start, PyObject *limit) {
    if (!PyLong_CheckExact(start)) {
        return 0;
    }
    int64_t first = kernel_int(start), second = kernel_int(limit);
    return first == INT64_MIN || second == INT64_MIN ? PyObject_RichCompareBool(start, limit, Py_LE) > 0 : first <= second;
}

/* Take out of a dict what is at `limit`, an int, or before; return how much, or -1 with an error. */
static Py_ssize_t expire(PyObject *track, PyObject *limit) {
    enum { FEW = 16 };
    Py_ssize_t removed = 0, place = 0;
    for (;;) { /* a dict must not change while it is gone through; what is left in it stays where it is, so the next round goes on where this one ended */
        PyObject *old[FEW], *start, *value;
        int count = 0, failed = 0;
        while (count < FEW && PyDict_Next(track, &place, &start, &value)) {
            if (is_until(start, limit)) {
                old[count++] = Py_NewRef(start);
            }
        }
        for (int index = 0; index < count; index++) {
            failed = failed || PyDict_DelItem(track, old[index]) < 0;
            Py_DECREF(old[index]);
        }
        removed += count;
        if (failed || count < FEW) {
            return failed ? -1 : removed;
        }
    }
}

/* expire_windows(tracks, keys, limit): see _kernel.pyi */
PyObject *kernel_expire_windows(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("expire_windows", nargs, 3) || !kernel_is_list("expire_windows", args[1])) {
        return NULL;
    }
    if (!PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "expire_windows takes a dict first");
        return NULL;
    }
    PyObject *tracks = args[0], *keys = args[1];
    Py_ssize_t removed = 0;
    if (!PyLong_CheckExact(args[2])) {
        PyErr_Format(PyExc_TypeError, "expire_windows takes an int as its limit, got %.80s", Py_TYPE(args[2])->tp_name);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(keys); index++) {
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, index)), *track = Py_XNewRef(PyDict_GetItemWithError(tracks, key));
        Py_ssize_t count = track != NULL && PyDict_Check(track) ? expire(track, args[2]) : 0;
        int emptied = track != NULL && PyDict_Check(track) && PyDict_GET_SIZE(track) == 0;
        int failed = PyErr_Occurred() || (emptied && PyDict_DelItem(tracks, key) < 0);
        Py_XDECREF(track);
        Py_DECREF(key);
        if (failed) {
            return NULL;
        }
        removed += count;
    }
    return PyLong_FromSsize_t(removed);
}

void kernel_put_suffix(char *to, int64_t start, int64_t sequence) {
    kernel_put_number(to, (uint64_t)start, 8);
    kernel_put_number(to + 8, (uint64_t)sequence, 4);
}

PyObject *kernel_windowed_key(const char *data, Py_ssize_t size, int64_t start, int64_t sequence) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, size + KERNEL_SUFFIX);
    if (made != NULL) {
        memcpy(PyBytes_AS_STRING(made), data, (size_t)size);
        kernel_put_suffix(PyBytes_AS_STRING(made) + size, start, sequence);
    }
    return made;
}

/* Return the bytes of a key (str or bytes) followed by start and sequence number. */
static PyObject *windowed_key(PyObject *key, int64_t start, int64_t sequence) {
    if (PyBytes_CheckExact(key)) {
        return kernel_windowed_key(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), start, sequence);
    }
    if (!PyUnicode_CheckExact(key)) {
        PyErr_Format(PyExc_TypeError, "window_keys takes str and bytes, got %.80s", Py_TYPE(key)->tp_name);
        return NULL;
    }
    if (PyUnicode_IS_COMPACT_ASCII(key)) {
        return kernel_windowed_key((const char *)PyUnicode_DATA(key), PyUnicode_GET_LENGTH(key), start, sequence);
    }
    PyObject *encoded = PyUnicode_AsUTF8String(key);
    PyObject *made = encoded == NULL ? NULL : kernel_windowed_key(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded), start, sequence);
    Py_XDECREF(encoded);
    return made;
}

/* window_keys(keys, starts, sequences): see _kernel.pyi */
PyObject *kernel_window_keys(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("window_keys", nargs, 3) || !kernel_is_list("window_keys", args[0]) || !kernel_is_list("window_keys", args[1])) {
        return NULL;
    }
    PyObject *keys = args[0], *starts = args[1], *sequences = args[2] == Py_None ? NULL : args[2];
    Py_ssize_t count = PyList_GET_SIZE(keys);
    if (!kernel_is_long("window_keys", starts, count) ||
        (sequences != NULL && (!kernel_is_list("window_keys", sequences) || !kernel_is_long("window_keys", sequences, count)))) {
        return NULL;
    }
    PyObject *made = PyList_New(count);
    for (Py_ssize_t index = 0; made != NULL && index < count; index++) {
        int64_t start = PyLong_AsLongLong(PyList_GET_ITEM(starts, index));
        int64_t sequence = 0;
        if (sequences != NULL && !PyErr_Occurred() && index < PyList_GET_SIZE(sequences)) {
            sequence = PyLong_AsLongLong(PyList_GET_ITEM(sequences, index));
        }
        /* An __index__ has run: it may have changed the lists. */
        if (PyList_GET_SIZE(keys) != count || PyList_GET_SIZE(starts) != count || (sequences != NULL && PyList_GET_SIZE(sequences) != count)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "the lists of window_keys have changed meanwhile");
            }
        }
        if (!PyErr_Occurred() && (sequence < INT32_MIN || sequence > INT32_MAX)) {
            PyErr_Format(PyExc_OverflowError, "a sequence number has 32 bits, and %lld has more", (long long)sequence);
        }
        PyObject *key = PyErr_Occurred() ? NULL : windowed_key(PyList_GET_ITEM(keys, index), start, sequence);
        if (key == NULL) {
            Py_CLEAR(made);
        } else {
            PyList_SET_ITEM(made, index, key);
        }
    }
    return made;
}
