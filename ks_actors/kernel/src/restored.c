/* The class Restored: how restored rows are put, found, and handed out to be written. */

#include "restored.h"

#define LEAST_SLOTS 128
#define SMALL ((size_t)1 << 16) /* slots: fewer grow faster, as each of the steps takes its time */
#define AT_ONCE 32
#define TIME_BYTES 8

/* --- slots ------------------------------------------------------------------------------------------------------------------------ */

static inline int is_key(const Slot *slot, const char *key, size_t length, Py_hash_t hash) {
    return slot->hash == hash && slot->entry->key_length == length && memcmp(slot->entry->data, key, length) == 0;
}

Slot *restored_slot(const Restored *self, const char *key, size_t length, Py_hash_t hash) {
    size_t at = (size_t)hash & self->mask;
    while (self->slots[at].entry != NULL && !is_key(&self->slots[at], key, length, hash)) {
        at = (at + 1) & self->mask;
    }
    return &self->slots[at];
}

static void free_slots(Restored *self) {
    PyMem_Free(self->slots);
    self->slots = NULL;
    self->mask = self->count = self->shared_length = 0;
    restored_disarrange(self);
}

void restored_remove(Restored *self, Slot *slot) {
    PyMem_Free(slot->entry);
    if (--self->count == 0) {
        free_slots(self);
        return;
    }
    /* Those behind it that are not where they belong move up, so that looking for them does not end here. */
    size_t hole = (size_t)(slot - self->slots);
    for (size_t at = (hole + 1) & self->mask; self->slots[at].entry != NULL; at = (at + 1) & self->mask) {
        size_t home = (size_t)self->slots[at].hash & self->mask;
        if (((at - home) & self->mask) >= ((at - hole) & self->mask)) {
            self->slots[hole] = self->slots[at];
            hole = at;
        }
    }
    self->slots[hole].entry = NULL;
}

