"""What the ranks do in one step, as one step of a program."""

from __future__ import annotations

from dataclasses import replace

from dagc.record.flow import Flow, KernelCall, MessageEnd, Messages, ScalarArgument
from dagc.record.kernels import scalars_of
from dagc.record.log import Memory, MemoryPlace
from dagc.record.merge import MessageLine, places_in, steps_of

TOP, HIGH, LOW, BOTTOM = (MemoryPlace(7, row * 64, 64) for row in (0, 1, 8, 9))  # rows of an array


def end(peer: int, place: MemoryPlace | None) -> MessageEnd:
    return MessageEnd("a.c:5", peer, 0, 0, place, "MPI_DOUBLE", 64, 1)


def lines(*ranks: Messages) -> tuple[MessageLine, ...]:
    return steps_of([Flow(((rank,),), 0, Memory()) for rank in ranks])[0].lines


def test_one_call_with_a_row_to_above_here_and_to_below_there() -> None:
    """A line for each direction, as if the ranks had more neighbours."""
    above, below = Messages((end(1, LOW),), (end(1, BOTTOM),)), Messages((end(0, HIGH),), (end(0, TOP),))
    assert lines(above, below) == (MessageLine((0, None), (None, 0)), MessageLine((None, 0), (0, None)))


def test_calls_of_one_rank_each_that_use_the_same_two_buffers_crosswise() -> None:
    """One line, whose two arrays are other variables on the other rank."""

    def rank(peer: int, out: int, into: int) -> Messages:
        def at(block: int) -> MessageEnd:
            place = MemoryPlace(block, 0, 64)
            return MessageEnd(f"a.c:{10 * peer + block}", peer, block, 0, place, "MPI_DOUBLE", 64, 1)

        return Messages((at(out),), (at(into),))

    assert lines(rank(1, 3, 4), rank(0, 4, 3)) == (MessageLine((0, 0), (0, 0)),)


def test_the_end_of_a_message_to_no_rank_that_none_else_has_names_no_memory() -> None:
    below = replace(end(-1, HIGH), at="a.c:7")
    ranks = [Messages((end(1 - r, LOW), below), (end(1 - r, TOP),)) for r in (0, 1)]
    (step,) = steps_of([Flow(((rank,),), 0, Memory()) for rank in ranks])
    assert [places_in(ops[0])[1:] for ops in step.ops if ops] == [(("recv 0", TOP),)] * 2


def test_one_call_with_the_same_rows_everywhere() -> None:
    both = [Messages((end(1 - rank, LOW),), (end(1 - rank, TOP),)) for rank in (0, 1)]
    assert lines(*both) == (MessageLine((0, 0), (0, 0)),)


def test_words_of_a_struct_that_differ_between_ranks() -> None:
    def one(hex: str) -> ScalarArgument:
        return ScalarArgument("struct", hex, "int2")

    def call(hex: str) -> KernelCall:
        return KernelCall("a.cu:9", "k", (1, 1, 1), (1, 1, 1), 0, 0, (one(hex),))

    step = steps_of(
        [Flow(((call("0100000002000000"),),), 0, Memory()), Flow(((call("0100000003000000"),),), 0, Memory())]
    )[0]
    ((name, column),) = scalars_of(step, 0, one("0100000002000000"), "bounds")
    assert name == "bounds_4"
    assert [[(word.of, word.hex) for word in row or ()] for row in column] == [
        [("i32", "02000000")],
        [("i32", "03000000")],
    ]
