"""Sorting the values of one feature with their labels: where a split test spends its time.

A value and a label are packed into one integer whose order is that of the values, so that sorting
moves one array. Up to some dozens insertion is fastest; beyond that counting by bytes (radix) beats
comparing, since a comparison of noise is a branch that the processor guesses wrong half of the time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine

LABEL_BITS = 16
"""Labels in a key are numbers within the node, never more than rows in a test."""

_FEW = 40


@kernel
def pack_key(bits: int, label: int) -> int:
    """The key of a float32 (given by its bits, a signed integer) and a label.

    The bits of positive floats are ordered as integers, those of negative ones the other way round.
    """
    ordered = int(bits)
    if ordered < 0:
        ordered ^= 0x7FFFFFFF
    return ((ordered + 0x80000000) << LABEL_BITS) | label


@kernel
def key_bits(key: int) -> int:
    """The bits of the float32 in a key."""
    ordered = (key >> LABEL_BITS) - 0x80000000
    if ordered < 0:
        ordered ^= 0x7FFFFFFF
    return ordered


@routine
def sort_keys(keys: NDArray[np.int64], spare: NDArray[np.int64], n: int) -> None:
    """Sort the first `n` keys by value; the order of equal values does not matter to anyone."""
    if n <= _FEW:
        for a in range(1, n):
            key = keys[a]
            b = a - 1
            while b >= 0 and keys[b] > key:
                keys[b + 1] = keys[b]
                b -= 1
            keys[b + 1] = key
        return
    counts = np.zeros((4, 256), np.int32)
    for a in range(n):
        v = keys[a] >> LABEL_BITS
        counts[0, v & 255] += 1
        counts[1, (v >> 8) & 255] += 1
        counts[2, (v >> 16) & 255] += 1
        counts[3, v >> 24] += 1
    moved = 0
    for byte in range(4):
        shift = LABEL_BITS + 8 * byte
        if counts[byte, (keys[0] >> shift) & 255] == n:  # all alike: nothing to do
            continue
        at = 0
        for d in range(256):
            c = counts[byte, d]
            counts[byte, d] = at
            at += c
        if moved & 1:
            for a in range(n):
                key = spare[a]
                d = (key >> shift) & 255
                keys[counts[byte, d]] = key
                counts[byte, d] += 1
        else:
            for a in range(n):
                key = keys[a]
                d = (key >> shift) & 255
                spare[counts[byte, d]] = key
                counts[byte, d] += 1
        moved += 1
    if moved & 1:
        for a in range(n):
            keys[a] = spare[a]
