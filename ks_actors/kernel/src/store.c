/* Entries of a store by handle: looked for many at once, and made the bytes that serdes make of them. */

#include "store.h"

/* Tell whether the numbers of forms are some that there are, or set ValueError. */
int kernel_has_forms(const char *name, const KernelStore *store) {
    int shape = store->shape >= 0 && store->shape <= KERNEL_PANES;
    if (shape && store->keys >= 0 && store->keys <= AS_LONG && store->values >= 0 && store->values <= AS_LONG) {
        return 1;
    }
    PyErr_Format(PyExc_ValueError, "%s takes numbers of forms that there are", name);
    return 0;
}

static inline int is_pair(PyObject *object) { return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2; }

/* Return the dict that has the entry of a handle, and in `key` what it is there by; NULL for what is not plain. */
static inline PyObject *dict_of(const KernelStore *store, PyObject *handle, PyObject **key) {
    *key = handle;
    if (store->shape == KERNEL_TABLE) {
        return kernel_is_plain(handle) ? store->entries : NULL;
    }
    if (!is_pair(handle) || !kernel_is_plain(PyTuple_GET_ITEM(handle, 0)) || !PyLong_CheckExact(PyTuple_GET_ITEM(handle, 1))) {
        return NULL;
    }
    *key = PyTuple_GET_ITEM(handle, 0);
    /* There are few windows: to find one takes no time. */
    return store->shape == KERNEL_TRACKS ? store->entries : PyDict_GetItemWithError(store->entries, PyTuple_GET_ITEM(handle, 1));
}

/* Look ahead for handles in all dicts; the caller holds on to them. Looking for a window may run anything, so what is found is held on to as well. */
static int warm_handles(const KernelStore *store, PyObject *const *handles, int size) {
    KernelSought sought[KERNEL_SOUGHT];
    PyObject *dicts[KERNEL_AHEAD];
    int count = 0, found = 0;
    for (int index = 0; index < size && !PyErr_Occurred(); index++) {
        PyObject *key, *dict = dict_of(store, handles[index], &key);
        if (dict == NULL || !PyDict_Check(dict)) {
            continue;
        }
        dicts[found++] = Py_NewRef(dict);
        sought[count++] = (KernelSought){dict, PyObject_Hash(key)};
        for (int each = 0; each < 2; each++) {
            if (store->noted[each] != NULL && PyDict_GET_SIZE(store->noted[each]) > 0) {
                sought[count++] = (KernelSought){store->noted[each], PyObject_Hash(handles[index])};
            }
        }
    }
    int done = !PyErr_Occurred();
    if (done) {
        kernel_look_ahead(sought, count);
    }
    while (found > 0) {
        Py_DECREF(dicts[--found]);
    }
    return done;
}

/* Return a new reference to what was noted under a handle, else to what is there; NULL when there is nothing, or with an error. */
static PyObject *entry_of(const KernelStore *store, PyObject *handle) {
    if (store->shape != KERNEL_TABLE && !is_pair(handle)) {
        return NULL;
    }
    for (int each = 0; each < 2; each++) {
        PyObject *noted = store->noted[each];
        PyObject *entry = noted == NULL || PyDict_GET_SIZE(noted) == 0 ? NULL : PyDict_GetItemWithError(noted, handle);
        if (entry != NULL || PyErr_Occurred()) {
            return Py_XNewRef(entry);
        }
    }
    if (store->shape == KERNEL_TABLE) {
        return Py_XNewRef(PyDict_GetItemWithError(store->entries, handle));
    }
    int outer = store->shape == KERNEL_PANES;
    PyObject *found = PyDict_GetItemWithError(store->entries, PyTuple_GET_ITEM(handle, outer));
    if (found == NULL || !PyDict_Check(found)) {
        return NULL;
    }
    Py_INCREF(found);
    PyObject *entry = Py_XNewRef(PyDict_GetItemWithError(found, PyTuple_GET_ITEM(handle, 1 - outer)));
    Py_DECREF(found);
    return entry;
}

/* Hold on to the next few handles; return how many that are. Ask for those that come behind them. */
static int hold(PyObject *handles, Py_ssize_t from, PyObject **held) {
    Py_ssize_t size = PyList_GET_SIZE(handles);
    int count = 0;
    for (Py_ssize_t index = from; count < KERNEL_AHEAD && index < size; index++) {
        if (index + 2 * KERNEL_AHEAD < size) {
            KERNEL_PREFETCH(PyList_GET_ITEM(handles, index + 2 * KERNEL_AHEAD));
        }
        if (index + KERNEL_AHEAD < size) {
            kernel_ask_for_items(PyList_GET_ITEM(handles, index + KERNEL_AHEAD));
        }
        held[count++] = Py_NewRef(PyList_GET_ITEM(handles, index));
    }
    return count;
}

