"""`deltars demo`: a feature store in seven steps, on real tables, written as a user's program."""

from deltars.demo.narrator import Narrator
from deltars.demo.setting import DEFAULT_CATALOG, embedded_postgres
from deltars.demo.story import DemoResult, play

__all__ = ["DEFAULT_CATALOG", "DemoResult", "Narrator", "embedded_postgres", "play"]
