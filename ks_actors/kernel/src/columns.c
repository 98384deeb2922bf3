/* Serdes of the most common types for whole columns. None stays None; whatever is not as it has to be raises, and nothing is returned. */

#include "kernel.h"

typedef PyObject *(*Convert)(PyObject *);

static PyObject *convert_all(const char *name, PyObject *column, Convert convert) {
    if (!kernel_is_list(name, column)) {
        return NULL;
    }
    Py_ssize_t total = PyList_GET_SIZE(column);
    PyObject *done = PyList_New(total);
    for (Py_ssize_t index = 0; done != NULL && index < total; index++) {
        PyObject *object = PyList_GET_ITEM(column, index);
        PyObject *made = object == Py_None ? Py_NewRef(Py_None) : convert(object);
        if (made == NULL) {
            Py_CLEAR(done);
        } else {
            PyList_SET_ITEM(done, index, made);
        }
    }
    return done;
}

/* convert(function, column): see _kernel.pyi */
PyObject *kernel_convert(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (!kernel_has("convert", nargs, 2) || !kernel_is_list("convert", args[1])) {
        return NULL;
    }
    PyObject *function = args[0], *column = args[1];
    Py_ssize_t total = PyList_GET_SIZE(column);
    PyObject *done = PyList_New(total);
    for (Py_ssize_t index = 0; done != NULL && index < total; index++) {
        /* The function may do anything, and the column may be shorter by now. */
        if (PyList_GET_SIZE(column) != total) {
            PyErr_SetString(PyExc_ValueError, "the column has changed while it was converted");
            Py_CLEAR(done);
            break;
        }
        PyObject *object = Py_NewRef(PyList_GET_ITEM(column, index));
        PyObject *made = object == Py_None ? Py_NewRef(Py_None) : PyObject_CallOneArg(function, object);
        Py_DECREF(object);
        if (made == NULL) {
            Py_CLEAR(done);
        } else {
            PyList_SET_ITEM(done, index, made);
        }
    }
    return done;
}

static PyObject *refuse(const char *wanted, PyObject *object) {
    PyErr_Format(PyExc_TypeError, "%s, got %.80s", wanted, Py_TYPE(object)->tp_name);
    return NULL;
}

static PyObject *encode_text(PyObject *text) {
    if (!PyUnicode_Check(text)) {
        return refuse("STRING writes str", text);
    }
    if (PyUnicode_IS_ASCII(text)) {
        return PyBytes_FromStringAndSize((const char *)PyUnicode_1BYTE_DATA(text), PyUnicode_GET_LENGTH(text));
    }
    return PyUnicode_AsUTF8String(text);
}

static PyObject *decode_text(PyObject *bytes) {
    if (!PyBytes_Check(bytes)) {
        return refuse("STRING reads bytes", bytes);
    }
    return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes), NULL);
}

static PyObject *encode_long(PyObject *number) {
    if (!PyLong_Check(number)) {
        return refuse("LONG writes int", number);
    }
    int64_t value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    char bytes[8];
    kernel_put_number(bytes, (uint64_t)value, 8);
    return PyBytes_FromStringAndSize(bytes, 8);
}

static PyObject *decode_long(PyObject *bytes) {
    if (!PyBytes_Check(bytes)) {
        return refuse("LONG reads bytes", bytes);
    }
    if (PyBytes_GET_SIZE(bytes) != 8) {
        PyErr_Format(PyExc_ValueError, "LONG is 8 bytes, got %zd", PyBytes_GET_SIZE(bytes));
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(bytes);
    uint64_t value = 0;
    for (int index = 0; index < 8; index++) {
        value = value << 8 | at[index];
    }
    return PyLong_FromLongLong((int64_t)value);
}

PyObject *kernel_encode_texts(PyObject *Py_UNUSED(self), PyObject *column) { return convert_all("encode_texts", column, encode_text); }

PyObject *kernel_decode_texts(PyObject *Py_UNUSED(self), PyObject *column) { return convert_all("decode_texts", column, decode_text); }

PyObject *kernel_encode_longs(PyObject *Py_UNUSED(self), PyObject *column) { return convert_all("encode_longs", column, encode_long); }

PyObject *kernel_decode_longs(PyObject *Py_UNUSED(self), PyObject *column) { return convert_all("decode_longs", column, decode_long); }

/* Return the column itself: bytes are shared, as they cannot change. */
PyObject *kernel_check_bytes(PyObject *Py_UNUSED(self), PyObject *column) {
    if (!kernel_is_list("check_bytes", column)) {
        return NULL;
    }
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(column); index++) {
        PyObject *object = PyList_GET_ITEM(column, index);
        if (object != Py_None && !PyBytes_CheckExact(object)) {
            return refuse("BYTES is bytes", object);
        }
    }
    return Py_NewRef(column);
}
