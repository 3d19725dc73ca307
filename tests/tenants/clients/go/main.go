// pgx, with its pool, batches and prepared statements.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres", os.Args[1]))
	must(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "CREATE TABLE of_pgx (id bigint PRIMARY KEY, name text, price double precision, at timestamptz, yes boolean)")
	must(err)

	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	batch := &pgx.Batch{}
	for id := range 200 {
		batch.Queue("INSERT INTO of_pgx VALUES ($1, $2, $3, $4, $5)", id, fmt.Sprintf("number %d", id), float64(id)/2, at, id%2 == 0)
	}
	must(pool.SendBatch(ctx, batch).Close())

	var name string
	var price float64
	var read time.Time
	must(pool.QueryRow(ctx, "SELECT name, price, at FROM of_pgx WHERE id = $1", 7).Scan(&name, &price, &read))
	if name != "number 7" || price != 3.5 || !read.Equal(at) {
		panic(fmt.Sprint(name, price, read))
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE of_pgx SET price = price + 1 WHERE yes"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO of_pgx (id) VALUES (7)")
		return err
	})
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "23505" {
		panic(fmt.Sprint("expected a unique violation, came ", err))
	}
	rows, err := pool.Query(ctx, "SELECT id FROM of_pgx WHERE price = $1 ORDER BY id", 50.0)
	must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	must(err)
	if len(ids) != 1 || ids[0] != 100 {
		panic(fmt.Sprint("the transaction was not rolled back: ", ids))
	}
	rows, err = pool.Query(ctx, "SELECT id FROM of_pgx WHERE id = ANY($1) ORDER BY id", []int64{9, 3, 9, 777})
	must(err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	must(err)
	if len(ids) != 2 || ids[0] != 3 || ids[1] != 9 {
		panic(fmt.Sprint("an array found ", ids))
	}
	var names []string
	must(pool.QueryRow(ctx, "SELECT array_agg(name ORDER BY id) FROM of_pgx WHERE name = ANY($1)", []string{"number 2", "number 1"}).Scan(&names))
	if len(names) != 2 || names[0] != "number 1" {
		panic(fmt.Sprint("an array came as ", names))
	}
	fmt.Println("go: ok")
}
