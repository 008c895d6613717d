"""Labels of a data set as the classes of a model: by name or by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxport.exporters.errors import DatasetError
from onnxport.exporters.suggestion import expected_one_of


class Labels:
    """The classes of a model.

    Args:
        names: id, as text, to name, as config.json has them; None: the classes are numbers.
        count: how many classes there are.
        dataset: what messages call the data set.
    """

    def __init__(self, names: Mapping[str, str] | None, count: int, dataset: str) -> None:
        self.names = {int(number): name for number, name in (names or {}).items()}
        self.count = count
        self._dataset = dataset
        self._ids = {name: number for number, name in self.names.items()}
        folded = [name.casefold() for name in self._ids]
        self._folded = {name.casefold(): n for name, n in self._ids.items() if folded.count(name.casefold()) == 1}

    def number(self, value: Any, example: int) -> int:
        """Returns the class that a label means. A name wins over a number: a class may be called "1" and be the third.

        Raises:
            DatasetError: it is neither the name nor the number of a class.
        """
        if isinstance(value, str):
            known = self._ids.get(value, self._folded.get(value.strip().casefold()))
            if known is not None:
                return known
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < self.count:
            return number
        expected = expected_one_of(str(value), self._ids) if self._ids else f"expected 0 to {self.count - 1}"
        raise DatasetError(
            f"{self._dataset}, example {example}: the model has no label {value!r}; {expected}"
            + (f" (or their numbers, 0 to {self.count - 1})" if self._ids else "")
        )
