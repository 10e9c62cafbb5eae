"""Numbers sorted by a key each has: a merge sort, which takes 2 s less to compile than numpy's."""

from minfer.kernels.compiling.jit import jit

_SHORT = 16  # runs of so many are sorted by insertion


@jit
def sort_by(items, start, stop, key, spare):
    """Sort items[start:stop] by key[item], the smallest first, equal ones in the order they had;
    ``spare`` has room for as many."""
    for low in range(start, stop, _SHORT):
        for k in range(low + 1, min(low + _SHORT, stop)):
            item, j = items[k], k
            x = key[item]
            while j > low and x < key[items[j - 1]]:
                items[j] = items[j - 1]
                j -= 1
            items[j] = item
    length = _SHORT  # of runs that are sorted
    while length < stop - start:
        for low in range(start, stop, 2 * length):
            middle, high = min(low + length, stop), min(low + 2 * length, stop)
            for k in range(middle - low):
                spare[k] = items[low + k]
            i, j, k = 0, middle, low
            while i < middle - low:  # what is left of the second run is in its place
                if j == high or key[spare[i]] <= key[items[j]]:
                    items[k] = spare[i]
                    i += 1
                else:
                    items[k] = items[j]
                    j += 1
                k += 1
        length *= 2