/* Have room for some more rows; return whether there is, or set MemoryError. */
static int make_room(Restored *self, size_t more) {
    size_t room = self->slots == NULL ? 0 : self->mask + 1;
    if ((self->count + more) * 3 <= room * 2) {
        return 1;
    }
    size_t wanted = room == 0 ? LEAST_SLOTS : room;
    while ((self->count + more) * 3 > wanted * 2) {
        wanted *= wanted < SMALL ? 4 : 2;
    }
    Slot *slots = PyMem_Calloc(wanted, sizeof(Slot)), *old = self->slots;
    if (slots == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (size_t index = 0; index < room; index++) {
        if (old[index].entry != NULL) {
            size_t at = (size_t)old[index].hash & (wanted - 1);
            while (slots[at].entry != NULL) {
                at = (at + 1) & (wanted - 1);
            }
            slots[at] = old[index];
        }
    }
    PyMem_Free(old);
    self->slots = slots;
    self->mask = wanted - 1;
    return 1;
}

/* Take note of what a key begins with. */
static inline void share(Restored *self, const char *key, size_t length) {
    if (self->count == 0) {
        self->shared_length = length < SHARED_MOST ? length : SHARED_MOST;
        memcpy(self->shared, key, self->shared_length);
        return;
    }
    size_t common = 0, most = self->shared_length < length ? self->shared_length : length;
    while (common < most && self->shared[common] == key[common]) {
        common++;
    }
    self->shared_length = common;
}

/* Return an entry with its key, and room for so much; NULL with MemoryError. */
static Entry *new_entry(const char *key, size_t key_length, size_t length) {
    size_t size = (sizeof(Entry) + key_length + length + 15) & ~(size_t)15; /* what the allocator gives in any case */
    Entry *entry = PyMem_Malloc(size);
    if (entry == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    entry->key_length = (uint32_t)key_length;
    entry->room = (uint32_t)(size - sizeof(Entry) - key_length);
    memcpy(entry->data, key, key_length);
    return entry;
}

/* --- putting ---------------------------------------------------------------------------------------------------------------------- */

static int put(Restored *self, PyObject *key, Py_hash_t hash, PyObject *value, PyObject *time) {
    size_t key_length = (size_t)PyBytes_GET_SIZE(key), length = 0;
    int64_t number = 0;
    if (value != Py_None) {
        if (!PyBytes_CheckExact(value) || !PyLong_Check(time)) {
            PyErr_Format(
                PyExc_TypeError, "rows have values of bytes and times of int, got %.80s and %.80s", Py_TYPE(value)->tp_name, Py_TYPE(time)->tp_name
            );
            return 0;
        }
        number = PyLong_AsLongLong(time);
        if (number == -1 && PyErr_Occurred()) {
            return 0;
        }
        length = (size_t)PyBytes_GET_SIZE(value) + TIME_BYTES;
    }
    if (key_length >= INT32_MAX || length >= INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a key or a value is 2 GiB long or longer");
        return 0;
    }
    Slot *slot = restored_slot(self, PyBytes_AS_STRING(key), key_length, hash);
    Entry *entry = slot->entry;
    if (entry == NULL || entry->room < length) {
        Entry *made = new_entry(PyBytes_AS_STRING(key), key_length, length);
        if (made == NULL) {
            return 0;
        }
        if (entry == NULL) {
            share(self, PyBytes_AS_STRING(key), key_length);
            self->count++;
        }
        PyMem_Free(entry);
        *slot = (Slot){.hash = hash, .entry = entry = made};
    }
    entry->length = value == Py_None ? DELETED : (uint32_t)length;
    if (value != Py_None) {
        char *at = entry->data + key_length;
        for (int index = 0; index < TIME_BYTES; index++) {
            at[index] = (char)((uint64_t)number >> (56 - 8 * index));
        }
        memcpy(at + TIME_BYTES, PyBytes_AS_STRING(value), length - TIME_BYTES);
    }
    return 1;
}

static inline Py_hash_t hash_of(PyObject *key) { return PyBytes_Type.tp_hash(key); }

/* Put rows from `begin` to before `end`. Where they are is several places in memory apart, which are asked for all at once. */
static int put_some(Restored *self, PyObject *const *columns, Py_ssize_t begin, Py_ssize_t end) {
    Py_hash_t hashes[AT_ONCE];
    if (!make_room(self, AT_ONCE)) {
        return 0;
    }
    Py_ssize_t good = begin;
    for (; good < end; good++) {
        PyObject *key = PyList_GET_ITEM(columns[0], good);
        if (!PyBytes_CheckExact(key)) {
            break;
        }
        hashes[good - begin] = hash_of(key);
        KERNEL_PREFETCH(&self->slots[(size_t)hashes[good - begin] & self->mask]);
    }
    for (Py_ssize_t index = begin; index < good; index++) {
        Entry *entry = self->slots[(size_t)hashes[index - begin] & self->mask].entry;
        if (entry != NULL) {
            KERNEL_PREFETCH(entry);
        }
    }
    for (Py_ssize_t index = begin; index < good; index++) {
        if (!put(self, PyList_GET_ITEM(columns[0], index), hashes[index - begin], PyList_GET_ITEM(columns[1], index), PyList_GET_ITEM(columns[2], index))) {
            return 0;
        }
    }
    if (good < end) {
        PyErr_Format(PyExc_TypeError, "keys of rows are bytes, got %.80s", Py_TYPE(PyList_GET_ITEM(columns[0], good))->tp_name);
        return 0;
    }
    return 1;
}

static PyObject *restored_put(Restored *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("put", nargs, 3)) {
        return NULL;
    }
    for (int column = 0; column < 3; column++) {
        if (!kernel_is_list("put", args[column])) {
            return NULL;
        }
    }
    Py_ssize_t total = PyList_GET_SIZE(args[0]);
    if (!kernel_is_long("put", args[1], total) || !kernel_is_long("put", args[2], total)) {
        return NULL;
    }
    restored_disarrange(self);
    /* No code of others runs from here on: keys and values are bytes, and times numbers. */
    for (Py_ssize_t begin = 0; begin < total; begin += AT_ONCE) {
        if (!put_some(self, args, begin, total - begin < AT_ONCE ? total : begin + AT_ONCE)) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *restored_take_over(Restored *self, PyObject *other) {
    if (Py_TYPE(other) != Py_TYPE(self) || (Restored *)other == self) {
        PyErr_SetString(PyExc_TypeError, "take_over takes other rows of the same kind");
        return NULL;
    }
    Restored *from = (Restored *)other;
    if (from->count > 0 && !make_room(self, from->count)) {
        return NULL;
    }
    restored_disarrange(self);
    for (size_t index = 0; from->count > 0 && index <= from->mask; index++) {
        Slot taken = from->slots[index];
        if (taken.entry != NULL) {
            Slot *slot = restored_slot(self, taken.entry->data, taken.entry->key_length, taken.hash);
            if (slot->entry == NULL) {
                share(self, taken.entry->data, taken.entry->key_length);
                self->count++;
            }
            PyMem_Free(slot->entry);
            *slot = taken;
        }
    }
    free_slots(from);
    Py_RETURN_NONE;
}

/* --- finding ---------------------------------------------------------------------------------------------------------------------- */

/* Return the slot of a key, NULL when there is none; NULL with TypeError for what is no bytes. */
static Slot *find(const Restored *self, PyObject *key) {
    if (!PyBytes_Check(key)) {
        PyErr_Format(PyExc_TypeError, "keys of rows are bytes, got %.80s", Py_TYPE(key)->tp_name);
        return NULL;
    }
    if (self->slots == NULL) {
        return NULL;
    }
    Slot *slot = restored_slot(self, PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key), hash_of(key));
    return slot->entry == NULL ? NULL : slot;
}

static PyObject *content(const Entry *entry, size_t cut) {
    if (entry->length == DELETED) {
        return Py_NewRef(Py_None);
    }
    return PyBytes_FromStringAndSize(entry->data + entry->key_length + cut, (Py_ssize_t)(entry->length - cut));
}

static PyObject *restored_get(Restored *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("get", nargs, 2)) {
        return NULL;
    }
    const Slot *slot = find(self, args[0]);
    return slot != NULL ? content(slot->entry, 0) : PyErr_Occurred() ? NULL : Py_NewRef(args[1]);
}

static int restored_contains(Restored *self, PyObject *key) { return find(self, key) != NULL ? 1 : PyErr_Occurred() ? -1 : 0; }

static PyObject *restored_discard(Restored *self, PyObject *key) {
    Slot *slot = find(self, key);
    if (slot == NULL && PyErr_Occurred()) {
        return NULL;
    }
    if (slot != NULL) {
        restored_disarrange(self);
        restored_remove(self, slot);
    }
    Py_RETURN_NONE;
}

/* Return a row as it is written, a pair that the garbage collector need not look at. */
static PyObject *row_of(const Entry *entry, const char *prefix, size_t prefix_length, size_t cut) {
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(prefix_length + entry->key_length)), *value = key == NULL ? NULL : content(entry, cut);
    if (value == NULL) {
        Py_XDECREF(key);
        return NULL;
    }
    memcpy(PyBytes_AS_STRING(key), prefix, prefix_length);
    memcpy(PyBytes_AS_STRING(key) + prefix_length, entry->data, entry->key_length);
    PyObject *pair = kernel_plain_pair(key, value);
    Py_DECREF(key);
    Py_DECREF(value);
    return pair;
}

