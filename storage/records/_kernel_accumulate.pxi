"""What a producer takes in: each row's bytes go into its partition's open batch at once.

So a batch's size is exact, what was taken cannot change, and no Python object waits.

Threads: nothing here releases the GIL, and no Python code runs between the look at a batch and the
last byte that is written to it. What could run some comes before the look, or after everything is
written: a new object, whose garbage collection may, and the callbacks. What was looked at before
such code is looked at again behind it; a list of headers, too, may have changed meanwhile.
"""

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int clock_gettime(int clock, timespec* to)
    int CLOCK_REALTIME

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object held, object key) except? NULL
    bint PyBytes_CheckExact(object given)
    bint PyUnicode_CheckExact(object given)
    bint PyLong_CheckExact(object given)
    bint PyTuple_CheckExact(object given)
    bint PyList_CheckExact(object given)
    int PyByteArray_Resize(object given, Py_ssize_t size) except -1
    void PyObject_GC_Track(object tracked)
    bint PyObject_GC_IsTracked(object tracked)
    long long PyLong_AsLongLongAndOverflow(object given, int* overflow) except? -1
    # as the others of these names, but the caller looks at NULL itself, which costs less than try
    const char* utf8_or_null "PyUnicode_AsUTF8AndSize" (PyObject* given, Py_ssize_t* size)
    bint PyErr_ExceptionMatches(object kind)
    void PyErr_Clear()
    int PyUnicode_Compare(object left, object right) except? -1
    ctypedef PyObject* (*PyCFunction)(PyObject* self, PyObject* args)
    ctypedef struct PyMethodDef:
        const char* ml_name
        PyCFunction ml_meth
        int ml_flags
        const char* ml_doc
    int METH_FASTCALL, METH_KEYWORDS
    object PyCFunction_New(PyMethodDef* method, object self)

from cpython.ref cimport Py_XDECREF

cdef enum:
    # bytes of an open batch at first
    FIRST_BATCH_CAPACITY = 512
    # what headers_size says of headers that are not of exact types
    NOT_EXACT = -2

# Py_TPFLAGS_HAVE_GC of a type
cdef unsigned long HAS_GC = 1 << 14

# Why a row was not taken.
cdef enum:
    _TAKEN = 0
    _BATCH_IS_FULL = 1
    _MEMORY_IS_FULL = 2
    _TOPIC_HAS_CHANGED = 3

BATCH_IS_FULL = _BATCH_IS_FULL
MEMORY_IS_FULL = _MEMORY_IS_FULL
TOPIC_HAS_CHANGED = _TOPIC_HAS_CHANGED


cdef inline int64_t system_ms() noexcept nogil:
    """Milliseconds since 1970."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef inline bint is_exact(object field):
    return field is None or PyBytes_CheckExact(field)


cdef inline Py_ssize_t header_count(object headers):
    """How many, of a tuple or list."""
    return PyTuple_Size(headers) if PyTuple_CheckExact(headers) else PyList_Size(headers)


cdef inline PyObject* header_at(object headers, Py_ssize_t i) except NULL:
    if PyTuple_CheckExact(headers):
        return <PyObject*>PyTuple_GetItem(headers, i)
    return <PyObject*>PyList_GetItem(headers, i)


cdef int64_t headers_size(object headers, Py_ssize_t count) except -1:
    """Bytes of the headers in a tuple or list, or NOT_EXACT if their types are not exact."""
    cdef Py_ssize_t i, length = 0
    cdef int64_t size = 0
    for i in range(count):
        header = <object>header_at(headers, i)
        if not PyTuple_CheckExact(header) or PyTuple_Size(header) != 2:
            return NOT_EXACT
        name = <object>PyTuple_GetItem(header, 0)
        value = <object>PyTuple_GetItem(header, 1)
        if not PyUnicode_CheckExact(name) or not is_exact(value):
            return NOT_EXACT
        if utf8_or_null(<PyObject*>name, &length) == NULL:
            if not PyErr_ExceptionMatches(UnicodeEncodeError):
                return -1
            PyErr_Clear()  # a name with half of a surrogate pair
            return NOT_EXACT
        size += varint_size(length) + length
        length = -1 if value is None else PyBytes_Size(value)
        size += varint_size(length) + max(length, 0)
    return size


cdef int put_exact_headers(uint8_t* to, object headers, Py_ssize_t count) except -1:
    """Write headers that ``headers_size`` has measured. Their names' bytes are cached since."""
    cdef Py_ssize_t i, length = 0
    cdef const uint8_t* data = NULL
    cdef int64_t size = 0
    for i in range(count):
        header = <object>header_at(headers, i)
        data = <const uint8_t*>PyUnicode_AsUTF8AndSize(<object>PyTuple_GetItem(header, 0), &length)
        to = put_field(to, data, length)
        bytes_field(<object>PyTuple_GetItem(header, 1), &data, &size)
        to = put_field(to, data, size)
    return 0


