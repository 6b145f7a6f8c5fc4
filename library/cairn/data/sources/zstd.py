"""zstd text with strictly bounded memory and exact ends: the frames are walked block by block.

A block header names its own size and a block holds at most 128 KiB of text (RFC 8878, section 3.1.1.2), so feeding
one block at a time bounds the output whatever the ratio, reads every frame of a file, and knows to the byte where
a truncated file ends. python-zstandard's stream readers give no error there, and its one-shot calls stop after
frame 1. Costs one Python step per block of up to 128 KiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from cairn.data.sources.location import Location
from cairn.errors import DataError

MAX_WINDOW_BYTES = 2**31
"""The largest window of `zstd --long=31`; the decoder's default refuses 28 to 31."""

FRAME_MAGIC = 0xFD2FB528
SKIPPABLE_MAGIC = 0x184D2A50
SKIPPABLE_MASK = 0xFFFFFFF0
RLE_BLOCK = 1


def zstd_pieces(location: Location, stream: BinaryIO) -> Iterator[bytes]:
    """Decompressed pieces of every frame of `stream`; a DataError names file and byte where it is damaged."""
    while magic := stream.read(4):
        at = stream.tell() - len(magic)
        if len(magic) < 4:
            raise _truncated(location, stream.tell())
        number = struct.unpack("<I", magic)[0]
        if number & SKIPPABLE_MASK == SKIPPABLE_MAGIC:
            size = struct.unpack("<I", _exactly(location, stream, 4))[0]
            _exactly(location, stream, size)
        elif number == FRAME_MAGIC:
            yield from _frame(location, stream, magic)
        else:
            raise DataError(
                f"not zstd data: {magic.hex()} stands at byte {at}",
                where=str(location),
                next_step="compress it with zstd, or rename it to what it is",
            )


def _frame(location: Location, stream: BinaryIO, magic: bytes) -> Iterator[bytes]:
    start = stream.tell() - len(magic)
    header = magic + _exactly(location, stream, 1)
    descriptor = header[4]
    header += _exactly(location, stream, _header_rest(descriptor))
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
    try:
        yield decoder.decompress(header)
        last = False
        while not last:
            block_header = _exactly(location, stream, 3)
            bits = int.from_bytes(block_header, "little")
            last, kind, size = bool(bits & 1), bits >> 1 & 3, bits >> 3
            yield decoder.decompress(block_header + _exactly(location, stream, 1 if kind == RLE_BLOCK else size))
        if descriptor & 0b100:
            yield decoder.decompress(_exactly(location, stream, 4))
    except zstandard.ZstdError as error:
        raise DataError(
            f"damaged zstd frame between bytes {start} and {stream.tell()} ({error})",
            where=str(location),
            next_step="fetch the file again and compare its checksum",
        ) from None
    if not decoder.eof:
        raise _truncated(location, stream.tell())


def _header_rest(descriptor: int) -> int:
    """Bytes of a frame header after its descriptor (RFC 8878, section 3.1.1.1)."""
    single_segment = bool(descriptor & 0b100000)
    window = 0 if single_segment else 1
    dictionary = (0, 1, 2, 4)[descriptor & 0b11]
    content_size = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    return window + dictionary + content_size


def _exactly(location: Location, stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise _truncated(location, stream.tell())
    return data


def _truncated(location: Location, byte: int) -> DataError:
    return DataError(
        f"the file is truncated: it ends at byte {byte} inside a zstd frame",
        where=str(location),
        next_step="fetch the file again and compare its size and checksum",
    )
