"""A slow uplink on loopback: a TCP proxy that limits the bits per second to the server, but not those back."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType

CHUNK_BYTES = 4096
IDLE_S = 0.25
"""After a pause of this length a new transfer begins. During a transfer, late wake-ups do not lower the rate."""


class Throttle:
    """During the block, `address` leads to `target()`, with `bits_per_s` for all connections together."""

    def __init__(self, bits_per_s: float, port: int, target: Callable[[], str]) -> None:
        self.address = f"127.0.0.1:{port}"
        self._bits_per_s, self._port, self._target = bits_per_s, port, target
        self._free_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Throttle":
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        host, port = self._target().split(":")
        server, up = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._copy(client, up, slow=True), self._copy(server, back, slow=False))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, slow: bool) -> None:
        try:
            while chunk := await source.read(CHUNK_BYTES):
                if slow:
                    if time.monotonic() - self._free_s > IDLE_S:
                        self._free_s = time.monotonic()
                    self._free_s += 8 * len(chunk) / self._bits_per_s
                    await asyncio.sleep(self._free_s - time.monotonic())
                sink.write(chunk)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.transport.abort()