cdef bint load_exact(Record* row, object key, object value, object headers) except -1:
    """Measure a row; False if its fields are not all of exact types.

    It stays true until other Python code runs, which may change a list.
    """
    if not is_exact(key) or not is_exact(value):
        return False
    bytes_field(key, &row.key, &row.key_size)
    bytes_field(value, &row.value, &row.value_size)
    row.headers_size = row.header_count = 0
    if headers is None:
        return True
    if not PyTuple_CheckExact(headers) and not PyList_CheckExact(headers):
        return False
    row.header_count = header_count(headers)
    row.headers_size = headers_size(headers, row.header_count)
    return row.headers_size != NOT_EXACT


def record_size(key, value, headers):
    """Bytes of a batch of this record alone. The types must be exact: bytes, str, tuples."""
    cdef Record row
    row.timestamp_delta = row.offset_delta = 0
    if not load_exact(&row, key, value, headers):
        raise TypeError("a row must be of bytes, and tuples (str, bytes) as headers")
    cdef int64_t body = body_size(&row)
    return HEADER_SIZE + varint_size(body) + body


cdef class Receipt:
    """A record's place in its batch, which knows what became of it.

    It can be in no circle until somebody waits for it. So the garbage collector is not told of it,
    which would look at millions of them again and again.
    """

    # NULL until it is set: such objects are made without a constructor, which would take longer
    cdef PyObject* held
    cdef readonly int64_t index

    @property
    def delivery(self):
        """The fate of the record's batch."""
        return <object>self.held if self.held != NULL else None

    def __dealloc__(self):
        Py_XDECREF(self.held)

    def track(self):
        """Have the garbage collector look at this: it refers to other objects from now on."""
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)


cdef class OpenBatch:
    """The rows of a partition that wait: the records of a batch, behind 61 free bytes.

    ``limit``: bytes that a batch may have, unless one record has more. ``delivery``: of the rows
    that wait. ``owner`` is whatever the caller keeps for this partition.
    """

    cdef readonly object owner
    cdef public int64_t limit
    cdef readonly object delivery
    cdef readonly int64_t size_bytes, count
    cdef bytearray content
    cdef int64_t capacity, base_timestamp, max_timestamp

    def __cinit__(self, owner, int64_t limit):
        self.owner, self.limit = owner, limit
        self.size_bytes = HEADER_SIZE

    cdef int64_t size_with(self, Record* row, int64_t timestamp) noexcept:
        """Bytes of the batch with this row, whose deltas are set."""
        row.offset_delta = self.count
        row.timestamp_delta = subtract(timestamp, self.base_timestamp) if self.count else 0
        cdef int64_t body = body_size(row)
        return self.size_bytes + varint_size(body) + body

    cdef int64_t capacity_for(self, int64_t size, int64_t free_bytes) noexcept:
        """How large the memory must be for ``size`` bytes: twice as large as before, if it can."""
        cdef int64_t wanted
        if size <= self.capacity:
            return self.capacity
        wanted = max(size, min(max(2 * self.capacity, FIRST_BATCH_CAPACITY), self.limit))
        return wanted if wanted - self.capacity <= free_bytes else size

    cdef int grow(self, int64_t capacity) except -1:
        if self.content is None:
            self.content = PyByteArray_FromStringAndSize(NULL, capacity)
        else:
            PyByteArray_Resize(self.content, capacity)
        self.capacity = capacity
        return 0

    cdef int put(self, Record* row, object headers, int64_t timestamp, int64_t size) except -1:
        """Write a row; the batch then has ``size`` bytes, for which there is memory."""
        cdef uint8_t* to = <uint8_t*>PyByteArray_AsString(self.content) + self.size_bytes
        to = put_record(to, row, body_size(row))
        if row.header_count:
            put_exact_headers(to, headers, row.header_count)
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.size_bytes = size
        self.count += 1
        return 0

    def take(self):
        """(batch with 61 free bytes, rows, base timestamp, max timestamp, delivery, charged bytes)

        The open batch is empty then. None if it is.
        """
        if self.count == 0:
            return None
        content, delivery = self.content, self.delivery
        cdef int64_t count = self.count, size = self.size_bytes, capacity = self.capacity
        cdef int64_t base_timestamp = self.base_timestamp, max_timestamp = self.max_timestamp
        self.content, self.delivery = None, None
        self.size_bytes, self.capacity, self.count = HEADER_SIZE, 0, 0
        PyByteArray_Resize(content, size)
        return content, count, base_timestamp, max_timestamp, delivery, capacity


