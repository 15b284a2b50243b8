/* MPI for plate.f90: the communicator as Fortran's integer. */
#include <mpi.h>
#include <stddef.h>

void begin(int* world, int* rank) {
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  *world = MPI_Comm_c2f(MPI_COMM_WORLD);
}

void finish(void) { MPI_Finalize(); }
