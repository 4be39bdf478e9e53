"""The text that models with a tokenizer are measured on: old enough to be everybody's, and known to the letter."""

from __future__ import annotations

SOURCE = "Abraham Lincoln, Gettysburg Address, 19 November 1863 (the Bliss copy; public domain)"

TEXT = """\
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal.

Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can
long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a
final resting place for those who here gave their lives that that nation might live. It is altogether fitting and proper
that we should do this.

But, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this ground. The brave men,
living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will
little note, nor long remember what we say here, but it can never forget what they did here. It is for us the living,
rather, to be dedicated here to the unfinished work which they who fought here have thus far so nobly advanced. It is
rather for us to be here dedicated to the great task remaining before us -- that from these honored dead we take
increased devotion to that cause for which they gave the last full measure of devotion -- that we here highly resolve
that these dead shall not have died in vain -- that this nation, under God, shall have a new birth of freedom -- and
that government of the people, by the people, for the people, shall not perish from the earth.
"""

WORDS = tuple(TEXT.split())
"""Split at white space; punctuation stays with its word."""

ROW_STRIDE = 101
"""Words between the starts of two rows. It shares no factor with the number of words, so that as many rows start
differently as the text has words; a prime far from 1 keeps neighbouring rows from being shifted copies."""


def passage(row: int, words: int) -> str:
    """So many words of the text for a row of a batch: each row starts at a place of its own, and the text starts over
    at its end."""
    start = row * ROW_STRIDE
    return " ".join(WORDS[(start + offset) % len(WORDS)] for offset in range(words))
