"""Varints, short copies, memory: what encoding and decoding share."""

# -- varints and short copies ----------------------------------------------------------------------


cdef inline uint64_t zigzag(int64_t n) noexcept nogil:
    return (<uint64_t>n << 1) ^ <uint64_t>(n >> 63)


cdef inline int64_t unzigzag(uint64_t z) noexcept nogil:
    return <int64_t>((z >> 1) ^ (0 - (z & 1)))


cdef inline Py_ssize_t varint_size(int64_t n) noexcept nogil:
    cdef uint64_t z = zigzag(n)
    cdef Py_ssize_t size = 1
    if z < 0x80:
        return 1
    if z < 0x4000:
        return 2
    while z >= 0x80:
        z >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* to, int64_t n) noexcept nogil:
    cdef uint64_t z = zigzag(n)
    while z >= 0x80:
        to[0] = <uint8_t>(z | 0x80)
        to += 1
        z >>= 7
    to[0] = <uint8_t>z
    return to + 1


cdef const uint8_t* get_long_varint(const uint8_t* p, const uint8_t* end, int max_size,
                                    int64_t* n) noexcept nogil:
    cdef uint64_t z = 0
    cdef uint64_t byte
    cdef int i
    for i in range(max_size):
        if i >= end - p:
            return NULL
        byte = load_once_8(p + i)
        z |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if max_size == 5:
                z = <uint32_t>z
            n[0] = unzigzag(z)
            return p + i + 1
    return NULL


cdef inline const uint8_t* get_varint(const uint8_t* p, const uint8_t* end, int max_size,
                                      int64_t* n) noexcept nogil:
    """Read a varint of at most ``max_size`` bytes (5: an int32) into ``n``; NULL if none is."""
    cdef uint32_t z, second, third
    if p < end:
        z = load_once_8(p)
        if z < 0x80:
            n[0] = unzigzag(z)
            return p + 1
        if end - p >= 3:
            second = load_once_8(p + 1)
            z = (z & 0x7F) | ((second & 0x7F) << 7)
            if second < 0x80:
                n[0] = unzigzag(z)
                return p + 2
            third = load_once_8(p + 2)
            if third < 0x80:
                n[0] = unzigzag(z | (third << 14))
                return p + 3
    return get_long_varint(p, end, max_size, n)


cdef inline void copy(uint8_t* to, const uint8_t* data, size_t size) noexcept nogil:
    """memcpy, without the call where two overlapping moves do.

    What lies behind ``data`` and ``to`` mostly comes next, so a long copy has it fetched into the
    cache meanwhile. That has no other effect, wherever it points.
    """
    cdef size_t line
    if size > 32:
        for line in range(0, size if size >= PREFETCH_SIZE else 0, 64):
            prefetch(data + PREFETCH_AHEAD + line, 0, 3)
            prefetch(to + PREFETCH_AHEAD + line, 1, 3)
        memcpy(to, data, size)
    elif size >= 16:
        memcpy(to, data, 16)
        memcpy(to + size - 16, data + size - 16, 16)
    elif size >= 8:
        memcpy(to, data, 8)
        memcpy(to + size - 8, data + size - 8, 8)
    elif size >= 4:
        memcpy(to, data, 4)
        memcpy(to + size - 4, data + size - 4, 4)
    elif size:
        to[0] = data[0]
        to[size >> 1] = data[size >> 1]
        to[size - 1] = data[size - 1]


cdef inline int64_t add(int64_t a, int64_t b) noexcept nogil:
    """a + b, wrapping."""
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t subtract(int64_t a, int64_t b) noexcept nogil:
    """a - b, wrapping."""
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline int64_t big_endian(const uint8_t* p, int size) noexcept nogil:
    """A signed integer of ``size`` bytes."""
    cdef uint64_t n = 0
    cdef int i
    for i in range(size):
        n = (n << 8) | p[i]
    return <int64_t>(n << (64 - 8 * size)) >> (64 - 8 * size)


