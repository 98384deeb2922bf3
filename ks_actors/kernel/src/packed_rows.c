/* The class Rows: packed rows, as Python sees them. What its methods do is said in _kernel.pyi. */

#include "packing.h"

#define MOST_HEADER 4096

static PyObject *object_of(const char *data, size_t length, int text) {
    return text ? PyUnicode_DecodeUTF8(data, (Py_ssize_t)length, NULL) : PyBytes_FromStringAndSize(data, (Py_ssize_t)length);
}

static PyObject *value_of(const Value *value, int text) {
    return value->data == NULL ? Py_NewRef(Py_None) : object_of(value->data, value->length, text);
}

/* Let the items of a list from `first` on be in the opposite order. */
static void reverse(PyObject *list, Py_ssize_t first) {
    for (Py_ssize_t last = PyList_GET_SIZE(list) - 1; first < last; first++, last--) {
        PyObject *item = PyList_GET_ITEM(list, first);
        PyList_SET_ITEM(list, first, PyList_GET_ITEM(list, last));
        PyList_SET_ITEM(list, last, item);
    }
}

/* Read an int; return whether it is one, or set TypeError or OverflowError. None of this runs code of others. */
static int number_of(PyObject *object, int64_t *number) {
    if (!PyLong_Check(object)) {
        PyErr_Format(PyExc_TypeError, "an int is expected, got %.80s", Py_TYPE(object)->tp_name);
        return 0;
    }
    *number = PyLong_AsLongLong(object);
    return *number != -1 || !PyErr_Occurred();
}

/* Read an int as a bound: what is beyond int64 becomes the last number on that side, which `beyond` tells. */
static int bound_of(PyObject *object, int64_t *bound, int *beyond) {
    *beyond = 0;
    if (!PyLong_Check(object)) {
        return number_of(object, bound); /* which sets TypeError */
    }
    *bound = PyLong_AsLongLongAndOverflow(object, beyond);
    *bound = *beyond > 0 ? INT64_MAX : *beyond < 0 ? INT64_MIN : *bound;
    return 1;
}

/* Read from when to when rows are wanted, both included. */
static int stretch_of(PyObject *from, PyObject *to, int64_t *first, int64_t *last) {
    int above, below;
    if (!bound_of(from, first, &above) || !bound_of(to, last, &below)) {
        return 0;
    }
    if (above > 0 || below < 0) { /* nothing is there */
        *first = 1;
        *last = 0;
    }
    return 1;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    long long base;
    int text, text_values;
    if (named != NULL && PyDict_GET_SIZE(named) != 0) {
        PyErr_SetString(PyExc_TypeError, "Rows takes no names");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "Lpp", &base, &text, &text_values)) {
        return NULL;
    }
    Rows *self = (Rows *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->base = base;
        self->text = text;
        self->text_values = text_values;
    }
    return (PyObject *)self;
}

