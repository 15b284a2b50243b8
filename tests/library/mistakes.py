"""What an application may do wrong, on two ranks: a line of JSON for each case and rank. See test_mistakes.py."""

import copy
import ctypes
import json
import pickle
import sys
import threading
import types
import warnings
from typing import ClassVar

import numpy as np
from mpi4py import MPI

import dagc

spmv, *others = (dagc.load_library(folder) for folder in sys.argv[1:])
# What an application in C calls: the functions of the library, their check, and the arguments that they take.
library, check, INTERFACE = spmv._library, spmv._check, spmv._INTERFACE
places_of, Options = spmv._given, spmv._Options
comm = MPI.COMM_WORLD
me, other = comm.rank, 1 - comm.rank


def i4(*values):
    return np.array(values, "i4")


def given(n=8, **changes):
    """A diagonal of 2, and in the last row 1 for the first value of the other rank."""
    remote = np.zeros(n + 1, "i4")
    remote[n] = 1
    values = {
        "n": n, "n_send": 1, "n_recv": 1, "n_to": 1, "n_from": 1, "x_l": np.arange(n, dtype="f4"), "row_ptr_r": remote,
        "row_ptr_l": np.arange(n + 1, dtype="i4"), "col_l": np.arange(n, dtype="i4"), "col_r": i4(0),
        "val_l": np.full(n, 2, "f4"), "val_r": np.ones(1, "f4"), "send_index": i4(0), "send_ranks": i4(other),
        "send_counts": i4(1), "recv_ranks": i4(other), "recv_counts": i4(1), "y": np.zeros(n, "f4"),
    }  # fmt: skip
    return {**values, **changes}


def say(case, work):
    try:
        result, code = work(), 0
    except spmv.Error as error:
        result, code = str(error), error.code
    text = json.dumps({"case": case, "rank": me, "code": code, "said": result})
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def create(values):
    with spmv.Instance(comm, **values) as instance:
        instance.run()
        return np.array_equal(values["y"], 2 * values["x_l"])  # the first value of the other rank is 0


class Null:
    """An array at address 0."""

    __array_interface__: ClassVar = {"data": (0, False), "typestr": "<f4", "shape": (8,), "version": 3}


def odd(n):
    """Floats at an odd address."""
    return np.frombuffer(bytearray(4 * n + 1), "u1")[1:].view("f4")


def of_another_library():
    """The first instance of each of two libraries."""
    (heat,) = others
    u, out = np.zeros((6, 8)), np.zeros((4, 8))
    plate = {"n": 8, "m": 4, "up": -1, "down": -1, "u_0_": u, "u_1_": u.copy(), "result": out}
    with spmv.Instance(comm, **given()), heat.Instance(comm, **plate) as its:
        check(library.spmv_run(its._handle, 1))


def required():
    """A condition of the program that does not hold on one rank."""
    (heat,) = others
    u, out = np.zeros((6, 8)), np.zeros((4, 8))
    plate = {"n": 8, "m": 1 if me else 4, "up": -1, "down": -1, "u_0_": u, "u_1_": u.copy(), "result": out}
    try:
        heat.Instance(comm, **plate).close()
    except heat.Error as error:
        text = str(error)
        return [error.code, "rank 1" in text, text[text.rindex("heat.dag") :]]


whole = np.zeros(12, "f4")
say("required", required)
say("of another library", of_another_library)
say("good", lambda: create(given()))
say("small", lambda: create(given(val_l=np.zeros(8, "f4"), y=np.zeros(8 - me, "f4"))))
say("null", lambda: create(given(y=Null())))
say("misaligned", lambda: create(given(y=odd(8))))
say("overlapping", lambda: create(given(x_l=whole[:8], y=whole[4:])))
say("read twice", lambda: create(given(send_ranks=(s := i4(other)), recv_ranks=s)))
say("counts", lambda: create(given(send_counts=i4(1 + me), n_send=1 + me, send_index=i4(*[0] * (1 + me)))))
no_send = {"n_send": 0, "n_to": 0, "send_index": i4(), "send_ranks": i4(), "send_counts": i4()} if me else {}
say("unexpected", lambda: create(given(**no_send)))
say("no such rank", lambda: create(given(recv_ranks=i4(other if me else 7))))
say("bytes of a negative size", lambda: spmv.scratch_bytes(comm, **{**given(), "n": -1}))
say("negative", lambda: create({**given(), "n": -1 if me else 8}))


def allocating(fails):
    """With memory of the application; the totals, by place."""
    totals, kept = [0, 0, 0], {}

    def allocate(_, size, place):
        if fails:
            return None
        memory = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(memory) + 255) // 256 * 256
        kept[address] = memory
        totals[place] += size
        return address

    def release(_, address, size, place):
        del kept[address]
        totals[place] -= size

    void, size_t, place = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    functions = (
        ctypes.CFUNCTYPE(void, void, size_t, place)(allocate),
        ctypes.CFUNCTYPE(None, void, void, size_t, place)(release),
    )  # fmt: skip
    sizes, arrays, _arrays = places_of(given())
    options = Options(None, *(ctypes.cast(f, void) for f in functions), None, 0)
    handle = ctypes.c_uint64()
    places = (ctypes.byref(sizes), ctypes.byref(arrays), ctypes.byref(options))
    check(library.spmv_create_f(INTERFACE, ctypes.byref(handle), comm.py2f(), *places))
    there = list(totals)
    check(library.spmv_run(handle, 2))
    check(library.spmv_destroy(handle))
    return [there, list(spmv.scratch_bytes(comm, **given())), totals, len(kept)]