# -- memory ----------------------------------------------------------------------------------------


@cython.no_gc
cdef class View:
    """The bytes of any object with a buffer, for as long as this lives; of none, nothing.

    The garbage collector does not see it. Else, of a reader in a cycle, it might clear a memoryview
    whose bytes are still exported to this, and the release of them would crash.
    """

    cdef object source
    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t* data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        if source is not None:
            PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
            self.source, self.held = source, True
            self.data = <const uint8_t*>self.buffer.buf
            self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef object slice(self, Py_ssize_t start, Py_ssize_t end):
        """A memoryview for Python code, which may keep it: it holds the source."""
        return memoryview(self.source).cast("B")[start:end]


cdef struct Span:
    const uint8_t* data
    Py_ssize_t size


cdef View span_of(source, Span* to):
    """Point at the bytes of any object with a buffer.

    They stay there as long as ``source`` and what is returned are held. A View costs a small append
    more than its check, so ``bytes``, which cannot change, need none.
    """
    if PyBytes_Check(source):
        to.data = <const uint8_t*>PyBytes_AsString(source)
        to.size = PyBytes_Size(source)
        return None
    cdef View view = View(source)
    to.data, to.size = view.data, view.size
    return view


cdef View aligned_view(object source, size_t width):
    """A view whose items of ``width`` bytes can be loaded; a copy if they are not aligned."""
    cdef View view = View(source)
    if <size_t>view.data % width:
        return View(PyBytes_FromStringAndSize(<const char*>view.data, view.size))
    return view


# pyarrow, in a process that has it: a LogActor has not, and saves 50 MB
cdef object _arrow = None


cdef object allocate(Py_ssize_t size):
    """A pyarrow.Buffer, or a bytearray where there is no Arrow."""
    global _arrow
    if _arrow is None:
        pyarrow = _sys.modules.get("pyarrow")
        if hasattr(pyarrow, "allocate_buffer"):  # else another thread is just importing it
            _arrow = pyarrow
    if _arrow is None or not size:
        return PyByteArray_FromStringAndSize(NULL, size)
    return _arrow.allocate_buffer(size)


cdef class Vector:
    """Output that grows, where it can in Arrow's memory pool.

    The pool hands out memory that was used before. malloc gives what is freed back to the system,
    and then every page costs a fault: more than all the rest here.
    """

    # over a pyarrow.Buffer or a bytearray, which nobody can resize until ``take``; None: no memory
    cdef View view
    cdef uint8_t* data
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t capacity=0):
        if capacity:
            self.resize(capacity)

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef View view = View(allocate(capacity))
        if view.buffer.readonly or view.size < capacity:
            raise BufferError(f"no {capacity} writable bytes were allocated")
        cdef uint8_t* data = <uint8_t*>view.data
        if self.capacity:
            memcpy(data, self.data, min(self.capacity, capacity))
        self.view, self.data, self.capacity = view, data, capacity
        return 0

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        if capacity > self.capacity:
            self.resize(capacity)
        return 0

    cdef object take(self, Py_ssize_t size):
        """The first ``size`` bytes, writable, in memory of at most twice as many.

        They are the caller's alone: nothing of this may be used behind it.
        """
        if not 0 <= size <= self.capacity:
            raise SystemError(f"{size} bytes were written into {self.capacity}")
        if self.view is None or size < self.capacity // 2:
            self.resize(size)
        memory, capacity = self.view.source, self.capacity
        self.view, self.data, self.capacity = None, NULL, 0
        if size == capacity:
            return memory
        view = memoryview(memory)[:size]
        return view if type(memory) is bytearray else _arrow.py_buffer(view)


cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key_size              # -1: null
    int64_t value_size            # -1: null
    int64_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* fields         # decoding: where the key's size is,
    const uint8_t* headers        # where the headers start,
    const uint8_t* end            # and where the record ends
    int64_t headers_size          # encoding: of the headers, without their count
    int64_t first_header          # encoding: its place in the array of all headers
