"""Find which characters were changed between two sentences."""

from __future__ import annotations

# One changed character. ("delete", i, ""): character i of the source is gone. ("replace", i, c): it became c.
# ("insert", i, s): the string s is inserted before character i.
CharacterEdit = tuple[str, int, str]


def _common_prefix(source: str, target: str) -> int:
    size = 0
    while size < min(len(source), len(target)) and source[size] == target[size]:
        size += 1
    return size


def _distances(source: str, target: str) -> list[list[int]]:
    rows = [list(range(len(target) + 1))]
    for i, character in enumerate(source, 1):
        above, row = rows[-1], [i]
        for j, other in enumerate(target, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (character != other)))
        rows.append(row)
    return rows


def character_edits(source: str, target: str) -> list[CharacterEdit]:
    """Find a shortest list of edits (Levenshtein) that turns the source into the target, in order.

    A deletion or insertion that could stand in several places (をを → を) stands leftmost, so that the same
    correction has the same edits whatever else was changed.
    """
    skipped = _common_prefix(source, target)
    ended = _common_prefix(source[skipped:][::-1], target[skipped:][::-1])
    middle, wanted = source[skipped : len(source) - ended], target[skipped : len(target) - ended]
    rows, i, j = _distances(middle, wanted), len(middle), len(wanted)
    runs: list[tuple[str, int, str]] = []  # from the last edit to the first, adjacent deletions and insertions joined
    while i or j:
        here = rows[i][j]
        if i and j and here == rows[i - 1][j - 1] + (middle[i - 1] != wanted[j - 1]):
            i, j = i - 1, j - 1
            if middle[i] != wanted[j]:
                runs.append(("replace", skipped + i, wanted[j]))
        elif i and here == rows[i - 1][j] + 1:
            i -= 1
            if runs and runs[-1][:2] == ("delete", skipped + i + 1):
                runs[-1] = ("delete", skipped + i, middle[i] + runs[-1][2])
            else:
                runs.append(("delete", skipped + i, middle[i]))
        else:
            j -= 1
            if runs and runs[-1][:2] == ("insert", skipped + i):
                runs[-1] = ("insert", skipped + i, wanted[j] + runs[-1][2])
            else:
                runs.append(("insert", skipped + i, wanted[j]))
    edits: list[CharacterEdit] = []
    done = 0  # source characters before this one are settled
    for kind, start, text in reversed(runs):
        place, run = start, text
        while kind != "replace" and place > done and source[place - 1] == run[-1]:
            place, run = place - 1, run[-1] + run[:-1]
        if kind == "delete":
            edits += [("delete", k, "") for k in range(place, place + len(run))]
        else:
            edits.append((kind, place, run))
        done = place + (0 if kind == "insert" else len(run))
    return edits


def distance(edits: list[CharacterEdit]) -> int:
    """Compute the Levenshtein distance of these edits, in characters."""
    return sum(max(1, len(text)) for _, _, text in edits)
