"""Front end: text -> AST -> Program."""
