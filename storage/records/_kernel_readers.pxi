"""A fetch read in parts: as many records as the reader has room for, the rest later.

A batch is checked and decompressed when its first record is asked for, and let go with its last
one. What is corrupt is raised once everything before it has been handed out, and then again and
again.
"""


cdef int64_t behind_whole_batches(View source) noexcept:
    """The largest offset behind a whole batch; INT64_MIN where there is none.

    It stops at what is no batch: whoever reads up to there finds out why.
    """
    cdef const uint8_t* p = source.data
    cdef int64_t length, last, behind = INT64_MIN, left = source.size
    while left > AT_MAGIC:
        length = big_endian(p + AT_LENGTH, 4)
        if length < MIN_MESSAGE_LENGTH or length > left - LOG_OVERHEAD or p[AT_MAGIC] > MAGIC:
            break
        last = big_endian(p + AT_BASE_OFFSET, 8)
        if p[AT_MAGIC] == MAGIC:
            if length < MIN_BATCH_LENGTH:
                break
            last = add(last, big_endian(p + AT_LAST_OFFSET_DELTA, 4))
        behind = max(behind, add(last, 1))
        p += length + LOG_OVERHEAD
        left -= length + LOG_OVERHEAD
    return behind


cdef class Place:
    """A place in a fetch, which both readers have.

    ``next_offset``: where a reader goes on who has what was taken so far.
    """

    cdef Fetch fetch
    cdef object failure           # (class, arguments): an error holds its callers' frames
    cdef bint is_busy             # a batch is let go while no other thread is in it
    cdef int64_t next_offset
    cdef bint is_done             # nothing is left; a take that finds nothing may be what shows it

    def __cinit__(self, buffer, int64_t start_offset, int64_t end_offset, bint check_crc,
                  int64_t max_batch_bytes):
        self.fetch = Fetch(buffer, start_offset, end_offset, check_crc, False, max_batch_bytes)
        self.next_offset = start_offset

    cdef bint next_batch(self) except -1:
        """Go to the next batch if the one before has ended; False where there is none."""
        cdef Batch* b = &self.fetch.batch
        if b.left:
            return True
        if self.is_done:
            return False
        if b.p != b.end:
            raise self.fetch.corrupt("bytes are left behind its last record")
        self.fetch.plain_bytes = 0
        if self.fetch.next():
            return True
        self.is_done = True
        self.go_to(behind_whole_batches(self.fetch.source))
        return False

    cdef int go_to(self, int64_t offset) noexcept:
        self.next_offset = max(self.next_offset, min(offset, self.fetch.end_offset))

    cdef int end_batch(self) noexcept:
        """Its last record was taken: go behind the offsets that compaction left empty, too."""
        cdef Batch* b = &self.fetch.batch
        self.go_to(b.next_offset)
        self.is_done = b.p == b.end and b.position + b.size == self.fetch.source.size
        self.fetch.plain = None
        return 0

    cdef int begin(self, int64_t budget) except -1:
        if budget < 1:
            raise ValueError(f"a budget of {budget}: ask for at least one")
        if self.is_busy:
            raise RuntimeError("two threads read one fetch")
        if self.failure is not None:
            kind, fields = self.failure
            raise kind(*fields)
        self.is_busy = True
        return 0


cdef inline int give_field(object made, Py_ssize_t at, object field) except -1:
    """Give a field to a tuple that nobody else has yet."""
    Py_INCREF(field)
    PyTuple_SetItem(made, at, field)
    return 0


