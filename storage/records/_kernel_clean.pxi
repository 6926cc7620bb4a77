"""Compaction: the last offset of every key, and the records that it leaves."""

from libc.stdlib cimport calloc, free

def leading_headers(chunk):
    """The headers of the v2 batches that follow each other from the chunk's begin on.

    Each one's CRC-32C is right. They end before the first batch that is cut off, or that is none:
    whoever asks finds out why.
    """
    cdef View view = View(chunk)
    cdef const uint8_t* p = view.data
    cdef const uint8_t* end = p + view.size
    cdef int64_t length
    cdef uint32_t crc
    cdef list headers = []
    while end - p >= HEADER_SIZE and p[AT_MAGIC] == MAGIC:
        length = big_endian(p + AT_LENGTH, 4)
        crc = <uint32_t>big_endian(p + AT_CRC, 4)
        if not MIN_BATCH_LENGTH <= length <= end - p - LOG_OVERHEAD:
            break
        if crc != <uint32_t>_crc32c(view_of(p + CRC_START, p + LOG_OVERHEAD + length)):
            break
        headers.append(named_tuple(_BATCH_HEADER, (
            big_endian(p + AT_BASE_OFFSET, 8),
            length,
            big_endian(p + AT_LEADER_EPOCH, 4),
            MAGIC,
            crc,
            big_endian(p + AT_ATTRIBUTES, 2),
            big_endian(p + AT_LAST_OFFSET_DELTA, 4),
            big_endian(p + AT_BASE_TIMESTAMP, 8),
            big_endian(p + AT_MAX_TIMESTAMP, 8),
            big_endian(p + AT_PRODUCER_ID, 8),
            big_endian(p + AT_PRODUCER_EPOCH, 2),
            big_endian(p + AT_BASE_SEQUENCE, 4),
            big_endian(p + AT_COUNT, 4),
        )))
        p += LOG_OVERHEAD + length
    return headers


cdef struct Slot:
    uint64_t low                  # the hash of the key
    uint64_t high
    int64_t next_offset           # behind the key's last record, wrapping; 0: the slot is free


cdef struct Put:
    int64_t last                  # the offset last put, -1: none
    int64_t keyless
    bint is_full


cdef struct Judged:
    int64_t kept
    int64_t tombstones            # of those
    int64_t keyless


cdef struct Whole:
    int64_t base_offset
    int64_t size                  # bytes, its header's among them
    int64_t count
    bint is_plain                 # it has records, and no codec, transaction, marker or horizon


cdef int64_t number_at(object header, Py_ssize_t field) except? -1:
    return PyLong_AsLongLong(<object>PyTuple_GetItem(header, field))


cdef int read_whole(list headers, Py_ssize_t i, int64_t left, Whole* to) except -1:
    """What a BatchHeader of the list says of its batch, which is within ``left`` bytes."""
    header = <object>PyList_GetItem(headers, i)
    if not PyTuple_Check(header):
        raise TypeError(f"header {i} is {type(header).__name__}: it must be a BatchHeader")
    cdef int64_t attributes = number_at(header, FIELD_ATTRIBUTES)
    cdef int64_t length = number_at(header, FIELD_BATCH_LENGTH)
    to.base_offset = number_at(header, FIELD_BASE_OFFSET)
    to.count = number_at(header, FIELD_COUNT)
    if not MIN_BATCH_LENGTH <= length <= left - LOG_OVERHEAD:
        raise CorruptRecord(f"offset {to.base_offset}", "its batch is not within the chunk")
    to.size = length + LOG_OVERHEAD
    to.is_plain = not attributes & ~LOG_APPEND_TIME and to.count > 0
    return 0


cdef inline uint64_t turned(uint64_t x, int by) noexcept nogil:
    return (x << by) | (x >> (64 - by))


