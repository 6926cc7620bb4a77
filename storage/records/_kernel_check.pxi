"""The walk over a batch's records before they are appended: is each what a record must be?

Two speeds, one result. ``pass_plain`` runs over whole records that break no rule, and stops before
any other. ``step`` takes one record byte by byte: one that the end of a chunk cuts, or one that
breaks a rule; it alone says what is wrong. Neither keeps a byte of a key, a value or a header.
"""

cdef enum:
    # bytes: below, giving up the GIL and taking it again costs more than the walk
    NOGIL_SIZE = 16384
    # so many records without a key are named
    MAX_NAMED = 10

# What ``step`` reads next. The first seven are in the order of a record's fields.
cdef enum:
    READ_LENGTH = 0
    READ_ATTRIBUTES = 1
    READ_TIMESTAMP = 2
    READ_OFFSET = 3
    READ_KEY = 4
    READ_VALUE = 5
    READ_HEADER_COUNT = 6
    READ_NAME = 7
    READ_HEADER_VALUE = 8


# The fields of a RecordRules, by their places in the tuple
cdef enum:
    RULE_MAX_BYTES = 0
    RULE_BEFORE_MAX_MS = 1
    RULE_AFTER_MAX_MS = 2
    RULE_IS_CREATE_TIME = 3
    RULE_NEEDS_KEYS = 4
    RULE_FIELDS = 5


cdef struct Rules:
    int64_t max_bytes
    int64_t before_max_ms
    int64_t after_max_ms
    bint is_create_time
    bint needs_keys


cdef struct Walk:
    int64_t count                 # of records, as the header says
    int64_t base_timestamp
    int64_t earliest              # bounds of a record's timestamp
    int64_t latest
    bint needs_keys
    int64_t seen                  # whole records so far
    int64_t largest               # timestamp so far; -1: none
    int64_t outside               # the first timestamp that is out of bounds,
    bint is_outside               # if there is one
    int64_t keyless
    int64_t named[MAX_NAMED]      # the first records without a key
    # of the record that ``step`` is in
    int field
    uint64_t varint
    int varint_size               # bytes of it so far
    int64_t left                  # bytes of the record behind what was read
    int64_t skip                  # bytes of the field that are passed over
    int64_t headers


cdef inline int64_t bounded_subtract(int64_t a, int64_t b) noexcept nogil:
    """a - b for b >= 0, or the smallest int64."""
    return INT64_MIN if a < INT64_MIN + b else a - b


cdef inline int64_t bounded_add(int64_t a, int64_t b) noexcept nogil:
    """a + b for b >= 0, or the largest int64."""
    return INT64_MAX if a > INT64_MAX - b else a + b


cdef int read_rules(Rules* to, rules) except -1:
    """Take over a ``rules.RecordRules``."""
    if not PyTuple_Check(rules) or PyTuple_Size(rules) != RULE_FIELDS:
        raise TypeError(f"{rules!r} is no RecordRules")
    cdef tuple fields = <tuple>rules
    to.max_bytes = fields[RULE_MAX_BYTES]
    to.before_max_ms = fields[RULE_BEFORE_MAX_MS]
    to.after_max_ms = fields[RULE_AFTER_MAX_MS]
    to.is_create_time = fields[RULE_IS_CREATE_TIME]
    to.needs_keys = fields[RULE_NEEDS_KEYS]
    return 0


cdef void begin_walk(Walk* w, const Rules* rules, int64_t now_ms, int64_t count,
                     int64_t base_timestamp) noexcept nogil:
    """Set up a walk over a batch of ``count`` records."""
    w.count = count
    w.base_timestamp = base_timestamp
    w.earliest = bounded_subtract(now_ms, rules.before_max_ms)
    w.latest = bounded_add(now_ms, rules.after_max_ms)
    w.needs_keys = rules.needs_keys
    w.seen = w.keyless = w.skip = w.left = w.headers = 0
    w.largest = -1
    w.is_outside = False
    w.field = READ_LENGTH
    w.varint = w.varint_size = 0


cdef inline const uint8_t* get_short(const uint8_t* p, int64_t* n) noexcept nogil:
    """Read a varint of one or two bytes, both of which can be read; NULL if it is longer."""
    cdef uint32_t z = load_once_8(p), second
    if z < 0x80:
        n[0] = unzigzag(z)
        return p + 1
    second = load_once_8(p + 1)
    if second >= 0x80:
        return NULL
    n[0] = unzigzag((z & 0x7F) | (second << 7))
    return p + 2


