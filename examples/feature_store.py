"""A feature store: features and labels are committed together, or not at all.

    python examples/feature_store.py

The tables go to ./.deltars, or to the catalog that $DELTARS_CATALOG names: deltasql://postgres/lake/public?host=db
"""

from pyspark.sql import SparkSession

import deltars

spark = SparkSession.builder.master("local[2]").appName("feature store").getOrCreate()

features = spark.createDataFrame([("ada", 120.5), ("bob", 3.0)], "customer string, spend double")
labels = spark.createDataFrame([("ada", False), ("bob", True)], "customer string, churned boolean")

with deltars.begin() as tx:
    tx.write("features", features)
    tx.write("labels", labels)

print(f"transaction {tx.id} made {tx.result.versions}")
deltars.read("features").join(deltars.read("labels"), "customer").show()
