"""The batches of a fetch to rows and Arrow columns."""

from raylog.storage.records.batch import read_header as _read_header
from raylog.storage.records.legacy import as_records as _as_records

cdef struct Batch:
    int64_t position
    int64_t size
    int64_t base_offset
    int64_t next_offset           # the first behind it
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t left                  # records not yet decoded,
    const uint8_t* p              # which start here,
    const uint8_t* end            # and end here
    uint8_t magic
    bint log_append_time
    int32_t timestamp_type        # 0 CreateTime, 1 LogAppendTime, -1 none


cdef const char* CHANGED = "its bytes changed while they were read"


cdef inline const char* get_record(const uint8_t* p, const uint8_t* end, Record* r) noexcept nogil:
    """The record at ``p`` as pointers into the batch; what is wrong with it, or NULL."""
    cdef int64_t length
    p = get_varint(p, end, 5, &length)
    if p == NULL:
        return "a record's length is no varint"
    if length < MIN_RECORD_SIZE - 1 or length > end - p:
        return "a record is longer than what is left of the batch, or too short"
    end = r.end = p + length
    p = get_varint(p + 1, end, 10, &r.timestamp_delta)
    if p == NULL:
        return "a record's timestamp delta is no varint"
    p = get_varint(p, end, 5, &r.offset_delta)
    if p == NULL:
        return "a record's offset delta is no varint"
    r.fields = p
    p = get_varint(p, end, 5, &r.key_size)
    if p == NULL or r.key_size > end - p:
        return "a record's key is longer than the record"
    r.key = p
    p += max(r.key_size, 0)
    p = get_varint(p, end, 5, &r.value_size)
    if p == NULL or r.value_size > end - p:
        return "a record's value is longer than the record"
    r.value = p
    p += max(r.value_size, 0)
    p = get_varint(p, end, 5, &r.header_count)
    if p == NULL or r.header_count < 0 or r.header_count > end - p:
        return "a record's header count is negative or more than its bytes"
    r.headers = p
    if r.header_count:
        return check_headers(r)
    if p != end:
        return "a record is shorter than its length"
    return NULL


cdef inline const uint8_t* get_header(const uint8_t* p, const uint8_t* end,
                                      Record* h) noexcept nogil:
    """A header's name and value as ``h``'s key and value; NULL if it is malformed."""
    p = get_varint(p, end, 5, &h.key_size)
    if p == NULL or h.key_size < 0 or h.key_size > end - p:
        return NULL
    h.key = p
    p = get_varint(p + h.key_size, end, 5, &h.value_size)
    if p == NULL or h.value_size > end - p:
        return NULL
    h.value = p
    return p + max(h.value_size, 0)


cdef const char* check_headers(Record* r) noexcept nogil:
    cdef Record header
    cdef const uint8_t* p = r.headers
    cdef int64_t i
    for i in range(r.header_count):
        p = get_header(p, r.end, &header)
        if p == NULL:
            return "a header's name is null, or it is longer than the record"
    if p != r.end:
        return "a record is shorter than its length"
    return NULL


