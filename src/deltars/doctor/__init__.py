"""Checks of the installation, with fixes: `deltars.diagnose()` and `deltars doctor`."""

from deltars.doctor.diagnosis import diagnose
from deltars.doctor.finding import Finding
from deltars.doctor.java import find_java, require_java

__all__ = ["Finding", "diagnose", "find_java", "require_java"]
