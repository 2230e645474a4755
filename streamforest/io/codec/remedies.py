"""What a person can do about dead letters, reason by reason."""

from __future__ import annotations

REMEDIES = {
    "undecodable": "send JSON, or set events.format or events.decoder to what the messages are; "
    "for a .csv file, features.encoding",
    "invalid": "`streamforest schema` prints what an event may look like",
    "decoder": "correct the function that events.decoder names",
    "too_large": "send smaller messages and keys, or raise events.max_bytes",
    "too_long": "shorten the text, or raise events.max_text_length",
    "too_deep": "send flatter messages, or raise events.max_depth",
    "too_many": "send fewer values in one message, or raise events.max_items",
    "empty": "an empty message or line holds no event: leave it out",
    "version": 'send "v": 1, or leave it out',
    "feature": "send numbers, text or null; `streamforest check` shows what each column is taken for",
    "label": "send labels of one type: text, or whole numbers",
    "taxonomy": "send each class with one category, or start a new run with another taxonomy",
    "capacity": "leave the column out, or raise the limit that the message names",
}
"""For every reason of a dead letter; the message of each letter says which field it was."""