/* Visit the entries of the next few handles, which are looked for at once. */
static int visit_some(const KernelStore *store, PyObject *handles, Py_ssize_t from, KernelVisit visit, void *context) {
    PyObject *held[KERNEL_AHEAD], *entries[KERNEL_AHEAD];
    int size = hold(handles, from, held), count = 0;
    int done = warm_handles(store, held, size) ? DONE : FAILED;
    for (; done == DONE && count < size; count++) {
        entries[count] = entry_of(store, held[count]);
        if (entries[count] == NULL) {
            done = PyErr_Occurred() ? FAILED : NOT_PLAIN;
            break;
        }
    }
    for (int each = 0; each < size; each++) {
        if (each < count) {
            done = done == DONE ? visit(context, from + each, held[each], entries[each]) : done;
            Py_DECREF(entries[each]);
        }
        Py_DECREF(held[each]);
    }
    return done;
}

/* Visit the entry of each handle, as long as all is DONE; handle and entry are held on to meanwhile. NOT_PLAIN when there is none, or when comparing
   keys has changed the list. */
int kernel_visit_entries(const KernelStore *store, PyObject *handles, KernelVisit visit, void *context) {
    Py_ssize_t size = PyList_GET_SIZE(handles);
    int done = DONE;
    for (Py_ssize_t index = 0; done == DONE && index < size; index += KERNEL_AHEAD) {
        done = visit_some(store, handles, index, visit, context);
        done = done == DONE && PyList_GET_SIZE(handles) != size ? NOT_PLAIN : done;
    }
    return done;
}

int kernel_number_of(PyObject *object, int64_t *number) {
    *number = PyLong_CheckExact(object) ? PyLong_AsLongLong(object) : -1;
    if (*number == -1 && (!PyLong_CheckExact(object) || PyErr_Occurred())) {
        PyErr_Clear();
        return NOT_PLAIN;
    }
    return DONE;
}

/* Look at an object as a serde makes bytes of it; return NOT_PLAIN for what somebody else has to look at. */
int kernel_content_of(PyObject *object, int form, KernelContent *content) {
    content->owner = NULL;
    if (form == AS_LONG) {
        int64_t number;
        if (!kernel_number_of(object, &number)) {
            return NOT_PLAIN;
        }
        kernel_put_number(content->number, (uint64_t)number, 8);
        content->data = content->number;
        content->length = 8;
        return DONE;
    }
    if (form == AS_TEXT && PyUnicode_CheckExact(object)) {
        if (PyUnicode_IS_COMPACT_ASCII(object)) {
            content->data = (const char *)PyUnicode_DATA(object);
            content->length = PyUnicode_GET_LENGTH(object);
            return DONE;
        }
        object = content->owner = PyUnicode_AsUTF8String(object);
        if (object == NULL) {
            PyErr_Clear(); /* lone surrogates: whoever encodes it by itself says so */
            return NOT_PLAIN;
        }
    } else if (form != AS_BYTES || !PyBytes_CheckExact(object)) {
        return NOT_PLAIN;
    }
    content->data = PyBytes_AS_STRING(object);
    content->length = PyBytes_GET_SIZE(object);
    return DONE;
}

/* Look at the key of a handle that an entry was found by, and at the start of its window, 0 of a table. */
int kernel_name_of(const KernelStore *store, PyObject *handle, KernelContent *name, int64_t *start) {
    *start = 0;
    if (store->shape == KERNEL_TABLE) {
        return kernel_content_of(handle, store->keys, name);
    }
    return kernel_number_of(PyTuple_GET_ITEM(handle, 1), start) ? kernel_content_of(PyTuple_GET_ITEM(handle, 0), store->keys, name) : NOT_PLAIN;
}

/* Look at the value of an entry, and at its time. */
int kernel_value_of(const KernelStore *store, PyObject *entry, KernelContent *value, int64_t *time) {
    return is_pair(entry) && kernel_number_of(PyTuple_GET_ITEM(entry, 1), time) ? kernel_content_of(PyTuple_GET_ITEM(entry, 0), store->values, value) : NOT_PLAIN;
}