static PyObject *restored_items(Restored *self, PyObject *Py_UNUSED(none)) {
    PyObject *items = PyList_New(0);
    size_t slots = self->slots == NULL ? 0 : self->mask + 1;
    for (size_t index = 0; items != NULL && index < slots; index++) {
        if (self->slots[index].entry != NULL && !kernel_append(items, row_of(self->slots[index].entry, "", 0, 0))) {
            Py_CLEAR(items);
        }
    }
    return items;
}

/* --- writing ---------------------------------------------------------------------------------------------------------------------- */

static PyObject *restored_arranged(Restored *self, PyObject *arg) {
    Py_ssize_t count = PyLong_AsSsize_t(arg);
    if (count < 1) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "at least one slot is looked at, not %zd", count);
    }
    int whole = restored_arrange(self, (size_t)count);
    return whole < 0 ? NULL : PyBool_FromLong(whole);
}

static PyObject *restored_rows(Restored *self, PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("rows", nargs, 3)) {
        return NULL;
    }
    /* No code of others may run while an error is set, and an int of theirs is code. */
    Py_ssize_t count = PyLong_AsSsize_t(args[0]), cut = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyBytes_Check(args[1]) || count < 0 || cut < 0 || cut > TIME_BYTES) {
        return PyErr_Format(PyExc_ValueError, "rows takes a count, bytes, and how much of %d bytes is cut off", TIME_BYTES);
    }
    if (self->order.count < self->count) {
        return PyErr_Format(PyExc_ValueError, "rows are asked for before they are arranged");
    }
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t index = 0; rows != NULL && index < count; index++) {
        const Place *place = restored_next(self, (size_t)index);
        if (place == NULL) {
            break;
        }
        if (!kernel_append(rows, row_of(place->entry, PyBytes_AS_STRING(args[1]), (size_t)PyBytes_GET_SIZE(args[1]), (size_t)cut))) {
            Py_CLEAR(rows);
        }
    }
    return rows;
}