cdef class OpenTopic:
    """The open batches of a topic's partitions, by number.

    ``sticky``: the partition that takes rows without a key now; it took ``sticky_bytes``.
    """

    cdef readonly list batches
    cdef readonly object topic_id
    cdef public int64_t sticky, sticky_bytes

    def __cinit__(self, list batches not None, topic_id=None):
        self.batches, self.topic_id = batches, topic_id


cdef class Accumulator:
    """All open batches of a producer.

    ``topics``: OpenTopic by name. ``receipt``: the type of what ``send`` returns, a Receipt.

    ``new_delivery(batch)`` makes the fate of the rows to come; ``wake(batch)`` is called with its
    first row, and once it is ready to be sent; ``stick(topic)`` chooses another sticky partition,
    when the present one has had ``batch_bytes``; ``careful(topic, value, key, timestamp, headers,
    partition)`` is asked instead of everything that is not the plain case. ``direct`` False sends
    all rows there. ``ignores_keys``: rows with a key stick, too.
    """

    cdef type receipt
    cdef object new_delivery, careful, wake, stick
    cdef readonly dict topics
    cdef readonly int64_t free_bytes
    cdef int64_t batch_bytes
    cdef bint direct, ignores_keys, is_collected

    def __init__(self, *, type receipt not None, new_delivery, careful, wake, stick,
                 int64_t batch_bytes, int64_t free_bytes, bint direct=True,
                 bint ignores_keys=False):
        if not issubclass(receipt, Receipt) or batch_bytes < 1:
            raise ValueError(f"{receipt} must be a Receipt, and batch_bytes at least 1")
        self.is_collected = receipt.__flags__ & HAS_GC
        self.receipt, self.new_delivery, self.careful = receipt, new_delivery, careful
        self.wake, self.stick, self.direct = wake, stick, direct
        self.ignores_keys = ignores_keys
        self.batch_bytes, self.free_bytes = batch_bytes, free_bytes
        self.topics = {}

    def release(self, int64_t size_bytes):
        """Give memory back; a negative number takes some."""
        self.free_bytes += size_bytes

    @property
    def send(self):
        """Take a row in; returns its receipt. See ``Producer.send``."""
        return PyCFunction_New(&_SEND, self)

    cdef object take_in(self, topic, value, key, timestamp, headers, partition):
        """Take a row in, or have the careful way take it; returns its receipt."""
        cdef int64_t at_ms = -1, number = -1
        cdef int overflow = 0, why = _TOPIC_HAS_CHANGED
        cdef bint is_plain = self.direct and PyUnicode_CheckExact(topic)
        put = None
        if timestamp is None:
            at_ms = system_ms()
        elif PyLong_CheckExact(timestamp):
            at_ms = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if partition is not None:
            if PyLong_CheckExact(partition):
                number = PyLong_AsLongLongAndOverflow(partition, &overflow)
            is_plain = is_plain and number >= 0
        if is_plain and at_ms >= 0 and overflow == 0:
            put = self.put(topic, None, key, value, headers, at_ms, number, False, &why)
        if put is not None:
            return put
        return self.careful(topic, value, key, timestamp, headers, partition)

    def append(self, topic, OpenTopic state not None, key, value, headers, int64_t timestamp,
               int64_t partition):
        """Take a row of exact types in; partition -1: any.

        Returns its receipt, or why it was not taken. A record that is too large for any batch makes
        one of its own.
        """
        cdef int why = _TAKEN
        put = self.put(topic, state, key, value, headers, timestamp, partition, True, &why)
        if put is None and why == _TAKEN:
            raise TypeError("a row must be of bytes, and tuples (str, bytes) as headers")
        return why if put is None else put

    cdef object put(self, topic, OpenTopic wanted, key, value, headers, int64_t at_ms,
                    int64_t partition, bint is_careful, int* why):
        """The receipt, or None."""
        cdef OpenTopic state
        cdef OpenBatch batch
        cdef PyObject* found
        cdef Record row
        cdef Py_ssize_t partitions
        cdef bint sticks = partition < 0 and (key is None or self.ignores_keys)
        cdef int64_t number, size, before, capacity
        receipt = PyType_GenericAlloc(self.receipt, 0)
        if self.is_collected:
            PyObject_GC_UnTrack(receipt)
        while True:
            if not load_exact(&row, key, value, headers):
                return None
            why[0] = _TOPIC_HAS_CHANGED
            found = PyDict_GetItemWithError(self.topics, topic)
            if found == NULL:
                return None
            state = <OpenTopic?><object>found
            partitions = PyList_Size(state.batches)
            if partitions == 0 or (wanted is not None and state is not wanted):
                return None
            number = partition
            if sticks:
                if state.sticky_bytes >= self.batch_bytes and partitions > 1:
                    self.stick(state)
                    state.sticky_bytes = 0
                    continue
                number = state.sticky
            elif number < 0:
                number = <int64_t>(hash_of(row.key, row.key_size) & 0x7FFFFFFF) % partitions
            if number >= partitions:
                return None
            batch = <OpenBatch?>PyList_GetItem(state.batches, number)
            before = batch.size_bytes
            size = batch.size_with(&row, at_ms)
            if size > _MAX_PLAIN_BYTES:
                raise too_large(0)
            if size > batch.limit and (batch.count or not is_careful):
                why[0] = _BATCH_IS_FULL
                return None
            capacity = batch.capacity_for(size, self.free_bytes)
            if capacity - batch.capacity > self.free_bytes:
                why[0] = _MEMORY_IS_FULL
                return None
            if batch.delivery is not None:
                break
            delivery = self.new_delivery(batch)
            if batch.delivery is None:
                batch.delivery = delivery
        if capacity > batch.capacity:
            self.free_bytes -= capacity - batch.capacity
            batch.grow(capacity)
        (<Receipt>receipt).index = batch.count
        batch.put(&row, headers, at_ms, size)
        delivery = batch.delivery
        Py_INCREF(delivery)
        (<Receipt>receipt).held = <PyObject*>delivery
        if sticks:
            state.sticky_bytes += size - before
        if (<Receipt>receipt).index == 0 or before < self.batch_bytes <= size:
            self.wake(batch)
        return receipt


