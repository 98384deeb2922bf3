/* The module ks_actors.kernel._kernel. What its functions do is said in _kernel.pyi. */

#include "kernel.h"

#define FAST_FUNCTIONS(DO) \
    DO(read_records) DO(skip_records) DO(read_batches) DO(write_records) DO(write_changes) DO(engine_rows) DO(partitions) DO(crc32c) DO(count_up) \
    DO(absent) DO(entry_columns) DO(count_windows) DO(window_keys) DO(windowed) DO(window_values) DO(expire_windows) DO(add_places) DO(meet) \
    DO(route_records) DO(join_records)
#define ONE_FUNCTIONS(DO) DO(encode_texts) DO(decode_texts) DO(encode_longs) DO(decode_longs) DO(check_bytes) DO(map_large) DO(behind_batches)

#define ENTER_FAST(name) KERNEL_FAST(PyObject, kernel_##name)
#define ENTER_ONE(name) KERNEL_ONE(PyObject, kernel_##name)
FAST_FUNCTIONS(ENTER_FAST)
ONE_FUNCTIONS(ENTER_ONE)

#define FAST_METHOD(name) KERNEL_METHOD(#name, enter_kernel_##name, METH_FASTCALL),
#define ONE_METHOD(name) KERNEL_METHOD(#name, enter_kernel_##name, METH_O),

/* Two are not entered that way: `convert` calls a function of others again and again, and looks at the lists each time; `trim_memory` lets others run. */
static PyMethodDef methods[] = {
    FAST_FUNCTIONS(FAST_METHOD) ONE_FUNCTIONS(ONE_METHOD)
    KERNEL_METHOD("convert", kernel_convert, METH_FASTCALL),
    KERNEL_METHOD("trim_memory", kernel_trim_memory, METH_NOARGS),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)kernel_add_rows_type},
    {Py_mod_exec, (void *)(uintptr_t)kernel_add_restored_type},
    {Py_mod_exec, (void *)(uintptr_t)kernel_add_looks_ahead},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ks_actors.kernel._kernel",
    .m_doc = "Records by the batch, in C: the same as the Python code beside it, several times as fast.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
