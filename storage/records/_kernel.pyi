"""The compiled kernel has its twin's names and signatures."""

from raylog.storage.records._kernel_py import *  # noqa: F403
