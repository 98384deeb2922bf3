"""Dead letters in their topics: to be listed, and written back to where they came from."""

from ks_actors.letters._letter import Letter
from ks_actors.letters._read import newest_letters as newest_letters
from ks_actors.letters._read import read_letter, read_letters
from ks_actors.letters._redrive import redrive

__all__ = ["Letter", "read_letter", "read_letters", "redrive"]