say("allocator", lambda: allocating(False))
say("no memory", lambda: allocating(me == 1))


def two_at_once():
    """A second instance with other sizes, in turn with the first, which is destroyed before it."""
    sizes, out = (8, 5), []
    both = [(spmv.Instance(comm, **values), values) for values in (given(n) for n in sizes)]
    for instance, values in (*both, both[0]):
        values["y"][:] = 0
        instance.run(3)
        out.append(bool(np.array_equal(values["y"], 2 * values["x_l"])))
    both[0][0].close()
    both[1][0].run()
    both[1][0].close()
    return out


say("two at once", two_at_once)
instance = spmv.Instance(comm, **given())
say("negative n", lambda: instance.run(-1))
say("none", lambda: instance.run(0))


def rebound(n):
    values = given(n)
    instance.rebind(**values)
    instance.run(40)
    return float(values["y"][-1])


say("rebound", lambda: rebound(5))
say("rebind fails", lambda: instance.rebind(**given(y=np.zeros(3, "f4"))))
say("without arrays", lambda: instance.run(1))
say("rebound again", lambda: rebound(6))
used = instance._handle
instance.close()
instance.close()
say("closed", lambda: instance.run(1))
say("closed and rebound", lambda: rebound(6))
say("destroyed", lambda: check(library.spmv_run(used, 1)))
say("destroyed twice", lambda: check(library.spmv_destroy(used)))
say("never created", lambda: check(library.spmv_run(12345, 1)))


def other_header():
    sizes, arrays, _ = places_of(given())
    places = (ctypes.byref(sizes), ctypes.byref(arrays), None)
    check(library.spmv_create_f(7, ctypes.byref(ctypes.c_uint64()), comm.py2f(), *places))


def used_by_two_threads():
    """While a call of one thread allocates memory, another thread uses the instance."""
    errors = []

    def use():
        for call in (lambda: library.spmv_run(handle, 1), lambda: library.spmv_destroy(handle)):
            try:
                check(call())
            except spmv.Error as error:
                errors.append([error.code, str(error).partition(":")[0]])

    def allocate(_, size, place):
        memory.append(ctypes.create_string_buffer(size + 256))
        if len(memory) > created > 0:
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        return (ctypes.addressof(memory[-1]) + 255) // 256 * 256

    memory, created, handle = [], 0, ctypes.c_uint64()
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(allocate)
    sizes, arrays, _arrays = places_of(given())
    options = Options(None, ctypes.cast(function, ctypes.c_void_p), None, None, 0)
    places = (ctypes.byref(sizes), ctypes.byref(arrays))
    create = library.spmv_create_f
    check(create(INTERFACE, ctypes.byref(handle), comm.py2f(), *places, ctypes.byref(options)))
    created = len(memory)
    check(library.spmv_rebind(handle, *places))
    check(library.spmv_run(handle, 1))
    check(library.spmv_destroy(handle))
    return sorted({tuple(error) for error in errors})


def refused(work):
    try:
        work()
    except TypeError as error:
        return str(error)


def dropped():
    one = spmv.Instance(comm, **given())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        del one
    return [[w.category.__name__, str(w.message).partition(" was ")[2]] for w in found]


class Bound:
    """A communicator of Python bindings of another MPI."""

    __module__ = "another.MPI"

    def py2f(self):
        return comm.py2f()


def of_another_mpi():
    sys.modules["another.MPI"] = types.SimpleNamespace(Get_library_version=lambda: "Another MPI 1.2\nbuilt elsewhere")
    return spmv.Instance(Bound(), **given())


def of_one_mpi():
    """As mpi4py on Open MPI, whose text ends with a null character."""
    text = MPI.Get_library_version().partition("\n")[0] + "\0"
    sys.modules["another.MPI"] = types.SimpleNamespace(Get_library_version=lambda: text)
    with spmv.Instance(Bound(), **given()):
        return "made"


say("other header", other_header)
say("used by two threads", used_by_two_threads)
with spmv.Instance(comm, **given()) as kept:
    for case, work in {"pickled": pickle.dumps, "copied": copy.copy, "copied deeply": copy.deepcopy}.items():
        say(case, lambda work=work: refused(lambda: work(kept)))
say("dropped", dropped)
say("another MPI", of_another_mpi)
say("one MPI", of_one_mpi)
say("comm 0", lambda: spmv.Instance(0, **given()))
say("comm 1234567", lambda: spmv.Instance(1234567, **given()))
say("bytes by comm 0", lambda: spmv.scratch_bytes(0, **given()))
say("no communicator", lambda: spmv.Instance(MPI.COMM_NULL, **given()))
between = MPI.COMM_SELF.Create_intercomm(0, comm, other)
say("intercommunicator", lambda: spmv.Instance(between, **given()))
say("bytes by an intercommunicator", lambda: spmv.scratch_bytes(between, **given()))
say("handler", lambda: comm.Get_errhandler() == MPI.ERRORS_RETURN)
