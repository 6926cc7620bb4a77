"""Rows and Arrow columns to the records of a batch."""

cdef inline int64_t body_size(Record* r) noexcept nogil:
    return (
        1 + varint_size(r.timestamp_delta) + varint_size(r.offset_delta)
        + varint_size(r.key_size) + max(r.key_size, 0)
        + varint_size(r.value_size) + max(r.value_size, 0)
        + varint_size(r.header_count) + r.headers_size
    )


cdef inline uint8_t* put_field(uint8_t* to, const uint8_t* data, int64_t size) noexcept nogil:
    to = put_varint(to, size)
    if size > 0:
        copy(to, data, size)
        to += size
    return to


cdef inline uint8_t* put_record(uint8_t* to, Record* r, int64_t body) noexcept nogil:
    """Everything up to the headers."""
    to = put_varint(to, body)
    to[0] = 0
    to = put_varint(to + 1, r.timestamp_delta)
    to = put_varint(to, r.offset_delta)
    to = put_field(to, r.key, r.key_size)
    to = put_field(to, r.value, r.value_size)
    return put_varint(to, r.header_count)


cdef object as_bytes(object field, str what, Py_ssize_t row):
    """A field as bytes, copied if it is a bytearray or memoryview; None stays None."""
    if field is None or PyBytes_Check(field):
        return field
    if isinstance(field, (bytearray, memoryview)):
        return bytes(field)
    raise InvalidRecord(
        f"record {row}: its {what} is {type(field).__name__}: encode it to bytes, or None"
    )


cdef inline int bytes_field(object field, const uint8_t** data, int64_t* size) except -1:
    if field is None:
        size[0] = -1
    else:
        data[0] = <const uint8_t*>PyBytes_AsString(field)
        size[0] = PyBytes_Size(field)
    return 0


