"""A small client of the language server: starts `dagc lsp` as an editor does, and speaks JSON-RPC with it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WAIT = 60.0  # seconds, for a machine that is busy


class Client:
    """One server. `offered`: the position encodings that this client offers."""

    def __init__(self, offered: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "dagc", "lsp", "--stdio"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.found: dict[str, queue.Queue[list[Any]]] = {}  # published diagnostics, by address
        self._answers: dict[int, queue.Queue[Any]] = {}
        self._count = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        general = {"general": {"positionEncodings": list(offered)}} if offered else {}
        self.server = self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": general})
        self.tell("initialized", {})

    def _read(self) -> None:
        assert self.process.stdout is not None
        while True:
            length = 0
            while line := self.process.stdout.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not length:
                return
            message = json.loads(self.process.stdout.read(length))
            if message.get("method") == "textDocument/publishDiagnostics":
                self.diagnostics(message["params"]["uri"]).put(message["params"]["diagnostics"])
            elif "id" in message and "method" not in message:
                self._answers[message["id"]].put(message)

    def diagnostics(self, uri: str) -> queue.Queue[list[Any]]:
        return self.found.setdefault(uri, queue.Queue())

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        """The result. Fails if the server answers with an error."""
        self._count += 1
        answer: queue.Queue[Any] = queue.Queue()
        self._answers[self._count] = answer
        self._send({"id": self._count, "method": method, "params": params})
        message = answer.get(timeout=WAIT)
        assert "error" not in message, message
        return message["result"]

    def open(self, path: Path | str, text: str) -> Text:
        uri = path if isinstance(path, str) else path.as_uri()
        item = {"uri": uri, "languageId": "dag", "version": 0, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return Text(self, uri, text)

    def end(self) -> tuple[int, bytes]:
        """Shut the server down, as an editor does. Returns its exit code and what it wrote to standard error."""
        self.ask("shutdown", None)
        self.tell("exit", None)
        return self.left()

    def left(self) -> tuple[int, bytes]:
        """As `end`, but without a word."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=WAIT)
        self._reader.join(timeout=WAIT)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return code, said


class Text:
    """An open text."""

    def __init__(self, client: Client, uri: str, text: str) -> None:
        self.client, self.uri, self.text, self.version = client, uri, text, 0

    def change(self, text: str) -> None:
        self.text = text
        self.version += 1
        params = {
            "textDocument": {"uri": self.uri, "version": self.version},
            "contentChanges": [{"text": text}],
        }
        self.client.tell("textDocument/didChange", params)

    def diagnostics(self) -> list[Any]:
        """The next that the server publishes."""
        return self.client.diagnostics(self.uri).get(timeout=WAIT)

    def position(self, words: str, inside: int = 0, nth: int = 0) -> dict[str, int]:
        """Of the character `inside` the nth occurrence of `words`, in UTF-16 code units."""
        at = -1
        for _ in range(nth + 1):
            at = self.text.index(words, at + 1)
        before = self.text[: at + inside].replace("\r\n", "\n")
        line = before.rpartition("\n")[2]
        return {"line": before.count("\n"), "character": len(line.encode("utf-16-le")) // 2}

    def ask(self, what: str, words: str, inside: int = 0, nth: int = 0, **more: Any) -> Any:
        """`textDocument/WHAT` at a place."""
        document = {"textDocument": {"uri": self.uri}, "position": self.position(words, inside, nth), **more}
        return self.client.ask(f"textDocument/{what}", document)

    def hover(self, words: str, inside: int = 0, nth: int = 0) -> str:
        found = self.ask("hover", words, inside, nth)
        return found["contents"]["value"] if found else ""

    def labels(self, words: str, inside: int = 0, nth: int = 0) -> set[str]:
        return {item["label"] for item in self.ask("completion", words, inside, nth)}

    def at(self, place: Any) -> str:
        """The words of a range of this text, in UTF-16 code units."""
        lines = self.text.split("\n")
        start, end = place["start"], place["end"]
        assert start["line"] == end["line"]
        units = lines[start["line"]].encode("utf-16-le")
        return units[2 * start["character"] : 2 * end["character"]].decode("utf-16-le")

    def close(self) -> None:
        self.client.tell("textDocument/didClose", {"textDocument": {"uri": self.uri}})
