"""asyncpg, and SQLAlchemy over psycopg."""

import asyncio
import datetime
import decimal
import sys
import uuid

import asyncpg
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

PORT = int(sys.argv[1])


async def with_asyncpg():
    connection = await asyncpg.connect(host="127.0.0.1", port=PORT, user="postgres", database="postgres")
    await connection.execute(
        "CREATE TABLE of_asyncpg (id bigint PRIMARY KEY, name text, price numeric(8,2), day date, at timestamptz, key uuid, raw bytea, yes boolean)"
    )
    row = (1, "lämp", decimal.Decimal("19.90"), datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
           uuid.UUID(int=7), b"\x00\xff", True)
    insert = "INSERT INTO of_asyncpg VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
    await connection.execute(insert, *row)
    await connection.executemany(insert, [(number, *row[1:]) for number in range(2, 500)])
    assert tuple(await connection.fetchrow("SELECT * FROM of_asyncpg WHERE id = $1", 1)) == row
    # A cursor reads some rows at a time.
    async with connection.transaction():
        seen = [record["id"] async for record in connection.cursor("SELECT id FROM of_asyncpg ORDER BY id", prefetch=50)]
    assert seen == list(range(1, 500))
    try:
        async with connection.transaction():
            await connection.execute(insert, *(1000, *row[1:]))
            await connection.execute(insert, *row)
        raise AssertionError("a duplicate was taken")
    except asyncpg.UniqueViolationError as error:
        assert error.constraint_name == "of_asyncpg_pkey"
    assert await connection.fetchval("SELECT count(*) FROM of_asyncpg") == 499
    found = await connection.fetch("SELECT id FROM of_asyncpg WHERE id = ANY($1) ORDER BY id", [3, 2, 9999])
    assert [record["id"] for record in found] == [2, 3]
    await connection.execute("CREATE TYPE color AS ENUM ('red', 'green'); CREATE TABLE arrays (id int PRIMARY KEY, names text[], c color, cs color[])")
    row = (1, ["a", None, "b c"], "green", ["red", "green"])
    await connection.execute("INSERT INTO arrays VALUES ($1, $2, $3, $4)", *row)
    assert tuple(await connection.fetchrow("SELECT * FROM arrays")) == row
    inserted = await connection.fetch("INSERT INTO arrays (id) SELECT unnest FROM unnest($1::int[]) RETURNING id", [5, 6])
    assert [record["id"] for record in inserted] == [5, 6]
    await connection.close()


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(50), unique=True)
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(8, 2))
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def with_sqlalchemy():
    engine = sa.create_engine(f"postgresql+psycopg://postgres@127.0.0.1:{PORT}/postgres", use_native_hstore=False)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([
            Author(name="Lem", books=[Book(title="Solaris", price=9), Book(title="Fiasco", price=12)]),
            Author(name="Le Guin", books=[Book(title="The Dispossessed", price=11)]),
        ])
        session.commit()
        dear = sa.select(Author.name, sa.func.sum(Book.price)).join(Book).group_by(Author.name).order_by(Author.name)
        assert session.execute(dear).all() == [("Le Guin", decimal.Decimal("11.00")), ("Lem", decimal.Decimal("21.00"))]
        lem = session.scalars(sa.select(Author).where(Author.name == "Lem")).one()
        lem.books[0].price = decimal.Decimal("10.50")
        session.commit()
        session.add(Author(name="Lem"))
        try:
            session.commit()
            raise AssertionError("a duplicate was taken")
        except sa.exc.IntegrityError:
            session.rollback()
        assert session.scalar(sa.select(sa.func.max(Book.price)).where(Book.author == lem)) == 12
    assert {"author", "book"} <= set(sa.inspect(engine).get_table_names())


asyncio.run(with_asyncpg())
with_sqlalchemy()
print("python: ok")
