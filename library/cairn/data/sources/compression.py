"""Uncompressed bytes of a file in pieces of about 64 to 128 KiB, whatever it is compressed with.

Every frame, member and stream of a file is read. A file that ends early or does not unpack is a DataError that says
at which byte; Python's own xz reader takes damage after the first stream for the end, so streams are walked here.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from cairn.data.sources.location import Location
from cairn.data.sources.zstd import zstd_pieces
from cairn.errors import DataError

CHUNK_BYTES = 1 << 16
FETCH_AGAIN = "fetch the file again and compare its size and checksum"

OnBytes = Callable[[int], None] | None
"""Told the bytes of the file on disk that are read so far."""


def read_pieces(location: Location, compression: str, on_bytes: OnBytes = None) -> Iterator[bytes]:
    """The text of a file compressed as `compression` says (zst, gz, xz or nothing). DataError for damage."""
    with location.failures(), location.open() as stream:
        if compression == "zst":
            source = zstd_pieces(location, stream)
        elif compression == "gz":
            source = _gzip_pieces(location, stream)
        elif compression == "xz":
            source = _xz_pieces(location, stream)
        else:
            source = iter(lambda: stream.read(CHUNK_BYTES), b"")
        for piece in source:
            if on_bytes is not None:
                on_bytes(stream.tell())
            yield piece


def _gzip_pieces(location: Location, stream: BinaryIO) -> Iterator[bytes]:
    unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
    read = 0
    try:
        while piece := unpacked.read(CHUNK_BYTES):
            read += len(piece)
            yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the file is truncated or damaged: {error} (after {read} bytes of text, file of {location.size()} bytes)",
            where=str(location),
            next_step=FETCH_AGAIN,
        ) from None


def _xz_pieces(location: Location, stream: BinaryIO) -> Iterator[bytes]:
    """Each stream of the file, with zeros as padding between them (xz file format 1.2.1, section 2.2)."""
    decoder: lzma.LZMADecompressor | None = None
    packed = b""
    while True:
        if decoder is None:
            packed = packed.lstrip(b"\0") or stream.read(CHUNK_BYTES).lstrip(b"\0")
            if not packed:
                if not (packed := stream.read(CHUNK_BYTES)):
                    return
                continue
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        elif decoder.needs_input and not (packed := stream.read(CHUNK_BYTES)):
            raise DataError(
                f"the file is truncated: it ends at byte {stream.tell()} inside an xz stream",
                where=str(location),
                next_step=FETCH_AGAIN,
            )
        try:
            piece = decoder.decompress(packed, CHUNK_BYTES)
        except lzma.LZMAError as error:
            raise DataError(
                f"damaged xz data before byte {stream.tell()} ({error})", where=str(location), next_step=FETCH_AGAIN
            ) from None
        packed = b""
        if piece:
            yield piece
        if decoder.eof:
            packed, decoder = decoder.unused_data, None
