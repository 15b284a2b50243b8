"""What each item of the language looks like, in one line: shown to who wrote it otherwise."""

from __future__ import annotations

FORMS = {
    "program": "program NAME",
    "param": "param NAME : TYPE = VALUE [over RANGE]",
    "let": "let NAME = VALUE",
    "enum": "enum NAME {LABEL, ...}",
    "scalar": "scalar NAME, ... : TYPE",
    "array": "array NAME, ... : TYPE[SIZE, ...] [on PLACE] [ROLE]",
    "part": "part NAME of ARRAY[FROM .. TO]",
    "tune": "tune NAME in {VALUE, ...}",
    "require": "require CONDITION",
    "feature": "feature NAME [cost ELEMENTS] = EXPRESSION",
    "select": "select NAME, ... with METHOD(ARGUMENT, ...)",
    "kernel": "kernel NAME(FORMAL : MODE TYPE[SIZE], ...) {...}",
    "gpu": "gpu [NAME] {...}",
    "cpu": "cpu [NAME] {...}",
    "link": 'link "LIBRARY", ...',
    "launch": "launch grid(BLOCKS, ...) block(THREADS, ...) [shared(BYTES)]",
    "cuda": 'cuda """CODE""" or cuda FUNCTION from "FILE"',
    "cpp": 'cpp """CODE""" or cpp FUNCTION from "FILE"',
    "dag": "dag [repeat TIMES [until ARRAY]] {...} or dag NAME(FORMAL, ...) {...}",
    "send": "send ARRAY to RANK [counts ARRAY] recv ARRAY from RANK [counts ARRAY]",
    "edges": "edges explicit",
    "for": "for NAME in RANGE, ... {...}",
    "if": "if CONDITION {...} [else {...}]",
    "setup": 'setup "FILE.py" FUNCTION(ARGUMENT, ...)',
    "verify": "verify ARRAY ~ FUNCTION(ARGUMENT, ...) rtol NUMBER [nan equal]",
    "include": 'include "FILE.dag"',
}
OPERATION = "NAME : gpu KERNEL(ARGUMENT, ...) (or cpu, any, dag, mpi), or A -> B"

# Where an item belongs that cannot stand where it was found.
PLACES = {
    "program": "at the top of the file",
    "launch": "inside an implementation, `gpu {...}`",
    "link": "inside an implementation, `gpu {...}` or `cpu {...}`",
    "gpu": "inside a kernel",
    "cpu": "inside a kernel",
    "else": "right after the block of an `if`",
    "explicit": "after `edges`",
    "over": "after the value of a `param`",
    "recv": "after the `send` of the same message",
    "stream": "after the call of a `gpu` operation",
}