cdef int text_field(object field, Py_ssize_t row, const uint8_t** data, int64_t* size) except -1:
    cdef Py_ssize_t length
    if not PyUnicode_Check(field):
        raise InvalidRecord(
            f"record {row}: a header's name is {type(field).__name__}: it must be str"
        )
    data[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(field, &length)
    size[0] = length
    return 0


cdef object too_large(Py_ssize_t row):
    return InvalidRecord(
        f"record {row}: a batch of over {MAX_PLAIN_BYTES} bytes: encode fewer records"
    )


cdef int64_t put_headers(Vector out, tuple headers, Py_ssize_t row) except -1:
    """Write the headers to the start of ``out``, in one walk; returns how many bytes they are.

    A second walk could find other objects, or others' answers, than the one that measured.
    """
    cdef const uint8_t* name_data = NULL
    cdef const uint8_t* value_data = NULL
    cdef int64_t name_size = 0, value_size = 0, size = 0, most
    cdef uint8_t* to
    for name, value in headers:
        content = as_bytes(value, "header's value", row)
        text_field(name, row, &name_data, &name_size)
        bytes_field(content, &value_data, &value_size)
        most = size + MAX_HEADER_OVERHEAD + name_size + max(value_size, 0)
        if most > _MAX_PLAIN_BYTES:
            raise too_large(row)
        if most > out.capacity:
            out.reserve(2 * most)
        to = put_field(out.data + size, name_data, name_size)
        to = put_field(to, value_data, value_size)
        size = to - out.data
    return size


cdef int64_t integer(object number, str what, Py_ssize_t row) except? -1:
    if not PyLong_Check(number):
        raise InvalidRecord(f"record {row}: its {what} is {type(number).__name__}: it must be int")
    return PyLong_AsLongLong(number)


def encode_rows(rows, base_timestamp, offsets, int64_t base_offset):
    """(batch with 61 free bytes, count, base timestamp, max timestamp, last offset delta)

    A row is a tuple (timestamp, key, value, headers). ``base_timestamp`` None is the first row's;
    ``offsets`` None counts on from the base offset.
    """
    cdef tuple items = tuple(rows)
    cdef Py_ssize_t count = PyTuple_Size(items), i
    cdef int64_t timestamp, base = 0, max_timestamp = -1, delta, last = -1, body, size = HEADER_SIZE
    cdef int64_t needed, guess
    cdef Record r
    cdef Vector out = Vector(), header_bytes = Vector()
    cdef uint8_t* to
    cdef tuple headers
    if base_timestamp is not None:
        base = base_timestamp
    if count == 0:
        return bytearray(HEADER_SIZE), 0, base, max_timestamp, last
    for i in range(count):
        row = <object>PyTuple_GetItem(items, i)
        if not PyTuple_Check(row) or PyTuple_Size(row) != 4:
            raise InvalidRecord(f"record {i} must be a tuple (timestamp, key, value, headers)")
        timestamp = integer(<object>PyTuple_GetItem(row, 0), "timestamp", i)
        if timestamp < -1:
            raise InvalidRecord(
                f"record {i}: timestamp {timestamp}: use ms since 1970, or -1 for none"
            )
        if i == 0 and base_timestamp is None:
            base = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        delta = i if offsets is None else subtract(integer(offsets[i], "offset", i), base_offset)
        if not last < delta <= INT32_MAX:
            raise InvalidRecord(f"record {i}: offset delta {delta} after {last}: offsets must rise")
        last = delta
        r.timestamp_delta = subtract(timestamp, base)
        r.offset_delta = delta
        key = as_bytes(<object>PyTuple_GetItem(row, 1), "key", i)
        value = as_bytes(<object>PyTuple_GetItem(row, 2), "value", i)
        bytes_field(key, &r.key, &r.key_size)
        bytes_field(value, &r.value, &r.value_size)
        fields = <object>PyTuple_GetItem(row, 3)
        headers = fields if type(fields) is tuple else tuple(fields)
        r.header_count = PyTuple_Size(headers)
        r.headers_size = put_headers(header_bytes, headers, i) if r.header_count else 0
        body = body_size(&r)
        needed = size + varint_size(body) + body
        if needed > _MAX_PLAIN_BYTES:
            raise too_large(i)
        if needed > out.capacity:
            # as if the others were like this one, within reason
            guess = min(size + (needed - size) * min(count - i, INT32_MAX), MAX_GROWTH * needed)
            out.reserve(min(guess, _MAX_PLAIN_BYTES))
        to = put_record(out.data + size, &r, body)
        if r.headers_size:
            memcpy(to, header_bytes.data, r.headers_size)
        size = (to - out.data) + r.headers_size
    return PyByteArray_FromStringAndSize(<char*>out.data, size), count, base, max_timestamp, last


cdef struct Text:
    const int32_t* ends           # one more than rows: value i is data[ends[i]:ends[i + 1]]
    const uint8_t* data
    const uint8_t* valid          # a bit per row, or NULL: no nulls
    int64_t valid_start           # the bit of row 0
    int64_t rows
    int64_t data_size


cdef inline bint is_null(Text* t, int64_t row) noexcept nogil:
    cdef int64_t bit = t.valid_start + row
    return t.valid != NULL and not (t.valid[bit >> 3] >> (bit & 7)) & 1


cdef inline bint get_text(Text* t, int64_t row, const uint8_t** data, int64_t* size) noexcept nogil:
    """Value ``row`` and its size, -1 for null; False if the array points outside of its data."""
    cdef int64_t start = load_once_32(t.ends + row), end = load_once_32(t.ends + row + 1)
    if not 0 <= start <= end <= t.data_size:
        return False
    data[0] = t.data + start
    size[0] = -1 if is_null(t, row) else end - start
    return True


cdef inline int64_t span(Text* t, int64_t first, int64_t last) noexcept nogil:
    """Bytes of the values from ``first`` up to ``last``, as the ends say."""
    return <int64_t>load_once_32(t.ends + last) - load_once_32(t.ends + first)


cdef class TextColumn:
    """A binary or string Arrow array by its buffers; keeps them alive."""

    cdef Text text
    cdef View ends, data, valid

    def __cinit__(self, ends, data, valid, int64_t valid_start, int64_t rows):
        self.ends, self.data, self.valid = aligned_view(ends, 4), View(data), View(valid)
        cdef int64_t bits = 8 * self.valid.size
        # no sum or product of a caller's number: it could wrap
        cdef bint has_ends = 0 <= rows < self.ends.size // 4
        cdef bint has_validity = not self.valid.held or 0 <= valid_start <= bits - rows
        if not has_ends or not has_validity:
            raise InvalidRecord(
                "an Arrow array's buffers are too small for its rows: validate() it"
            )
        self.text.ends = <const int32_t*>self.ends.data
        self.text.data, self.text.data_size = self.data.data, self.data.size
        self.text.valid, self.text.valid_start, self.text.rows = self.valid.data, valid_start, rows


cdef struct Table:
    int64_t rows
    const int64_t* timestamps     # or NULL: all are default_timestamp
    int64_t default_timestamp
    bint has_keys
    bint has_headers
    Text keys
    Text values
    Text header_lists             # its ends count headers; it has no data of its own
    Text header_names
    Text header_values


cdef struct Run:
    int64_t rows
    int64_t size
    int64_t max_timestamp
    int64_t bad_row
    const char* why


cdef inline int64_t timestamp_of(Table* t, int64_t row) noexcept nogil:
    return load_once_64(t.timestamps + row) if t.timestamps != NULL else t.default_timestamp


cdef const char* measure_headers(Table* t, int64_t row, Record* r) noexcept nogil:
    cdef const int32_t* ends = t.header_lists.ends + row
    cdef int64_t i, size, start = load_once_32(ends), end = load_once_32(ends + 1)
    cdef const uint8_t* data
    r.header_count = r.headers_size = 0
    if is_null(&t.header_lists, row):
        return NULL
    if not 0 <= start <= end <= t.header_names.rows or end > t.header_values.rows:
        return "its headers point outside of their array: validate(full=True) it"
    for i in range(start, end):
        if not get_text(&t.header_names, i, &data, &size):
            return "a header's name points outside of its data: validate(full=True) it"
        if size < 0:
            return "a header's name is null: give it one"
        r.headers_size += varint_size(size) + size
        if not get_text(&t.header_values, i, &data, &size):
            return "a header's value points outside of its data: validate(full=True) it"
        r.headers_size += varint_size(size) + max(size, 0)
    r.first_header, r.header_count = start, end - start
    return NULL


cdef uint8_t* put_table_headers(Table* t, Record* r, uint8_t* to) noexcept nogil:
    """Write the headers that were measured; NULL if another thread has changed them since."""
    cdef const uint8_t* end = to + r.headers_size
    cdef const uint8_t* data = NULL
    cdef int64_t i, size = 0
    for i in range(r.first_header, r.first_header + r.header_count):
        if not get_text(&t.header_names, i, &data, &size) or size < 0:
            return NULL
        if varint_size(size) + size > end - to:
            return NULL
        to = put_field(to, data, size)
        if not get_text(&t.header_values, i, &data, &size):
            return NULL
        if varint_size(size) + max(size, 0) > end - to:
            return NULL
        to = put_field(to, data, size)
    return to if to == end else NULL


cdef inline const char* load_row(Table* t, int64_t row, int64_t timestamp,
                                 Record* r) noexcept nogil:
    if timestamp < -1:
        return "its timestamp is negative: use ms since 1970, or -1 for none"
    if t.has_keys and not get_text(&t.keys, row, &r.key, &r.key_size):
        return "its key points outside of the column's data: validate(full=True) it"
    if not get_text(&t.values, row, &r.value, &r.value_size):
        return "its value points outside of the column's data: validate(full=True) it"
    return measure_headers(t, row, r) if t.has_headers else NULL


cdef inline void no_fields(Record* r) noexcept nogil:
    r.key_size = -1
    r.key = r.value = NULL
    r.header_count = r.headers_size = 0


cdef void put_rows(const Table* table, int64_t start, int64_t base_timestamp, uint8_t* out,
                   int64_t limit, Run* run) noexcept nogil:
    """Write rows from ``start`` on behind the header's place until one would pass ``limit``
    bytes."""
    # a copy that no write through ``out`` can alias: it stays in registers
    cdef Table t = table[0]
    cdef Record r
    cdef int64_t row, body, timestamp, max_timestamp = -1
    cdef int64_t stop = t.rows if t.rows - start <= INT32_MAX else start + INT32_MAX
    cdef uint8_t* to = out + HEADER_SIZE
    cdef uint8_t* behind
    cdef const char* why = NULL
    no_fields(&r)
    row = start
    while row < stop:
        timestamp = timestamp_of(&t, row)
        why = load_row(&t, row, timestamp, &r)
        if why != NULL:
            break
        r.timestamp_delta = subtract(timestamp, base_timestamp)
        r.offset_delta = row - start
        body = body_size(&r)
        if (to - out) + varint_size(body) + body > limit:
            break
        behind = put_record(to, &r, body)
        if r.header_count:
            behind = put_table_headers(&t, &r, behind)
            if behind == NULL:
                why = "its headers changed while they were encoded: leave them alone"
                break
        to = behind
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        row += 1
    run.rows, run.size, run.max_timestamp = row - start, to - out, max_timestamp
    run.bad_row, run.why = row, why


cdef class TableEncoder:
    """Arrow columns by their buffers, ready to be cut into batches.

    ``keys`` and the three of the headers may be None; ``header_lists`` has no data, its ends count
    headers. ``timestamps`` is a buffer of int64, or None.
    """

    cdef Table table
    cdef View timestamps
    cdef object columns           # keeps the TextColumns alive

    def __cinit__(self, int64_t rows, timestamps, int64_t default_timestamp, TextColumn keys,
                  TextColumn values not None, TextColumn header_lists, TextColumn header_names,
                  TextColumn header_values):
        self.columns = (keys, values, header_lists, header_names, header_values)
        self.timestamps = aligned_view(timestamps, 8)
        if self.timestamps.held and self.timestamps.size // 8 < rows:
            raise InvalidRecord(
                "the timestamp column's buffer is too small for its rows: validate() it"
            )
        for column in (keys, values, header_lists):
            if rows < 0 or (column is not None and (<TextColumn>column).text.rows < rows):
                raise InvalidRecord(f"a column has fewer than the table's {rows} rows")
        self.table.rows = rows
        self.table.timestamps = <const int64_t*>self.timestamps.data
        self.table.default_timestamp = default_timestamp
        self.table.values = values.text
        self.table.has_keys = keys is not None
        if keys is not None:
            self.table.keys = keys.text
        self.table.has_headers = header_lists is not None
        if header_lists is not None:
            if header_names is None or header_values is None:
                raise InvalidRecord("lists of headers have no names, or no values: give both")
            self.table.header_lists = header_lists.text
            self.table.header_names = header_names.text
            self.table.header_values = header_values.text

    cdef int64_t upper_bound(self, int64_t start) noexcept:
        """Bytes that the rows from ``start`` on cannot exceed, by the ends of the columns alone."""
        cdef Table* t = &self.table
        cdef int64_t first, last, size = HEADER_SIZE + MAX_RECORD_OVERHEAD * (t.rows - start)
        size += span(&t.values, start, t.rows)
        if t.has_keys:
            size += span(&t.keys, start, t.rows)
        if t.has_headers:
            first = load_once_32(t.header_lists.ends + start)
            last = load_once_32(t.header_lists.ends + t.rows)
            if not 0 <= first <= last <= t.header_names.rows or last > t.header_values.rows:
                return INT64_MAX
            size += MAX_HEADER_OVERHEAD * (last - first) + 5 * (t.rows - start)
            size += span(&t.header_names, first, last) + span(&t.header_values, first, last)
        return size

    cdef int64_t size_with_first_row(self, int64_t start, int64_t base_timestamp) except -1:
        cdef Record r
        cdef const char* why
        no_fields(&r)
        why = load_row(&self.table, start, base_timestamp, &r)
        if why != NULL:
            raise InvalidRecord(f"row {start}: {why.decode()}")
        r.timestamp_delta = r.offset_delta = 0
        cdef int64_t body = body_size(&r)
        return HEADER_SIZE + varint_size(body) + body

    def encode(self, int64_t start, int64_t max_bytes):
        """(batch with 61 free bytes, rows in it, base timestamp, max timestamp)

        The rows are those from ``start`` on that fit in ``max_bytes``, but one at least.
        """
        if not 0 <= start < self.table.rows:
            raise IndexError(f"row {start} of {self.table.rows}")
        cdef Run run
        cdef int64_t base_timestamp = timestamp_of(&self.table, start)
        cdef int64_t limit = max(min(max_bytes, self.upper_bound(start)),
                                 self.size_with_first_row(start, base_timestamp))
        if limit > _MAX_PLAIN_BYTES:
            raise InvalidRecord(
                f"row {start}: a batch of over {MAX_PLAIN_BYTES} bytes: lower max_bytes"
            )
        cdef Vector out = Vector(limit)
        with nogil:
            put_rows(&self.table, start, base_timestamp, out.data, limit, &run)
        if run.why != NULL:
            raise InvalidRecord(f"row {run.bad_row}: {run.why.decode()}")
        if run.rows == 0:
            raise InvalidRecord(f"row {start}: it grew while it was encoded: leave it alone")
        return out.take(run.size), run.rows, base_timestamp, run.max_timestamp