static void rows_dealloc(Rows *self) {
    PyTypeObject *type = Py_TYPE(self);
    packing_free(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static Py_ssize_t rows_length(Rows *self) { return (Py_ssize_t)self->count; }

static PyObject *rows_sizeof(Rows *self, PyObject *Py_UNUSED(none)) {
    size_t size = sizeof(Rows) + self->room * sizeof(Row) + (self->table == NULL ? 0 : ((size_t)self->mask + 1) * sizeof(*self->table));
    for (const Chunk *chunk = self->chunk; chunk != NULL; chunk = chunk->before) {
        size += chunk->used;
    }
    return PyLong_FromSize_t(size);
}

static PyObject *rows_add(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t start, sequence, time;
    if (!kernel_has("add", nargs, 5) || !number_of(args[1], &start) || !number_of(args[2], &sequence) || !number_of(args[4], &time) ||
        !packing_add(self, args[0], start, sequence, args[3], time)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *rows_add_all(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("add_all", nargs, 4)) {
        return NULL;
    }
    for (int which = 0; which < 4; which++) {
        if (!kernel_is_list("add_all", args[which]) || !kernel_is_long("add_all", args[which], PyList_GET_SIZE(args[0]))) {
            return NULL;
        }
    }
    uint32_t before = self->count;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(args[0]); index++) {
        int64_t start, sequence;
        if (!number_of(PyList_GET_ITEM(args[1], index), &start) || !number_of(PyList_GET_ITEM(args[2], index), &sequence) ||
            !packing_add(self, PyList_GET_ITEM(args[0], index), start, sequence, PyList_GET_ITEM(args[3], index), start)) {
            packing_cut(self, before);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* Return the row that an int is the place of, or NULL with an error. */
static Row *row_at(const Rows *self, PyObject *object) {
    int64_t place;
    if (!number_of(object, &place)) {
        return NULL;
    }
    if (place < 0 || place >= (int64_t)self->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such row");
        return NULL;
    }
    return &self->rows[place];
}

static PyObject *rows_replace(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t time;
    Row *row = kernel_has("replace", nargs, 3) ? row_at(self, args[0]) : NULL;
    if (row == NULL || !number_of(args[2], &time) || !packing_replace(self, row, args[1], time)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *rows_cut(Rows *self, PyObject *count) {
    int64_t left;
    if (!number_of(count, &left)) {
        return NULL;
    }
    packing_cut(self, left < 0 ? 0 : left > (int64_t)self->count ? self->count : (uint32_t)left);
    Py_RETURN_NONE;
}

static PyObject *rows_places(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t first, last;
    if (!kernel_has("places", nargs, 3) || !stretch_of(args[1], args[2], &first, &last)) {
        return NULL;
    }
    PyObject *places = PyList_New(0);
    for (const Row *row = chains_latest(self, args[0], last); places != NULL && row != NULL && packing_start(self, row) >= first; row = packing_older(self, row)) {
        if (!kernel_append(places, PyLong_FromSsize_t(row - self->rows))) {
            Py_CLEAR(places);
        }
    }
    if (places != NULL) {
        reverse(places, 0);
    }
    return places;
}

static PyObject *rows_entries(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t first, last;
    if (!kernel_has("entries", nargs, 3) || !stretch_of(args[1], args[2], &first, &last)) {
        return NULL;
    }
    PyObject *entries = PyList_New(0);
    for (const Row *row = chains_latest(self, args[0], last); entries != NULL && row != NULL && packing_start(self, row) >= first; row = packing_older(self, row)) {
        Parts parts = packing_parts(self, row);
        if (parts.value.data == NULL) {
            continue; /* it was deleted */
        }
        PyObject *value = value_of(&parts.value, self->text_values); /* "N" takes NULL for an error that is set */
        if (!kernel_append(entries, Py_BuildValue("(L(NL))", (long long)packing_start(self, row), value, (long long)parts.time))) {
            Py_CLEAR(entries);
        }
    }
    if (entries != NULL) {
        reverse(entries, 0);
    }
    return entries;
}

/* Add what a key has from `first` to `last`, but nothing up to `limit`. */
static int meet_key(Rows *self, PyObject *key, Py_ssize_t at, int64_t first, int64_t last, int64_t limit, PyObject *met) {
    Py_ssize_t before = PyList_GET_SIZE(met);
    for (const Row *row = chains_latest(self, key, last); row != NULL && packing_start(self, row) >= first && packing_start(self, row) > limit; row = packing_older(self, row)) {
        Parts parts = packing_parts(self, row);
        if (parts.value.data != NULL && !kernel_append(met, Py_BuildValue("(nLN)", at, (long long)packing_start(self, row), value_of(&parts.value, self->text_values)))) {
            return 0;
        }
    }
    reverse(met, before);
    return 1;
}

static PyObject *rows_meet(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("meet", nargs, 6) || !kernel_is_list("meet", args[0]) || !kernel_is_list("meet", args[1]) || !kernel_is_list("meet", args[5]) ||
        (args[4] != Py_None && !kernel_is_list("meet", args[4]))) {
        return NULL;
    }
    PyObject *keys = args[0], *times = args[1], *limits = args[4] == Py_None ? NULL : args[4], *met = args[5];
    int64_t before, after, low, high, limit = INT64_MIN;
    int beyond;
    if (!number_of(args[2], &before) || !number_of(args[3], &after) || !kernel_is_long("meet", times, PyList_GET_SIZE(keys)) ||
        (limits != NULL && !kernel_is_long("meet", limits, PyList_GET_SIZE(keys)))) {
        return NULL;
    }
    if (before == INT64_MIN) {
        PyErr_SetString(PyExc_ValueError, "meet takes times that are times");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(keys);
    for (Py_ssize_t at = 0; at < count; at++) {
        chains_ahead(self, keys, at);
        if (!kernel_near(PyList_GET_ITEM(times, at), before, after, &low, &high) ||
            (limits != NULL && !bound_of(PyList_GET_ITEM(limits, at), &limit, &beyond)) ||
            !meet_key(self, PyList_GET_ITEM(keys, at), at, low, high, limit, met)) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

enum { KEY, START, SEQUENCE, VALUE, TIME, CONTENT, COLUMNS };

/* Return what a row has in a column. */
static PyObject *item_of(const Rows *self, const Row *row, int64_t column) {
    Parts parts = packing_parts(self, row);
    switch (column) {
    case KEY:
        return object_of(parts.key, parts.key_length, self->text);
    case START:
        return PyLong_FromLongLong(packing_start(self, row));
    case SEQUENCE:
        return PyLong_FromLong(row->sequence);
    case VALUE:
        return value_of(&parts.value, self->text_values);
    case TIME:
        return PyLong_FromLongLong(parts.time);
    default:
        return value_of(&parts.value, 0);
    }
}

/* Read from where to where rows are wanted; what is behind the last one is left out. */
static int range_of(const Rows *self, PyObject *from, PyObject *to, uint32_t *first, uint32_t *last) {
    int64_t low, high;
    if (!number_of(from, &low) || !number_of(to, &high)) {
        return 0;
    }
    *last = high < 0 ? 0 : high > (int64_t)self->count ? self->count : (uint32_t)high;
    *first = low < 0 ? 0 : low > (int64_t)*last ? *last : (uint32_t)low;
    return 1;
}

static PyObject *rows_column(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t column;
    uint32_t first, last;
    if (!kernel_has("column", nargs, 3) || !number_of(args[0], &column) || !range_of(self, args[1], args[2], &first, &last)) {
        return NULL;
    }
    if (column < KEY || column >= COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "there is no such column");
        return NULL;
    }
    PyObject *items = PyList_New((Py_ssize_t)(last - first));
    for (uint32_t place = first; items != NULL && place < last; place++) {
        PyObject *item = item_of(self, &self->rows[place], column);
        if (item == NULL) {
            Py_CLEAR(items);
        } else {
            PyList_SET_ITEM(items, (Py_ssize_t)(place - first), item);
        }
    }
    return items;
}

static PyObject *rows_names(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    uint32_t first, last;
    if (!kernel_has("names", nargs, 2) || !range_of(self, args[0], args[1], &first, &last)) {
        return NULL;
    }
    PyObject *names = PyList_New((Py_ssize_t)(last - first));
    for (uint32_t place = first; names != NULL && place < last; place++) {
        const Row *row = &self->rows[place];
        Parts parts = packing_parts(self, row);
        PyObject *name = kernel_windowed_key(parts.key, (Py_ssize_t)parts.key_length, packing_start(self, row), row->sequence);
        if (name == NULL) {
            Py_CLEAR(names);
        } else {
            PyList_SET_ITEM(names, (Py_ssize_t)(place - first), name);
        }
    }
    return names;
}

static PyObject *rows_write(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t limit, header;
    uint32_t first, last;
    if (!kernel_has("write", nargs, 4) || !range_of(self, args[0], args[1], &first, &last) || !number_of(args[2], &limit) || !number_of(args[3], &header)) {
        return NULL;
    }
    if (first == last || header < 0 || header > MOST_HEADER) {
        PyErr_SetString(PyExc_ValueError, "write begins with a row that there is");
        return NULL;
    }
    return packing_write(self, first, last, (Py_ssize_t)limit, (Py_ssize_t)header);
}

static PyObject *rows_take(Rows *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("take", nargs, 2) || !kernel_is_list("take", args[0]) || !kernel_is_list("take", args[1])) {
        return NULL;
    }
    int good = 1;
    for (Py_ssize_t index = 0; good && index < PyList_GET_SIZE(args[0]); index++) {
        Key key;
        good = packing_key(self, PyList_GET_ITEM(args[0], index), &key);
    }
    for (Py_ssize_t index = 0; good && index < PyList_GET_SIZE(args[1]); index++) {
        Value value;
        good = packing_value(self, PyList_GET_ITEM(args[1], index), &value);
    }
    PyErr_Clear();
    return PyBool_FromLong(good);
}

/* Return how many links were followed, or tried, to find rows: a measure of work that depends on no clock. */
static PyObject *rows_steps(Rows *self, PyObject *Py_UNUSED(none)) { return PyLong_FromUnsignedLongLong(self->steps); }

#define FAST_METHODS(DO) DO(take) DO(add) DO(add_all) DO(replace) DO(places) DO(entries) DO(meet) DO(column) DO(names) DO(write)
#define ONE_METHODS(DO) DO(cut) DO(steps)

#define ENTER_FAST(name) KERNEL_FAST(Rows, rows_##name)
#define ENTER_ONE(name) KERNEL_ONE(Rows, rows_##name)
FAST_METHODS(ENTER_FAST)
ONE_METHODS(ENTER_ONE)

#define FAST_METHOD(name) KERNEL_METHOD(#name, enter_rows_##name, METH_FASTCALL),

static PyMethodDef methods[] = {
    FAST_METHODS(FAST_METHOD)
    KERNEL_METHOD("cut", enter_rows_cut, METH_O),
    KERNEL_METHOD("steps", enter_rows_steps, METH_NOARGS),
    KERNEL_METHOD("__sizeof__", rows_sizeof, METH_NOARGS),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)rows_new},
    {Py_tp_dealloc, (void *)(uintptr_t)rows_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, (void *)(uintptr_t)rows_length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ks_actors.kernel._kernel.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int kernel_add_rows_type(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
