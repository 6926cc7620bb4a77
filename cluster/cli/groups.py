"""``raylog group``: groups of consumers, who is in one, how far it has read."""

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from raylog.cluster.cli.by_socket import Servers, Wanted, connection
from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Format,
    Namespace,
    Output,
    Partitions,
    ValidateOnly,
    note,
    show,
    show_json,
)
from raylog.cluster.cli.places import Offset, place_of

if TYPE_CHECKING:
    from raylog.cluster.client.groups import (
        DescribedGroup,
        GroupMember,
        GroupOffset,
        Groups,
        ListedGroup,
    )
    from raylog.storage.names import TopicPartition

app = typer.Typer(help="Groups of consumers, and how far they have read.", no_args_is_help=True)

GROUPS: Final = ("group", "state", "members", "lag")
OFFSETS: Final = ("partition", "committed", "end", "lag", "member", "host")
MOVED: Final = ("partition", "committed")

Group = Annotated[str, typer.Argument(metavar="GROUP")]
OnlyTopic = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic. Repeat for more."),
]


def _groups(wanted: Wanted) -> "Groups":
    from raylog.cluster.client.groups import Groups

    return Groups(connection(wanted))  # type: ignore[arg-type]


@app.command("list")
def list_groups(
    context: typer.Context,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show all groups, how many members each has, and how far it is behind."""
    groups = _groups(Wanted(context, servers, address, namespace))
    rows = [row for one in groups.list_groups() if (row := _listed(groups, one)) is not None]
    if output is Output.json:
        show_json({"groups": [dict(zip(GROUPS, row, strict=True)) for row in rows]})
        return
    show(GROUPS, rows)


def _listed(groups: "Groups", one: "ListedGroup") -> tuple[str, str, int, int] | None:
    """A row; None where the group has been deleted meanwhile."""
    from raylog.actors.coordinators.errors import GroupNotFound

    try:
        members = len(groups.describe(one.group).members)
        lag = sum(each.lag or 0 for each in groups.offsets(one.group))
        return one.group, one.state, members, lag
    except GroupNotFound:
        return None


@app.command()
def describe(
    context: typer.Context,
    group: Group,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show a group's partitions: how far each is read, who reads it, how many records are left.

    The lag is counted in offsets: where a topic is compacted there are fewer records.
    """
    groups = _groups(Wanted(context, servers, address, namespace))
    found, offsets = groups.describe(group), groups.offsets(group)
    if output is Output.json:
        show_json({"group": found, "offsets": [_document(one) for one in offsets]})
        return
    show(OFFSETS, _rows(found, offsets))
    note(f"{group}: {found.state}, {_members(found)}")


def _document(one: "GroupOffset") -> dict[str, object]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "committed": one.committed.offset,
        "leader_epoch": one.committed.leader_epoch,
        "metadata": one.committed.metadata,
        "log_start": one.log_start,
        "log_end": one.log_end,
        "lag": one.lag,
    }


def _members(found: "DescribedGroup") -> str:
    if not found.members:
        return "no members"
    members = "1 member" if len(found.members) == 1 else f"{len(found.members)} members"
    return f"{members}, {found.assignor}" if found.assignor else members


def _rows(found: "DescribedGroup", offsets: "list[GroupOffset]") -> list[tuple[object, ...]]:
    readers: dict[TopicPartition, GroupMember] = {
        each: member for member in found.members for each in member.partitions or ()
    }
    rows: list[tuple[object, ...]] = []
    for one in offsets:
        reader = readers.pop(one.partition, None)
        cells = (str(one.partition), one.committed.offset, one.log_end, one.lag)
        rows.append((*cells, *_who(reader)))
    rows += [(str(each), None, None, None, *_who(readers[each])) for each in sorted(readers)]
    return rows


def _who(member: "GroupMember | None") -> tuple[str | None, str | None]:
    if member is None:
        return None, None
    return member.instance_id or member.member_id, member.host


