"""What tests of storage, and of what is built on it, stand on: no mocks, but a disk and a clock
that obey.

``memory``    a FileSystem in memory, with a page cache that a loss of power takes away, and faults
on demand ``clock``     a clock that is turned by hand ``waiting``   waiting for a condition, with a
deadline, in the place of sleeping
"""
