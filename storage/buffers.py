"""What functions over bytes take: anything that holds them, without a copy.

A ``memoryview`` of a file, of a fetch or of another batch serves as well as ``bytes`` does; so do
pyarrow's and numpy's buffers, which no alias of Python 3.11 can name.
"""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
