"""A job of Spark, by itself: writes Parquet at a URL, reads it again, and adds to it. What it saw is the last line."""

import json
import sys

from pyspark.sql import SparkSession

url, rows = sys.argv[1], int(sys.argv[2])
session = (SparkSession.builder.master("local[2]").appName("files").config("spark.ui.enabled", "false")
           .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
           .config("spark.sql.shuffle.partitions", "3").config("spark.hadoop.fs.defaultFS", url)
           .config("spark.sql.warehouse.dir", f"{url}/warehouse").getOrCreate())
numbers = session.range(rows).selectExpr("id", "id % 7 AS part", "concat('number ', id) AS name")


def seen(path):
    frame = session.read.parquet(f"{url}{path}")
    row = frame.selectExpr("count(*)", "sum(id)", "count(DISTINCT name)", "max(part)").first()
    return list(row), frame.where("part = 3").count()


said = {}
numbers.write.parquet(f"{url}/plain")
said["plain"] = seen("/plain")
numbers.write.partitionBy("part").parquet(f"{url}/parts")
said["parts"] = seen("/parts")
numbers.write.mode("append").parquet(f"{url}/plain")
said["appended"] = seen("/plain")
numbers.where("id < 100").write.mode("overwrite").parquet(f"{url}/plain")
said["overwritten"] = seen("/plain")
said["of pyarrow"] = seen("/of-pyarrow")
# A table, in the warehouse; and a join that is sorted over files.
numbers.write.saveAsTable("numbers")
said["table"] = session.sql("SELECT count(*) FROM numbers a JOIN numbers b ON a.id = b.id + 1").first()[0]
session.sql("INSERT INTO numbers SELECT id + 1000000, part, name FROM numbers WHERE id < 10")
said["inserted"] = session.sql("SELECT count(*) FROM numbers").first()[0]
session.sql("DROP TABLE numbers")
session.stop()
print(json.dumps(said))