cdef inline const uint8_t* pass_short_fields(const uint8_t* p, const uint8_t* end,
                                             int64_t shortest_key) noexcept nogil:
    """Pass over a key, a value and no headers, with sizes of one or two bytes; NULL if they differ.

    Three bytes can be read at ``p``.
    """
    cdef int64_t size
    p = get_short(p, &size)
    if p == NULL or size > end - p - 2 or size < shortest_key:
        return NULL
    p = get_short(p + max(size, 0), &size)
    if p == NULL or size > end - p - 1:
        return NULL
    p += max(size, 0)
    if p + 1 != end or p[0] != 0:
        return NULL
    return end


cdef const uint8_t* pass_fields(const uint8_t* p, const uint8_t* end,
                                int64_t shortest_key) noexcept nogil:
    """Pass over any key, value and headers that end at ``end``; NULL if they do not."""
    cdef Record r
    p = get_varint(p, end, 5, &r.key_size)
    if p == NULL or r.key_size > end - p or r.key_size < shortest_key:
        return NULL
    p = get_varint(p + max(r.key_size, 0), end, 5, &r.value_size)
    if p == NULL or r.value_size > end - p:
        return NULL
    p = get_varint(p + max(r.value_size, 0), end, 5, &r.header_count)
    if p == NULL or r.header_count < 0 or r.header_count > end - p:
        return NULL
    r.headers, r.end = p, end
    if check_headers(&r) != NULL:
        return NULL
    return end


