/* The module ks_actors._kernel. What its functions do is said in _kernel.pyi. */

#include "kernel.h"

#define FAST(name) {#name, (PyCFunction)(void (*)(void))kernel_##name, METH_FASTCALL, NULL}
#define ONE(name) {#name, kernel_##name, METH_O, NULL}

static PyMethodDef methods[] = {
    FAST(read_records), FAST(skip_records), FAST(write_records), FAST(write_changes), FAST(engine_rows), FAST(partitions),
    FAST(scatter), FAST(convert), ONE(encode_texts), ONE(decode_texts), ONE(encode_longs), ONE(decode_longs), ONE(check_bytes), FAST(crc32c),
    FAST(count_up), FAST(absent), FAST(entry_columns), FAST(count_windows), FAST(window_keys), FAST(windowed), FAST(window_values),
    FAST(expire_windows), FAST(add_places), FAST(meet), {"trim_memory", kernel_trim_memory, METH_NOARGS, NULL}, ONE(map_large),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)kernel_add_rows_type},
    {Py_mod_exec, (void *)(uintptr_t)kernel_add_restored_type},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ks_actors._kernel",
    .m_doc = "Records by the batch, in C: the same as the Python code beside it, several times as fast.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    kernel_prepare_checksums();
    return PyModuleDef_Init(&module);
}
