"""Serves the files of a directory over HTTP, with asyncio streams, until SIGTERM."""
import asyncio
import signal
import sys

ROOT, PORT = sys.argv[1], int(sys.argv[2])


async def serve(reader, writer):
    try:
        stays = True
        while stays:
            head = await reader.readuntil(b"\r\n\r\n")
            stays = b"HTTP/1.1" in head
            with open(ROOT + head.split(b" ")[1].decode(), "rb") as file:
                body = file.read()
            said = b"keep-alive" if stays else b"close"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body))
            writer.write(b"Connection: %s\r\n\r\n" % said)
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def main():
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with await asyncio.start_server(serve, "0.0.0.0", PORT):
        await over.wait()


asyncio.run(main())
