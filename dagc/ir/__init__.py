"""The program, its graph, traversals and plans, and the symbolic sizes in them."""
