"""What every error of raylog is.

Every error carries ``code`` (the error code of Kafka's protocol, -1 where Kafka has none for it),
``error_name`` (Kafka's name of it) and ``retriable`` (whether Kafka's clients send a request again
that was answered with this code). The constructor's arguments are the error's fields, and
``__str__`` makes the sentence from them. So an error survives pickling and can cross actors. The
sentence says what happened and what to do. It travels with the error: where the reader is of
another release of raylog, which lacks the class or has other fields in it, it is a ``RaylogError``
that says the same.

Codes: Kafka's ``org.apache.kafka.common.protocol.Errors``.
"""

import shlex
from importlib import import_module
from typing import Any, ClassVar, Final

# The codes whose exception is a RetriableException in Kafka: a client sends the request again.
RETRIABLE_CODES: Final = frozenset(
    (2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 88, 89, 100, 103)
)


class RaylogError(Exception):
    """The root of every error that raylog raises on purpose."""

    code: ClassVar[int] = -1
    error_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False  # by the code: no class says otherwise
    # The names of the constructor's arguments, in order. Subclasses define them, __init__ sets
    # them as attributes, and pickling calls the constructor with them again.
    fields: ClassVar[tuple[str, ...]] = ("why",)
    # What happened; what to do. In a command, {quoted_path} is the field path, quoted for a shell.
    template: ClassVar[str] = "{why}"

    def __init_subclass__(cls) -> None:
        cls.retriable = cls.code in RETRIABLE_CODES

    def __init__(self, *args: Any) -> None:
        if len(args) != len(self.fields):
            raise TypeError(f"{type(self).__name__} takes {self.fields}, got {len(args)} arguments")
        super().__init__(*args)
        for name, value in zip(self.fields, args, strict=True):
            setattr(self, name, value)

    def __str__(self) -> str:
        return self._filled(self.template)

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        return read_error, (f"{kind.__module__}.{kind.__qualname__}", self.args, str(self))

    @property
    def problem(self) -> str:
        """What happened, without what to do."""
        return self._filled(self.template.partition("; ")[0])

    @property
    def advice(self) -> str:
        """What to do; empty where the class does not say."""
        return self._filled(self.template.partition("; ")[2])

    def _filled(self, template: str) -> str:
        values = {name: getattr(self, name) for name in self.fields}
        quoted = {f"quoted_{name}": shlex.quote(str(value)) for name, value in values.items()}
        return template.format(**values, **quoted)


def read_error(kind: str, args: tuple[Any, ...], sentence: str) -> RaylogError:
    """The error that another process has raised; a ``RaylogError`` where it is not known here.

    The name of this function and its arguments are part of what two releases say to each other.
    """
    module, _, name = kind.rpartition(".")
    try:
        error = getattr(import_module(module), name)(*args)
    except (ImportError, AttributeError, TypeError):
        return RaylogError(sentence)
    return error if isinstance(error, RaylogError) else RaylogError(sentence)
