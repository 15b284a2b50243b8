"""Reads C and CUDA text, on tree-sitter: the names that must be constants, the loads and stores of a kernel."""
