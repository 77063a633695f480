"""How numbers of the report are divided and written; what was not measured stays so."""


def quotient(dividend, divisor):
    """`None` where there is none."""
    return dividend / divisor if dividend is not None and divisor else None


def milliseconds(microseconds):
    """As milliseconds, written."""
    return number(None if microseconds is None else microseconds / 1000, 2)


def number(value, decimals):
    """Written with so many decimals."""
    return "–" if value is None else f"{value:.{decimals}f}"