cdef class RowReader:
    """The ConsumerRecords of a fetch."""

    cdef Place place
    cdef readonly int64_t taken_bytes  # of the records of the last take
    cdef object topic, partition, timestamp
    cdef int64_t last_timestamp   # which ``timestamp`` is: mostly many have the same

    def __cinit__(self, buffer, topic, partition, int64_t start_offset,
                  int64_t end_offset=INT64_MAX, bint check_crc=True,
                  int64_t max_batch_bytes=MAX_PLAIN_BYTES):
        self.place = Place(buffer, start_offset, end_offset, check_crc, max_batch_bytes)
        self.topic, self.partition, self.timestamp = topic, partition, 0

    @property
    def next_offset(self):
        return self.place.next_offset

    @property
    def is_done(self):
        return self.place.is_done

    def take(self, int64_t max_records, int64_t max_bytes):
        """The next records: at least one, if any is left, up to so many, and to so many bytes."""
        cdef list rows = []
        self.taken_bytes = 0
        self.place.begin(min(max_records, max_bytes))
        try:
            self.read(rows, max_records, max_bytes)
        except RaylogError as error:
            self.place.failure = (type(error), error.args)
            if not rows:
                raise
        finally:
            self.place.is_busy = False
        return rows

    cdef int read(self, list rows, int64_t max_records, int64_t max_bytes) except -1:
        cdef Fetch fetch = self.place.fetch
        cdef Batch* b = &fetch.batch
        cdef Record r
        cdef const char* why
        cdef const uint8_t* start
        cdef int64_t offset
        while max_records > 0 and max_bytes > 0 and self.place.next_batch():
            kind = b.timestamp_type
            while b.left and max_records > 0 and max_bytes > 0:
                start = b.p
                why = get_record(start, b.end, &r)
                if why != NULL:
                    raise fetch.corrupt(why)
                offset = add(b.base_offset, r.offset_delta)
                if fetch.start_offset <= offset < fetch.end_offset:
                    rows.append(self.row(&r, offset, kind))
                    self.place.go_to(add(offset, 1))
                    max_records -= 1
                    max_bytes -= r.end - start
                    self.taken_bytes += r.end - start
                b.p, b.left = r.end, b.left - 1
            if not b.left:
                self.place.end_batch()
        return 0

    cdef object row(self, Record* r, int64_t offset, object kind):
        cdef Batch* b = &self.place.fetch.batch
        cdef int64_t timestamp = b.max_timestamp
        if not b.log_append_time:
            timestamp = add(b.base_timestamp, r.timestamp_delta)
        if timestamp != self.last_timestamp:
            self.timestamp, self.last_timestamp = timestamp, timestamp
        headers = headers_of(r) if r.header_count else ()
        if headers is None:
            raise self.place.fetch.corrupt(CHANGED)
        made = PyType_GenericAlloc(_CONSUMER_RECORD, 8)
        # nothing in it can refer to it: the garbage collector need not look
        PyObject_GC_UnTrack(made)
        give_field(made, 0, self.topic)
        give_field(made, 1, self.partition)
        give_field(made, 2, offset)
        give_field(made, 3, self.timestamp)
        give_field(made, 4, kind)
        give_field(made, 5, bytes_or_none(r.key, r.key_size))
        give_field(made, 6, bytes_or_none(r.value, r.value_size))
        give_field(made, 7, headers)
        return made


cdef class TableReader:
    """The columns of a fetch, as ``decode_columns`` gives them."""

    cdef Place place
    cdef bint headers

    def __cinit__(self, buffer, int64_t start_offset, int64_t end_offset=INT64_MAX,
                  bint check_crc=True, bint headers=True,
                  int64_t max_batch_bytes=MAX_PLAIN_BYTES):
        self.place = Place(buffer, start_offset, end_offset, check_crc, max_batch_bytes)
        self.headers = headers

    @property
    def next_offset(self):
        return self.place.next_offset

    @property
    def is_done(self):
        return self.place.is_done

    def take(self, int64_t max_bytes):
        """The next records, up to so many bytes; those of one record may be more."""
        cdef OutColumns columns = OutColumns(self.headers)
        cdef OutTable* t = &columns.table
        cdef int64_t row
        self.place.begin(max_bytes)
        try:
            self.read(columns, min(max_bytes, _MAX_PLAIN_BYTES))
        except RaylogError as error:
            self.place.failure = (type(error), error.args)
            if not t.rows:
                raise
        finally:
            self.place.is_busy = False
        for row in range(t.rows):  # a batch that lies may have them in any order
            self.place.go_to(add(t.offsets[row], 1))
        return columns.take()

    cdef int read(self, OutColumns columns, int64_t max_bytes) except -1:
        cdef OutTable* t = &columns.table
        cdef Batch* b = &self.place.fetch.batch
        cdef int64_t rows, used
        while max_bytes > 0 and self.place.next_batch():
            rows = t.rows
            try:
                used = columns.decode(self.place.fetch, max_bytes)
            finally:
                if not b.left:    # also where bytes are left behind its last record
                    self.place.end_batch()
            if t.rows > rows:     # else all of it is before the start
                max_bytes -= used
        return 0
