"""A process that has imported another raylog than the one that is installed now is found out."""

from pathlib import Path

from raylog.actors.runtime.release import PACKAGE, end_if_replaced, is_replaced, stamp_of


def test_the_package_is_the_one_that_this_process_has_imported() -> None:
    assert Path(PACKAGE).name == "__init__.py"
    ended: list[int] = []
    end_if_replaced(ended.append)
    assert ended == []


def test_a_package_that_was_installed_anew_is_another_one(tmp_path: Path) -> None:
    package = tmp_path / "__init__.py"
    package.write_text('__version__ = "0.1.0"\n')
    before = stamp_of(str(package))
    assert not is_replaced(before, stamp_of(str(package)))
    new = tmp_path / "new"
    new.write_text('__version__ = "0.2.0"\n')
    new.replace(package)
    assert is_replaced(before, stamp_of(str(package)))


def test_a_package_that_is_being_installed_is_no_other_one(tmp_path: Path) -> None:
    assert stamp_of(str(tmp_path / "__init__.py")) is None
    assert not is_replaced(stamp_of(PACKAGE), None)