cdef inline void sip_rounds(uint64_t* v, int rounds) noexcept nogil:
    cdef int i
    for i in range(rounds):
        v[0] += v[1]
        v[1] = turned(v[1], 13) ^ v[0]
        v[0] = turned(v[0], 32)
        v[2] += v[3]
        v[3] = turned(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = turned(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = turned(v[1], 17) ^ v[2]
        v[2] = turned(v[2], 32)


cdef inline void siphash(const uint8_t* data, int64_t size, const uint64_t* secret,
                         Slot* to) noexcept nogil:
    """SipHash-2-4 of 128 bits: without the secret, nobody can make two keys that collide."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t left = size
    v[0] = secret[0] ^ 0x736F6D6570736575ULL
    v[1] = secret[1] ^ 0x646F72616E646F6DULL ^ 0xEE
    v[2] = secret[0] ^ 0x6C7967656E657261ULL
    v[3] = secret[1] ^ 0x7465646279746573ULL
    while left >= 0:
        word = 0
        if left >= 8:
            memcpy(&word, data, 8)
            data += 8
        else:
            copy(<uint8_t*>&word, data, left)
            word |= <uint64_t>size << 56
        left -= 8
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    to.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    to.high = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef class OffsetTable:
    """Keys, by hash, with their last offsets.

    Open addressing, 24 bytes a slot; at most ``capacity`` slots are used. What the caller says of
    records is their plain bytes, how many, and the base offset of their batch.
    """

    cdef Slot* slots
    cdef bint is_written          # by a thread that has let the GIL go
    cdef int64_t slot_count
    cdef uint64_t secret[2]
    cdef readonly int64_t capacity, size

    def __cinit__(self, int64_t slots, int64_t capacity, secret not None):
        if not 0 < capacity < slots:
            raise ValueError(f"capacity {capacity} of {slots} slots: a search ends at a free one")
        cdef View view = View(secret)
        if view.size != 16:
            raise ValueError(f"a secret of {view.size} bytes: give 16")
        memcpy(self.secret, view.data, 16)
        self.slot_count, self.capacity = slots, capacity
        self.slots = <Slot*>calloc(slots, sizeof(Slot))  # no memory until a slot's page is written
        if self.slots == NULL:
            raise MemoryError(f"an offset map of {slots} slots")

    def __dealloc__(self):
        free(self.slots)

    cdef int check_quiet(self) except -1:
        """Two threads could fill the last free slot, and no search would end."""
        if self.is_written:
            raise RuntimeError("another thread is writing this offset table")
        return 0

    cdef Slot* find(self, const uint8_t* key, int64_t size, Slot* wanted) noexcept nogil:
        """The key's slot, or the free one that it would take; ``wanted`` gets its hash."""
        siphash(key, size, self.secret, wanted)
        cdef Slot* slot = self.slots + wanted.low % <uint64_t>self.slot_count
        cdef Slot* end = self.slots + self.slot_count
        while slot.next_offset and (slot.low != wanted.low or slot.high != wanted.high):
            slot += 1
            if slot == end:
                slot = self.slots
        return slot

    cdef const char* put(self, const uint8_t* p, const uint8_t* end, int64_t count,
                         int64_t base_offset, int64_t start_offset, Put* to) noexcept nogil:
        """Put a batch's records; returns what is wrong with them."""
        cdef Record r
        cdef Slot wanted
        cdef Slot* slot
        cdef const char* why
        cdef int64_t i, offset
        for i in range(count):
            why = get_record(p, end, &r)
            if why != NULL:
                return why
            p = r.end
            offset = add(base_offset, r.offset_delta)
            if offset < start_offset:
                continue
            if r.key_size < 0:
                to.keyless += 1
                continue
            if self.size >= self.capacity:
                to.is_full = True
                return NULL
            slot = self.find(r.key, r.key_size, &wanted)
            self.size += slot.next_offset == 0
            wanted.next_offset = add(offset, 1)
            slot[0] = wanted
            to.last = offset
        if p != end:
            return "bytes are left behind its last record"
        return NULL

    def put_records(self, plain, int64_t count, int64_t base_offset, int64_t start_offset):
        """(the offset last put or -1, keyless records, whether there was no room for a next key)

        Records below ``start_offset`` are passed over.
        """
        cdef View view = View(plain)
        cdef Put done = Put(-1, 0, False)
        cdef const char* why
        check_start(start_offset)
        self.check_quiet()
        self.is_written = True
        with nogil:
            why = self.put(view.data, view.data + view.size, count, base_offset, start_offset,
                           &done)
        self.is_written = False
        if why != NULL:
            raise CorruptRecord(f"offset {base_offset}", why.decode())
        return done.last, done.keyless, bool(done.is_full)

    def put_batches(self, chunk, list headers, Py_ssize_t first, int64_t position,
                    int64_t start_offset):
        """As ``put_records``, batch by batch from the header ``first`` on, up to one not plain.

        (the first header that was not put, the position of its batch, the offset last put or -1,
        whether the map is full: that batch then was put in part)
        """
        cdef View view = View(chunk)
        cdef const uint8_t* p
        cdef Whole batch
        cdef Put done = Put(-1, 0, False)
        cdef const char* why
        check_start(start_offset)
        if first < 0 or not 0 <= position <= view.size:
            raise ValueError(f"header {first} at position {position} of {view.size} bytes")
        while first < PyList_Size(headers):
            read_whole(headers, first, view.size - position, &batch)
            if not batch.is_plain:
                break
            self.check_quiet()
            p = view.data + position
            why = self.put(p + HEADER_SIZE, p + batch.size, batch.count, batch.base_offset,
                           start_offset, &done)
            if why != NULL:
                raise CorruptRecord(f"offset {batch.base_offset}", why.decode())
            if done.is_full:
                break
            first += 1
            position += batch.size
        return first, position, done.last, bool(done.is_full)

    def get(self, key not None):
        """The key's last offset, -1 if it has none."""
        cdef View view = View(key)
        cdef Slot wanted
        self.check_quiet()
        return subtract(self.find(view.data, view.size, &wanted).next_offset, 1)

    cdef const char* judge(self, const uint8_t* p, const uint8_t* end, int64_t count,
                           int64_t base_offset, int64_t latest_offset, bint drop_tombstones,
                           uint8_t* flags, Judged* to) noexcept nogil:
        """Judge a batch's records; returns what is wrong with them.

        ``flags``: NULL, or a byte for each.
        """
        cdef Record r
        cdef Slot wanted
        cdef const char* why
        cdef int64_t i, offset
        cdef bint keep
        for i in range(count):
            why = get_record(p, end, &r)
            if why != NULL:
                return why
            p = r.end
            offset = add(base_offset, r.offset_delta)
            if offset > latest_offset:
                keep = True
            elif r.key_size < 0:
                keep = False
                to.keyless += 1
            else:
                keep = add(offset, 1) >= self.find(r.key, r.key_size, &wanted).next_offset
                keep = keep and not (drop_tombstones and r.value_size < 0)
            if flags != NULL:
                flags[i] = keep
            to.kept += keep
            to.tombstones += keep and r.value_size < 0
        if p != end:
            return "bytes are left behind its last record"
        return NULL

    def judge_records(self, plain, int64_t count, int64_t base_offset, int64_t latest_offset,
                      bint drop_tombstones):
        """(kept records, tombstones among them, keyless records, a byte for each record)

        The byte is 1 if the record is kept. Records behind ``latest_offset``, the end of what the
        table knows, are kept.
        """
        cdef View view = View(plain)
        if not 0 <= count <= view.size // MIN_RECORD_SIZE:
            raise CorruptRecord(
                f"offset {base_offset}", "its bytes cannot hold its count of records"
            )
        cdef Vector flags = Vector(count)
        cdef Judged done = Judged(0, 0, 0)
        cdef const char* why
        self.check_quiet()
        with nogil:
            why = self.judge(view.data, view.data + view.size, count, base_offset, latest_offset,
                             drop_tombstones, flags.data, &done)
        if why != NULL:
            raise CorruptRecord(f"offset {base_offset}", why.decode())
        return done.kept, done.tombstones, done.keyless, flags.take(count)

    def judge_batches(self, chunk, list headers, int64_t latest_offset):
        """(a byte for each batch, how many records without a key are in those with 1 and 2)

        The byte is 1 if the batch stays as it is, 2 if no record of it stays, 0 if it needs a
        closer look: one with a delete horizon, with a tombstone that stays, or that is not plain.
        """
        cdef View view = View(chunk)
        cdef const uint8_t* p = view.data
        cdef const uint8_t* end = p + view.size
        cdef int64_t keyless = 0
        cdef Whole batch
        cdef Judged done
        cdef const char* why
        cdef Py_ssize_t i, count = PyList_Size(headers)
        verdicts = bytearray(count)
        for i in range(count):
            read_whole(headers, i, end - p, &batch)
            if batch.is_plain:
                self.check_quiet()
                done = Judged(0, 0, 0)
                why = self.judge(p + HEADER_SIZE, p + batch.size, batch.count, batch.base_offset,
                                 latest_offset, False, NULL, &done)
                if why != NULL:
                    raise CorruptRecord(f"offset {batch.base_offset}", why.decode())
                if done.tombstones == 0 and (done.kept == 0 or done.kept == batch.count):
                    verdicts[i] = 1 if done.kept else 2
                    keyless += done.keyless
            p += batch.size
        return verdicts, keyless


cdef int check_start(int64_t start_offset) except -1:
    if start_offset < 0:
        raise ValueError(f"start offset {start_offset}: a record's offset is 0 or more")
    return 0


def rebuild_records(plain, kept not None, int64_t base_timestamp, new_base_timestamp, append_time):
    """(batch with 61 free bytes, base timestamp, max timestamp) of the records that are kept.

    Those are the ones whose byte in ``kept`` is 1. Offsets stay; timestamps are told from another
    base, None: the first record's. ``append_time`` is the time of all records, where their batch
    has one.
    """
    cdef View view = View(plain), flags = View(kept)
    cdef const uint8_t* p = view.data
    cdef const uint8_t* end = p + view.size
    cdef Record r
    cdef Vector out = Vector(HEADER_SIZE + view.size + 2 * MAX_RECORD_OVERHEAD * flags.size)
    cdef uint8_t* to = out.data + HEADER_SIZE
    cdef const char* why = NULL
    cdef bint has_base = new_base_timestamp is not None, is_append_time = append_time is not None
    cdef int64_t base = new_base_timestamp if has_base else 0
    cdef int64_t of_batch = append_time if is_append_time else 0
    cdef int64_t i, delta, body, fields_size, timestamp, max_timestamp = -1
    with nogil:
        for i in range(flags.size):
            why = get_record(p, end, &r)
            if why != NULL:
                break
            if flags.data[i]:
                timestamp = of_batch if is_append_time else add(base_timestamp, r.timestamp_delta)
                if not has_base:
                    base, has_base = timestamp, True
                max_timestamp = max(max_timestamp, timestamp)
                # the key, the value and the headers stay as they are
                fields_size = r.end - r.fields
                delta = subtract(timestamp, base)
                body = 1 + varint_size(delta) + varint_size(r.offset_delta) + fields_size
                to = put_varint(to, body)
                to[0] = 0
                to = put_varint(put_varint(to + 1, delta), r.offset_delta)
                memcpy(to, r.fields, fields_size)
                to += fields_size
            p = r.end
    if why != NULL:
        raise CorruptRecord("a batch that is rebuilt", why.decode())
    return out.take(to - out.data), base, max_timestamp

