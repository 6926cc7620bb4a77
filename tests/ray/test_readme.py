"""The README's Python is run as it stands (Spark's part: tests/spark)."""

import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_python_runs(local_ray: None, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    plain = [block for block in blocks if "spark" not in block]
    assert len(plain) == 2
    now_ms = int(time.time() * 1000)
    names: dict[str, Any] = {
        "table": pa.table({"value": [b"from a table"]}),
        "batch_bytes": bytes(encode_records([(now_ms, None, b"by hand", ())])),
    }
    try:
        for block in plain:
            exec(compile(block.replace("/data/raylog", str(tmp_path / "log")), str(README), "exec"), names)
        assert names["table"].num_rows >= 1
        assert b"by hand" in {record.value for p in range(4) for record in fetched(names["broker"], p)}
    finally:
        if "broker" in names:
            names["broker"].stop()


def fetched(broker: Any, partition: int) -> list[Any]:
    import ray

    records = ray.get(broker.partition("flights", partition).fetch.remote(0)).records
    return [] if records is None else decode_records(records)
