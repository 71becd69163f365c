"""Count a text's tokens with the model's own tokenizer, for servers that send no usage."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from servebench.faults import Fault


def counter(tokenizer: str | None) -> Callable[[str], int] | None:
    """Return a function that counts a text's tokens, without special tokens; None when no tokenizer is named.

    `tokenizer` is a tokenizer.json or a folder that holds one. Needs the package `tokenizers`, imported only here.
    Raises Fault for a file that is missing or not a tokenizer.
    """
    if tokenizer is None:
        return None
    path = Path(tokenizer)
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise Fault(f"tokenizer: {path} is not a file; give a tokenizer.json or a folder that holds one")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        install = f"{shlex.quote(sys.executable)} -m pip install tokenizers"
        raise Fault(f"tokenizer: needs the package `tokenizers`: {install}") from error
    try:
        model = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception
        raise Fault(f"tokenizer: {path}: {error}; give the model's own tokenizer.json") from error
    return lambda text: len(model.encode(text, add_special_tokens=False).ids)
