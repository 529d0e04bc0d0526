"""The transaction of the `with` block that a program is in.

    with deltars.begin() as tx:      current_transaction() is tx, also in what the block calls
        …                            asyncio tasks and contextvars.copy_context().run inherit it; new threads do not

Calls that name no transaction, such as the verbs of an enabled Spark session, join this one.
"""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from deltars.transaction.transaction import Transaction

Entered: TypeAlias = "Token[Transaction | None]"

_current: ContextVar[Transaction | None] = ContextVar("deltars_transaction", default=None)
_known_threads: weakref.WeakKeyDictionary[Transaction, frozenset[int]] = weakref.WeakKeyDictionary()
"""Threads that were there when a block began, by its transaction."""


def current_transaction() -> Transaction | None:
    """Return the transaction of the innermost `with` block of this context; None outside of one."""
    return _current.get()


def enter(transaction: Transaction) -> Entered:
    _known_threads[transaction] = frozenset(thread.ident or 0 for thread in threading.enumerate())
    return _current.set(transaction)


def leave(transaction: Transaction, entered: Entered) -> None:
    _known_threads.pop(transaction, None)
    try:
        _current.reset(entered)
    except ValueError:
        # The block ends in another context than it began in, as a generator's may: that one was never changed.
        return


def transaction_left_behind() -> Transaction | None:
    """Return the open transaction of a block that this thread was probably started in, without its context."""
    here = threading.get_ident()
    return next((one for one, threads in list(_known_threads.items()) if here not in threads), None)
