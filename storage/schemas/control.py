"""The values of the control records that KRaft writes into the metadata log and its snapshots.

A value begins with its version as a field, an int16, and is read as version 0, whatever that says.
The two markers that end a transaction are read and written by ``records/control.py``, which
appends need. Source: the schemas of ``org.apache.kafka.common.message``; KIP-630, KIP-853.
"""

from typing import Final

from raylog.storage.schemas.schema import Schema, schema


def _value(name: str, text: str) -> Schema:
    return schema(name, text, flexible=0)


# By the control record's type: Kafka's name for it, and its value.
CONTROL_VALUES: Final = {
    3: (
        "SnapshotHeader",
        _value("SnapshotHeaderRecord", "version int16\nlastContainedLogTimestamp int64"),
    ),
    4: ("SnapshotFooter", _value("SnapshotFooterRecord", "version int16")),
    5: ("KRaftVersion", _value("KRaftVersionRecord", "version int16\nkRaftVersion int16")),
    6: (
        "KRaftVoters",
        _value(
            "VotersRecord",
            """
            version int16
            voters []
                voterId int32
                voterDirectoryId uuid
                endpoints []
                    name string
                    host string
                    port uint16
                kRaftVersionFeature struct
                    minSupportedVersion int16
                    maxSupportedVersion int16
            """,
        ),
    ),
}
