"""JSON as Kafka's tools print it.

There are no spaces, only the necessary escapes, and numbers as Java writes them. Bytes are base64.
"""

import json
import re
from base64 import b64encode
from typing import Any

from raylog.storage.tools.dump.java_text import double_text

_CONTROL = re.compile(r"\\u00([01][0-9a-f])")


def json_text(value: Any) -> str:
    """``value`` on one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json_text(name)}:{json_text(inner)}" for name, inner in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        value = b64encode(value).decode()
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda escape: "\\u00" + escape[1].upper(), text)
