"""`deltars demo`: a feature store in seven short acts, on real tables. A program as any user could write it."""

from deltars.demo.narrator import Narrator
from deltars.demo.setting import DEFAULT_CATALOG, embedded_postgres
from deltars.demo.story import Outcome, play

__all__ = ["DEFAULT_CATALOG", "Narrator", "Outcome", "embedded_postgres", "play"]
