/* What a store has, by handles, and the bytes of it. */

#ifndef KS_ACTORS_STORE_H
#define KS_ACTORS_STORE_H

#include "kernel.h"

enum { KERNEL_TABLE, KERNEL_TRACKS, KERNEL_PANES }; /* entries by key; by key, then start; by start, then key */
enum { AS_BYTES, AS_TEXT, AS_LONG };                /* what serdes make bytes of */
enum { NOT_PLAIN = 0, DONE = 1, FAILED = -1 };

typedef struct {
    PyObject *entries, *noted[2]; /* what was noted counts before the entries, the first one most; the second one may be NULL */
    int shape, keys, values;
} KernelStore;

typedef struct {
    const char *data;
    Py_ssize_t length; /* of what is deleted -1 */
    PyObject *owner;   /* what was made for it, or NULL */
    char number[8];
} KernelContent;

typedef int (*KernelVisit)(void *context, Py_ssize_t index, PyObject *handle, PyObject *entry);

int kernel_has_forms(const char *name, const KernelStore *store);
int kernel_visit_entries(const KernelStore *store, PyObject *handles, KernelVisit visit, void *context);
int kernel_content_of(PyObject *object, int form, KernelContent *content);
int kernel_number_of(PyObject *object, int64_t *number);
int kernel_name_of(const KernelStore *store, PyObject *handle, KernelContent *name, int64_t *start);
int kernel_value_of(const KernelStore *store, PyObject *entry, KernelContent *value, int64_t *time);

#endif
