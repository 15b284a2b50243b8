"""Instructions counted in PTX."""

from __future__ import annotations

from dagc.kernel_resources import Instructions
from dagc.run.ptx import read_instructions

# As nvcc 13 writes a loop that it unrolled four times, what is left over, and a kernel without a loop.
TEXT = """
.version 9.0
.target sm_90
	// .globl	sum
.visible .entry sum(
	.param .u64 sum_param_0,
	.param .u32 sum_param_1
)
{
	.reg .pred 	%p<9>;
	.reg .b64 	%rd<46>;

	ld.param.u64 	%rd21, [sum_param_0];
	setp.lt.s32 	%p1, %r13, 1;
	@%p1 bra 	$L__BB0_8;

$L__BB0_4:
	ld.global.f32 	%f8, [%rd43+-8];   // a comment
	add.f32 	%f9, %f8, %f9;
	ld.global.nc.f32 	%f10, [%rd42];
	@%p7 st.global.f32 	[%rd6], %f11;
	ld.volatile.global.f32 	%f1, [%rd6];
	ld.shared.f32 	%f12, [%rd43];
	add.s32 	%r26, %r26, 4;
	setp.ne.s32 	%p6, %r25, 0;
	@%p6 bra 	$L__BB0_4;

	setp.eq.s32 	%p7, %r27, 0;
$L__BB0_7:
	.pragma "nounroll";
	ld.global.f32 	%f23, [%rd44];
	@!%p8 bra 	$L__BB0_7;

$L__BB0_8:
	{ // callseq 0, 0
	call.uni (retval0), other, (param0);
	} // callseq 0
	ret;

}
.func (.param .b32 func_retval0) other(
	.param .b32 other_param_0
)
{
	ret;
}
.visible .entry plain()
{
	st.global.f32 	[%rd6], %f11;
	ret;
}
"""


def test_what_a_loop_leaves_over_does_not_count() -> None:
    found = read_instructions(TEXT)
    assert set(found) == {"sum", "plain"}
    assert found["sum"] == Instructions(6, (9 / 4,))
    assert found["plain"] == Instructions(2)


def test_a_loop_that_the_text_wants_as_it_is_counts() -> None:
    only = TEXT.replace("$L__BB0_4:\n", '$L__BB0_4:\n\t.pragma "nounroll";\n')
    assert read_instructions(only)["sum"].loops == ((9 + 2) / (4 + 1),)


def test_loops_in_loops() -> None:
    inner = TEXT.replace("setp.eq.s32 	%p7, %r27, 0;", "ld.global.f32 %f1, [%rd1];\n	@%p2 bra $L__BB0_3;")
    inner = inner.replace("$L__BB0_4:", "$L__BB0_3:\n	mov.u32 %r1, 1;\n$L__BB0_4:", 1)
    assert read_instructions(inner)["sum"].loops == (3.0, 9 / 4)


def test_kept_as_json() -> None:
    one = Instructions(6, (2.25, 3.0))
    assert Instructions.from_json(one.to_json()) == one


def test_no_kernels() -> None:
    assert read_instructions("") == {}