# -- the call of send ------------------------------------------------------------------------------

# The arguments of send, in the order of its signature.
cdef enum:
    _TOPIC = 0
    _VALUE = 1
    _KEY = 2
    _TIMESTAMP = 3
    _HEADERS = 4
    _PARTITION = 5
    _ARGUMENTS = 6
    # of them, those that may be given without their names
    _POSITIONAL = 2

cdef tuple _NAMES = ("topic", "value", "key", "timestamp", "headers", "partition")


cdef int argument_named(object name) except -1:
    """Which argument of send has this name. Raises TypeError if none has."""
    cdef int i
    for i in range(_ARGUMENTS):
        if <PyObject*>name == <PyObject*>PyTuple_GetItem(_NAMES, i):
            return i
    for i in range(_ARGUMENTS):
        if PyUnicode_Compare(name, <object>PyTuple_GetItem(_NAMES, i)) == 0:
            return i
    raise TypeError(f"send() got an unexpected keyword argument {name!r}")


cdef object call_send(object accumulator, PyObject** given, Py_ssize_t count, PyObject* names):
    """``Accumulator.send``, as the interpreter calls it.

    ``given``: ``count`` arguments by position, and behind them one for each of ``names`` (NULL:
    none). Within the stable ABI of 3.11, a ``def`` of Cython is called with a new tuple and, for
    names, a new dict. They take nearly as long as the row itself.
    """
    cdef PyObject* fields[_ARGUMENTS]
    cdef Py_ssize_t i
    cdef int field
    for i in range(_ARGUMENTS):
        fields[i] = NULL
    if count > _POSITIONAL:
        raise TypeError(f"send() takes at most {_POSITIONAL} positional arguments ({count} given)")
    for i in range(count):
        fields[i] = given[i]
    if names != NULL:
        for i in range(PyTuple_Size(<object>names)):
            name = <object>PyTuple_GetItem(<object>names, i)
            field = argument_named(name)
            if fields[field] != NULL:
                raise TypeError(f"send() got multiple values for argument {name!r}")
            fields[field] = given[count + i]
    if fields[_TOPIC] == NULL:
        raise TypeError("send() needs a topic")
    for i in range(_ARGUMENTS):
        if fields[i] == NULL:
            fields[i] = <PyObject*>None
    return (<Accumulator>accumulator).take_in(
        <object>fields[_TOPIC], <object>fields[_VALUE], <object>fields[_KEY],
        <object>fields[_TIMESTAMP], <object>fields[_HEADERS], <object>fields[_PARTITION],
    )


cdef PyMethodDef _SEND
_SEND.ml_name = "send"
_SEND.ml_meth = <PyCFunction><void*>call_send
_SEND.ml_flags = METH_FASTCALL | METH_KEYWORDS
_SEND.ml_doc = (
    "send($self, topic, value=None, *, key=None, timestamp=None, headers=None, partition=None)\n"
    "--\n\n"
    "Take a row in; returns its receipt. See ``Producer.send``."
)
