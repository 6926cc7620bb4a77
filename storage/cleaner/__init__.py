"""Compaction: a log keeps the last record of every key.

::

    cleanable.py     which log, from where to where, and whether now      (pure)
    states.py        which logs are free, busy, paused, or given up       (pure)
    offset_map.py    the last offset of every key, in bounded memory
    transactions.py  which batches and markers belong to aborted transactions (pure)
    retention.py     what stays of a batch                                (pure)
    reading.py       the batches of a segment, in chunks
    rewrite.py       which segments are a group, and a group to one ``.cleaned`` segment
    cleaner.py       one round of all that

Putting a cleaned segment in the place of its sources is the log's (``Log.replace_segments``),
finishing that after a crash the loader's. Threads, processes, throttling and the choice of a moment
are their callers'. Source: ``LogCleaner``, ``Cleaner`` and ``LogCleanerManager`` of Kafka; KIP-534
for delete horizons.
"""
