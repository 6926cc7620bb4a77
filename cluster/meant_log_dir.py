"""A log dir that a person names, by its path or by its directory id."""

import os

from raylog.storage.state.properties import META_PROPERTIES, is_directory_id


def meant_log_dir(log_dir: str) -> str:
    """The path of a log dir as its node has it; or a directory id, as it was given.

    A relative path is below this process's working directory. What can be both is a path where a
    log dir lies there.
    """
    path = os.path.abspath(log_dir)
    if is_directory_id(log_dir) and not os.path.exists(os.path.join(path, META_PROPERTIES)):
        return log_dir
    return path
