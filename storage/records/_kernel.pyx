# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records to bytes and back: the one compiled module.

``_kernel_py.py`` is its twin, function by function.

A record in a v2 batch; every number is a zigzag varint but the attributes, one byte, always 0::

    +--------+-----+-----------+--------+-----+-----+-------+-------+--------+---------------
    | length | att | timestamp | offset | key | key | value | value | header | of each header
    |        |     | delta     | delta  | size|     | size  |       | count  |
    +--------+-----+-----------+--------+-----+-----+-------+-------+--------+---------------

    length      counts the bytes behind itself
    sizes       -1 is null
    a header    name size, name, value size, value; its name is never null

Encoders write records behind 61 free bytes, where ``batch.seal`` then puts the header. Decoders
walk the batches of a whole fetch in one call, check each CRC-32C and decode that batch while it is
in the cache.

The Arrow paths make no Python object per record and hold no GIL while they loop. Nothing here
trusts a length: it is compared with the bytes that are left before it is used, read once into a
local, and what is wrong becomes CorruptRecord. Written bytes are bounded likewise: a record that
does not fit stops the loop, which goes on when its ``Vector`` has grown. Offsets and timestamps
wrap at 64 bits, as Java's.

Callers and other threads may change what they gave while it is read. So every buffer is exported
for as long as its bytes are used, which prevents a resize; objects are asked once; a number that
bounds an access is loaded once (``load_once``); and what is read a second time is bounded by what
the first reading found. Sizes, positions and counts of callers are checked by ``raise``: ``assert``
would be gone under ``python -O``.

Only the stable ABI of Python 3.11 is used, so one binary serves every later version.
Source of the format: ``org.apache.kafka.common.record.DefaultRecord``.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.list cimport PyList_GetItem, PyList_Size
from cpython.long cimport PyLong_AsLongLong, PyLong_Check
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GetItem, PyTuple_SetItem, PyTuple_Size
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy, memset

import sys as _sys

from crc32c import crc32c as _crc32c

from raylog.storage.errors import CorruptRecord, InvalidRecord, RaylogError
from raylog.storage.records.compression import MAX_PLAIN_BYTES, decompress
from raylog.storage.records.record import (
    ConsumerRecord as ConsumerRecordTuple, Header, Record as RecordTuple,
)

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define prefetch __builtin_prefetch
    #else
    #define prefetch(address, write, locality) ((void)(address))
    #endif
    /* one load, which the compiler may not repeat: another thread may change the memory */
    #define load_once_8(address) (*(const volatile uint8_t*)(address))
    #define load_once_32(address) (*(const volatile int32_t*)(address))
    #define load_once_64(address) (*(const volatile int64_t*)(address))
    """
    void prefetch(const void* address, int write, int locality) nogil
    uint8_t load_once_8(const uint8_t* address) nogil
    int32_t load_once_32(const int32_t* address) nogil
    int64_t load_once_64(const int64_t* address) nogil

cdef extern from "Python.h":
    int PyBUF_READ
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(object made)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

KERNEL = "compiled"

include "_kernel_layout.pxi"

cdef enum:
    # bytes of a record without key, value and headers, every field at its longest
    MAX_RECORD_OVERHEAD = 32
    # bytes of the two sizes of a header
    MAX_HEADER_OVERHEAD = 10
    # bytes: copies from this size on fetch ahead
    PREFETCH_SIZE = 256
    # bytes that are fetched ahead
    PREFETCH_AHEAD = 2048
    # bytes of a new Vector for data of unknown size
    FIRST_CAPACITY = 65536
    # times as many, at once: batches may be unlike the first
    MAX_GROWTH = 16

cdef int64_t _MAX_PLAIN_BYTES = MAX_PLAIN_BYTES
cdef type _RECORD = RecordTuple
cdef type _HEADER = Header
cdef type _CONSUMER_RECORD = ConsumerRecordTuple

include "_kernel_bytes.pxi"
include "_kernel_encode.pxi"
include "_kernel_accumulate.pxi"
include "_kernel_decode.pxi"
include "_kernel_readers.pxi"
include "_kernel_check.pxi"
include "_kernel_append.pxi"
include "_kernel_clean.pxi"
include "_kernel_scan.pxi"
include "_kernel_write.pxi"


# -- partitioning ----------------------------------------------------------------------------------


cdef uint32_t hash_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28CULL ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = data[0] | (<uint32_t>data[1] << 8)
        k |= (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        data += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>data[2] << 16
    if size >= 2:
        h ^= <uint32_t>data[1] << 8
    if size >= 1:
        h ^= data[0]
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(key):
    """Kafka's hash of a key's bytes, an int32."""
    if PyBytes_Check(key):
        return <int32_t>hash_of(<const uint8_t*>PyBytes_AsString(key), PyBytes_Size(key))
    cdef View view = View(key)
    return <int32_t>hash_of(view.data, view.size)


def partition_column(TextColumn keys not None, int64_t partitions):
    """The partition of every key as int32, -1 for null."""
    if not 1 <= partitions <= INT32_MAX:
        raise ValueError(f"{partitions} partitions; give at least one, and under 2^31")
    cdef Text t = keys.text
    cdef Vector out = Vector(4 * t.rows)
    cdef int32_t* to = <int32_t*>out.data
    cdef const uint8_t* data = NULL
    cdef int64_t row, size = 0
    cdef uint32_t hashed
    cdef bint valid = True
    with nogil:
        for row in range(t.rows):
            valid = get_text(&t, row, &data, &size)
            if not valid:
                break
            if size < 0:
                to[row] = -1
            else:
                hashed = hash_of(data, size) & 0x7FFFFFFF
                to[row] = <int32_t>(hashed % <uint32_t>partitions)
    if not valid:
        raise InvalidRecord(
            f"row {row}: its key points outside of the column's data: validate(full=True) it"
        )
    return out.take(4 * t.rows)
