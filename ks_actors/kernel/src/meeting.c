/* Rows of a window store with duplicates: where each key has some, and which of them are near a time. */

#include "kernel.h"

typedef struct {
    Py_buffer buffer;
    const int64_t *at;
    Py_ssize_t count;
} Starts;

/* Look at an array of int64; return whether it is one, or set TypeError. Nobody may add to it before `leave`. */
static int look(Starts *starts, PyObject *array) {
    if (PyObject_GetBuffer(array, &starts->buffer, PyBUF_FORMAT | PyBUF_ND) < 0) {
        return 0;
    }
    if (starts->buffer.itemsize != 8 || starts->buffer.format == NULL || strcmp(starts->buffer.format, "q") != 0) {
        PyErr_SetString(PyExc_TypeError, "starts are an array of int64");
        PyBuffer_Release(&starts->buffer);
        return 0;
    }
    if (starts->buffer.len > 0 && (uintptr_t)starts->buffer.buf % sizeof(int64_t) != 0) {
        PyErr_SetString(PyExc_ValueError, "starts are an array of int64 at an address that int64 may have");
        PyBuffer_Release(&starts->buffer);
        return 0;
    }
    starts->at = starts->buffer.buf;
    starts->count = starts->buffer.len / 8;
    return 1;
}

/* Return the place that an int is, or -1 when it is none of a row. */
static inline Py_ssize_t place_of(const Starts *starts, PyObject *object) {
    Py_ssize_t place = PyLong_CheckExact(object) ? PyLong_AsSsize_t(object) : -1;
    return place < starts->count ? place : -1;
}

/* Note one more row of a key that has some; return 1, or 0 when it is not behind them all, or -1 with an error. */
static int gather(const Starts *starts, PyObject *index, PyObject *keys, PyObject *key, PyObject *places, PyObject *number, Py_ssize_t place) {
    int is_list = PyList_CheckExact(places);
    PyObject *first = is_list && PyList_GET_SIZE(places) > 0 ? PyList_GET_ITEM(places, 0) : places;
    PyObject *last = is_list && PyList_GET_SIZE(places) > 0 ? PyList_GET_ITEM(places, PyList_GET_SIZE(places) - 1) : places;
    Py_ssize_t from = place_of(starts, first), to = place_of(starts, last);
    if (from < 0 || to < 0 || from >= PyList_GET_SIZE(keys) || place >= PyList_GET_SIZE(keys)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "the index does not fit the rows");
        return -1;
    }
    if (starts->at[to] > starts->at[place]) {
        return 0;
    }
    PyObject *known = Py_NewRef(PyList_GET_ITEM(keys, from)); /* one object is enough */
    if (PyList_SetItem(keys, place, known) < 0) {
        return -1;
    }
    if (is_list) {
        return PyList_Append(places, number) < 0 ? -1 : 1;
    }
    PyObject *both = PyList_New(2);
    if (both == NULL) {
        return -1;
    }
    PyList_SET_ITEM(both, 0, Py_NewRef(places));
    PyList_SET_ITEM(both, 1, Py_NewRef(number));
    int failed = PyDict_SetItem(index, key, both) < 0;
    Py_DECREF(both);
    return failed ? -1 : 1;
}

/* Note the row at `place`; return as `gather` does. */
static int add_place(const Starts *starts, PyObject *index, PyObject *keys, PyObject *number, Py_ssize_t place) {
    PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, place)), *places = PyDict_SetDefault(index, key, number);
    Py_XINCREF(places);
    int done = places == NULL ? -1 : places == number ? 1 : gather(starts, index, keys, key, places, number, place);
    Py_XDECREF(places);
    Py_DECREF(key);
    return done;
}

/* add_places(index, keys, starts, base, numbers): see _kernel.pyi */
PyObject *kernel_add_places(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("add_places", nargs, 5) || !kernel_is_list("add_places", args[1]) || !kernel_is_list("add_places", args[4])) {
        return NULL;
    }
    PyObject *index = args[0], *keys = args[1], *numbers = args[4];
    Py_ssize_t base = PyLong_AsSsize_t(args[3]);
    Starts starts;
    if (!PyDict_Check(index)) {
        PyErr_SetString(PyExc_TypeError, "add_places takes a dict first");
    }
    if (PyErr_Occurred() || !look(&starts, args[2])) {
        return NULL;
    }
    PyObject *left = PyList_New(0);
    if (base < 0 || base > starts.count || PyList_GET_SIZE(numbers) != starts.count - base || PyList_GET_SIZE(keys) != starts.count) {
        PyErr_SetString(PyExc_ValueError, "add_places takes columns of one length");
        Py_CLEAR(left);
    }
    for (Py_ssize_t place = base; left != NULL && place < starts.count && place < PyList_GET_SIZE(keys) && place - base < PyList_GET_SIZE(numbers);
         place++) {
        PyObject *number = Py_NewRef(PyList_GET_ITEM(numbers, place - base));
        int done = add_place(&starts, index, keys, number, place);
        if (done < 0 || (done == 0 && PyList_Append(left, number) < 0)) {
            Py_CLEAR(left);
        }
        Py_DECREF(number);
    }
    PyBuffer_Release(&starts.buffer);
    return left;
}

