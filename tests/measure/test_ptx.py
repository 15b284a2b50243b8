"""Instructions counted in PTX."""

from __future__ import annotations

from dagc.cuda.ptx import Instructions, read_instructions

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


def test_as_tuned_files_have_them() -> None:
    assert Instructions(6, (2.25, 3.0)).to_json() == {"once": 6, "loops": [2.25, 3.0]}


def test_no_kernels() -> None:
    assert read_instructions("") == {}


# As nvcc 13 writes `asm volatile("{ .reg .pred p;\n setp...; selp...;\n}")`, a loop in `asm`, twice, and vectors.
ASM = """
.visible .entry vectors(.param .u64 vectors_param_0)
.maxntid 256, 1, 1
{
	.loc 1 5 3
	// begin inline asm
	{ .reg .pred p;
	setp.lt.s32 p, %r1, 5; selp.s32 %r2, 1, 2, p;
}
	// end inline asm
	{ .reg .pred p;
LOOP: sub.s32 %r3, %r3, 1; setp.gt.s32 p, %r3, 0; @p bra LOOP;
}
	{ .reg .pred p;
LOOP: sub.s32 %r4, %r4, 1; /* bra LOOP; */
setp.gt.s32 p, %r4, 0; @p bra LOOP;
}
$L__BB0_2:
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	cp.async.ca.shared.global 	[%r5], [%rd2], 16;
	call.uni (retval0),
	other,
	(
	param0
	);
	@%p1 bra 	$L__BB0_2;
	ret;
}
.global .align 1 .b8 text[3] = {37, 100, 0};
.visible .entry behind()
{
	ret;
}
"""


def test_text_of_asm_and_vectors_are_no_ends_of_a_kernel() -> None:
    found = read_instructions(ASM)
    assert list(found) == ["vectors", "behind"]
    assert found["behind"] == Instructions(1)
    assert found["vectors"].once == 2 + 1, "setp, selp, ret"
    assert found["vectors"].loops == (4 / 2,), "of loops that go to memory"
