"""What the tests of storage are built on: no mocks, but a disk and a clock that obey.

===========  =======================================================================================
``memory``   a FileSystem in memory, with a page cache that a loss of power takes away, and faults
             on demand
``clock``    a clock that is turned by hand
``logs``     batches and logs, and what is in a log after an append
``waiting``  waiting for a condition with a deadline, in place of sleeping
===========  =======================================================================================
"""
