//! tokio-postgres and sqlx.

use sqlx::{Row, postgres::PgPoolOptions};
use tokio_postgres::{NoTls, error::SqlState};

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let port: u16 = std::env::args().nth(1).ok_or("which port?")?.parse()?;
    with_tokio_postgres(port).await?;
    with_sqlx(port).await?;
    println!("rust: ok");
    Ok(())
}

async fn with_tokio_postgres(port: u16) -> Result<(), Failure> {
    let address = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (mut client, connection) = tokio_postgres::connect(&address, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE of_tokio (id int PRIMARY KEY, name text, price float8)").await?;
    let insert = client.prepare("INSERT INTO of_tokio VALUES ($1, $2, $3)").await?;
    for id in 0..100_i32 {
        client.execute(&insert, &[&id, &format!("number {id}"), &(f64::from(id) / 2.0)]).await?;
    }
    let row = client.query_one("SELECT name, price FROM of_tokio WHERE id = $1", &[&7_i32]).await?;
    assert_eq!((row.get::<_, &str>(0), row.get::<_, f64>(1)), ("number 7", 3.5));
    // A portal gives some rows at a time.
    let transaction = client.transaction().await?;
    let portal = transaction.bind("SELECT id FROM of_tokio ORDER BY id", &[]).await?;
    let mut ids: Vec<i32> = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 30).await?;
        ids.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        if rows.len() < 30 {
            break;
        }
    }
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    let refused = transaction.execute(&insert, &[&7_i32, &"again", &0.0]).await.expect_err("a duplicate");
    assert_eq!(refused.code(), Some(&SqlState::UNIQUE_VIOLATION));
    transaction.rollback().await?;
    let found = client.query("SELECT id FROM of_tokio WHERE id = ANY($1) ORDER BY id", &[&vec![9_i32, 3, 777]]).await?;
    assert_eq!(found.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [3, 9]);
    // Statements that are sent without waiting for each other.
    let (a, b) = (client.query_one("SELECT count(*) FROM of_tokio", &[]), client.query_one("SELECT max(id) FROM of_tokio", &[]));
    assert_eq!((a.await?.get::<_, i64>(0), b.await?.get::<_, i32>(0)), (100, 99));
    Ok(())
}

async fn with_sqlx(port: u16) -> Result<(), Failure> {
    let pool = PgPoolOptions::new().max_connections(3).connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).await?;
    sqlx::query("CREATE TABLE of_sqlx (id bigserial PRIMARY KEY, name text NOT NULL)").execute(&pool).await?;
    let mut transaction = pool.begin().await?;
    for name in ["one", "two", "three"] {
        sqlx::query("INSERT INTO of_sqlx (name) VALUES ($1)").bind(name).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    let mut dropped = pool.begin().await?;
    sqlx::query("DELETE FROM of_sqlx").execute(&mut *dropped).await?;
    drop(dropped);
    let rows = sqlx::query("SELECT id, name FROM of_sqlx WHERE id > $1 ORDER BY id").bind(1_i64).fetch_all(&pool).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get("name")).collect();
    assert_eq!(names, ["two", "three"]);
    let wanted = vec!["one".to_owned(), "three".to_owned()];
    let found = sqlx::query("SELECT array_agg(id ORDER BY id) FROM of_sqlx WHERE name = ANY($1)").bind(wanted).fetch_one(&pool).await?;
    assert_eq!(found.get::<Vec<i64>, _>(0), [1, 3]);
    Ok(())
}