cdef const uint8_t* pass_plain(Walk* w, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Pass over the whole records at ``p`` that break no rule; where the first other one begins."""
    cdef int64_t base_timestamp = w.base_timestamp
    cdef int64_t earliest = w.earliest, latest = w.latest
    cdef int64_t shortest_key = 0 if w.needs_keys else INT64_MIN
    cdef int64_t count = w.count, seen = w.seen, largest = w.largest
    cdef int64_t length, timestamp, offset_delta
    cdef const uint8_t* fields
    cdef const uint8_t* after
    while seen < count:
        fields = get_varint(p, end, 5, &length)
        if fields == NULL or length < MIN_RECORD_SIZE - 1 or length > end - fields:
            break
        after = fields + length
        if fields[0] != 0:
            break
        fields = get_varint(fields + 1, after, 10, &timestamp)
        if fields == NULL:
            break
        timestamp = add(base_timestamp, timestamp)
        if timestamp != -1 and not earliest <= timestamp <= latest:
            break
        fields = get_varint(fields, after, 5, &offset_delta)
        if fields == NULL or offset_delta != seen or after - fields < 3:
            break
        if pass_short_fields(fields, after, shortest_key) == NULL:
            if pass_fields(fields, after, shortest_key) == NULL:
                break
        largest = max(largest, timestamp)
        seen += 1
        p = after
    w.seen, w.largest = seen, largest
    return p


cdef const char* step(Walk* w, const uint8_t** at, const uint8_t* end) noexcept nogil:
    """Go on in the record at ``at`` to its end, or to the end of the chunk.

    Returns what is wrong with it, or NULL.
    """
    cdef const uint8_t* p = at[0]
    cdef const char* why = NULL
    cdef int64_t passed
    cdef int byte
    while p < end:
        if w.skip:
            passed = min(w.skip, <int64_t>(end - p))
            p += passed
            w.skip -= passed
            w.left -= passed
        else:
            if w.field != READ_LENGTH:
                w.left -= 1
            byte = p[0]
            p += 1
            why = take_byte(w, byte)
            if why != NULL:
                break
        if w.field == READ_NAME and w.headers == 0 and w.skip == 0:
            if w.left:
                why = "bytes are left behind its last field"
            else:
                w.field = READ_LENGTH
                w.seen += 1
            break
        if w.left == 0 and w.field != READ_LENGTH:
            why = "it is shorter than its fields"
            break
    at[0] = p
    return why


cdef const char* take_byte(Walk* w, int byte) noexcept nogil:
    """One more byte of a number in a record; what is wrong with it, or NULL."""
    cdef int max_size = 10 if w.field == READ_TIMESTAMP else 5
    cdef uint64_t z
    if w.field == READ_ATTRIBUTES:
        w.field = READ_TIMESTAMP
        if byte:
            return "its attributes are not 0"
        return NULL
    w.varint |= <uint64_t>(byte & 0x7F) << (7 * w.varint_size)
    w.varint_size += 1
    if byte >= 0x80:
        if w.varint_size == max_size:
            return "a number is longer than its type"
        return NULL
    z = w.varint if max_size == 10 else <uint32_t>w.varint
    w.varint, w.varint_size = 0, 0
    return take_number(w, unzigzag(z))


cdef const char* take_number(Walk* w, int64_t number) noexcept nogil:
    """The number of a field; what is wrong with it, or NULL."""
    cdef int64_t timestamp
    if w.field == READ_LENGTH:
        if w.seen == w.count:
            return "the header has a smaller count of records"
        if number < MIN_RECORD_SIZE - 1:
            return "its length is too small"
        w.left = number
    elif w.field == READ_TIMESTAMP:
        timestamp = add(w.base_timestamp, number)
        if (
            timestamp != -1
            and not w.is_outside
            and not w.earliest <= timestamp <= w.latest
        ):
            w.outside, w.is_outside = timestamp, True
        w.largest = max(w.largest, timestamp)
    elif w.field == READ_OFFSET:
        if number != w.seen:
            return "its offset delta is not its place in the batch: 0, 1, 2, ..."
    elif w.field == READ_HEADER_COUNT:
        if number < 0 or number > w.left:
            return "its header count is negative or more than its bytes"
        w.headers = number
    else:
        if number > w.left:
            return "a field is longer than what is left of it"
        w.skip = max(number, 0)
        if number < 0 and w.field == READ_NAME:
            return "the name of a header is null"
        if number < 0 and w.field == READ_KEY and w.needs_keys:
            if w.keyless < MAX_NAMED:
                w.named[w.keyless] = w.seen
            w.keyless += 1
    if w.field == READ_HEADER_VALUE:
        w.headers -= 1
        w.field = READ_NAME
    else:
        w.field += 1
    return NULL


cdef const char* walk_chunk(Walk* w, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Walk over the next bytes of the records; what is wrong with them, or NULL."""
    cdef const char* why = NULL
    while p < end and why == NULL:
        if w.field == READ_LENGTH and w.varint_size == 0:
            p = pass_plain(w, p, end)
        if p < end:
            why = step(w, &p, end)
    return why


cdef bint are_plain(Walk* w, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Whether these are the records of a batch, all of them, and break no rule."""
    return pass_plain(w, p, end) == end and w.seen == w.count


cdef class RecordWalk:
    """The records of one batch, checked as their bytes come, chunk by chunk.

    ``count`` and ``base_timestamp`` are the header's, ``rules`` a RecordRules. What breaks the
    format raises InvalidRecord at once. What breaks a rule of the topic is noted, and asked for
    behind ``finish``: ``largest_timestamp`` (-1: none), ``outside``, the first timestamp out of
    bounds (None: none), ``keyless``, how many records lack a key that they need, and ``named``, the
    first ten of those.
    """

    cdef Walk walk

    def __cinit__(self, int64_t count, int64_t base_timestamp, rules, int64_t now_ms):
        cdef Rules limits
        read_rules(&limits, rules)
        begin_walk(&self.walk, &limits, now_ms, count, base_timestamp)

    def feed(self, chunk):
        """Walk over the next bytes. Raises InvalidRecord."""
        cdef View view = View(chunk)
        cdef const char* why
        if view.size >= NOGIL_SIZE:
            with nogil:
                why = walk_chunk(&self.walk, view.data, view.data + view.size)
        else:
            why = walk_chunk(&self.walk, view.data, view.data + view.size)
        if why != NULL:
            raise InvalidRecord(f"record {self.walk.seen}: {why.decode()}")

    def finish(self):
        """There are no more bytes. Raises InvalidRecord if there should be."""
        cdef Walk* w = &self.walk
        if w.field != READ_LENGTH or w.varint_size:
            raise InvalidRecord(f"record {w.seen}: the batch ends within it")
        if w.seen != w.count:
            raise InvalidRecord(f"the batch has {w.seen} records, but its header says {w.count}")

    @property
    def largest_timestamp(self):
        return self.walk.largest

    @property
    def outside(self):
        return self.walk.outside if self.walk.is_outside else None

    @property
    def keyless(self):
        return self.walk.keyless

    @property
    def named(self):
        cdef Py_ssize_t i
        return [self.walk.named[i] for i in range(min(self.walk.keyless, MAX_NAMED))]
