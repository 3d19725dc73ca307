"""Django and SQLAlchemy, as they are, see of a tenant what they see of PostgreSQL."""

import datetime
import decimal
import os
import pathlib
import subprocess
import sys
import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg

from test_dumps import make, where

PROGRAM = pathlib.Path(__file__).parent / "django_shop.py"


def django(cluster, folder, part):
    environment = {**os.environ, "PGPORT": "5432", "PGUSER": "postgres", "PGDATABASE": "django", **where(cluster)}
    done = subprocess.run([sys.executable, PROGRAM, folder, part], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_site_of_django_runs_as_on_postgresql(server, postgresql, tmp_path):
    seen = []
    for name, cluster in (("ours", server), ("theirs", postgresql)):
        folder = tmp_path / name
        folder.mkdir()
        make(cluster, "django")
        seen.append([django(cluster, folder, part) for part in ("first", "later")])
    assert seen[0] == seen[1]


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    __table_args__ = {"comment": "who writes"}
    id: orm.Mapped[int] = orm.mapped_column(sa.Identity(start=5, increment=2), primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50), unique=True, comment="full 'name'")
    tags = orm.mapped_column(pg.ARRAY(sa.Text))
    extra = orm.mapped_column(pg.JSONB)
    mood = orm.mapped_column(sa.Enum("sad", "happy", name="mood"))
    books = orm.relationship("Book", back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str]
    price = orm.mapped_column(sa.Numeric(8, 2))
    author_id = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE", onupdate="CASCADE", deferrable=True, initially="DEFERRED"))
    author = orm.relationship(Author, back_populates="books")
    key = orm.mapped_column(sa.Uuid)
    known = orm.mapped_column(sa.Interval)
    printed = orm.mapped_column(sa.DateTime(timezone=True))
    raw = orm.mapped_column(sa.LargeBinary)
    double = orm.mapped_column(sa.Numeric, sa.Computed("price", persisted=True))
    __table_args__ = (
        sa.CheckConstraint("price IS NOT NULL", name="priced"), sa.Index("by_title", sa.text("lower(title)")),
        sa.Index("by_price", "price", postgresql_include=["title"]), sa.Index("pattern", "title", postgresql_ops={"title": "text_pattern_ops"}),
        sa.UniqueConstraint("title", "price", name="once"),
    )


INSPECTED = ("get_columns", "get_pk_constraint", "get_foreign_keys", "get_indexes", "get_unique_constraints", "get_check_constraints", "get_table_comment")


def use(engine):
    """What an application sees that makes tables, uses them, looks at them and drops them."""
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        author = Author(name="x", tags=["a", "b c"], extra={"k": [1, {"m": None}]}, mood="sad")
        at = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
        author.books = [Book(title="One", price=12, raw=b"\0", known=datetime.timedelta(days=1), printed=at, key=uuid.UUID(int=1)),
                        Book(title="Two", price=decimal.Decimal("3.5"))]
        session.add(author)
        session.commit()
        yield session.scalars(sa.select(Author).where(Author.tags.contains(["a"]))).one().id
        yield session.execute(sa.select(Author.extra["k"][0].as_integer(), Author.extra[("k", "1")], Author.tags[2])).all()
        yield [book.title for book in session.scalars(sa.select(Book).join(Author).order_by(Book.id).with_for_update(of=[Book, Author]))]
        upsert = pg.insert(Author).values(name="x")
        session.execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"mood": "happy"}))
        yield session.execute(sa.insert(Book).returning(Book.id, Book.double), [{"title": f"t{n}", "price": n + 1} for n in range(50)]).all()
        yield session.execute(sa.select(sa.func.rank().over(order_by=Book.price.desc()), Book.title).order_by(Book.price.desc(), Book.title).limit(3)).all()
        yield session.execute(sa.select(Author.mood, sa.func.array_agg(Book.title)).join(Book).group_by(Author.mood)).all()
        session.commit()
    inspector = sa.inspect(engine)
    yield inspector.get_table_names(), inspector.get_sequence_names(), inspector.get_schema_names(), inspector.get_enums()
    for table in ("author", "book"):
        for name in INSPECTED:
            # Expressions are shown as they were written: PostgreSQL adds casts.
            yield name, str(getattr(inspector, name)(table)).replace("::text", "")
    reflected = sa.MetaData()
    reflected.reflect(engine)
    yield {name: [(column.name, str(column.type), column.comment) for column in table.columns] for name, table in reflected.tables.items()}
    Base.metadata.drop_all(engine)
    yield sa.inspect(engine).get_table_names()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_an_application_of_sqlalchemy_runs_as_on_postgresql(server, postgresql, driver):
    seen = []
    for cluster in (server, postgresql):
        make(cluster, f"alchemy_{driver}")
        place = where(cluster)
        query = {"host": place["PGHOST"], "port": place.get("PGPORT", "5432")}
        engine = sa.create_engine(sa.URL.create(f"postgresql+{driver}", "postgres", database=f"alchemy_{driver}", query=query))
        seen.append(list(use(engine)))
        engine.dispose()
    assert seen[0] == seen[1]
