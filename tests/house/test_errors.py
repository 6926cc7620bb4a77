"""Every error class survives pickling, has Kafka's code and name, and says something."""

import pickle

import pytest

import raylog.actors.messages
import raylog.cluster.broker
import raylog.cluster.client.producer
import raylog.cluster.controller.controller_actor
import raylog.storage.errors
from raylog.storage.errors import RaylogError


def every_class(root: type[RaylogError] = RaylogError) -> list[type[RaylogError]]:
    """All error classes of raylog that importing the above has defined."""
    found = [root]
    for kind in root.__subclasses__():
        found += every_class(kind)
    return sorted(
        {kind for kind in found if kind.__module__.startswith("raylog.")},
        key=lambda kind: kind.__name__,
    )


def test_the_modules_classes_are_among_them() -> None:
    for module in (raylog.storage.errors, raylog.actors.messages):
        own = {
            x for x in vars(module).values() if isinstance(x, type) and issubclass(x, RaylogError)
        }
        assert own <= set(every_class())
    assert len(every_class()) > 30


@pytest.mark.parametrize("kind", every_class())
def test_an_error_survives_pickling_with_its_fields_and_its_sentence(
    kind: type[RaylogError],
) -> None:
    values = [f"<{name}>" for name in kind.fields]
    error = kind(*values)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.args == tuple(values)
    assert [getattr(again, name) for name in kind.fields] == values
    assert str(again) == str(error)
    assert all(value in str(error) for value in values), "a field that the sentence does not tell"
    assert isinstance(kind.code, int)
    assert kind.error_name.isupper()
    assert isinstance(kind.retriable, bool)


@pytest.mark.parametrize("kind", every_class())
def test_an_error_made_with_the_wrong_number_of_arguments_is_our_mistake(
    kind: type[RaylogError],
) -> None:
    with pytest.raises(TypeError, match=kind.__name__):
        kind(*["x"] * (len(kind.fields) + 1))
