"""The one reader of C and CUDA text: names, accesses, launches, and what a compiled kernel takes."""
