"""Readable numbers: three significant digits, an SI prefix, thin spaces."""

from __future__ import annotations

import math
from dataclasses import dataclass

THIN = "\u202f"  # a narrow no-break space
_PRINTED_BITS = 14_000  # sys.int_info.default_max_str_digits is 4300
_RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "\u00b5"), (1e-9, "n"))


def unit(largest: float, of: str = "s") -> tuple[float, str]:
    """(size of a prefixed unit in units of `of`, its name) such that `largest` is at least 1. Without a unit: (1,
    "")."""
    if not of:
        return 1.0, ""
    factor, prefix = next((p for p in _PREFIXES if abs(largest) >= p[0]), _PREFIXES[-1])
    return factor, f"{prefix}{of}"


def seconds(value: float, digits: int = 3) -> str:
    """`68.2 us` with the Greek letter; `unknown` for NaN."""
    return quantity(value, "s", digits)


def quantity(value: float, of: str, digits: int = 3) -> str:
    """A value in the unit `of`, with the prefix that suits it; `unknown` for NaN."""
    if math.isnan(value):
        return "unknown"
    if value == 0:
        return "0"
    factor, name = unit(value, of)
    return f"{significant(value / factor, digits)}{THIN if name else ''}{name}"


def size(value: float) -> str:
    """`268 MB`: bytes with a decimal prefix."""
    factor, prefix = next((p for p in _LARGE if value >= p[0]), _LARGE[-1])
    return f"{significant(value / factor)}{THIN}{prefix}B" if value >= 1 else "0"


_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True, slots=True)
class Quantity:
    """The compared quantity: its name on axes, and its unit ("": none)."""

    name: str = "time of an iteration"
    unit: str = "s"

    def text(self, value: float) -> str:
        return quantity(value, self.unit)

    def axis(self, largest: float) -> tuple[float, str]:
        """(size of the axis' unit, its title)."""
        factor, symbol = unit(largest, self.unit)
        return factor, f"{self.name} [{symbol}]" if symbol else self.name


TIMES = Quantity()


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits, never an exponent: `68.2`, `1234`, `0.0123`; trailing zeros are kept."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        decimals -= 1  # 9.996 becomes 10.0
    return f"{rounded:.{max(0, decimals)}f}"


def count(value: int) -> str:
    """`2 036`; from 10^12, `5.37 x 10^33` with the signs for it."""
    if value >= 10**12:
        exponent = len(str(value)) - 1
        mantissa = f"{value / 10**exponent:.2f}"
        return f"{mantissa} \u00d7 10{str(exponent).translate(_RAISED)}"
    return f"{value:,}".replace(",", THIN)


def about(value: int) -> str:
    """In ASCII: all digits up to 10^12, then `1.07e34`. For integers of any size."""
    if value < 10**12:
        return str(value)
    exponent = math.floor(math.log10(value))
    mantissa = f"{value / 10**exponent:.2f}"
    return f"{mantissa}e{exponent}" if mantissa != "10.00" else f"1.00e{exponent + 1}"


def exact(value: int) -> str:
    """In ASCII: all digits, followed by `about` if they are many; `about` alone if Python refuses to print them."""
    if value < 10**12:
        return str(value)
    return f"{value} ({about(value)})" if value.bit_length() <= _PRINTED_BITS else about(value)


def percent(share: float) -> str:
    """`2.9 %`; `unknown` for NaN."""
    if math.isnan(share):
        return "unknown"
    if share in (0.0, 1.0):
        return f"{100 * share:.0f}{THIN}%"
    return f"{significant(100 * share, 2 if abs(share) < 0.1 else 3)}{THIN}%"


def times(ratio: float) -> str:
    """A ratio: `1.28`, followed by the multiplication sign."""
    return "unknown" if math.isnan(ratio) else f"{significant(ratio)}{THIN}\u00d7"


def ordinary(number: int, noun: str) -> str:
    """`1 measurement`, `2 measurements`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
