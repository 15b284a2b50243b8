! A plate that diffuses, in Fortran's arrays.
program plate
  use, intrinsic :: iso_c_binding
  use heat
  implicit none

  interface ! of world.c
    subroutine begin(world, rank) bind(c)
      import
      integer(c_int), intent(out) :: world, rank
    end subroutine
    subroutine finish() bind(c)
    end subroutine
  end interface

  integer(c_int64_t), parameter :: columns = 64, rows = 128
  real(c_double), target :: u0(columns, rows + 2), u1(columns, rows + 2), warmth(columns, rows)
  type(heat_sizes) :: sizes
  type(heat_arrays) :: arrays
  integer(c_int64_t) :: handle
  integer(c_int) :: world, rank

  call begin(world, rank)
  u0 = 0
  u0(1, :) = 1
  u1 = u0
  sizes = heat_sizes(n=columns, m=rows, up=rank - 1, down=merge(1, -1, rank == 0))
  arrays%u_0_ = heat_array(c_loc(u0), size(u0, kind=c_int64_t))
  arrays%u_1_ = heat_array(c_loc(u1), size(u1, kind=c_int64_t))
  arrays%result = heat_array(c_loc(warmth), 7_c_int64_t)
  if (heat_create(handle, world, sizes, arrays) /= heat_bad_argument) stop 'a small array was accepted'
  if (index(heat_message(), 'array `result` has 7 elements, needs 8192') == 0) stop 'another message'
  arrays%result%size = size(warmth, kind=c_int64_t)
  if (heat_create(handle, world, sizes, arrays) /= heat_good) stop 'create'
  if (heat_run(handle, 20_c_int64_t) /= heat_good) stop 'run'
  if (heat_destroy(handle) /= heat_good) stop 'destroy'
  if (heat_run(handle, 1_c_int64_t) /= heat_bad_argument) stop 'a handle that was destroyed was accepted'
  if (warmth(2, 64) > 0.5 .and. warmth(columns, 64) < 1e-6) print '(a, i0, a)', 'rank ', rank, ': right'
  call finish()
end program
