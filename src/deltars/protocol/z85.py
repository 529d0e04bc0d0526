"""Z85, the text of bytes in the log: five characters are four bytes.

Writers pad a last group of fewer than four bytes in different ways:

zeros after them                        as Delta does; `sizeInBytes` says where the zeros begin
a shorter last group                    as base85 in many languages does
`#` before them                         one for each byte that the last group lacks; no other group begins with `#`
zeros after them, a digit at the end    the digit is the number of zeros
"""

from __future__ import annotations

import base64

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = bytes.maketrans(_B85, _Z85)
# Characters of base85 that Z85 lacks become spaces, which base85 refuses.
_TO_B85 = bytes.maketrans(_Z85 + b";_`|~", _B85 + b"     ")


def encode_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def decode_z85(text: str) -> bytes:
    """Decode Z85 with any of the paddings above. Zeros after the data are not removed."""
    head, tail = (text[:-5], text[-5:]) if len(text) % 5 == 0 else (text, "")
    missing = len(tail) - len(tail.lstrip("#"))
    if not missing:
        return _decode(text)
    if missing > 3:
        raise ValueError("its last group has no bytes")
    last = _decode("0" * missing + tail[missing:])
    if any(last[:missing]):
        raise ValueError("the number in its last group is too large for its bytes")
    return _decode(head) + last[missing:]


def _decode(text: str) -> bytes:
    return base64.b85decode(text.encode("ascii").translate(_TO_B85))
