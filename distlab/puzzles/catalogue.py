"""All puzzles, by number."""

from distlab.puzzles.puzzle import Puzzle
from distlab.puzzles.puzzles_1_to_5 import FIRST
from distlab.puzzles.puzzles_6_to_8 import MIDDLE
from distlab.puzzles.puzzles_9_to_11 import LAST

PUZZLES: dict[int, Puzzle] = {puzzle.number: puzzle for puzzle in (*FIRST, *MIDDLE, *LAST)}