typedef struct {
    Starts starts;
    PyObject *values, *met;
} Meeting;

/* Add what was met to the list. */
static int add_met(Meeting *meeting, Py_ssize_t at, Py_ssize_t place) {
    if (place >= PyList_GET_SIZE(meeting->values)) {
        PyErr_SetString(PyExc_ValueError, "the index does not fit the rows");
        return 0;
    }
    if (PyList_GET_ITEM(meeting->values, place) == Py_None) {
        return 1; /* it was deleted */
    }
    PyObject *found = Py_BuildValue("(nLO)", at, (long long)meeting->starts.at[place], PyList_GET_ITEM(meeting->values, place));
    int failed = found == NULL || PyList_Append(meeting->met, found) < 0;
    Py_XDECREF(found);
    return !failed;
}

/* Return which of some places, by start, is the first that starts at `low` or later. */
static Py_ssize_t first_of(const Starts *starts, PyObject *places, int64_t low) {
    Py_ssize_t from = 0, to = PyList_GET_SIZE(places);
    while (from < to) {
        Py_ssize_t middle = (from + to) / 2, place = place_of(starts, PyList_GET_ITEM(places, middle));
        if (place >= 0 && starts->at[place] < low) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

/* Add what a key has from `low` to `high`. */
static int meet_key(Meeting *meeting, PyObject *places, Py_ssize_t at, int64_t low, int64_t high) {
    const Starts *starts = &meeting->starts;
    if (!PyList_CheckExact(places)) {
        Py_ssize_t place = place_of(starts, places);
        return place < 0 || starts->at[place] < low || starts->at[place] > high || add_met(meeting, at, place);
    }
    for (Py_ssize_t which = first_of(starts, places, low); which < PyList_GET_SIZE(places); which++) {
        Py_ssize_t place = place_of(starts, PyList_GET_ITEM(places, which));
        if (place < 0 || starts->at[place] > high) {
            break;
        }
        if (!add_met(meeting, at, place)) {
            return 0;
        }
    }
    return 1;
}

/* Look at the sum of an int, of whatever class, and a number; what is below 0 is taken for 0, what is above the largest int64 for that. */
static int sum_of(PyObject *time, int64_t number, int64_t *sum) {
    int overflow = 0;
    PyObject *other = PyLong_FromLongLong(number), *whole = other == NULL ? NULL : PyLong_Type.tp_as_number->nb_add(time, other);
    long long found = whole == NULL ? -1 : PyLong_AsLongLongAndOverflow(whole, &overflow);
    *sum = overflow > 0 ? INT64_MAX : overflow < 0 || found < 0 ? 0 : found;
    Py_XDECREF(whole);
    Py_XDECREF(other);
    return whole != NULL;
}

/* Look at the stretch around a time, which may be beyond int64; return whether it is an int, or set TypeError. None of this runs code of others. */
int kernel_near(PyObject *time, int64_t before, int64_t after, int64_t *low, int64_t *high) {
    if (!PyLong_Check(time)) {
        PyErr_Format(PyExc_TypeError, "a time is an int, got %.80s", Py_TYPE(time)->tp_name);
        return 0;
    }
    int overflow = 0;
    int64_t number = PyLong_AsLongLongAndOverflow(time, &overflow);
    if (overflow == 0) {
        *low = kernel_time(number, -before);
        *high = kernel_time(number, after);
        return 1;
    }
    return sum_of(time, -before, low) && sum_of(time, after, high);
}

/* meet(index, starts, values, keys, times, before, after, met): see _kernel.pyi */
PyObject *kernel_meet(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("meet", nargs, 8)) {
        return NULL;
    }
    PyObject *index = args[0], *keys = args[3], *times = args[4];
    Meeting meeting = {.values = args[2], .met = args[7]};
    for (int place = 2; place < 8; place++) {
        if (place != 5 && place != 6 && !kernel_is_list("meet", args[place])) {
            return NULL;
        }
    }
    int64_t before = PyLong_AsLongLong(args[5]), after = PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[6]);
    if (!PyErr_Occurred() && (!PyDict_Check(index) || before == INT64_MIN)) {
        PyErr_SetString(PyExc_TypeError, "meet takes a dict first, and times that are times");
    }
    if (PyErr_Occurred() || !look(&meeting.starts, args[1])) {
        return NULL;
    }
    int good = 1;
    for (Py_ssize_t at = 0; good && at < PyList_GET_SIZE(keys) && at < PyList_GET_SIZE(times); at++) {
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, at)), *places = Py_XNewRef(PyDict_GetItemWithError(index, key));
        if (places != NULL && at >= PyList_GET_SIZE(times)) {
            /* A key's __eq__ has run. */
            PyErr_SetString(PyExc_ValueError, "the times have changed while records meet");
            good = 0;
        } else if (places != NULL) {
            int64_t low, high;
            good = kernel_near(PyList_GET_ITEM(times, at), before, after, &low, &high) && meet_key(&meeting, places, at, low, high);
        }
        good = good && !PyErr_Occurred();
        Py_XDECREF(places);
        Py_DECREF(key);
    }
    PyBuffer_Release(&meeting.starts.buffer);
    return good ? Py_NewRef(Py_None) : NULL;
}
