"""JSON as Kafka's tools print it: no spaces, no letter escaped that need not be, numbers as Java writes them."""

import json
import re
from decimal import Decimal
from typing import Any

_CONTROL = re.compile(r"\\u00([01][0-9a-f])")


def json_text(value: Any) -> str:
    """``value`` on one line."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return double_text(value)
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: "\\u00" + found[1].upper(), text)


def double_text(value: float) -> str:
    """As Java's ``Double.toString``: plain from 0.001 up to ten million, else like 1.5E7."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": '"Infinity"', "-inf": '"-Infinity"'}.get(str(value), '"NaN"')
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{len(rest) + int(exponent)}"