@app.command()
def seek(
    context: typer.Context,
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time (2026-11-22T08:30Z; UTC without a zone), a "
            "time ago (-1h), or @MS: ms since the epoch.",
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option(metavar="N", help="So many offsets forward; back with -N.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            exists=True,
            dir_okay=False,
            help="A CSV file with lines TOPIC,PARTITION,OFFSET.",
        ),
    ] = None,
    topic: OnlyTopic = None,
    partition: Partitions = None,
    validate_only: ValidateOnly = False,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Move a group that has no members to another place.

    Without --topic it is moved in all partitions of which it has committed something. With it, also
    in those of which it has not. A place outside of a log becomes the nearest end of it.
    """
    if sum(one is not None for one in (to, shift, file)) != 1:
        raise typer.BadParameter("give --to, --shift or --file: one of them")
    if file is not None and (topic or partition):
        raise typer.BadParameter("--file says which partitions: give no --topic and no --partition")
    place = None if to is None else place_of("--to", to)
    given = None if file is None else _read(file)
    groups = _groups(Wanted(context, servers, address, namespace))
    chosen = _chosen(groups, group, topic, partition)
    where: str | datetime | Mapping[tuple[str, int], int] | None = given
    if isinstance(place, Offset):
        all_of_them = list(groups.committed(group)) if chosen is None else chosen
        where = dict.fromkeys(all_of_them, place.offset)
    elif isinstance(place, int):
        where = datetime.fromtimestamp(place / 1000, UTC)
    elif place is not None:
        where = place
    only = None if isinstance(where, Mapping) else chosen
    moved = groups.seek(group, where, shift=shift, partitions=only, validate_only=validate_only)
    if output is Output.json:
        offsets = {str(each): at.offset for each, at in moved.items()}
        show_json({"group": group, "committed": offsets, "validate_only": validate_only})
        return
    show(MOVED, [(str(each), moved[each].offset) for each in sorted(moved)])
    if not moved:
        note(
            "nothing is chosen: the topics have no such partition"
            if chosen is not None
            else f"group {group} has committed nothing: name a --topic"
        )
    elif validate_only:
        note("nothing was changed")


def _chosen(
    groups: "Groups", group: str, topics: list[str] | None, numbers: list[int] | None
) -> "list[TopicPartition] | None":
    """Which partitions; None for all of which the group has committed something."""
    if topics:
        found = [each for topic in topics for each in groups.partitions(topic)]
    elif numbers is not None:
        found = list(groups.committed(group))
    else:
        return None
    return [each for each in found if numbers is None or each.partition in numbers]


def _read(file: Path) -> dict[tuple[str, int], int]:
    """Raises BadParameter."""
    found: dict[tuple[str, int], int] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    for number, row in enumerate(csv.reader(lines), 1):
        cells = [cell.strip() for cell in row]
        if not cells:
            continue
        if len(cells) != 3 or not (cells[1].isdecimal() and cells[2].isdecimal()):
            why = "does not have the form TOPIC,PARTITION,OFFSET"
            raise typer.BadParameter(f"{file}, line {number}: {row} {why}")
        found[cells[0], int(cells[1])] = int(cells[2])
    if not found:
        raise typer.BadParameter(f"{file} has no line")
    return found


@app.command()
def delete(
    context: typer.Context,
    group: Group,
    topic: OnlyTopic = None,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Delete a group that has no members; with --topic, only what it has committed of the topic."""
    groups = _groups(Wanted(context, servers, address, namespace))
    if not topic:
        groups.delete(group)
        typer.echo(f"deleted group {group}")
        return
    gone = [each for each in groups.committed(group) if each.topic in topic]
    if gone:
        groups.delete_offsets(group, gone)
    else:
        groups.describe(group)
    typer.echo(f"deleted the offsets of {len(gone)} partitions from group {group}")
