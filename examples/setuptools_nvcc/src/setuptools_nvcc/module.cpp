// SPDX-License-Identifier: Apache-2.0
#include <Python.h>

#include <vector>

int dot(const float *a, const float *b, int count, float *total);
const char *error_name(int code);

namespace {

// A sequence of numbers as floats; false, with Python's exception set, where it is none.
bool numbers(PyObject *from, std::vector<float> &to) {
    const Py_ssize_t count = PySequence_Size(from);
    if (count < 0) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *item = PySequence_GetItem(from, i);
        if (!item) return false;
        to.push_back(static_cast<float>(PyFloat_AsDouble(item)));
        Py_DECREF(item);
        if (PyErr_Occurred()) return false;
    }
    return true;
}

PyObject *module_dot(PyObject *, PyObject *arguments) {
    PyObject *first = nullptr, *second = nullptr;
    if (!PyArg_ParseTuple(arguments, "OO", &first, &second)) return nullptr;
    std::vector<float> a, b;
    if (!numbers(first, a) || !numbers(second, b)) return nullptr;
    if (a.size() != b.size()) {
        PyErr_SetString(PyExc_ValueError, "both must be of one length");
        return nullptr;
    }
    float total = 0;
    if (const int code = dot(a.data(), b.data(), static_cast<int>(a.size()), &total)) {
        PyErr_Format(PyExc_RuntimeError, "%s (%d)", error_name(code), code);
        return nullptr;
    }
    return PyFloat_FromDouble(total);
}

PyMethodDef methods[] = {{"dot", module_dot, METH_VARARGS, "The dot product of two sequences."}, {}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", nullptr, 0, methods};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&definition); }