static PyObject *restored_written(Restored *self, PyObject *arg) {
    Py_ssize_t count = PyLong_AsSsize_t(arg);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    const Order *order = &self->order;
    for (; count > 0 && self->count > 0 && order->next < order->sorted; count--) {
        const Place *place = &order->places[self->order.next++];
        if (order->next + KERNEL_AHEAD < order->count) {
            KERNEL_PREFETCH(&self->slots[(size_t)place[KERNEL_AHEAD].hash & self->mask]);
        }
        restored_remove(self, restored_slot(self, place->entry->data, place->entry->key_length, place->hash));
    }
    Py_RETURN_NONE;
}

/* --- the type --------------------------------------------------------------------------------------------------------------------- */

static PyObject *restored_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    if (named != NULL && PyDict_GET_SIZE(named) != 0) {
        PyErr_SetString(PyExc_TypeError, "RestoredRows takes no names");
        return NULL;
    }
    return PyArg_ParseTuple(args, ":RestoredRows") ? type->tp_alloc(type, 0) : NULL;
}

static void restored_dealloc(Restored *self) {
    for (size_t index = 0; self->count > 0 && index <= self->mask; index++) {
        PyMem_Free(self->slots[index].entry);
    }
    free_slots(self);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t restored_length(Restored *self) { return (Py_ssize_t)self->count; }

#define ENTER_FAST(name) KERNEL_FAST(Restored, restored_##name)
#define ENTER_ONE(name) KERNEL_ONE(Restored, restored_##name)
ENTER_FAST(put)
ENTER_FAST(get)
ENTER_FAST(rows)
ENTER_ONE(take_over)
ENTER_ONE(discard)
ENTER_ONE(items)
ENTER_ONE(arranged)
ENTER_ONE(written)

static PyMethodDef methods[] = {
    KERNEL_METHOD("put", enter_restored_put, METH_FASTCALL),
    KERNEL_METHOD("take_over", enter_restored_take_over, METH_O),
    KERNEL_METHOD("get", enter_restored_get, METH_FASTCALL),
    KERNEL_METHOD("discard", enter_restored_discard, METH_O),
    KERNEL_METHOD("items", enter_restored_items, METH_NOARGS),
    KERNEL_METHOD("arranged", enter_restored_arranged, METH_O),
    KERNEL_METHOD("rows", enter_restored_rows, METH_FASTCALL),
    KERNEL_METHOD("written", enter_restored_written, METH_O),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)restored_new},
    {Py_tp_dealloc, (void *)(uintptr_t)restored_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, (void *)(uintptr_t)restored_length},
    {Py_sq_contains, (void *)(uintptr_t)restored_contains},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ks_actors.kernel._kernel.RestoredRows",
    .basicsize = sizeof(Restored),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int kernel_add_restored_type(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
