"""Dead letters in their topics: list them, and write them back to their sources."""

from ks_actors.letters._groups import ChosenGroup as ChosenGroup
from ks_actors.letters._groups import LetterGroup as LetterGroup
from ks_actors.letters._groups import Survey as Survey
from ks_actors.letters._letter import Letter
from ks_actors.letters._letter import letter_of as letter_of
from ks_actors.letters._read import letters_of_group as letters_of_group
from ks_actors.letters._read import newest_letters as newest_letters
from ks_actors.letters._read import read_letter, read_letters
from ks_actors.letters._read import survey_letters as survey_letters
from ks_actors.letters._redrive import Lot as Lot
from ks_actors.letters._redrive import redrive
from ks_actors.letters._redrive import redrive_letters as redrive_letters

__all__ = ["Letter", "read_letter", "read_letters", "redrive"]
