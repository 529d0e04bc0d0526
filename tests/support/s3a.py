"""Hadoop's own S3 classes, for the Hadoop that is in the pyspark package; with the AWS SDK they are 700 MB.

DELTARS_TEST_S3A_JARS names a directory that has them already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark

from tests.support.maven import fetch_jars

JARS_VARIABLE = "DELTARS_TEST_S3A_JARS"
FETCH_S = 900


def s3a_jars() -> Path:
    """The directory of the JARs; NoJars where they cannot be had."""
    given = os.environ.get(JARS_VARIABLE)
    if given:
        return Path(given)
    return fetch_jars("org.apache.hadoop", "hadoop-aws", hadoop_version(), without="none", timeout_s=FETCH_S)


def hadoop_version() -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    [name] = [path.name for path in jars.glob("hadoop-client-api-*.jar")]
    found = re.fullmatch(r"hadoop-client-api-(.*)\.jar", name)
    assert found is not None
    return found[1]
