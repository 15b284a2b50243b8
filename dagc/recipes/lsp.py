"""`dagc lsp`: the language server for editors."""

from __future__ import annotations

from dagc.base.errors import MissingTool


def serve() -> None:
    """Serve one editor on standard input and output, until it ends. Raises MissingTool without pygls."""
    try:
        from dagc.editor import server  # loads pygls
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise MissingTool(
            f"the language server needs the package {error.name}", "pip install 'dagc[lsp]', or pip install pygls"
        ) from None
    server.serve()