cdef class Fetch:
    """The batches of a buffer, one after the other, each checked, and decompressed if need be."""

    cdef View source
    cdef View plain               # of the batch if it is compressed; keeps its bytes alive
    cdef int64_t start_offset, end_offset
    cdef int64_t plain_bytes      # of all batches so far
    cdef int64_t max_batch_bytes  # of one batch that is decompressed
    cdef bint check_crc, control
    cdef Batch batch

    def __cinit__(self, source, int64_t start_offset, int64_t end_offset, bint check_crc,
                  bint control, int64_t max_batch_bytes):
        self.source = View(source)
        self.max_batch_bytes = max_batch_bytes
        self.start_offset, self.end_offset = start_offset, end_offset
        self.check_crc, self.control = check_crc, control

    cdef object corrupt(self, const char* why):
        return CorruptRecord(f"position {self.batch.position}", why.decode())

    cdef bint next(self) except -1:
        """Go to the next batch with records for the reader.

        False at the end, or before a partial batch.
        """
        cdef Batch* b = &self.batch
        cdef const uint8_t* p
        cdef uint32_t crc
        cdef int64_t attributes
        while self.find():
            p = self.source.data + b.position
            if b.magic != MAGIC:
                if self.open_legacy():
                    return b.base_offset < self.end_offset
                continue
            b.base_offset = big_endian(p + AT_BASE_OFFSET, 8)
            if b.base_offset >= self.end_offset:
                return False
            if self.check_crc:
                crc = <uint32_t>big_endian(p + AT_CRC, 4)
                if crc != <uint32_t>_crc32c(view_of(p + CRC_START, p + b.size)):
                    raise self.corrupt("its CRC-32C is wrong")
            attributes = big_endian(p + AT_ATTRIBUTES, 2)
            if attributes & CONTROL and not self.control:
                continue
            b.next_offset = add(add(b.base_offset, big_endian(p + AT_LAST_OFFSET_DELTA, 4)), 1)
            if b.next_offset <= self.start_offset:
                continue
            b.timestamp_type = b.log_append_time = (attributes & LOG_APPEND_TIME) != 0
            b.base_timestamp = big_endian(p + AT_BASE_TIMESTAMP, 8)
            b.max_timestamp = big_endian(p + AT_MAX_TIMESTAMP, 8)
            b.left = big_endian(p + AT_COUNT, 4)
            self.open_records(attributes & CODEC_MASK)
            if b.left:
                return True
        return False

    cdef bint find(self) except -1:
        """Set the position and size of the next whole batch; False if there is none."""
        cdef Batch* b = &self.batch
        b.position += b.size
        b.size = 0
        cdef const uint8_t* p = self.source.data + b.position
        cdef int64_t length, left = self.source.size - b.position
        if left < LOG_OVERHEAD:
            return False
        length = big_endian(p + AT_LENGTH, 4)
        if length < MIN_MESSAGE_LENGTH:
            raise self.corrupt("its length is too small for any message")
        if left <= AT_MAGIC:
            return False
        b.magic = load_once_8(p + AT_MAGIC)
        if b.magic > MAGIC:
            raise self.corrupt("its magic is none of 0, 1 and 2")
        if b.magic == MAGIC and length < MIN_BATCH_LENGTH:
            raise self.corrupt("its length is too small for a header")
        if left < length + LOG_OVERHEAD:
            return False
        b.size = length + LOG_OVERHEAD
        return True

    cdef bint open_legacy(self) except -1:
        """Point the batch, of an older version, at its records as those of version 2.

        False if none of them is asked for.
        """
        cdef Batch* b = &self.batch
        source = self.source.slice(0, self.source.size)
        header = _read_header(source, b.position)
        records = _as_records(source, b.position, header, self.start_offset, self.check_crc)
        if records is None:
            return False
        b.base_offset, b.timestamp_type, b.left = (
            records.base_offset, records.timestamp_type, records.count
        )
        b.next_offset = add(header.last_offset, 1)
        b.base_timestamp, b.log_append_time = 0, False
        self.point_at(View(records.plain))
        return True

    cdef int open_records(self, int codec) except -1:
        """Point the batch at its records, decompressed if need be."""
        cdef Batch* b = &self.batch
        cdef int64_t end = b.position + b.size
        if codec and b.left:
            stream = self.source.slice(b.position + HEADER_SIZE, end)
            self.point_at(View(decompress(codec, stream, self.max_batch_bytes)))
        else:
            b.p, b.end = self.source.data + b.position + HEADER_SIZE, self.source.data + end
            self.check_count()
        return 0

    cdef int point_at(self, View plain) except -1:
        self.plain = plain
        self.batch.p, self.batch.end = plain.data, plain.data + plain.size
        return self.check_count()

    cdef int check_count(self) except -1:
        """Check that the batch's bytes can hold as many records as it says, and count them."""
        cdef Batch* b = &self.batch
        if b.left < 0 or b.left > (b.end - b.p) // MIN_RECORD_SIZE:
            raise self.corrupt("its bytes cannot hold its count of records")
        if b.left == 0 and b.p != b.end:
            raise self.corrupt("bytes are left behind its last record")
        self.plain_bytes += b.end - b.p
        if self.plain_bytes > _MAX_PLAIN_BYTES:
            raise InvalidRecord(
                f"these batches hold over {MAX_PLAIN_BYTES} bytes: decode fewer at once"
            )
        return 0

    cdef int64_t extrapolate(self, int64_t so_far, int64_t size) noexcept:
        """How much there will be of what there is ``so_far`` of, if the rest is like that.

        ``size``: the least bytes of each. They bound how many a fetch can hold: ``check_count`` has
        made sure that this batch is within the bound.
        """
        cdef double whole = <double>self.source.size / (self.batch.position + self.batch.size)
        cdef int64_t guess = <int64_t>(so_far * min(whole, MAX_GROWTH))
        return min(guess, _MAX_PLAIN_BYTES // size)


cdef object view_of(const uint8_t* data, const uint8_t* end):
    """A memoryview that owns nothing: only for compiled functions, which do not keep it."""
    return PyMemoryView_FromMemory(<char*>data, end - data, PyBUF_READ)


cdef object bytes_or_none(const uint8_t* data, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


cdef object named_tuple(type kind, tuple fields):
    """``kind._make(fields)`` for a NamedTuple, at the cost of a tuple."""
    cdef Py_ssize_t i, size = PyTuple_Size(fields)
    made = PyType_GenericAlloc(kind, size)
    for i in range(size):
        field = <object>PyTuple_GetItem(fields, i)
        Py_INCREF(field)
        PyTuple_SetItem(made, i, field)
    return made


cdef tuple headers_of(Record* r):
    """The record's headers; None if its bytes changed since ``check_headers``."""
    cdef Record h
    cdef const uint8_t* p = r.headers
    cdef int64_t i
    headers = []
    for i in range(r.header_count):
        p = get_header(p, r.end, &h)
        if p == NULL:
            return None
        name = PyUnicode_DecodeUTF8(<const char*>h.key, h.key_size, "replace")
        headers.append(named_tuple(_HEADER, (name, bytes_or_none(h.value, h.value_size))))
    return tuple(headers)


def decode_rows(buffer, int64_t start_offset, bint check_crc, bint control,
                int64_t max_batch_bytes=MAX_PLAIN_BYTES):
    """The Records of all whole batches with offsets from ``start_offset`` on."""
    cdef Fetch fetch = Fetch(buffer, start_offset, INT64_MAX, check_crc, control, max_batch_bytes)
    cdef Batch* b = &fetch.batch
    cdef Record r
    cdef const char* why
    cdef int64_t offset, timestamp
    cdef list records = []
    while fetch.next():
        while b.left:
            why = get_record(b.p, b.end, &r)
            if why != NULL:
                raise fetch.corrupt(why)
            b.p, b.left = r.end, b.left - 1
            offset = add(b.base_offset, r.offset_delta)
            if not start_offset <= offset < fetch.end_offset:
                continue
            headers = headers_of(&r) if r.header_count else ()
            if headers is None:
                raise fetch.corrupt(CHANGED)
            if b.log_append_time:
                timestamp = b.max_timestamp
            else:
                timestamp = add(b.base_timestamp, r.timestamp_delta)
            records.append(named_tuple(_RECORD, (
                offset,
                timestamp,
                bytes_or_none(r.key, r.key_size),
                bytes_or_none(r.value, r.value_size),
                headers,
            )))
        if b.p != b.end:
            raise fetch.corrupt("bytes are left behind its last record")
    return records


cdef struct OutText:
    int32_t* ends
    uint8_t* data
    uint8_t* valid
    int64_t rows
    int64_t row_room
    int64_t size
    int64_t room
    int64_t nulls


cdef struct OutTable:
    int64_t rows
    int64_t row_room
    int64_t* offsets
    int64_t* timestamps
    OutText keys
    OutText values
    bint with_headers
    int32_t* header_ends
    OutText header_names
    OutText header_values


cdef inline void put_text(OutText* t, const uint8_t* data, int64_t size) noexcept nogil:
    if size < 0:
        t.valid[t.rows >> 3] &= <uint8_t>~(1 << (t.rows & 7))
        t.nulls += 1
    else:
        copy(t.data + t.size, data, size)
        t.size += size
    t.rows += 1
    t.ends[t.rows] = <int32_t>t.size


cdef bint put_out_headers(OutTable* t, Record* r) noexcept nogil:
    """False if the record's bytes changed since ``check_headers``."""
    cdef Record h
    cdef const uint8_t* p = r.headers
    cdef int64_t i
    for i in range(r.header_count):
        p = get_header(p, r.end, &h)
        if p == NULL:
            return False
        put_text(&t.header_names, h.key, h.key_size)
        put_text(&t.header_values, h.value, h.value_size)
    return True


cdef inline bint has_room(OutTable* t, Record* r) noexcept nogil:
    if t.rows == t.row_room or t.values.size + r.value_size > t.values.room:
        return False
    if t.keys.size + r.key_size > t.keys.room:
        return False
    if not t.with_headers or r.header_count == 0:
        return True
    return (
        t.header_names.rows + r.header_count <= t.header_names.row_room
        and t.header_names.size + (r.end - r.headers) <= t.header_names.room
        and t.header_values.size + (r.end - r.headers) <= t.header_values.room
    )


cdef const char* fill(OutTable* table, Batch* batch, const uint8_t* stop, int64_t start_offset,
                      int64_t end_offset, Record* stopped_at) noexcept nogil:
    """Decode until the batch ends (``left`` is 0), a record begins at ``stop`` or behind it,
    ``stopped_at`` finds no room, or one is corrupt.

    Returns why it is corrupt, or NULL.
    """
    # copies that no write to a column can alias: they stay in registers
    cdef OutTable t = table[0]
    cdef Batch b = batch[0]
    cdef Record r
    cdef int64_t offset
    cdef const char* why = NULL
    while b.left and b.p < stop:
        why = get_record(b.p, b.end, &r)
        if why != NULL:
            break
        offset = add(b.base_offset, r.offset_delta)
        if start_offset <= offset < end_offset:
            if not has_room(&t, &r):
                stopped_at[0] = r
                break
            t.offsets[t.rows] = offset
            t.timestamps[t.rows] = (
                b.max_timestamp if b.log_append_time else add(b.base_timestamp, r.timestamp_delta)
            )
            put_text(&t.keys, r.key, r.key_size)
            put_text(&t.values, r.value, r.value_size)
            t.rows += 1
            if t.with_headers:
                if r.header_count and not put_out_headers(&t, &r):
                    why = CHANGED
                    break
                t.header_ends[t.rows] = <int32_t>t.header_names.rows
        b.p = r.end
        b.left -= 1
    table[0], batch[0] = t, b
    if why == NULL and b.left == 0 and b.p != b.end:
        return "bytes are left behind its last record"
    return why


cdef class OutColumn:
    """A binary column that grows."""

    cdef Vector ends, data, valid

    def __cinit__(self):
        self.ends, self.data, self.valid = Vector(), Vector(), Vector()

    cdef int reserve_rows(self, OutText* t, int64_t rows) except -1:
        """Room for exactly as many rows, all of them valid until one is said to be null."""
        cdef Py_ssize_t before = self.valid.capacity
        self.ends.reserve(4 * (rows + 1))
        self.valid.reserve((rows + 7) >> 3)
        if self.valid.capacity > before:
            memset(self.valid.data + before, 0xFF, self.valid.capacity - before)
        t.ends, t.valid = <int32_t*>self.ends.data, self.valid.data
        t.ends[0] = 0
        t.row_room = max(t.row_room, rows)
        return 0

    cdef int reserve_bytes(self, OutText* t, int64_t size) except -1:
        self.data.reserve(size)
        t.data, t.room = self.data.data, self.data.capacity
        return 0

    cdef int grow(self, OutText* t, int64_t more_rows, int64_t more_bytes) except -1:
        if t.rows + more_rows > t.row_room:
            self.reserve_rows(t, max(t.rows + more_rows, 2 * t.row_room))
        if t.size + more_bytes > t.room:
            self.reserve_bytes(t, max(t.size + more_bytes, 2 * t.room, FIRST_CAPACITY))
        return 0

    cdef tuple take(self, OutText* t):
        """(ends, data, validity or None)"""
        valid = self.valid.take((t.rows + 7) >> 3) if t.nulls else None
        return self.ends.take(4 * (t.rows + 1)), self.data.take(t.size), valid


cdef class OutColumns:
    """The columns of a decoded fetch."""

    cdef OutTable table
    cdef Vector offsets, timestamps, timestamp_types, header_ends
    cdef OutColumn keys, values, header_names, header_values

    def __cinit__(self, bint headers):
        self.offsets, self.timestamps, self.timestamp_types = Vector(), Vector(), Vector()
        self.keys, self.values = OutColumn(), OutColumn()
        self.header_ends, self.header_names, self.header_values = Vector(), OutColumn(), OutColumn()
        self.table.with_headers = headers

    cdef int reserve_rows(self, int64_t rows) except -1:
        cdef OutTable* t = &self.table
        self.offsets.reserve(8 * rows)
        self.timestamps.reserve(8 * rows)
        self.timestamp_types.reserve(4 * rows)
        self.header_ends.reserve(4 * (rows + 1))
        self.keys.reserve_rows(&t.keys, rows)
        self.values.reserve_rows(&t.values, rows)
        t.offsets, t.timestamps = <int64_t*>self.offsets.data, <int64_t*>self.timestamps.data
        t.header_ends = <int32_t*>self.header_ends.data
        t.header_ends[0] = 0
        t.row_room = max(t.row_room, rows)
        return 0

    cdef int reserve_batch(self, Fetch fetch, int64_t max_bytes) except -1:
        """Room for the rows and values of so many bytes of the batch, and for the rest of a fetch
        like it.
        """
        cdef OutTable* t = &self.table
        cdef Batch* b = &fetch.batch
        cdef int64_t size = b.end - b.p, rows = b.left
        if size > max_bytes:
            rows = min(rows, <int64_t>(<double>rows * max_bytes / size) + 1)
            size = max_bytes
        rows, size = rows + t.rows, size + t.values.size
        if rows > t.row_room:
            self.reserve_rows(self.guess(fetch, rows, size, max_bytes, MIN_RECORD_SIZE))
        if size > t.values.room:
            self.values.reserve_bytes(&t.values, self.guess(fetch, size, size, max_bytes, 1))
        return 0

    cdef int64_t guess(self, Fetch fetch, int64_t so_far, int64_t bytes_so_far, int64_t max_bytes,
                       int64_t size) noexcept:
        """As ``Fetch.extrapolate``, and no more than what ``max_bytes`` more bytes can hold."""
        cdef double more = 1 + <double>max_bytes / max(bytes_so_far, 1)
        cdef int64_t most = <int64_t>min(so_far * more, <double>_MAX_PLAIN_BYTES)
        return max(so_far, min(fetch.extrapolate(so_far, size), most))

    cdef int reserve_record(self, Record* r) except -1:
        cdef OutTable* t = &self.table
        if t.rows == t.row_room:
            self.reserve_rows(2 * t.row_room + 1)
        self.keys.grow(&t.keys, 1, max(r.key_size, 0))
        self.values.grow(&t.values, 1, max(r.value_size, 0))
        if t.with_headers and r.header_count:
            self.header_names.grow(&t.header_names, r.header_count, r.end - r.headers)
            self.header_values.grow(&t.header_values, r.header_count, r.end - r.headers)
        return 0

    cdef int64_t decode(self, Fetch fetch, int64_t max_bytes) except -1:
        """The records of the fetch's current batch, or those that begin in ``max_bytes`` of it.

        Returns how many bytes they have. Where one is corrupt, those before it are decoded.
        """
        cdef OutTable* t = &self.table
        cdef Batch* b = &fetch.batch
        cdef Record stopped_at
        cdef const char* why = NULL
        cdef int64_t first_row = t.rows
        cdef const uint8_t* start = b.p
        cdef const uint8_t* stop = b.p + min(max_bytes, b.end - b.p)
        if stop == b.end:
            stop += 1             # a corrupt record may begin there
        self.reserve_batch(fetch, max_bytes)
        while b.left and b.p < stop and why == NULL:
            with nogil:
                why = fill(t, b, stop, fetch.start_offset, fetch.end_offset, &stopped_at)
            if b.left and b.p < stop and why == NULL:
                self.reserve_record(&stopped_at)
        self.put_timestamp_type(first_row, b.timestamp_type)
        if why != NULL:
            raise fetch.corrupt(why)
        return b.p - start

    cdef void put_timestamp_type(self, int64_t first_row, int32_t kind) noexcept:
        cdef int32_t* kinds = <int32_t*>self.timestamp_types.data
        cdef int64_t row
        for row in range(first_row, self.table.rows):
            kinds[row] = kind

    cdef tuple take(self):
        cdef OutTable* t = &self.table
        names = values = headers = None
        self.reserve_rows(0)          # where there was no batch: the ends begin with a 0
        if t.header_names.rows:
            names = self.header_names.take(&t.header_names)
            values = self.header_values.take(&t.header_values)
        if t.with_headers:
            headers = self.header_ends.take(4 * (t.rows + 1)), t.header_names.rows, names, values
        return (
            t.rows,
            self.offsets.take(8 * t.rows),
            self.timestamps.take(8 * t.rows),
            self.timestamp_types.take(4 * t.rows),
            self.keys.take(&t.keys),
            self.values.take(&t.values),
            headers,
        )


def decode_columns(buffer, int64_t start_offset, int64_t end_offset, bint check_crc, bint headers,
                   int64_t max_batch_bytes=MAX_PLAIN_BYTES):
    """The columns of all whole batches, as Arrow buffers.

    (rows, offsets, timestamps, timestamp types, keys, values, headers). Keys and values are (ends,
    data, validity or None). Headers are None if they are not asked for, or (ends, count, names,
    values); without any, names and values are None.
    """
    cdef Fetch fetch = Fetch(buffer, start_offset, end_offset, check_crc, False, max_batch_bytes)
    cdef OutColumns columns = OutColumns(headers)
    while fetch.next():
        columns.decode(fetch, INT64_MAX)
    return columns.take()
