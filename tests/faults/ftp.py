"""A small FTP server, such as an old archive runs, whose transfers can be slowed to a drip."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GREETING = b"220 ready\r\n"
ANSWERS = {"USER": b"230 welcome\r\n", "TYPE": b"200 as you like\r\n", "QUIT": b"221 goodbye\r\n"}


class FtpServer(socketserver.ThreadingTCPServer):
    """Serves what is in `objects`; anonymous, read-only."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.objects: dict[str, bytes] = {}
        """Absolute path to content."""
        self.drip_every_s: float | None = None
        """Seconds from one byte to the next; None sends all at once."""
        self.asked: list[str] = []
        """Every path that a transfer was begun for."""
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        """As fsspec takes it."""
        return f"ftp://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is nothing to speak of."""


class _Session(socketserver.StreamRequestHandler):
    server: FtpServer

    def handle(self) -> None:
        self.wfile.write(GREETING)
        passive: socket.socket | None = None
        for line in self.rfile:
            verb, _, argument = line.decode().strip().partition(" ")
            if verb == "PASV":
                passive = socket.create_server(("127.0.0.1", 0))
                high, low = divmod(passive.getsockname()[1], 256)
                self.wfile.write(f"227 (127,0,0,1,{high},{low})\r\n".encode())
            elif verb == "RETR" and passive is not None:
                self._send(argument, passive)
                passive = None
            else:
                self.wfile.write(ANSWERS.get(verb, b"502 not here\r\n"))

    def _send(self, path: str, passive: socket.socket) -> None:
        self.server.asked.append(path)
        with passive:
            if path not in self.server.objects:
                self.wfile.write(b"550 no such file\r\n")
                return
            self.wfile.write(b"150 here it comes\r\n")
            transfer, _ = passive.accept()
            with transfer:
                self._pour(self.server.objects[path], transfer)
        self.wfile.write(b"226 done\r\n")

    def _pour(self, data: bytes, transfer: socket.socket) -> None:
        position = 0
        while position < len(data) and (every_s := self.server.drip_every_s) is not None:
            if self.server.stopped.wait(every_s):
                return
            transfer.sendall(data[position : position + 1])
            position += 1
        transfer.sendall(data[position:])


@contextmanager
def running_ftp() -> Iterator[FtpServer]:
    """An FTP server on a free port of this host."""
    with FtpServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            with suppress(OSError):
                server.shutdown()
            thread.join(5)
