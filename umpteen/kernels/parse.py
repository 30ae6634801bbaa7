"""Parse lines of ``label,label feature:value feature:value`` from bytes."""

import numpy as np

from umpteen.kernels.jit import inner, jit

OK, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, BAD_VALUE, VALUE_RANGE = range(7)

_NEWLINE, _SPACE, _TAB, _RETURN = 10, 32, 9, 13
_COMMA, _COLON, _HASH, _PLUS, _MINUS, _DOT = 44, 58, 35, 43, 45, 46
_ZERO, _NINE, _BIG_E, _SMALL_E = 48, 57, 69, 101
_MAX_INT = 2**31 - 1
_MAX_DIGITS = 10**17  # with one more digit a number still fits in an int64
_MAX_FLOAT = float(np.finfo(np.float32).max)


@inner
def _is_digit(byte):
    return _ZERO <= byte <= _NINE


@inner
def _is_gap(byte):
    return byte == _SPACE or byte == _TAB or byte == _RETURN


@inner
def _whole(text, i):
    """Read digits from ``i``; return the number (capped against overflow) and where it ends."""
    number = 0
    while _is_digit(text[i]):
        if number <= _MAX_INT:
            number = number * 10 + (int(text[i]) - _ZERO)
        i += 1
    return number, i


@inner
def _decimal(text, i):
    """Read ``-12.5e-3`` from ``i``; return the number, where it ends, and whether it has a digit."""
    negative = text[i] == _MINUS
    if negative or text[i] == _PLUS:
        i += 1
    digits = 0
    power = 0
    seen = False
    fraction = False
    while _is_digit(text[i]) or (text[i] == _DOT and not fraction):
        if text[i] == _DOT:
            fraction = True
        else:
            seen = True
            if digits < _MAX_DIGITS:
                digits = digits * 10 + (int(text[i]) - _ZERO)
                power -= fraction
            else:
                power += not fraction
        i += 1
    if seen and (text[i] == _SMALL_E or text[i] == _BIG_E):
        down = text[i + 1] == _MINUS  # i + 1 is in bounds because a newline follows
        start = i + 2 if down or text[i + 1] == _PLUS else i + 1
        exponent, i = _whole(text, start)
        seen = i > start
        power += -exponent if down else exponent
    number = 0.0
    if digits != 0:
        power = min(max(power, -400), 400)
        number = digits * 10.0**power if power >= 0 else digits / 10.0**-power
    return (-number if negative else number), i, seen


@jit
def parse_rows(text, n_labels, n_features, keep_blank, label_ends, labels, feature_ends, indices, values):
    """Fill the arrays from complete lines.

    ``text`` must end with a newline, where every loop stops. ``label_ends`` and ``feature_ends`` have an entry per
    newline, ``labels`` per newline and comma, ``indices`` and ``values`` per colon. Return the number of rows, a
    status, and the position of the error.
    """
    i = row = n_l = n_f = 0
    while i < text.size:
        blank = True
        if _is_digit(text[i]):
            first = i
            while True:
                start = i
                number, i = _whole(text, start)
                if i == start:
                    return row, BAD_LABEL, i
                if text[i] == _COLON and start == first:  # no labels: the line begins with a feature
                    i = start
                    break
                if not (text[i] == _COMMA or text[i] == _NEWLINE or _is_gap(text[i])):
                    return row, BAD_LABEL, i
                if number >= n_labels:
                    return row, LABEL_RANGE, start
                labels[n_l] = number
                n_l += 1
                blank = False
                if text[i] != _COMMA:
                    break
                i += 1
        while True:
            while _is_gap(text[i]):
                i += 1
            if text[i] == _HASH:
                while text[i] != _NEWLINE:
                    i += 1
            if text[i] == _NEWLINE:
                i += 1
                break
            start = i
            number, i = _whole(text, start)
            if i == start or text[i] != _COLON:
                return row, BAD_FEATURE, start
            if number >= n_features:
                return row, FEATURE_RANGE, start
            start = i + 1
            value, i, seen = _decimal(text, start)
            if not seen or not (text[i] == _NEWLINE or _is_gap(text[i])):
                return row, BAD_VALUE, start
            if abs(value) > _MAX_FLOAT:
                return row, VALUE_RANGE, start
            indices[n_f] = number
            values[n_f] = value
            n_f += 1
            blank = False
        if keep_blank or not blank:
            label_ends[row] = n_l
            feature_ends[row] = n_f
            row += 1
    return row, OK, i
