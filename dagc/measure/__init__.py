"""Starting and measuring programs. The only importers of mpi4py and pycuda, and these only inside functions."""
